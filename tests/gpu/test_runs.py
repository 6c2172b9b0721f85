"""Whole runs on a GPU: steps equal the CPU's, and a killed and resumed run ends bit-identical."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nearfar import TrainConfig
from nearfar.commands.train import train
from tests.gpu.devices import on_each_device
from tests.interrupted_runs import interrupt_at_step
from tests.method_configs import config

pytestmark = pytest.mark.long

RESUMED = ("scl", "simcse-unsup", "sg-opt", "info-nce", "regression")


def run_outputs(settings: TrainConfig) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    run = Path(settings.output)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("items_per_second", None)
    return lines, load_file(run / "model" / "model.safetensors")


@on_each_device("method", small=("scl",), whole=("scl", "simcse-sup", "sg-opt", "supcon-text"))
def test_a_run_equals_the_one_on_the_cpu(device: str, method: str, folder: Path, tmp_path: Path) -> None:
    """Gradients, clipping, AdamW's groups and the schedule: without dropout, steps differ only by rounding."""
    shared = {"model": str(folder / "tiny"), "epochs": 3, "max_steps": 6, "keep": "last", "precision": "fp32"}
    shared |= {"learning_rate": 3e-4, "head_learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}
    expected = config(method, folder, output=str(tmp_path / "cpu"), device="cpu", **shared)
    train(expected)
    run = replace(expected, output=str(tmp_path / "run"), device=device, micro_batch=3)
    train(run)
    lines, weights = run_outputs(run)
    right_lines, right_weights = run_outputs(expected)
    assert len(lines) == len(right_lines) > 6
    for line, right in zip(lines, right_lines, strict=True):
        assert line.keys() == right.keys()
        for name in right.keys() & {"loss", "gradient_norm", "learning_rate", "spearman"}:
            assert line[name] == pytest.approx(right[name], rel=5e-3, abs=1e-6), name
    for name, right in right_weights.items():
        if not name.endswith("key.bias"):  # its gradient is only rounding, which AdamW scales up like any other
            assert float((weights[name] - right).abs().max()) <= 2e-4, name


@pytest.mark.usefixtures("deterministic")
@on_each_device(
    "method, precision",
    small=[("simcse-unsup", "fp32")],
    whole=[(method, precision) for method in RESUMED for precision in ("fp32", "bf16")],
)
def test_a_resumed_run_ends_bit_identical(
    device: str, method: str, precision: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, killed two steps after a checkpoint; another seed gives other weights."""
    shared = {"epochs": 3, "max_steps": 7, "keep": "last", "device": device, "precision": precision}
    full = config(method, folder, output=str(tmp_path / "whole"), **shared)
    interrupted = replace(full, output=str(tmp_path / "parted"))
    train(full)
    interrupt_at_step(5, monkeypatch, lambda: train(interrupted))
    assert json.loads((tmp_path / "parted" / "checkpoint" / "progress.json").read_text())["step"] == 3
    assert train(interrupted, resume=True).steps == 7
    lines, weights = run_outputs(full)
    resumed_lines, resumed = run_outputs(interrupted)
    assert resumed_lines == lines
    assert resumed.keys() == weights.keys()
    for name, expected in weights.items():
        assert torch.equal(resumed[name], expected), name
    other = replace(full, output=str(tmp_path / "other"), seed=2)
    train(other)
    assert not all(torch.equal(found, weights[name]) for name, found in run_outputs(other)[1].items())
