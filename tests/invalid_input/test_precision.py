"""``--precision``: how auto resolves, what files record, what a resumed run keeps, and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.runs import STOPPED, STOPPED_FINETUNE
from tests.precision_mocks import machine

RESUMED = {"stopped": [*STOPPED, "--resume"], "tuning": [*STOPPED_FINETUNE, "--resume"]}
NO_NATIVE_BF16 = (
    "was started in bf16, which this machine does not compute natively. Resume it on a machine with native bfloat16"
)


def read(file: str) -> Any:
    return json.loads(Path(file).read_text(encoding="utf-8"))


def record(file: str, precision: str) -> None:
    """Change the recorded precision of an unfinished run."""
    content = read(file)
    holder = content if "precision" in content else content["settings"]
    assert holder["precision"] == "fp32"
    holder["precision"] = precision
    Path(file).unlink()
    Path(file).write_text(json.dumps(content), encoding="utf-8")


def run_ok(argv: list[str]) -> str:
    result = run_cli(argv)
    assert result.status == 0, result.err
    return result.err


@pytest.mark.long
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_keeps_its_precision(folder: str, runs: Path, monkeypatch: Any) -> None:
    argv = RESUMED[folder]
    assert_refused([*argv, "--precision", "bf16"], folder, "other settings (--precision)")
    machine(monkeypatch, native=True)
    run_ok(argv)
    assert read(f"{folder}/run.json")["config"]["precision"] == "fp32"


@pytest.mark.long
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_in_bf16_does_not_resume_where_it_is_emulated(folder: str, runs: Path, monkeypatch: Any) -> None:
    machine(monkeypatch, native=False)
    record(f"{folder}/inputs.json", "bf16")
    assert_refused(RESUMED[folder], f"{folder}: this run {NO_NATIVE_BF16}", "with --precision fp32")
    assert not Path(folder, "run.json").exists()
