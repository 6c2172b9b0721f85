"""Two nodes on this machine, each with a torchrun agent and an address, a working folder and a run folder of its own.

The nodes are two addresses of the loopback device. They share no files but the program.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nearfar.config.training import RunConfig
from nearfar.settings import dump_toml
from nearfar.training.processes import FRESH_STORE
from tests.distributed.processes import free_port
from tests.interrupted_runs import assert_same_run, lines_of
from tests.method_configs import config, write_data

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="needs two loopback addresses"),
]
POLLS = 45_000  # only to end a test that hangs
ERRORS = "the connection to another process ended"
TIMEOUT = 1800  # seconds, only to end a test that hangs
AGENTS: list[subprocess.Popen[bytes]] = []
"""Those that a test has started."""


@dataclass
class Node:
    """One machine: its folder and its address."""

    folder: Path
    address: str


class Cluster:
    """The torchrun agents of a run, one on each node; what they print goes to files."""

    def __init__(
        self, nodes: Sequence[Node], *flags: str, processes: int = 1, restarts: int = 0, rendezvous: str = "static"
    ) -> None:
        port = free_port(nodes[0].address)
        self.files = [node.folder / f"printed-{uuid.uuid4().hex[:8]}.txt" for node in nodes]
        self.agents: list[subprocess.Popen[bytes]] = []
        for rank, (node, file) in enumerate(zip(nodes, self.files, strict=True)):
            launch = ["--nnodes", "2", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
            launch += ["--local-addr", node.address]
            if rendezvous == "static":
                launch += ["--node-rank", str(rank), "--master-addr", nodes[0].address, "--master-port", str(port)]
            else:
                launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{nodes[0].address}:{port}", "--rdzv-id", "x"]
                launch += ["--rdzv-conf", f"is_host={int(rank == 0)}"]
            command = [sys.executable, "-m", "torch.distributed.run", *launch, "-m", "nearfar", *flags]
            with file.open("wb") as output:
                agent = subprocess.Popen(
                    command,
                    cwd=node.folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "OMP_NUM_THREADS": "1", FRESH_STORE: "1"},
                )
            self.agents.append(agent)
            AGENTS.append(agent)

    def finish(self) -> list[int]:
        """The exit status of each agent; an agent that hangs makes the test fail."""
        return [agent.wait(timeout=TIMEOUT) for agent in self.agents]

    def printed(self, node: int) -> str:
        return self.files[node].read_text()


def workers(agent: subprocess.Popen[bytes]) -> list[int]:
    """The process ids of the training processes that an agent started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            if parent == agent.pid and b"nearfar" in command:
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def nodes(data: Path, tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes with copies of data and models; agents that a failed test left are ended."""
    found = [Node(tmp_path / f"node{number}", f"127.0.0.{number + 1}") for number in range(2)]
    for node in found:
        shutil.copytree(data, node.folder)
    yield found
    while AGENTS:
        agent = AGENTS.pop()
        agent.terminate()  # it ends its workers
        agent.wait()


def settings(data: Path, **changes: Any) -> RunConfig:
    """A run whose paths are relative, so that each node has files of its own."""
    shared: dict[str, Any] = {"model": "tiny", "batch_size": 5, "epochs": 40, "max_steps": 9, "learning_rate": 3e-4}
    shared |= {"data": ("triplets.tsv",), "evaluate_on": "dev.tsv", "output": "run", "keep": "last", "ema": 0.8}
    return config("info-nce", data, **(shared | changes))


def write(nodes: Sequence[Node], run: RunConfig) -> None:
    for node in nodes:
        (node.folder / "run.toml").write_text(dump_toml(run))


def test_a_killed_rank_ends_both_nodes_and_they_resume_bit_for_bit(nodes: list[Node], data: Path) -> None:
    """Four processes with dropout. The second node has no checkpoint: its state comes from the first."""
    run = settings(data, model="noisy", batch_size=3, max_steps=120, checkpoint_every=4, evaluate_every=1000)
    whole = replace(run, output="whole")
    write(nodes, whole)
    assert Cluster(nodes, "train", "run.toml", processes=2).finish() == [0, 0]
    write(nodes, run)
    cluster = Cluster(nodes, "train", "run.toml", processes=2)
    folder = nodes[0].folder / "run"
    for _ in range(POLLS):
        if len(lines_of(folder)) >= 7 or any(agent.poll() is not None for agent in cluster.agents):
            break
        time.sleep(0.02)
    victims = workers(cluster.agents[1])
    assert len(victims) == 2, cluster.printed(1)
    os.kill(victims[-1], signal.SIGKILL)
    assert all(status != 0 for status in cluster.finish())
    assert ERRORS in cluster.printed(0)
    assert "Signal 9 (SIGKILL)" in cluster.printed(1)
    assert not (folder / "model").exists()
    stopped = json.loads((folder / "checkpoint" / "progress.json").read_text())["step"]
    assert 4 <= stopped < 120

    cluster = Cluster(nodes, "train", "run.toml", "--resume", processes=2)
    assert cluster.finish() == [0, 0], cluster.printed(0) + cluster.printed(1)
    assert_same_run(folder, nodes[0].folder / "whole")
    assert not (nodes[1].folder / "run").exists()


def test_agents_restart_a_run_that_may_resume(nodes: list[Node], data: Path) -> None:
    """--max-restarts, with a folder that exists: --resume starts a run there, or continues it."""
    run = settings(data, model="noisy", max_steps=200, checkpoint_every=4, evaluate_every=1000)
    write(nodes, replace(run, output="whole"))
    assert Cluster(nodes, "train", "run.toml").finish() == [0, 0]
    write(nodes, run)
    (nodes[0].folder / "run").mkdir()
    cluster = Cluster(nodes, "train", "run.toml", "--resume", restarts=2, rendezvous="c10d")
    folders = [node.folder / "run" for node in nodes]
    for _ in range(POLLS):
        if any(len(lines_of(folder)) >= 7 for folder in folders) or cluster.agents[0].poll() is not None:
            break
        time.sleep(0.02)
    (victim,) = workers(cluster.agents[1])
    os.kill(victim, signal.SIGKILL)
    assert cluster.finish() == [0, 0], cluster.printed(0) + cluster.printed(1)
    (folder,) = [folder for folder in folders if (folder / "run.json").exists()]
    (whole,) = [node.folder / "whole" for node in nodes if (node.folder / "whole").exists()]
    assert_same_run(folder, whole)


def change_data(folder: Path) -> None:
    text = (folder / "triplets.tsv").read_text()
    (folder / "triplets.tsv").write_text(text.removesuffix("\n") + " changed\n")


def remove_data(folder: Path) -> None:
    (folder / "triplets.tsv").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_data, "--data triplets.tsv differs between"),
        (remove_data, "(process 1): triplets.tsv: no such file"),
    ],
)
def test_nodes_that_differ_are_refused(nodes: list[Node], data: Path, change: Any, message: str) -> None:
    write(nodes, settings(data))
    change(nodes[1].folder)
    cluster = Cluster(nodes, "train", "run.toml")
    assert all(status != 0 for status in cluster.finish())
    for number in range(2):
        assert message in cluster.printed(number)
        assert ERRORS not in cluster.printed(number)
        assert "this is a bug" not in cluster.printed(number)
    assert not any((node.folder / "run").exists() for node in nodes)
