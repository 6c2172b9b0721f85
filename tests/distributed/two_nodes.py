"""Two nodes on this machine: addresses of the loopback device, and torchrun on each."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearfar.training.processes import FRESH_STORE

TIMEOUT = 1800  # seconds, only to end a test that hangs
AGENTS: list["subprocess.Popen[bytes]"] = []
"""Those that a test has started."""


@dataclass
class Node:
    """One machine: its folder and its address."""

    folder: Path
    address: str


def free_port(address: str) -> int:
    """A port that is free on the node."""
    with socket.socket() as bound:
        bound.bind((address, 0))
        return int(bound.getsockname()[1])


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


def workers(agent: "subprocess.Popen[bytes]") -> list[int]:
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
