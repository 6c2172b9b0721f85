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
from pathlib import Path
from typing import Any

from nearfar.data.files import read_file
from nearfar.data.hold_out import COLUMNS, DEV, TEST, HeldOut, Part
from nearfar.disk import path_errors, read_errors, read_json
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ComparisonResult
from nearfar.evaluation.tables.comparison import (
    BEFORE_AFTER,
    before_after_cells,
    before_after_sentence,
    held_out_notes,
    metric_of,
)
from nearfar.runs.folder import HELD_OUT as FOLDER
from nearfar.runs.folder import HELD_OUT_ROWS as ROWS
from nearfar.runs.folder import HELD_OUT_SUMMARY as SUMMARY
from nearfar.runs.folder import HELD_OUT_TRAINING as TRAINING
from nearfar.types import NearfarError

COMPARISON = "before-after.json"
TASK = "held-out"
"""The name of the task in results."""
DOCUMENTS = 2000
"""Most documents, or labelled training rows, among which dev rows are searched for during training; the table after
training has all of them."""
_FORMAT = 1


def held_out_files(held_out: HeldOut) -> dict[str, str]:
    """The files of held-out rows: name below the run folder -> text, the summary last."""
    parts: tuple[Part, Part] = (DEV, TEST)
    folds: list[tuple[str, ...]] = [(str(fold),) for fold in held_out.folds] or [()] * len(held_out.rows)
    rows = [(part, *fold, *row) for part, fold, row in zip(held_out.parts, folds, held_out.rows, strict=True)]
    summary: dict[str, Any] = {
        "format": _FORMAT,
        "kind": held_out.kind,
        "metric": held_out.metric,
        "columns": held_out.columns,
        "source": held_out.source,
        "seed": held_out.seed,
        "anchors": {part: held_out.anchors(part) for part in parts},
        "rows": {part: held_out.parts.count(part) for part in parts},
        "training_rows": held_out.training_rows,
        "candidates": len(held_out.training),
        "left_out": held_out.left_out,
        "folds": max(held_out.folds, default=0),
        "digest": held_out.digest,
    }
    files = {ROWS: _table(("part", *_fold_column(held_out.folds), *held_out.columns), rows)}
    if held_out.training:
        files[TRAINING] = _table(_training_columns(held_out.kind), held_out.training)
    summary["sha256"] = {file: _sha256(text.encode()) for file, text in files.items()}
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
        kind, columns = summary["kind"], tuple(summary["columns"])
        if columns not in (COLUMNS[kind], COLUMNS[kind][:2]):
            raise ValueError(f"the columns {', '.join(columns)}")
        fold = _fold_column(summary["folds"])
        rows = _read(folder / ROWS, ("part", *fold, *columns))
        held_out = HeldOut(
            kind=kind,
            columns=columns,
            rows=[row[1 + len(fold) :] for row in rows],
            parts=[{DEV: DEV, TEST: TEST}[row[0]] for row in rows],
            training=_read(folder / TRAINING, _training_columns(kind)) if summary["candidates"] else [],
            source=str(summary["source"]),
            seed=int(summary["seed"]),
            training_rows=int(summary["training_rows"]),
            left_out=int(summary["left_out"]),
            folds=tuple(int(row[1]) for row in rows if fold),
        )
        if len(held_out.training) != summary["candidates"]:
            raise ValueError(f"{TRAINING} does not have {summary['candidates']} rows")
        if held_out.digest != summary["digest"]:
            raise ValueError(f"{ROWS} does not have the digest of {SUMMARY}")
        for name, digest in summary.get("sha256", {}).items():
            with read_errors(folder / name):
                content = (folder / name).read_bytes()
            if _sha256(content) != digest:
                raise ValueError(f"{name} is not what was written")
    except KeyError as error:
        raise NearfarError(f"{folder / SUMMARY}: is damaged ({error} is missing or unknown). {again}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise NearfarError(f"{folder}: is damaged ({error}). {again}") from error
    except NearfarError as error:
        raise NearfarError(f"{error} {again}") from error
    return held_out


def _fold_column(folds: object) -> tuple[str, ...]:
    return ("fold",) if folds else ()


def _training_columns(kind: str) -> tuple[str, ...]:
    return COLUMNS["labelled"] if kind == "labelled" else ("text",)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in (columns, *rows))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(file: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return [values for _, values in read_file(file, columns, plain=True)]


def _tested(result: ComparisonResult) -> str:
    """The metric and the rows of a run's test."""
    row, folds = result.tasks[TASK], result.sides[0].folds
    which = f"rows, tested in {folds} folds" if folds else "held-out test rows"
    return f"{metric_of(row)} x 100 on {row.pairs:,} {which}"


def tested_in_words(result: ComparisonResult) -> str:
    """The test of a run's model in one sentence."""
    return f"{_tested(result)}: {before_after_sentence(result.tasks[TASK])}"


def before_after(result: ComparisonResult) -> Table:
    """The table that training ends with: scores on the held-out test rows before and after."""
    row = result.tasks[TASK]
    notes = held_out_notes(result, TASK)
    folds = result.sides[0].folds
    if row.kind == "retrieval" and not folds:
        notes.append(f"All documents are searched; during training at most {DOCUMENTS:,}, which gives higher scores.")
    if folds and row.verdict == "worse":
        notes.append("Keep the start, or hold out rows, which choose the step or the start itself: --hold-out 0.2.")
    return Table(title=_tested(result), columns=BEFORE_AFTER, rows=[before_after_cells(row)], notes=notes)
