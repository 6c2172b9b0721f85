"""The tracking callback with recorders in memory: entries, resuming, errors of a tracker, missing packages."""

import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearfar.training import callbacks
from nearfar.training.callbacks import OpenTracker, Tracking, check_installed
from nearfar.training.trainer import Evaluation, StepReport
from nearfar.types import NearfarError


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


def report(step: int, **terms: float) -> StepReport:
    return StepReport(step, 0, {"loss": 1.0 / (step + 1), **terms}, 1e-3, 0.5, 100.0)


def run(tracker: Tracking, steps: range, *, evaluate_every: int = 2, close: bool = True) -> None:
    if steps.start == 1:
        tracker.on_evaluate(0, Evaluation(0.1, {"alignment": 0.2}), best=False)
    for step in steps:
        tracker.on_step(report(step, ce=2.0))
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


def test_without_a_dev_set_only_the_geometry_is_recorded(memory: dict[str, Memory], tmp_path: Path) -> None:
    tracker = Tracking(("wandb",), tmp_path, settings={}, metric="")
    tracker.on_evaluate(0, Evaluation(None, {"uniformity": -1.0}), best=False)
    tracker.close()
    assert memory["wandb"].entries == [(0, {"dev/uniformity": -1.0})]


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


def test_a_kill_between_state_and_record_loses_a_step_but_doubles_none(
    memory: dict[str, Memory], tmp_path: Path
) -> None:
    def killed(step: int) -> bool:
        if step == 2:
            raise KeyboardInterrupt
        return False

    memory["wandb"].fails = killed
    with pytest.raises(KeyboardInterrupt):
        run(Tracking(("wandb",), tmp_path, settings={}), range(1, 5))
    memory["wandb"].fails = lambda _: False
    run(Tracking(("wandb",), tmp_path, settings={}), range(1, 5))
    assert memory["wandb"].steps == [0, 1, 3, 4]


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
