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
from nearfar.training.callbacks import Display, MetricsFile, OpenTracker, Tracking, check_installed
from nearfar.types import NearfarError


def report(step: int, **terms: float) -> StepReport:
    return StepReport(step, step // 10, {"loss": 1.23456789, **terms}, 5e-4, 0.987654321, 123.456)


EVALUATION = Evaluation(0.512345678, {"alignment": 0.25, "mean_cosine": 0.123456789})


def shown(total: int, *, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=200, force_terminal=terminal, color_system=None, legacy_windows=False)
    with Display(console, total_steps=total) as display:
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


def test_printed_evaluations() -> None:
    lines = shown(3).splitlines()
    assert lines[0] == "step 0: Spearman 51.23 on the dev pairs  before training"
    assert lines[1] == "  alignment 0.25  mean cosine 0.12"
    assert lines[-2] == "step 3: Spearman 51.23 on the dev pairs  best so far"
    output = io.StringIO()
    assert not Display(Console(file=output, force_jupyter=True), total_steps=3).bar.disable
    Display(Console(file=output), total_steps=3).on_evaluate(2, Evaluation(-0.1, {}), best=False)
    assert output.getvalue() == "step 2: Spearman -10.00 on the dev pairs\n"


def test_the_bar_of_a_resumed_run_starts_at_its_step() -> None:
    display = Display(Console(file=io.StringIO()), total_steps=10, start=4)
    assert display.bar.tasks[0].completed == 4
    display.on_step(report(5))
    assert display.bar.tasks[0].completed == 5


def test_each_step_and_evaluation_is_one_line(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", resume_at=0)
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    metrics.on_evaluate(0, EVALUATION, best=False)
    metrics.on_step(report(1, ce=0.1))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "step": 0,
            "metric": "spearman",
            "spearman": 0.512345678,
            "best": False,
            "alignment": 0.25,
            "mean_cosine": 0.123457,
        },
        {
            "step": 1,
            "epoch": 0,
            "loss": 1.234568,
            "ce": 0.1,
            "learning_rate": 5e-4,
            "gradient_norm": 0.987654,
            "items_per_second": 123.5,
        },
    ]


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


def test_an_unwritable_path_is_named(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", resume_at=0)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(NearfarError, match=r"metrics.jsonl: cannot be written \(Is a directory\)"):
        metrics.on_step(report(1))


class Memory:
    """A recorder that keeps what it gets, and raises an error where ``fails`` is true of a step."""

    def __init__(self, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.entries: list[tuple[int, dict[str, float]]] = []
        self.settings: list[dict[str, Any]] = []
        self.starts = self.ends = 0
        self.fails = fails
        self.runs: list[str | None] = []

    def start(self) -> None:
        self.starts += 1

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.settings.append(values)

    def log(self, values: dict[str, float], step: int | None = None, **_: Any) -> None:
        assert step is not None
        if self.fails(step):
            raise OSError("No space left on device")
        self.entries.append((step, values))

    def finish(self) -> None:
        self.ends += 1

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.entries]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, Memory]:
    """A recorder for each tracker."""
    kept = {name: Memory() for name in callbacks.INSTALL}

    def opened(name: str, folder: Path, *, title: str, run: str | None) -> OpenTracker:
        folder.mkdir(exist_ok=True)
        kept[name].start()
        kept[name].runs.append(run)
        return OpenTracker(kept[name], run or f"{title} of {name}")

    monkeypatch.setattr(callbacks, "open_tracker", opened)
    return kept


def run(tracker: Tracking, steps: range, *, evaluate_every: int = 2, close: bool = True) -> None:
    if steps.start == 1:
        tracker.on_evaluate(0, Evaluation(0.1, {"alignment": 0.2}), best=False)
    for step in steps:
        tracker.on_step(StepReport(step, 0, {"loss": 1.0 / (step + 1), "ce": 2.0}, 1e-3, 0.5, 100.0))
        if step % evaluate_every == 0:
            tracker.on_evaluate(step, Evaluation(0.1 * step, {"alignment": 0.2}), best=True)
    if close:
        tracker.close()


SETTINGS = {"method": "scl", "seed": 1, "data": ("a.tsv", "b.tsv"), "limit": None, "fingerprints": True}


def test_an_entry_for_each_step_with_settings_once(memory: dict[str, Memory], tmp_path: Path) -> None:
    tracker = Tracking(("wandb", "wandb"), tmp_path, settings=SETTINGS, metric="mrr@10")
    run(tracker, range(1, 4))
    found = memory["wandb"]
    assert (found.starts, found.ends, memory["mlflow"].starts) == (1, 1, 0)
    assert found.steps == [0, 1, 2, 3]
    assert found.settings == [{"method": "scl", "seed": 1, "data": "a.tsv b.tsv", "fingerprints": True}]
    assert found.entries[0][1] == {"dev/mrr_10": 0.1, "dev/alignment": 0.2}
    step = {"train/loss": 1 / 3, "train/ce": 2.0, "train/learning_rate": 1e-3, "train/gradient_norm": 0.5}
    step |= {"train/items_per_second": 100.0, "train/epoch": 0.0}
    assert found.entries[2][1] == {**step, "dev/mrr_10": 0.2, "dev/alignment": 0.2}


@pytest.mark.parametrize("checkpoint", [0, 1, 3, 5])
def test_no_step_is_sent_twice(memory: dict[str, Memory], tmp_path: Path, checkpoint: int) -> None:
    """Killed after step 5, whose entry is still kept back; resumed after a checkpoint."""
    run(Tracking(("wandb", "mlflow"), tmp_path, settings=SETTINGS), range(1, 6), close=False)
    assert memory["wandb"].steps == [0, 1, 2, 3, 4]
    run(Tracking(("mlflow", "wandb"), tmp_path, settings=SETTINGS), range(checkpoint + 1, 9))
    for name in ("wandb", "mlflow"):
        expected = list(range(9)) if checkpoint < 5 else [0, 1, 2, 3, 4, 6, 7, 8]
        assert memory[name].steps == expected
        assert memory[name].runs == [None, f"{tmp_path.name} of {name}"]
        assert len(memory[name].settings) == 1


def test_a_tracker_that_fails_is_left_out_with_one_warning(memory: dict[str, Memory], tmp_path: Path) -> None:
    memory["wandb"].fails = lambda step: step >= 2
    tracker = Tracking(("wandb", "mlflow"), tmp_path, settings={})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(tracker, range(1, 6))
    assert [str(one.message) for one in caught] == [
        "--track wandb: stopped recording (No space left on device). Training goes on; metrics.jsonl has all values."
    ]
    assert memory["wandb"].steps == [0, 1]
    assert memory["mlflow"].steps == [0, 1, 2, 3, 4, 5]


def test_a_tracker_that_does_not_start_or_end_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> OpenTracker:
        raise RuntimeError("api_key not configured\n(no-tty)")

    monkeypatch.setattr(callbacks, "open_tracker", refuses)
    with pytest.warns(UserWarning, match=r"--track wandb: stopped recording \(api_key not configured \(no-tty\)\)"):
        tracker = Tracking(("wandb",), tmp_path, settings={})
    run(tracker, range(1, 3))

    recorder = Memory()
    recorder.finish = lambda: (_ for _ in ()).throw(ConnectionError())  # type: ignore[method-assign]
    monkeypatch.setattr(callbacks, "open_tracker", lambda *_, **__: OpenTracker(recorder, None))
    (tmp_path / "tracking").mkdir()
    tracker = Tracking(("mlflow",), tmp_path, settings={})
    with pytest.warns(UserWarning, match=r"--track mlflow: stopped recording \(ConnectionError\)"):
        tracker.close()
    tracker.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wandb": 3}', '{"wandb": {"step": "x", "run": null}}'])
def test_a_damaged_state_begins_a_new_record(text: str, memory: dict[str, Memory], tmp_path: Path) -> None:
    (tmp_path / "tracking").mkdir()
    (tmp_path / "tracking" / "state.json").write_text(text)
    run(Tracking(("wandb",), tmp_path, settings={}), range(1, 3))
    assert memory["wandb"].runs == [None]
    state = json.loads((tmp_path / "tracking" / "state.json").read_text())
    assert state == {"wandb": {"step": 2, "run": f"{tmp_path.name} of wandb"}}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_installed(())
    with pytest.raises(NearfarError) as error:
        check_installed(("tensorboard", "mlflow"))
    assert str(error.value) == (
        "--track tensorboard: needs the package tensorboard; install with: pip install 'nearfar[track]'"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=None))
    with pytest.raises(NearfarError, match="--track wandb: needs the package wandb; install with: pip install wandb"):
        check_installed(("wandb",))  # a folder that wandb left in the current directory is not the package
