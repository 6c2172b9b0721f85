"""--device: every command reports a missing device before it reads anything."""

from pathlib import Path

import pytest
import torch

from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.tables import paired

UNAVAILABLE = ("cuda", "cuda:7", "mps", "xpu", "cpu:3", "nonsense")
COMMANDS = (
    "train scl --model nowhere --output run --data nowhere.tsv --evaluate-on nowhere.tsv",
    "predict nowhere --input nowhere.txt --output out.tsv",
    "encode nowhere --input nowhere.txt --output out.npy --workers 2",
    "evaluate nowhere --tasks nowhere.tsv",
    "geometry nowhere --output shape --pairs nowhere.tsv",
    "back-translate --input nowhere.txt --output out.tsv",
)


@pytest.fixture(autouse=True)
def cpu_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without accelerators; the working directory is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)


@pytest.mark.parametrize(("command", "device"), paired(COMMANDS, UNAVAILABLE))
def test_a_missing_device(command: str, device: str, tmp_path: Path) -> None:
    assert_refused([*command.split(), "--device", device], f"--device {device!r}: this machine has cpu.")
    assert list(tmp_path.iterdir()) == []
