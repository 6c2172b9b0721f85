"""``--track`` with a real tracker: its records are those of metrics.jsonl, and the weights do not change."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.commands.train import train
from tests.interrupted_runs import lines_of
from tests.method_configs import config

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore", "error:--track"),  # the trackers' own imports warn
]


def test_tensorboard(folder: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plain = config("info-nce", folder, output=str(tmp_path / "plain"), epochs=3)
    for run in (plain, replace(plain, output=str(tmp_path / "run"), track=("tensorboard",))):
        assert train(run).steps == 9
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("plain", "run")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    logged = tmp_path / "run" / "tracking" / "tensorboard"
    events = EventAccumulator(str(logged), size_guidance={"scalars": 0})
    events.Reload()
    for part, name, count in (("train", "loss", 9), ("train", "learning_rate", 9), ("dev", "spearman", 4)):
        recorded = [(one.step, one.value) for one in events.Scalars(f"{part}/{name}")]
        lines = [line for line in lines_of(tmp_path / "run") if name in line]
        assert recorded == [(line["step"], pytest.approx(line[name], rel=1e-4, abs=1e-6)) for line in lines]
        assert len(recorded) == count
    (settings,) = logged.glob("*/hparams.yml")
    assert "method: info-nce" in settings.read_text()
