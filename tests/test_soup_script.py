"""studies/soup.py: its model is the average of the runs that it names, and its numbers are theirs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import load_script, run_here

FILE = Path(__file__).parents[1] / "studies" / "soup.py"
TRAINING = {
    "data": "microworld",
    "evaluate_on": "microworld:dev",
    "limit": 64,
    "batch_size": 8,
    "max_steps": 2,
    "evaluate_every": 2,
    "learning_rate": 0.001,
    "precision": "fp32",
}


@pytest.fixture(autouse=True)
def _members_train_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", run_here)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("soup") / "inputs"
    write_inputs(folder)
    return folder / ENCODER


def run(start: Path, output: Path, *words: object, seed: int = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, FILE, "--model", start, "--output", output, "--seed", seed]
    for name, value in TRAINING.items():
        command += [f"--{name.replace('_', '-')}", value]
    return run_here([*command, *words])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


@pytest.mark.nightly
@pytest.mark.long
def test_it_is_the_average_of_its_runs(start: Path, tmp_path: Path) -> None:
    nearfar.train(
        "sg-opt1", model=start, output=tmp_path / "soup" / "member-3", seed=9, **TRAINING
    )  # of a stopped attempt
    made = run(start, tmp_path / "soup", "--members", 2, "--method", "sg-opt1", "--tasks", "microworld", seed=2)
    assert made.returncode == 0, made.stderr
    members = []
    for seed in (3, 4):
        nearfar.train("sg-opt1", model=start, output=tmp_path / str(seed), seed=seed, **TRAINING)
        members.append(weights(tmp_path / str(seed)))
    average = weights(tmp_path / "soup")
    assert any(not torch.equal(members[0][name], members[1][name]) for name in average)
    for name, value in average.items():
        torch.testing.assert_close(value, (members[0][name] + members[1][name]) / 2, rtol=1e-5, atol=1e-7)
    scores = [
        nearfar.evaluate(str(tmp_path / name), tasks=["microworld"], precision="fp32", resamples=0, progress=False)
        .tasks["microworld"]
        .spearman.all.score
        for name in ("3", "4", "soup/model")
    ]
    numbers = json.loads((tmp_path / "soup" / "numbers.json").read_text())
    assert numbers["members"] == pytest.approx((scores[0] + scores[1]) / 2, abs=1e-3)
    assert numbers["average"] == pytest.approx(scores[2], abs=1e-3)
    assert not list((tmp_path / "soup").glob("member-*"))


@pytest.mark.long
def test_a_peer_can_be_averaged(start: Path, tmp_path: Path) -> None:
    made = run(start, tmp_path / "soup", "--members", 2, "--trainer", "peers/losses.py", "--loss", "mnrl")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "soup" / "model" / "soup.json").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--members", 1, "--method", "sg-opt1"), "--members 1: must be at least 2"),
        (("--members", 2, "--trainer", "missing.py"), "--trainer missing.py: there is no such file"),
        (("--members", 2), "one of the arguments --method --trainer is required"),
        (("--members", 2, "--method", "sg-opt1", "--wrong", 3), "seed 1 failed"),
    ],
)
def test_what_it_refuses(start: Path, tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    made = run(start, tmp_path / "soup", *words)
    assert made.returncode != 0
    assert message in made.stderr


def test_two_averages_share_no_run() -> None:
    module = load_script("studies/soup.py")
    seeds = [seed for number in (1, 2, 3) for seed in module.member_seeds(number, 3)]
    assert seeds == [*range(1, 10)]
