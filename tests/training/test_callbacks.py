"""Progress display, metrics.jsonl, which survives a kill, and the tracking callback with recorders in memory."""

import importlib.util
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from nearfar.training import Evaluation, StepReport, callbacks
from nearfar.training.callbacks import Display, MetricsFile, Tracking, check_installed
from nearfar.types import NearfarError


def report(step: int, **terms: float) -> StepReport:
    return StepReport(step, step // 10, {"loss": 1.23456789, **terms}, 5e-4, 0.987654321, 123.456)


EVALUATION = Evaluation(0.512345678, {"alignment": 0.25, "mean_cosine": 0.123456789})


def shown(total: int, *, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=200, force_terminal=terminal, color_system=None, legacy_windows=False)
    display = Display(console, total_steps=total, start=0, metric="spearman", evaluated_on="the dev pairs")
    with display.bar:
        display.on_evaluate(0, EVALUATION, best=False)
        for step in range(1, total + 1):
            display.on_step(report(step, **{"mlm.loss": 3.0}))
        display.on_evaluate(total, EVALUATION, best=True)
    return output.getvalue()


@pytest.mark.parametrize(("total", "lines"), [(3, 3), (20, 20), (100, 20), (1007, 20)])
def test_about_twenty_lines_without_a_terminal(total: int, lines: int) -> None:
    steps = [line for line in shown(total).splitlines() if "items/s" in line]
    assert len(steps) == lines
    every = max(1, total // 20)
    assert steps[0] == f"step {every} of {total}: loss 1.235  mlm.loss 3.000  lr 5.0e-04  123 items/s"


def test_each_step_and_evaluation_is_one_line(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", resume_at=0)
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    metrics.on_evaluate(0, EVALUATION, best=False)
    metrics.on_step(report(1, ce=0.1))
    evaluated, trained = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    scores = {"metric": "spearman", "spearman": 0.512345678, "alignment": 0.25, "mean_cosine": 0.123457}
    assert evaluated == {"step": 0, "best": False, **scores}
    speed = {"learning_rate": 5e-4, "gradient_norm": 0.987654, "items_per_second": 123.5}
    assert trained == {"step": 1, "epoch": 0, "loss": 1.234568, "ce": 0.1, **speed}


def test_lines_after_the_checkpoint_and_incomplete_lines_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(file, resume_at=0)
    metrics.on_evaluate(0, EVALUATION, best=False)
    for step in (1, 2, 3, 4):
        metrics.on_step(report(step))
    metrics.on_evaluate(4, EVALUATION, best=True)
    lines = file.read_text().splitlines()
    for rest in ('{"step": 5, "epo', '{"step": 5, "epoch": 0, "loss": 1'):
        file.write_text("\n".join([*lines, rest]))
        MetricsFile(file, resume_at=2)
        assert file.read_text().splitlines() == lines[:3]
    MetricsFile(file, resume_at=2).on_step(report(3))
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [0, 1, 2, 3]


class Memory:
    """A recorder that keeps what it gets, and raises an error where ``fails`` is true of a step."""

    def __init__(self, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.entries: dict[int, dict[str, float]] = {}
        self.sent: list[tuple[int, str]] = []
        self.settings: list[dict[str, Any]] = []
        self.ends = 0
        self.fails = fails
        self.runs: list[str | None] = []

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.settings.append(values)

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fails(step):
            raise OSError("No space left on device")
        self.sent.append((step, next(iter(values)).partition("/")[0]))
        self.entries[step] = {**self.entries.get(step, {}), **values}

    def finish(self) -> None:
        self.ends += 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, Memory]:
    """A recorder for each tracker."""
    kept = {name: Memory() for name in callbacks.INSTALL}

    def opened(name: str, folder: Path, *, title: str, run: str | None) -> tuple[Memory, str]:
        folder.mkdir(exist_ok=True)
        kept[name].runs.append(run)
        return kept[name], run or f"{title} of {name}"

    monkeypatch.setattr(callbacks, "open_tracker", opened)
    return kept


SETTINGS = {"method": "scl", "seed": 1, "data": ("a.tsv", "b.tsv"), "limit": None, "fingerprints": True}


def run(names: tuple[Any, ...], folder: Path, steps: range, *, metric: str = "spearman", close: bool = True) -> None:
    """Steps that are sent and written, of which every second one is evaluated; as a run does that starts or resumes."""
    tracking = Tracking(names, folder, settings=SETTINGS, metric=metric)
    recording = [tracking, MetricsFile(folder / "metrics.jsonl", resume_at=steps.start - 1)]
    for step in [0, *steps] if steps.start == 1 else steps:
        for one in recording if step else ():
            one.on_step(StepReport(step, 0, {"loss": 1.0 / (step + 1), "ce": 2.0}, 1e-3, 0.5, 100.0))
        for one in recording if step % 2 == 0 else ():
            one.on_evaluate(step, Evaluation(0.1 * step, {"alignment": 0.2}), best=True)
    if close:
        tracking.close()


def test_steps_evaluations_and_settings_are_sent(memory: dict[str, Memory], tmp_path: Path) -> None:
    run(("wandb", "wandb"), tmp_path, range(1, 4), metric="mrr@10")
    found = memory["wandb"]
    assert (found.runs, found.ends, memory["mlflow"].runs) == ([None], 1, [])
    assert found.sent == [(0, "dev"), (1, "train"), (2, "train"), (2, "dev"), (3, "train")]
    assert found.settings == [{"method": "scl", "seed": 1, "data": "a.tsv b.tsv", "fingerprints": True}]
    assert found.entries[0] == {"dev/mrr_10": 0.0, "dev/alignment": 0.2}
    step = {"train/loss": 1 / 3, "train/ce": 2.0, "train/learning_rate": 1e-3, "train/gradient_norm": 0.5}
    step |= {"train/items_per_second": 100.0, "train/epoch": 0.0}
    assert found.entries[2] == {**step, "dev/mrr_10": 0.2, "dev/alignment": 0.2}


@pytest.mark.parametrize("checkpoint", [0, 1, 3, 5])
def test_no_step_is_sent_twice(memory: dict[str, Memory], tmp_path: Path, checkpoint: int) -> None:
    """Killed after step 5, resumed after a checkpoint; a tracker that is new then gets what follows it."""
    run(("wandb", "mlflow"), tmp_path, range(1, 6), close=False)
    run(("mlflow", "wandb", "tensorboard"), tmp_path, range(checkpoint + 1, 9))
    every = [
        (step, kind) for step in range(9) for kind in ("train", "dev") if (step if kind == "train" else step % 2 == 0)
    ]
    for name in ("wandb", "mlflow"):
        assert memory[name].sent == every
        assert memory[name].runs == [None, f"{tmp_path.name} of {name}"]
        assert len(memory[name].settings) == 1
    assert memory["tensorboard"].sent == [entry for entry in every if entry[0] > checkpoint or not checkpoint]


def test_a_tracker_that_fails_is_left_out_with_one_warning(memory: dict[str, Memory], tmp_path: Path) -> None:
    memory["wandb"].fails = lambda step: step >= 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(("wandb", "mlflow"), tmp_path, range(1, 6))
    assert [str(one.message) for one in caught] == [
        "--track wandb: stopped recording (No space left on device). Training goes on; metrics.jsonl has all values."
    ]
    assert [sorted(memory[name].entries) for name in ("wandb", "mlflow")] == [[0, 1], [0, 1, 2, 3, 4, 5]]


def test_a_damaged_state_begins_a_new_record(memory: dict[str, Memory], tmp_path: Path) -> None:
    (tmp_path / "tracking").mkdir()
    (tmp_path / "tracking" / "state.json").write_text('{"wandb": 3}')
    run(("wandb",), tmp_path, range(1, 3))
    assert memory["wandb"].runs == [None]
    assert json.loads((tmp_path / "tracking" / "state.json").read_text()) == {"wandb": f"{tmp_path.name} of wandb"}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_installed(())
    with pytest.raises(NearfarError) as error:
        check_installed(("tensorboard", "mlflow"))
    assert str(error.value).endswith("needs the package tensorboard; install with: pip install 'nearfar[track]'")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=None))
    with pytest.raises(NearfarError, match="--track wandb: needs the package wandb; install with: pip install wandb"):
        check_installed(("wandb",))  # a folder that wandb left in the current directory is not the package
