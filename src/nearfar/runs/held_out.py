"""The rows that a run holds out, in its folder: ``held_out/``.

- ``held_out.json``: kind, counts, seed, source and digest, written last;
- ``rows.tsv``: the held-out rows, with the column ``part`` (dev or test) and the columns of their kind, and for
  rows that are tested in folds the number of the fold after ``part``;
- ``training.tsv``: the training rows among which they are searched for: positives (``text``), or labelled texts;
- ``before-after.json``: the comparison on the test part after training (:mod:`nearfar.commands.train.after`).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from nearfar.data.files import read_file
from nearfar.data.hold_out import COLUMNS, DEV, SEED, TEST, HeldOut, Part
from nearfar.disk import read_json, sha256_of
from nearfar.disk.checks import path_errors
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ComparisonResult
from nearfar.evaluation.results.record import Record
from nearfar.evaluation.tables import comparison as tables
from nearfar.runs.folder import HELD_OUT as FOLDER
from nearfar.runs.folder import HELD_OUT_SUMMARY as SUMMARY
from nearfar.runs.folder import RUN_INFO, read_run_info
from nearfar.types import NearfarError

ROWS, TRAINING, COMPARISON = "rows.tsv", "training.tsv", "before-after.json"
TASK = "held-out"
"""The name of the task in results."""
DOCUMENTS = 2000
"""Most documents, or labelled training rows, among which dev rows are searched for during training; the table after
training has all of them."""
PARTS: tuple[Part, Part] = (DEV, TEST)
GUARD = "guard.json"
"""In the run folder: the comparison with the start on the guard sets; if the start was kept, of the last average that
was refused."""


class Tried(Record):
    """An average of the trained weights and the start's, as ``run.json`` has it."""

    start_share: float
    """The share of the start; 0 for the weights that training kept, 1 for the start itself."""
    score: float | None
    """Its dev score, in [-1, 1]; None where nothing is scored."""
    differences: dict[str, float] = field(default_factory=dict)
    """Guard set -> its score minus the start's, in points."""
    kept: bool = False


def held_out_files(held_out: HeldOut) -> dict[str, str]:
    """The files of held-out rows: name below the run folder -> text, the summary last."""
    folds: list[tuple[str, ...]] = [(str(fold),) for fold in held_out.folds] or [()] * len(held_out.rows)
    rows = [(part, *fold, *row) for part, fold, row in zip(held_out.parts, folds, held_out.rows, strict=True)]
    files = {ROWS: _table(("part", *["fold"] * bool(held_out.folds), *held_out.columns), rows)}
    if held_out.training:
        files[TRAINING] = _table(_training_columns(held_out.kind), held_out.training)
    summary = {
        "format": 1,
        "kind": held_out.kind,
        "metric": held_out.metric,
        "columns": held_out.columns,
        "source": held_out.source,
        "seed": SEED,
        "anchors": {part: held_out.anchors(part) for part in PARTS},
        "rows": {part: held_out.parts.count(part) for part in PARTS},
        "training_rows": held_out.training_rows,
        "candidates": len(held_out.training),
        "left_out": held_out.left_out,
        "folds": max(held_out.folds, default=0),
        "digest": held_out.digest,
        "sha256": {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()},
    }
    files[SUMMARY] = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    return {f"{FOLDER}/{name}": text for name, text in files.items()}


def has_held_out(run: str | Path) -> bool:
    """Whether a folder is a run that holds out rows."""
    return (Path(run) / FOLDER / SUMMARY).is_file()


@path_errors()
def load_held_out(run: str | Path) -> HeldOut:
    """The rows that a run holds out.

    Raises:
        NearfarError: it holds out none, or a file is missing or damaged.
    """
    folder = Path(run) / FOLDER
    again = f"Restore the folder {folder}, or train again."
    if not (folder / SUMMARY).is_file():
        raise NearfarError(
            f"{run}: is not a run that holds out rows (no {FOLDER}/{SUMMARY}). nearfar train holds out rows unless "
            "--evaluate-on or --hold-out 0 is given."
        )
    summary = read_json(folder / SUMMARY, otherwise=again)
    try:
        for name, digest in summary["sha256"].items():
            if sha256_of(folder / name) != digest:
                raise NearfarError(f"{folder / name}: is damaged: it is not what was written. {again}")
        kind, fold = summary["kind"], ["fold"] * bool(summary["folds"])
        columns = COLUMNS[kind][: len(summary["columns"])]
        rows = _read(folder / ROWS, ("part", *fold, *columns))
        return HeldOut(
            kind=kind,
            rows=[row[1 + len(fold) :] for row in rows],
            parts=[PARTS[PARTS.index(row[0])] for row in rows],
            training=_read(folder / TRAINING, _training_columns(kind)) if summary["candidates"] else [],
            source=str(summary["source"]),
            training_rows=int(summary["training_rows"]),
            left_out=int(summary["left_out"]),
            folds=tuple(int(row[1]) for row in rows if fold),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearfarError(f"{folder / SUMMARY}: is damaged ({error!r}). {again}") from error


def _training_columns(kind: str) -> tuple[str, ...]:
    return COLUMNS["labelled"] if kind == "labelled" else ("text",)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in (columns, *rows))


def _read(file: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return [values for _, values in read_file(file, columns, plain=True)]


def tested_in_words(result: ComparisonResult) -> str:
    """The test of a run's model in one sentence."""
    return f"{before_after(result).title}: {tables.before_after_sentence(result.tasks[TASK])}"


def before_after(result: ComparisonResult) -> Table:
    """The table that training ends with: scores on the held-out test rows before and after."""
    row = result.tasks[TASK]
    notes, folds = tables.held_out_notes(result, TASK), result.sides[0].folds
    which = f"rows, tested in {folds} folds" if folds else "held-out test rows"
    if row.kind == "retrieval" and not folds:
        notes.append(f"All documents are searched; during training at most {DOCUMENTS:,}, which gives higher scores.")
    if folds and row.verdict == "worse":
        notes.append("Keep the start, or hold out rows, which choose the step or the start itself: --hold-out 0.2.")
    title = f"{tables.metric_of(row)} x 100 on {row.pairs:,} {which}"
    return Table(title=title, columns=tables.BEFORE_AFTER, rows=[tables.before_after_cells(row)], notes=notes)


def load_guard(run: Path) -> tuple[ComparisonResult | None, tuple[Tried, ...]]:
    """The comparison of a finished run on its guard sets, and the averages that were tried; None and () without any.

    Raises:
        NearfarError: a file is missing or damaged.
    """
    tried = tuple(Tried.from_dict(one, source=run / RUN_INFO) for one in read_run_info(run).get("guard") or ())
    return ComparisonResult.load(run / GUARD) if tried else None, tried


def guard_table(result: ComparisonResult, tried: Sequence[Tried]) -> Table:
    """The scores on the guard sets before and after training, and which average with the start was kept."""
    last, margin = tried[-1], f"{result.config.margin:g} points"
    notes = [
        f"{_average(one)} is refused: {', '.join(f'{task} {points:+.2f}' for task, points in one.differences.items())}."
        for one in tried
        if not one.kept
    ]
    kept = f"Kept: {_average(last)}, no more than {margin} worse than the start on each set."
    refused = f"No average is better on the dev rows, if any, and {margin} worse at most: the model is the start."
    rows = [[task, *tables.before_after_cells(row)] for task, row in result.tasks.items()]
    columns = ("guard set", *tables.BEFORE_AFTER)
    title = "Scores x 100 on the guard sets" + ("" if last.kept else ", of weights that were refused")
    return Table(title=title, columns=columns, rows=rows, notes=[*notes, kept if last.kept else refused])


def _average(one: Tried) -> str:
    """An average of the weights that training kept with the start's, in words."""
    return f"the average with {one.start_share:.0%} of the start" if one.start_share else "the trained model"
