"""The command in two processes: equal to one process; at night by torchrun, with Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.commands.train import train
from nearfar.config.training import RunConfig
from nearfar.settings import dump_toml
from nearfar.types import NearfarError
from tests.distributed.processes import assert_close_run, free_port, run_processes
from tests.interrupted_runs import lines_of
from tests.jobs.programs import wait_until
from tests.method_configs import config, write_data

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="gloo's file store does not work on Windows"),
]
TIMEOUT = 1800  # seconds, only to end a test that hangs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def start(settings: RunConfig, *flags: str) -> subprocess.Popen[bytes]:
    """Start torchrun with two processes; their output goes to a file next to the run folder."""
    file = Path(settings.output).with_suffix(".toml")
    file.write_text(dump_toml(settings))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with printed(settings).open("wb") as output:
        return subprocess.Popen(
            [*torchrun, "-m", "nearfar", "train", str(file), *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def train_as_torchrun_does(rank: int, size: int, file: Path, port: int) -> None:
    """The command in a process of a group, as torchrun starts it; its output goes where that of :func:`start` goes."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with file.with_suffix(".txt").open("a", buffering=1) as output, redirect_stdout(output), redirect_stderr(output):
        assert main(["train", str(file)]) == 0, file.with_suffix(".txt").read_text()


def printed(settings: RunConfig) -> Path:
    return Path(settings.output).with_suffix(".txt")


def test_two_processes_equal_one(folder: Path, tmp_path: Path) -> None:
    """Five rows per process equal ten in one process; without dropout, whose masks depend on the process."""
    shared = {"model": str(folder / "tiny"), "epochs": 6, "max_steps": 7, "learning_rate": 3e-4, "keep": "last"}
    shared |= {"micro_batch": 2, "accumulate": 2, "lora_rank": 2, "drift_weight": 0.0, "ema": 0.8}
    two = config("bt+sg-opt", folder, output=str(tmp_path / "two"), batch_size=5, **shared)
    file = Path(two.output).with_suffix(".toml")
    file.write_text(dump_toml(two))
    run_processes(train_as_torchrun_does, 2, file, free_port("127.0.0.1"))
    one = config("bt+sg-opt", folder, output=str(tmp_path / "one"), batch_size=10, **shared)
    train(one)
    assert_close_run(one.output, two.output)
    output = printed(two).read_text()
    assert "2 processes, 10 rows a batch" in output
    assert output.count("step 7: Spearman") == 1  # only the first process prints
    assert "terminate called" not in output
    assert json.loads((tmp_path / "two" / "run.json").read_text())["processes"] == 2
    file_names = [sorted(path.name for path in (tmp_path / run).iterdir()) for run in ("one", "two")]
    assert file_names == [["config.toml", "metrics.jsonl", "model", "nearfar_seen.safetensors", "run.json"]] * 2


@pytest.mark.nightly
def test_ctrl_c_saves_and_both_resume(folder: Path, tmp_path: Path) -> None:
    """With a further set too; the result equals an uninterrupted run of one process."""
    further = {"method": "supcon-text", "data": [str(folder / "labelled.tsv")]}
    shared = {"model": str(folder / "tiny"), "sets": (further,), "max_negatives": 5, "epochs": 40, "max_steps": 100}
    shared |= {"checkpoint_every": 10_000, "evaluate_every": 50, "learning_rate": 1e-4}
    two = config("scl", folder, output=str(tmp_path / "two"), batch_size=5, **shared)
    process = start(two)
    wait_until(lambda: process.poll() is not None or len(lines_of(two.output)) >= 8)
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT) != 0
    output = printed(two).read_text()
    assert output.count("Stopped after a complete step; everything is saved.") == 1, output
    stopped = json.loads((tmp_path / "two" / "checkpoint" / "progress.json").read_text())["step"]
    assert 5 <= stopped < 100
    assert not (tmp_path / "two" / "model").exists()

    with pytest.raises(NearfarError, match="was started with 2 processes and would end with different weights with 1"):
        train(two, resume=True)
    process = start(two, "--resume")
    one = replace(two, output=str(tmp_path / "one"), batch_size=10)
    train(one)
    assert process.wait(TIMEOUT) == 0, printed(two).read_text()
    assert_close_run(one.output, two.output)
