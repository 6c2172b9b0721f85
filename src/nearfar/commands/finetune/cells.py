"""The file of a study's finished runs, ``cells.jsonl``: one line of scores for each run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.disk import read_text
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.finetune.command import FinetuneResult
    from nearfar.commands.finetune.plan import PlannedRun
    from nearfar.data.classification import ClassificationTask

METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman")
PRIMARY_METRIC = {"matthews": "matthews"}
"""Metric of a task -> the metric that comes first, if it is not the first of :data:`METRICS` that exists."""
VALIDATION = ("dev_matthews", "dev_accuracy", "dev_pearson")
"""Keys of the validation score of the kept weights; an entry has one of them."""


def summarise_run(one: "PlannedRun", found: "FinetuneResult", task: "ClassificationTask") -> dict[str, Any]:
    """The line of one finished run; scores are x 100."""
    entry = found.result["transfer"]["tasks"][task.name]
    order = sorted(METRICS, key=lambda metric: metric != PRIMARY_METRIC.get(task.metric))
    test = {metric: entry[metric]["score"] or 0.0 for metric in order if metric in entry}
    return {
        "setting": one.setting,
        "variant": one.variant,
        "sample": one.sample,
        "validation": next(entry[key] for key in VALIDATION if entry.get(key) is not None),
        "test": test,
        "best_step": found.best_step,
        "steps": found.steps,
        "seconds": round(found.seconds, 3),
        "updates_per_second": round(found.steps / found.seconds, 4),
        "digest": entry["digest"],
        "commit": found.result["provenance"]["commit"],
    }


def read_cells(file: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The finished runs of a study, by their key. An incomplete last line is ignored.

    Raises:
        NearfarError: the file cannot be read, or a line other than the last is damaged.
    """
    done: dict[tuple[str, str, int], dict[str, Any]] = {}
    lines = read_text(file).split("\n") if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            cell = json.loads(line)
        except (ValueError, RecursionError):
            cell = None
        if _is_cell(cell):
            done[cell["setting"], cell["variant"], cell["sample"]] = cell
        elif number < len(lines):
            raise NearfarError(
                f"{file}, line {number}: is damaged: it is not a run of a study. Remove the line to repeat the run."
            )
    return done


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not all(isinstance(cell.get(key), str) for key in ("setting", "variant")):
        return False
    test = cell.get("test")
    if type(cell.get("sample")) is not int or not isinstance(test, dict) or not test:
        return False
    numbers = [cell.get("validation"), cell.get("updates_per_second"), *test.values()]
    return all(type(number) in (int, float) and abs(number) < 1e12 for number in numbers)
