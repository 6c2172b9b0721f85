"""Writes model cards: the README.md of a trained model, from the records of its run.

A card has metadata for the Hugging Face Hub, how to load the model, the data, settings and hardware of its training,
its scores, its licence, and the papers to cite; the template is ``model_card.md``. It names files without their
folders, and shows texts of the data only if asked to. A README.md without :data:`CARD_MARK` is the user's own, and is
never replaced.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from nearfar.commands.soup import SOUP_FILE, SoupResult
from nearfar.data.named_sets import CATALOG, SOURCES
from nearfar.disk import path_errors, read_errors, read_json, write_text
from nearfar.disk.model_folder import CARD_MARK
from nearfar.encoder.folder_checks import holds_classifier
from nearfar.encoder.prompts import describe_widths, read_widths
from nearfar.encoder.weights import CARD, locate
from nearfar.evaluation.render import Table, duration, fill_template, markdown_text, to_markdown
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.evaluation.tables.comparison import queries_in_words
from nearfar.evaluation.tables.evaluation import evaluation_tables
from nearfar.registry import find_entry
from nearfar.runs.folder import CONFIG, HELD_OUT, RUN_INFO, SECOND, read_run_info
from nearfar.runs.held_out import COMPARISON, before_after, has_held_out, load_held_out, tested_in_words
from nearfar.settings import read_toml
from nearfar.types import NearfarError

PATHS = ("data", "sentences", "task", "evaluate_on", "model", "teacher")
"""Settings that may name files or folders."""
_LICENCE_LINE = re.compile(r"^(license(?:_name|_link)?): *[\"']?([\w./:-][\w ./:-]*)", re.MULTILINE)
"""The keys of a card's metadata that say the licence."""
SHOWN_ROWS, SHOWN_LETTERS = 3, 200
"""With ``examples``: the number of rows, and the longest start of a text."""
LOCAL_SETTINGS = frozenset({*PATHS, "output", "device", "second", "checkpoint_every"})
"""Settings that a card does not list: paths, which have rows of their own, and settings without effect on the model."""


class RunRecords:
    """What the run whose model folder is ``model`` recorded about itself; of any other folder only what it holds.

    Raises:
        NearfarError: a record is damaged.
    """

    def __init__(self, model: Path) -> None:
        folder = model.parent
        is_run = model.name == "model" and (folder / RUN_INFO).is_file() and (folder / CONFIG).is_file()
        self.info: Mapping[str, Any] = read_run_info(folder) if is_run else {}
        """Its run.json; empty without a run."""
        self.config: Mapping[str, Any] = self.info.get("config", {})
        """Every setting of the run."""
        self.method = str(read_toml(folder / CONFIG).get("method")) if is_run else ""
        self.entry = find_entry(self.method)
        command = "" if self.entry is None else self.entry.command
        self.is_classifier = command == "finetune" if is_run else holds_classifier(model)
        comparison, test = folder / HELD_OUT / COMPARISON, folder / "result.json"
        self.held_out = ComparisonResult.load(comparison) if is_run and comparison.is_file() else None
        """The trained encoder against the one it started from, on held-out rows."""
        self.test = EvaluationResult.load(test) if is_run and self.is_classifier and test.is_file() else None
        """Scores of a fine-tuned classifier on its test rows."""
        has_second = self.config.get("second") or self.config.get("sentences")
        self.second = read_toml(folder / SECOND) if has_second else {}
        """Settings of its second objective, as second.toml has them; empty without one."""


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
def model_card(model: Path, *, name: str, results: Sequence[EvaluationResult] = (), examples: bool = False) -> str:
    """The card of a model folder, as Markdown with metadata.

    Args:
        model: the model folder; the records of its run are read from the folder above it, where there are any.
        name: the name on the hub, ``owner/name``; empty for a model that is only on this machine.
        results: evaluations of the model to include.
        examples: show three held-out rows, and the queries among them that gain and lose most with their hits. These
            are texts of the user's data.

    Raises:
        NearfarError: a record of the run is damaged; ``examples`` of a model without them.
    """
    run = RunRecords(model)
    if examples and not (run.info and has_held_out(model.parent)):
        raise NearfarError(f"--examples: {model} is not the model of a run that holds out rows; leave it out.")
    results = [*([run.test] if run.test else []), *results]
    shown = name or re.sub(r"[^\w.-]+", "-", model.name)  # the name of a folder may hold anything
    dim, licence = _dimensions(model), _licence(model, run)
    text = fill_template(
        Path(__file__).with_suffix(".md"),
        metadata=_metadata(run, name, results, licence),
        licence=licence.get("license_name", licence.get("license")),
        mark=CARD_MARK,
        title=name.partition("/")[2] or ("A text classifier" if run.is_classifier else "A sentence encoder"),
        name=shown,
        is_classifier=run.is_classifier,
        run=run if run.info else None,
        averaged=len(SoupResult.load(model / SOUP_FILE).used) if (model / SOUP_FILE).is_file() else None,
        dim=dim,
        widths=_widths(model, dim, shown),
        **(_training(run) if run.info else {}),
        scores=[
            to_markdown(replace(table, title=table.title.rpartition(": ")[2]), level=3)
            for table in _score_tables(run, results)
        ],
        test=tested_in_words(run.held_out) if run.held_out else None,
        rows=to_markdown(_held_out_rows(model.parent), level=3) if examples else None,
        queries=queries_in_words(run.held_out, trained=True) if examples and run.held_out else None,
        papers=run.entry.papers if run.entry is not None else (),
    )
    paths = [path for config in (run.config, run.second) for key in PATHS for path in _texts(config.get(key))]
    return _without_folders(text, [*paths, *(task for result in results for task in result.all_tasks)])


def _dimensions(model: Path) -> int | None:
    """The width of the embeddings, where the folder says it."""
    pooling = sorted(model.glob("*_Pooling/config.json"))
    if not pooling or list(model.glob("*_Dense")):
        return None
    settings = read_json(pooling[0])
    sizes = [settings.get(key) for key in ("embedding_dimension", "word_embedding_dimension")]
    return next((size for size in sizes if isinstance(size, int)), None)


def _widths(model: Path, dim: int | None, name: str) -> str:
    """A sentence on the widths that the model was trained at, after a space; empty if only at the full one."""
    file = model / "config_sentence_transformers.json"
    settings = read_json(file) if file.is_file() else {}
    widths = read_widths(settings, file) if isinstance(settings, dict) else ()
    return describe_widths(max(widths, default=0) if dim is None else dim, widths, name=name)


def _held_out_rows(run: Path) -> Table:
    """The first held-out rows of a run, their texts cut."""
    held_out = load_held_out(run)
    rows = [
        [text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}…" for text in map(str, row)]
        for row in held_out.rows[:SHOWN_ROWS]
    ]
    return Table(title="Rows of the data, held out", columns=held_out.columns, rows=rows, left=len(held_out.columns))


def _licence(model: Path, run: RunRecords) -> dict[str, str]:
    """What the card of the model that training started from says of its licence; else what this model's card says."""
    folders = [model]
    if run.info:
        with suppress(NearfarError):  # it is not on this machine
            folders.insert(0, locate(str(run.config.get("model")), download=False))
    for folder in folders:
        with suppress(OSError, ValueError):  # no card, or none that can be read
            metadata = re.match(r"---\n(.*?)\n---", (folder / CARD).read_text(encoding="utf-8"), re.DOTALL)
            known = dict(_LICENCE_LINE.findall(metadata[1])) if metadata else {}
            if "license" in known:
                return known
    return {}


def _metadata(run: RunRecords, name: str, results: Sequence[EvaluationResult], licence: Mapping[str, Any]) -> str:
    """The YAML that the hub reads: library, task, tags, licence, base model, data sets and scores, where known."""
    from huggingface_hub import EvalResult, ModelCardData

    library, task = "sentence-transformers", "sentence-similarity"
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "nearfar"]
    if run.is_classifier:
        library, task, tags = "transformers", "text-classification", ["text-classification", "nearfar"]
    scores = []
    for title, metric, score in _main_scores(run, results):
        of: dict[str, Any] = {"dataset_type": title, "dataset_name": title, "metric_type": metric}
        scores.append(EvalResult(task, **of, metric_name=f"{metric} x 100", metric_value=round(score, 2)))
    data = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        tags=tags,
        **licence,
        base_model=_hub_name(run.config.get("model")),
        datasets=_hub_data_sets(run) or None,
        model_name=(name.partition("/")[2] or "model") if scores else None,
        eval_results=scores or None,
    )
    return str(data.to_yaml()).strip()


def _hub_name(model: object) -> str | None:
    """``model`` if it is ``owner/name`` on the hub rather than a folder; None otherwise."""
    text = str(model or "")
    is_name = text.count("/") == 1 and not text.startswith(("/", ".", "~")) and not text.endswith("/")
    return text if is_name and not Path(text).exists() else None


def _hub_data_sets(run: RunRecords) -> list[str]:
    """The data sets on the hub that hold the same rows as the training data."""
    names = []
    for spec in (*_texts(run.config.get("data")), *_texts(run.config.get("sentences"))):
        first, _, rest = spec.partition(":")
        entry = CATALOG.get(first)
        if address := rest.partition(":")[0] if first == "hub" else entry and entry.hub:
            names.append("/".join(address.split("/")[:2]))
    return list(dict.fromkeys(names))


def _main_scores(run: RunRecords, results: Sequence[EvaluationResult]) -> Iterator[tuple[str, str, float]]:
    """Data, metric and score (x 100): held-out rows, similarity and transfer tasks."""
    for row in (run.held_out.tasks if run.held_out else {}).values():
        if row.first is not None:
            kind = "accuracy" if row.kind == "classification" else "spearman"
            yield "held-out rows", row.measure or kind, row.first
    for result in results:
        for task, scored in result.tasks.items():
            if scored.spearman.all.score is not None:
                yield task, "spearman", scored.spearman.all.score
        for task, probed in (result.transfer.tasks if result.transfer else {}).items():
            metric = "accuracy" if probed.metric("accuracy") else "pearson"
            estimate = probed.metric(metric)
            if estimate is not None and estimate.score is not None:
                yield task, metric, estimate.score


def _training(run: RunRecords) -> dict[str, Any]:
    """What the section on training shows: facts about the data, licences, time and hardware, changed settings."""
    info, config = run.info, run.config
    names = (spec.partition(":")[0] for key in ("data", "sentences", "task") for spec in _texts(config.get(key)))
    hardware, versions = info.get("hardware") or {}, info.get("versions") or {}
    machine = [hardware.get("processor"), hardware.get("instruction_sets"), hardware.get("accelerator")]
    best = info.get("best_step") if config.get("keep") == "best" else None
    took = duration(info["seconds"]) if isinstance(info.get("seconds"), int | float) else "an unknown time"
    kept = "the last" if best is None else f"step {best}" if best else "those before training, as no step was better"
    facts = [
        f"Batch size: {config.get('batch_size')}; epochs: {config.get('epochs')}; steps: {info.get('step')}; kept "
        f"weights: {kept}; training took {took}, without evaluation.",
        f"Hardware: {', '.join(str(part) for part in machine if part)}; "
        f"{hardware.get('cores')} cores, {info.get('processes', 1)} process(es); precision {info.get('precision')}.",
        f"Versions: {', '.join(f'{key} {value}' for key, value in versions.items())}.",
    ]
    if info.get("dev") and info.get("best_score") is not None:
        start = f"{100 * info['start_score']:.2f} before training, " if info.get("start_score") is not None else ""
        chose = " It chose the weights, so it is no test." if config.get("keep") == "best" else ""
        facts.append(
            f"{info.get('metric')} x 100 on {info['dev']}: {start}{100 * info['best_score']:.2f} at the best step."
            f"{chose}"
        )
    return {
        "data": [fact for fact in map(str, info.get("data") or ()) if " --" not in fact],
        "licences": {name: SOURCES[name].licence for name in names if name in SOURCES},
        "facts": facts,
        "settings": {key: ", ".join(_texts(value)) or value for key, value in _changed_settings(run).items()},
    }


def _changed_settings(run: RunRecords) -> dict[str, Any]:
    """The settings that differ from the method's defaults; of a method that is not installed, all that are set."""
    shown = {key: run.config[key] for key in run.config if key not in LOCAL_SETTINGS}
    if run.entry is None:
        return {key: value for key, value in shown.items() if value}
    defaults = {one.name: one.default for one in fields(run.entry.config) if one.default is not MISSING}
    return {key: value for key, value in shown.items() if value != json.loads(json.dumps(defaults.get(key)))}


def _score_tables(run: RunRecords, results: Sequence[EvaluationResult]) -> list[Table]:
    """The tables of scores: held-out rows, then evaluations."""
    tables = [table for result in results for table in evaluation_tables(result)]
    if run.held_out is None:
        return tables
    first = before_after(run.held_out)
    return [replace(first, notes=[*first.notes, "before: the model that training started from."]), *tables]


def _texts(value: Any) -> list[str]:
    """A setting as a list of texts: of several values or one; none for None."""
    return [str(one) for one in value] if isinstance(value, list | tuple) else [] if value is None else [str(value)]


def _without_folders(text: str, paths: Sequence[str]) -> str:
    """``text`` with each path in it replaced by its last part: a card tells nothing about the machine's folders."""
    for path in sorted(paths, key=len, reverse=True):
        if "/" in path and _hub_name(path) is None and not path.startswith("hub:"):
            text = text.replace(path, Path(path).name)
            text = text.replace(markdown_text(path), markdown_text(Path(path).name))
    return text
