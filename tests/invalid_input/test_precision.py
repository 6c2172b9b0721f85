"""``--precision``: how auto resolves, what files record, what a resumed run keeps, and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nearfar.encoder.encoder import Encoder
from nearfar.training import gradients
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN
from tests.precision_mocks import machine

EVALUATE = "evaluate tiny --tasks pairs.tsv --resamples 0 --output e.json --overwrite".split()
ENCODE = "encode tiny --input texts.txt --output v.npy --overwrite".split()
VERBS = {
    "train": [*TRAIN, "--output", "new"],
    "finetune": [*FINETUNE, "--output", "new"],
    "evaluate": EVALUATE,
    "encode": ENCODE,
    "predict": "predict classifier --input texts.txt --output l.tsv --overwrite".split(),
}
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


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[bool]:
    """Whether steps and encoders have computed in bfloat16."""
    found = set()
    initialise, encode = gradients.Gradients.__init__, Encoder.forward

    def starting(self: Any, *args: Any, bf16: bool = False, **settings: Any) -> None:
        found.add(bf16)
        initialise(self, *args, bf16=bf16, **settings)

    def encoding(self: Encoder, *args: Any, **settings: Any) -> Any:
        found.add(torch.is_autocast_enabled("cpu"))
        return encode(self, *args, **settings)

    monkeypatch.setattr(gradients.Gradients, "__init__", starting)
    monkeypatch.setattr(Encoder, "forward", encoding)
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("verb", "flags", "native", "expected"),
    [
        ("train", [], True, "bf16"),
        ("finetune", [], True, "bf16"),
        ("evaluate", [], True, "fp32"),
        ("evaluate", ["--precision", "bf16"], True, "bf16"),
    ],
)
def test_the_precision_is_recorded(
    verb: str, flags: list[str], native: bool, expected: str, used: set[bool], workspace: Path, monkeypatch: Any
) -> None:
    machine(monkeypatch, native=native)
    assert "bfloat16" not in run_ok([*VERBS[verb], *flags])
    assert verb == "finetune" or used == {expected == "bf16"}
    if verb == "evaluate":
        assert read("e.json")["config"]["precision"] == expected
        return
    found = read("new/run.json")
    assert found["precision"] == found["config"]["precision"] == found["inputs"]["precision"] == expected
    assert f'precision = "{flags[-1] if flags else "auto"}"' in Path("new/config.toml").read_text()
    if verb == "train" and expected == "bf16":
        run_ok("report run new --output r.html".split())  # both with auto in config.toml
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in Path("r.md").read_text().splitlines()]
        assert ["run", "fp32"] in rows
        assert ["new", "bf16"] in rows


@pytest.mark.long
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_keeps_its_precision(folder: str, used: set[bool], runs: Path, monkeypatch: Any) -> None:
    argv = RESUMED[folder]
    assert_refused([*argv, "--precision", "bf16"], folder, "other settings (--precision)")
    machine(monkeypatch, native=True)
    run_ok(argv)
    assert read(f"{folder}/run.json")["config"]["precision"] == "fp32"
    assert used <= {False}


@pytest.mark.long
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_in_bf16_does_not_resume_where_it_is_emulated(folder: str, runs: Path, monkeypatch: Any) -> None:
    machine(monkeypatch, native=False)
    record(f"{folder}/inputs.json", "bf16")
    assert_refused(RESUMED[folder], f"{folder}: this run {NO_NATIVE_BF16}", "with --precision fp32")
    assert not Path(folder, "run.json").exists()
