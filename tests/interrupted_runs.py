"""Training runs that end at a chosen step, as by a power cut, and what runs leave in their folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nearfar.training.callbacks import MetricsFile


def interrupt_at_step(
    step: int,
    monkeypatch: pytest.MonkeyPatch,
    run_command: Callable[[], object],
    error: type[BaseException] = KeyboardInterrupt,
) -> None:
    """Run a command and kill it, like a power cut, before the results of a step are saved."""
    write = MetricsFile.on_step

    def kill(self: MetricsFile, report: Any) -> None:
        write(self, report)
        if report.step == step:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step", kill)
        with pytest.raises(error):
            run_command()


def lines_of(run: str | Path) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl, without the speed; none before the run has begun."""
    file = Path(run) / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [{key: value for key, value in json.loads(line).items() if key != "items_per_second"} for line in lines]


def steps_of(run: str | Path) -> list[dict[str, Any]]:
    """Those of its lines that are of steps, not of evaluations."""
    return [line for line in lines_of(run) if "loss" in line]


def weights_of(run: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of all files of the model, by file and name."""
    return {
        f"{file.relative_to(run)} {name}": tensor
        for file in Path(run, "model").rglob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def assert_same_run(one: str | Path, other: str | Path) -> None:
    """Assert bit-identical metrics, except for speed, and saved weights."""
    assert lines_of(one) == lines_of(other)
    ours, theirs = weights_of(one), weights_of(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
