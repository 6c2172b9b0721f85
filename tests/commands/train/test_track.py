"""``--track`` with the real trackers: records are read back after a kill and a resumed run; weights do not change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearfar.commands.train import train
from nearfar.config.training import RunConfig
from tests.interrupted_runs import interrupt_at_step, lines_of
from tests.method_configs import config

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore", "error:--track"),  # the trackers' own imports warn
]
STEPS = 9
KILLED_AT = 5


@pytest.fixture(scope="module")
def plain(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A finished run without trackers: 9 steps, evaluated every 4, a checkpoint every 3."""
    settings = config("info-nce", folder, output=str(tmp_path_factory.mktemp("plain") / "run"), epochs=3)
    assert train(settings).steps == STEPS
    return settings


def weights(run: RunConfig) -> bytes:
    return (Path(run.output) / "model" / "model.safetensors").read_bytes()


def killed_and_resumed(settings: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill before the results of step 5 are recorded, and resume after the checkpoint of step 3."""
    interrupt_at_step(KILLED_AT, monkeypatch, lambda: train(settings))
    assert train(settings, resume=True).steps == STEPS


def assert_recorded(run: RunConfig, series: Callable[[str], list[tuple[int, float]]]) -> None:
    """Each step was recorded once, with the values of metrics.jsonl."""
    steps = [line for line in lines_of(run.output) if "loss" in line]
    for name in ("loss", "accuracy", "learning_rate", "gradient_norm"):
        expected = [(line["step"], pytest.approx(line[name], rel=1e-4, abs=1e-6)) for line in steps]
        assert series(f"train/{name}") == expected, name
    assert len(steps) == STEPS
    evaluations = [line for line in lines_of(run.output) if "spearman" in line]
    assert [line["step"] for line in evaluations] == [0, 4, 8, 9]
    for name in ("spearman", "alignment", "uniformity", "mean_cosine", "effective_rank"):
        expected = [(line["step"], pytest.approx(line[name], rel=1e-4, abs=1e-6)) for line in evaluations]
        assert series(f"dev/{name}") == expected, name


def events_of(run: RunConfig) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(Path(run.output) / "tracking" / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return events


def test_tensorboard(folder: Path, tmp_path: Path, plain: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(plain, output=str(tmp_path / "run"), track=("tensorboard",))
    killed_and_resumed(run, monkeypatch)
    events = events_of(run)
    assert_recorded(run, lambda name: [(one.step, one.value) for one in events.Scalars(name)])
    assert weights(run) == weights(plain)
    (settings,) = (tmp_path / "run" / "tracking" / "tensorboard").glob("*/hparams.yml")  # not again by the resumed run
    assert "learning_rate: 0.001" in settings.read_text()
    assert "method: info-nce" in settings.read_text()
