"""Two nodes on this machine: network namespaces, or addresses of the loopback device, and torchrun on each."""

import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nearfar.training.processes import FRESH_STORE

TIMEOUT = 1800  # seconds, only to end a test that hangs
AGENTS: list["subprocess.Popen[bytes]"] = []
"""Those that a test has started."""


@dataclass
class Node:
    """One machine: its folder, its address, and the words that start a program on it."""

    folder: Path
    address: str
    enter: tuple[str, ...] = ()


def ip(*words: str, namespace: str | None = None) -> None:
    inside = ["ip", "-n", namespace] if namespace else ["ip"]
    subprocess.run([*inside, *words], check=True, capture_output=True)


def network_namespaces(stack: ExitStack) -> list[tuple[str, str]]:
    """Two connected namespaces with their addresses; empty where they are not permitted."""
    if shutil.which("ip") is None:
        return []
    names = [f"nearfar-{uuid.uuid4().hex[:8]}-{number}" for number in range(2)]
    cables = [f"nf{uuid.uuid4().hex[:8]}" for _ in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False, capture_output=True)
        ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
            ip("address", "add", f"10.77.0.{number}/24", "dev", cable, namespace=name)
            ip("link", "set", cable, "up", namespace=name)
            ip("link", "set", "lo", "up", namespace=name)
    except (subprocess.CalledProcessError, OSError):
        return []
    return [(name, f"10.77.0.{number}") for number, name in enumerate(names, start=1)]


def free_port(address: str, enter: Sequence[str]) -> int:
    """A port that is free on the node."""
    if enter:
        return 29511  # nothing else is in the namespace
    with socket.socket() as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


class Cluster:
    """The torchrun agents of a run, one on each node; what they print goes to files."""

    def __init__(
        self, nodes: Sequence[Node], *flags: str, processes: int = 1, restarts: int = 0, rendezvous: str = "static"
    ) -> None:
        port = free_port(nodes[0].address, nodes[0].enter)
        self.files = [node.folder / f"printed-{uuid.uuid4().hex[:8]}.txt" for node in nodes]
        self.agents: list[subprocess.Popen[bytes]] = []
        for rank, (node, file) in enumerate(zip(nodes, self.files, strict=True)):
            launch = ["--nnodes", "2", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
            launch += ["--local-addr", node.address]
            if rendezvous == "static":
                launch += ["--node-rank", str(rank), "--master-addr", nodes[0].address, "--master-port", str(port)]
            else:
                launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{nodes[0].address}:{port}", "--rdzv-id", "x"]
                launch += ["--rdzv-conf", f"is_host={int(rank == 0)}"]  # a namespace has no name of its own
            command = [*node.enter, sys.executable, "-m", "torch.distributed.run", *launch, "-m", "nearfar", *flags]
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
