"""Writes model cards: the README.md of a trained model, from the records of its run.

A card has metadata for the Hugging Face Hub (:mod:`nearfar.commands.push.metadata`), how to load the model, the data,
settings and hardware of its training, its scores, and the papers to cite. It names files without their folders. A
README.md without :data:`CARD_MARK` is the user's own, and is never replaced.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from nearfar.commands.push.metadata import hub_name, metadata
from nearfar.commands.push.run_records import RunRecords, read_run_records
from nearfar.commands.soup.command import SOUP_FILE, SoupResult
from nearfar.commands.train.after import before_after
from nearfar.data.public_sources import SOURCES
from nearfar.disk import CARD_MARK, path_errors, read_errors, read_json, write_text
from nearfar.encoder.widths import describe_widths, read_widths
from nearfar.evaluation.render import code_span, markdown_text
from nearfar.evaluation.results import EvaluationResult
from nearfar.evaluation.tables.evaluation import evaluation_grids
from nearfar.evaluation.tables.grid import Grid, markdown_table
from nearfar.methods.citations import citations
from nearfar.registry import find_entry

CARD = "README.md"
PATHS = ("data", "sentences", "task", "evaluate_on", "model", "teacher")
"""Settings that may name files or folders."""
LOCAL_SETTINGS = frozenset({*PATHS, "output", "device", "second", "checkpoint_every"})
"""Settings that a card does not list: paths, which have rows of their own, and settings without effect on the model."""


@path_errors()
def write_card(run: Path) -> None:
    """Write the card of a finished run into its model folder, unless a README.md of the user's is there.

    Raises:
        NearfarError: a record of the run is damaged, or the card cannot be written.
    """
    file = run / "model" / CARD
    if is_own_card(file):
        write_text(file, model_card(run / "model", name=""))


def is_own_card(file: Path) -> bool:
    """Whether nearfar wrote this README.md, or there is none."""
    with read_errors(file):
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else CARD_MARK
    return CARD_MARK in text


@path_errors()
def model_card(model: Path, *, name: str, results: Sequence[EvaluationResult] = ()) -> str:
    """The card of a model folder, as Markdown with metadata.

    Args:
        model: the model folder; the records of its run are read from the folder above it, where there are any.
        name: the name on the hub, ``owner/name``; empty for a model that is only on this machine.
        results: evaluations of the model to include.

    Raises:
        NearfarError: a record of the run is damaged.
    """
    run = read_run_records(model)
    is_classifier = run.is_classifier if run else not _is_sentence_transformer(model)
    shown = name or re.sub(r"[^\w.-]+", "-", model.name)  # the name of a folder may hold anything
    sections = [
        f"---\n{metadata(run, name, results, is_classifier=is_classifier)}\n---",
        CARD_MARK,
        f"# {name.partition('/')[2] or ('A text classifier' if is_classifier else 'A sentence encoder')}",
        _summary(model, run, is_classifier=is_classifier) + _widths(model, shown),
        _usage(shown, is_classifier=is_classifier),
    ]
    if run is not None:
        sections += _training(run)
    scores = _scores(run, results)
    if scores:
        sections += ["## Evaluation", *map(_table, scores)]
    papers = citations(run.method) if run else []
    if papers:
        sections += ["## Citation", *(f"```bibtex\n{paper}\n```" for paper in papers)]
    card = "\n\n".join(section.strip() for section in sections if section.strip()) + "\n"
    return _without_folders(card, _paths(run, results))


def _is_sentence_transformer(model: Path) -> bool:
    if (model / "modules.json").is_file():
        return True
    config = read_json(model / "config.json") if (model / "config.json").is_file() else {}
    names = config.get("architectures") if isinstance(config, dict) else None
    return not any("SequenceClassification" in str(name) for name in names or [])


def _summary(model: Path, run: RunRecords | None, *, is_classifier: bool) -> str:
    kind = "A [transformers](https://huggingface.co/docs/transformers) classifier of texts"
    if not is_classifier:
        kind = f"A [sentence-transformers](https://sbert.net) model that maps texts to vectors{_dimensions(model)}"
    if run is None and (model / SOUP_FILE).is_file():
        used = len(SoupResult.load(model / SOUP_FILE).used)
        return f"{kind}. nearfar averaged the weights of {used} trained models (`nearfar soup`)."
    if run is None:
        return f"{kind}, saved by nearfar."
    base = run.config.get("model")
    return f"{kind}. nearfar trained it by the method {code_span(run.method)}, from {code_span(str(base))}."


def _dimensions(model: Path) -> str:
    dim = _dim(model)
    return "" if dim is None else f" of {dim} dimensions"


def _dim(model: Path) -> int | None:
    """The width of the embeddings, where the folder says it."""
    pooling = sorted(model.glob("*_Pooling/config.json"))
    settings = read_json(pooling[0]) if pooling else {}
    found = [settings.get(key) for key in ("embedding_dimension", "word_embedding_dimension")]
    size = next((value for value in found if isinstance(value, int)), None)
    return None if list(model.glob("*_Dense")) else size


def _widths(model: Path, name: str) -> str:
    """A sentence on the widths that the model was trained at, after a space; empty if only at the full one."""
    file = model / "config_sentence_transformers.json"
    settings = read_json(file) if file.is_file() else {}
    widths = read_widths(settings, file) if isinstance(settings, dict) else ()
    return describe_widths(max(widths, default=0) if (dim := _dim(model)) is None else dim, widths, name=name)


def _usage(name: str, *, is_classifier: bool) -> str:
    if is_classifier:
        code = f"""from transformers import pipeline

classify = pipeline("text-classification", model="{name}")
print(classify(["A man plays a guitar.", "Someone makes music."]))"""
    else:
        code = f"""from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
embeddings = model.encode(["A man plays a guitar.", "Someone makes music."])
print(model.similarity(embeddings, embeddings))"""
    return f"## Usage\n\n```python\n{code}\n```"


def _training(run: RunRecords) -> list[str]:
    """Sections on data, settings, time and hardware."""
    info, config = run.info, run.config
    data = [f"- {markdown_text(str(fact))}" for fact in info.get("data") or () if " --" not in fact]
    licences = dict.fromkeys(
        f"- Licence of {code_span(name)}: {source.licence}."
        for name in (spec.partition(":")[0] for spec in _data_specs(config))
        if (source := SOURCES.get(name)) is not None
    )
    changed = [
        f"| {code_span(key)} | {markdown_text(_format(value))} |" for key, value in _changed_settings(run).items()
    ]
    table = ["| setting | value |", "| --- | --- |", *changed]
    hardware, versions = info.get("hardware") or {}, info.get("versions") or {}
    machine = [hardware.get("processor"), hardware.get("instruction_sets"), hardware.get("accelerator")]
    facts = [
        f"- Steps: {info.get('step')}; kept weights: "
        + (f"step {info['best_step']}" if config.get("keep") == "best" and info.get("best_step") else "the last")
        + f"; training took {_duration(info.get('seconds'))}, without evaluation.",
        f"- Hardware: {', '.join(str(part) for part in machine if part)}; "
        f"{hardware.get('cores')} cores, {info.get('processes', 1)} process(es); precision {info.get('precision')}.",
        f"- Versions: {', '.join(f'{key} {value}' for key, value in versions.items())}.",
    ]
    if info.get("dev") and info.get("best_score") is not None:
        start = f"{100 * info['start_score']:.2f} before training, " if info.get("start_score") is not None else ""
        chose = " It chose the weights, so it is no test." if config.get("keep") == "best" else ""
        facts.append(
            f"- {info.get('metric')} x 100 on {info['dev']}: {start}"
            f"{100 * info['best_score']:.2f} at the best step.{chose}"
        )
    shown = "\n".join([*data, *licences])
    facts = [f"- {markdown_text(fact.removeprefix('- '))}" for fact in facts]
    settings = ["Settings other than the defaults:", "\n".join(table)] if changed else []
    return ["## Training", f"Data:\n\n{shown}", "\n".join(facts), *settings]


def _changed_settings(run: RunRecords) -> dict[str, Any]:
    """The settings that differ from the method's defaults."""
    entry = find_entry(run.method)
    if entry is None:  # a method of a package that is not installed: all settings that are set
        return {key: value for key, value in run.config.items() if value and key not in LOCAL_SETTINGS}
    defaults = {one.name: one.default for one in fields(entry.load_config()) if one.default is not MISSING}
    return {
        key: value
        for key, value in run.config.items()
        if key not in LOCAL_SETTINGS and _comparable(value) != _comparable(defaults.get(key))
    }


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _scores(run: RunRecords | None, results: Sequence[EvaluationResult]) -> list[Grid]:
    """The tables of scores: held-out rows, test rows of a classifier, then the evaluations that were given."""
    grids = []
    if run is not None and run.held_out is not None:
        grid = before_after(run.held_out, str(run.info.get("metric")))
        grids.append(grid._replace(notes=[*grid.notes, "before: the model that training started from."]))
    own = [run.test] if run is not None and run.test is not None else []
    return grids + [grid for result in [*own, *results] for grid in evaluation_grids(result)]


def _table(grid: Grid) -> str:
    """A grid below a heading of its own; its title without the name of the model."""
    notes = "\n\n".join(map(markdown_text, grid.notes))
    return "\n\n".join([f"### {markdown_text(grid.title.rpartition(': ')[2])}", "\n".join(markdown_table(grid)), notes])


def _data_specs(config: Mapping[str, Any]) -> list[str]:
    """What a run was trained on, as it was given: files, names of data sets, the task of a classifier."""
    return [str(one) for key in ("data", "sentences", "task") for one in _as_list(config.get(key))]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _paths(run: RunRecords | None, results: Sequence[EvaluationResult]) -> list[str]:
    """Texts in a card that may be paths: settings of the run, and tasks that are files."""
    configs = [run.config, run.second] if run else []
    found = [str(path) for config in configs for key in PATHS for path in _as_list(config.get(key))]
    for result in [*([run.test] if run and run.test else []), *results]:
        found += [*result.tasks, *(result.transfer.tasks if result.transfer else ()), *(result.retrieval or ())]
    return found


def _without_folders(text: str, paths: Sequence[str]) -> str:
    """``text`` with each path in it replaced by its last part: a card tells nothing about the machine's folders."""
    for path in sorted(paths, key=len, reverse=True):
        if "/" in path and hub_name(path) is None and not path.startswith("hub:"):
            text = text.replace(path, Path(path).name)
            text = text.replace(markdown_text(path), markdown_text(Path(path).name))
    return text


def _format(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
