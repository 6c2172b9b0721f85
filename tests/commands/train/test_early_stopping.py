"""``--patience`` of every kind of run: when it ends, what it says, which weights it keeps, and where it is an error."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from nearfar import FinetuneConfig, finetune, train
from nearfar.commands.finetune import ClassifierRun
from nearfar.commands.train.inputs import load_inputs, resolve_sets
from nearfar.commands.train.run import EncoderRun
from nearfar.runs.run import Run
from nearfar.training import Evaluation
from nearfar.types import NearfarError
from tests.interrupted_runs import weights_of
from tests.method_configs import config
from tests.tiny import save_tiny, write_colours

pytestmark = pytest.mark.long
SCORES = (0.1, 0.5, 0.4, 0.5, 0.6)
"""Dev scores after each step; the best one would be the last."""


def scored(run: Run) -> Evaluation:
    return Evaluation(SCORES[run.progress.step], {})


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_ends_when_patience_does(
    keep: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncoderRun, "evaluate", scored)
    shown = io.StringIO()
    settings = config("scl", folder, output=str(tmp_path / "run"), keep=keep, evaluate_every=1, max_steps=4, patience=2)
    trained = train(settings, console=Console(file=shown, width=200))
    assert (trained.steps, trained.best_step, trained.best_score) == (3, 1, 0.5)
    kept = "the best weights" if keep == "best" else "those weights, not the best ones (--keep last)"
    assert f"stops after 2 evaluations (of 4) in a row without a new best score, and keeps {kept}" in shown.getvalue()
    assert "stopped early, after step 3 of 4 (--patience)" in shown.getvalue()
    other = replace(settings, output=str(tmp_path / "other"), keep="last" if keep == "best" else "best")
    train(other)
    ours, theirs = weights_of(settings.output), weights_of(other.output)
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours if "seen" not in name)


def test_a_run_that_patience_cannot_end_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderRun, "evaluate", scored)
    shown = io.StringIO()
    settings = config("scl", folder, output=str(tmp_path), evaluate_every=2, max_steps=4, patience=2)
    train(settings, console=Console(file=shown, width=200))
    assert "--patience 2 cannot stop this run early: it has 2 evaluations (--evaluate-every)" in shown.getvalue()
    assert "stopped early" not in shown.getvalue()


def test_a_classifier_is_trained_until_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassifierRun, "evaluate", scored)
    rows, model, shown = write_colours(tmp_path / "rows.tsv"), save_tiny(tmp_path / "tiny"), io.StringIO()
    given: dict[str, Any] = {"validation_rows": 20, "batch_size": 8, "max_steps": 4, "evaluate_every": 1, "patience": 1}
    settings = FinetuneConfig(task=str(rows), model=str(model), output=str(tmp_path / "run"), **given)
    assert finetune(settings, console=Console(file=shown, width=200)).steps == 2
    assert "stopped early, after step 2 of 4 (--patience)" in shown.getvalue()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["best_step"] == 1


@pytest.mark.parametrize(
    ("method", "changes", "why"),
    [
        ("scl", {"hold_out": 0}, "of --hold-out 0"),
        ("simcse-unsup", {}, "plain sentences have no positives, labels or scores"),
        ("sg-opt1", {"patience": 3}, "plain sentences have no positives, labels or scores"),
        ("scl", {}, "all rows are trained on"),
        ("supcon-text", {}, "all rows are trained on"),
    ],
)
def test_without_a_score_it_is_an_error(method: str, changes: dict[str, Any], why: str, folder: Path) -> None:
    """Rows that are held out, or a dev set, give one; the default of a method is not what the user asked for."""
    given = {"evaluate_on": None, "patience": 2, **changes}
    settings = config(method, folder, **given)
    match = rf"--patience \d: no score says when to stop, because {why}\. Name a dev set by --evaluate-on, hold"
    with pytest.raises(NearfarError, match=match):
        load_inputs(resolve_sets(settings), in_folds=True)
    default = replace(settings, patience=type(settings).patience)
    _, dev = load_inputs(resolve_sets(default), in_folds=True)
    assert dev.metric is None


def test_held_out_rows_of_a_small_file_say_when_to_stop(folder: Path) -> None:
    settings = config("scl", folder, evaluate_on=None, hold_out=0.3, patience=2)
    _, dev = load_inputs(resolve_sets(settings), in_folds=True)
    assert dev.metric == "mrr@10"
