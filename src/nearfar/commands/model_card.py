"""Writes model cards: the README.md of a trained model, from the records of its run.

A card has metadata for the Hugging Face Hub, how to load the model, the data, settings and hardware of its training,
its scores, its licence, and the papers to cite; the template is ``model_card.md``. It names files without their
folders, and shows texts of the data only if asked to. A README.md without :data:`CARD_MARK` is the user's own, and is
never replaced.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from nearfar.commands.soup import SOUP_FILE
from nearfar.data.named_sets import CATALOG, SOURCES
from nearfar.disk import read_errors, write_text
from nearfar.disk.checks import path_errors
from nearfar.disk.model_folder import CARD_MARK
from nearfar.encoder.folder_checks import holds_classifier
from nearfar.encoder.weights import CARD, locate
from nearfar.evaluation.render import Table, duration, fill_template, markdown_text, to_markdown
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.evaluation.tables.comparison import queries_in_words
from nearfar.evaluation.tables.evaluation import evaluation_tables
from nearfar.registry import find_entry
from nearfar.runs.folder import CONFIG, HELD_OUT, RUN_INFO, read_run_info
from nearfar.runs.held_out import (
    COMPARISON,
    before_after,
    guard_table,
    has_held_out,
    load_guard,
    load_held_out,
    tested_in_words,
)
from nearfar.settings import read_toml
from nearfar.types import NearfarError

PATHS = ("data", "task", "evaluate_on", "guard", "model", "teacher", "document_vectors")
"""Settings that may name files or folders."""
_LICENCE_LINE = re.compile(r"^(license(?:_name|_link)?): *[\"']?([\w./:-][\w ./:-]*)", re.MULTILINE)
"""The keys of a card's metadata that say the licence."""
SHOWN_ROWS, SHOWN_LETTERS = 3, 200
"""With ``examples``: the number of rows, and the longest start of a text."""
LOCAL_SETTINGS = frozenset({*PATHS, "output", "device", "sets", "checkpoint_every"})
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
        self.is_classifier = holds_classifier(model)
        comparison, test = folder / HELD_OUT / COMPARISON, folder / "result.json"
        self.held_out = ComparisonResult.load(comparison) if is_run and comparison.is_file() else None
        """The trained encoder against the one it started from, on held-out rows."""
        self.test = EvaluationResult.load(test) if is_run and self.is_classifier and test.is_file() else None
        """Scores of a fine-tuned classifier on its test rows."""
        self.guard, self.tried = load_guard(folder) if is_run else (None, ())
        """The encoder against its start on the guard sets, and the averages of both that were tried."""
        self.sets: Sequence[Mapping[str, Any]] = [self.config, *(self.config.get("sets") or ())]
        """The settings of each set of rows; of the first one, those of the run."""


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
    licence, info, config = _licence(model, run), run.info, run.config
    specs = [spec.partition(":")[0] for spec in [*_data(run), *_texts(config.get("task"))]]
    tables = [table for result in results for table in evaluation_tables(result)]
    if run.held_out is not None:
        first = before_after(run.held_out)
        tables.insert(0, replace(first, notes=[*first.notes, "before: the model that training started from."]))
    if run.guard is not None:
        tables.append(guard_table(run.guard, run.tried))
    text = fill_template(
        Path(__file__).with_suffix(".md"),
        metadata=_metadata(run, licence),
        licence=licence.get("license_name", licence.get("license")),
        mark=CARD_MARK,
        title=name.partition("/")[2] or ("A text classifier" if run.is_classifier else "A sentence encoder"),
        name=shown,
        is_classifier=run.is_classifier,
        run=run if info else None,
        averaged=(model / SOUP_FILE).is_file(),
        data=[fact for fact in map(str, info.get("data") or ()) if " --" not in fact],
        licences={spec: SOURCES[spec].licence for spec in specs if spec in SOURCES},
        took=duration(info.get("seconds") or 0),
        settings={key: ", ".join(_texts(value)) or value for key, value in _changed_settings(run).items()},
        scores=[to_markdown(replace(table, title=table.title.rpartition(": ")[2]), level=3) for table in tables],
        test=tested_in_words(run.held_out) if run.held_out else None,
        rows=to_markdown(_held_out_rows(model.parent), level=3) if examples else None,
        queries=queries_in_words(run.held_out, trained=True) if examples and run.held_out else None,
        papers=run.entry.papers if run.entry is not None else (),
    )
    paths = [path for settings in run.sets for key in PATHS for path in _texts(settings.get(key))]
    return _without_folders(text, [*paths, *(task for result in results for task in result.all_tasks)])


def _held_out_rows(run: Path) -> Table:
    """The first held-out rows of a run, their texts cut."""
    held_out = load_held_out(run)
    rows = [[str(text)[:SHOWN_LETTERS] for text in row] for row in held_out.rows[:SHOWN_ROWS]]
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


def _metadata(run: RunRecords, licence: Mapping[str, Any]) -> str:
    """The YAML that the hub reads: library, task, tags, licence, base model and data sets, where known."""
    from huggingface_hub import ModelCardData

    library, task = "sentence-transformers", "sentence-similarity"
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "nearfar"]
    if run.is_classifier:
        library, task, tags = "transformers", "text-classification", ["text-classification", "nearfar"]
    data = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        tags=tags,
        **licence,
        base_model=_hub_name(run.config.get("model")),
        datasets=_hub_data_sets(run) or None,
    )
    return str(data.to_yaml()).strip()


def _hub_name(model: object) -> str | None:
    """``model`` if it is ``owner/name`` on the hub rather than a folder; None otherwise."""
    text = str(model or "")
    is_name = text.count("/") == 1 and not text.startswith(("/", ".", "~")) and not text.endswith("/")
    return text if is_name and not Path(text).exists() else None


def _data(run: RunRecords) -> list[str]:
    """The data of all sets of rows."""
    return [spec for settings in run.sets for spec in _texts(settings.get("data"))]


def _hub_data_sets(run: RunRecords) -> list[str]:
    """The data sets on the hub that hold the same rows as the training data."""
    names = []
    for first, _, rest in (spec.partition(":") for spec in _data(run)):
        if address := rest.partition(":")[0] if first == "hub" else first in CATALOG and CATALOG[first].hub:
            names.append("/".join(address.split("/")[:2]))
    return list(dict.fromkeys(names))


def _changed_settings(run: RunRecords) -> dict[str, Any]:
    """The settings that differ from the method's defaults; of a method that is not installed, all that are set."""
    shown = {key: run.config[key] for key in run.config if key not in LOCAL_SETTINGS}
    known = () if run.entry is None else fields(run.entry.config)
    defaults = {one.name: one.default for one in known if one.default is not MISSING}
    return {key: value for key, value in shown.items() if value != json.loads(json.dumps(defaults.get(key)))}


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
