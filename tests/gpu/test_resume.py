"""A run on a GPU that is killed and resumed ends with the bits of one that was not, by deterministic algorithms."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nearfar.config import TrainConfig
from nearfar.train import train
from nearfar.training.display import MetricsFile
from tests.every_method import config
from tests.gpu.devices import on_each_device

METHODS = ("scl", "simcse-unsup", "sg-opt", "info-nce", "regression")


def killed(settings: TrainConfig, *, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until something fails behind a step; what comes after its checkpoint is lost."""
    write = MetricsFile.stepped

    def fail(self: MetricsFile, report: Any) -> None:
        write(self, report)
        if report.step == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "stepped", fail)
        with pytest.raises(KeyboardInterrupt):
            train(settings)


def what_is_left(settings: TrainConfig) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    run = Path(settings.output)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("items_per_second", None)
    return lines, load_file(run / "model" / "model.safetensors")


@pytest.mark.usefixtures("deterministic")
@on_each_device(
    "method, precision",
    small=[("simcse-unsup", "fp32")],
    whole=[(method, precision) for method in METHODS for precision in ("fp32", "bf16")],
)
def test_resumed_it_ends_bit_identical(
    device: str, method: str, precision: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, killed two steps behind a checkpoint; and another seed has other weights."""
    given = {"epochs": 3, "max_steps": 7, "keep": "last", "device": device, "precision": precision}
    whole = config(method, folder, output=str(tmp_path / "whole"), **given)
    parted, other = replace(whole, output=str(tmp_path / "parted")), replace(whole, output=str(tmp_path / "o"), seed=2)
    train(whole)
    killed(parted, after=5, monkeypatch=monkeypatch)
    assert json.loads((tmp_path / "parted" / "checkpoint" / "progress.json").read_text())["step"] == 3
    assert train(parted, resume=True).steps == 7
    lines, weights = what_is_left(whole)
    resumed_lines, resumed = what_is_left(parted)
    assert resumed_lines == lines
    assert resumed.keys() == weights.keys()
    for name, expected in weights.items():
        assert torch.equal(resumed[name], expected), name
    train(other)
    assert not all(torch.equal(found, weights[name]) for name, found in what_is_left(other)[1].items())
