"""Reads what a finished run recorded about itself, for its model card."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.config.files import read_toml
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.registry import find_entry
from nearfar.runs.held_out import COMPARISON
from nearfar.runs.records import CONFIG, HELD_OUT, RUN_INFO, SECOND, read_run_info


@dataclass(frozen=True)
class RunRecords:
    """The records of a finished run."""

    method: str
    info: Mapping[str, Any]
    """Its run.json."""
    held_out: ComparisonResult | None
    """The trained encoder against the one it started from, on held-out rows."""
    test: EvaluationResult | None
    """Scores of a fine-tuned classifier on its test rows."""
    is_classifier: bool
    second: Mapping[str, Any]
    """Settings of its second objective, as second.toml has them; empty without one."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Every setting of the run."""
        found: Mapping[str, Any] = self.info["config"]
        return found


def read_run_records(model: Path) -> RunRecords | None:
    """The records of the run whose model folder is ``model``; None for any other folder.

    Raises:
        NearfarError: a record is damaged.
    """
    folder = model.parent
    if model.name != "model" or not (folder / RUN_INFO).is_file() or not (folder / CONFIG).is_file():
        return None
    method = read_toml(folder / CONFIG).get("method")
    entry = find_entry(method) if isinstance(method, str) else None
    is_classifier = entry is not None and entry.command == "finetune"
    comparison, test, second = folder / HELD_OUT / COMPARISON, folder / "result.json", folder / SECOND
    info = read_run_info(folder)
    return RunRecords(
        method=str(method),
        info=info,
        held_out=ComparisonResult.load(comparison) if comparison.is_file() else None,
        test=EvaluationResult.load(test) if is_classifier and test.is_file() else None,
        is_classifier=is_classifier,
        second=read_toml(second) if info["config"].get("second") or info["config"].get("sentences") else {},
    )
