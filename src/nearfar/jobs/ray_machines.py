"""What the engines of Ray share: connecting to Ray, checking that its machines see a folder, performing a task there.

Only the description of a job goes through Ray: function, settings and paths.
"""

import os
import platform
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearfar.disk import disk_errors
from nearfar.jobs.engine import Outcome, Task
from nearfar.jobs.perform import perform
from nearfar.jobs.worker import captured
from nearfar.types import NearfarError

SHARED_SECONDS = 30.0
"""How long a machine may take to see a new file of another machine."""
CONNECT_SECONDS = 10.0
"""How long the address of a cluster may take to answer."""
OBJECT_STORE_BYTES = 100 * 2**20
"""Size of Ray's object store on this machine; descriptions of jobs are small."""
_FORWARDED = ("NEARFAR_", "HF_HUB_OFFLINE")
"""Beginnings of the names of environment variables that the workers get."""


class Connection:
    """A Ray whose machines see the folder of a store, for the time of an engine.

    Without ``address``, a Ray is started on this machine with ``workers`` times ``threads`` CPUs, and stopped at the
    end. A Ray that this process has already initialised is used, and left running.

    Raises:
        NearfarError: Ray is not installed, the cluster cannot be reached or has no machine with ``threads`` CPUs, or a
            machine of it does not see the folder ``root``.
    """

    def __init__(self, root: Path | None, *, workers: int, threads: int, address: str | None) -> None:
        self.ray = import_ray()
        self.environment = environment_of_workers(threads)
        self.token = ""
        """See :func:`check_machines`."""
        self.owned = not self.ray.is_initialized()
        """Whether Ray was initialised here."""
        if self.owned:
            initialise(self.ray, address, workers * threads)
        try:
            self.token = check_machines(self.ray, threads, root)
        except BaseException:
            self.close()
            raise

    def has_gpu(self) -> bool:
        """Whether a machine of the cluster has a GPU."""
        return bool(self.ray.cluster_resources().get("GPU"))

    def close(self) -> None:
        """Stop Ray, or leave the cluster, if it was initialised here; Ray on this machine then kills what runs."""
        if self.owned:
            self.ray.shutdown()
        if self.token:
            Path(self.token).unlink(missing_ok=True)


def import_ray() -> Any:
    """The module ray.

    Raises:
        NearfarError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends nothing
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise NearfarError(
            "--engine ray: needs the package ray; install it with: pip install 'nearfar[scale]'"
        ) from error
    return ray


def initialise(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to the cluster at ``address``, or start a Ray on this machine.

    Raises:
        NearfarError: nothing answers there, or Ray cannot be started.
    """
    quiet = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    local = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE_BYTES}
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address and (place := re.fullmatch(r"(?:ray://)?([^/:]+):(\d+)", address)):
            socket.create_connection((place[1], int(place[2])), CONNECT_SECONDS).close()  # Ray itself tries for minutes
        ray.init(address=address or "local", **quiet, **({} if address else local))
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        where = f"--ray-address {address}: no Ray cluster can be reached" if address else "Ray cannot be started here"
        raise NearfarError(f"{where} ({first_line(error)}).") from error
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray installs its own, which does not interrupt the tasks


def environment_of_workers(threads: int) -> dict[str, str]:
    """The environment variables that workers get."""
    forwarded = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
    return {**forwarded, "OMP_NUM_THREADS": str(threads)}


def check_machines(ray: Any, threads: int, root: Path | None) -> str:
    """Let a task on each machine with ``threads`` CPUs read a new file in ``root``; returns the file, the token.

    Without ``root``, the tasks read nothing, and the token is empty.

    Raises:
        NearfarError: no machine has so many CPUs, one cannot run nearfar, or one does not see the folder.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = Path() if root is None else root / f".shared-{secrets.token_hex(8)}"
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= threads]
    if not nodes:
        raise NearfarError(f"--engine ray: no machine of the cluster has {threads} CPUs; lower --threads.")
    try:
        if root is not None:
            with disk_errors(root):
                root.mkdir(parents=True, exist_ok=True)
                token.write_text(token.name, encoding="utf-8")
        remote = ray.remote(num_cpus=0, max_retries=0)(sees_token)
        name = "" if root is None else str(token)
        tasks = [
            remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(name)
            for node in nodes
        ]
        for node, task in zip(nodes, tasks, strict=True):
            try:
                seen = ray.get(task)
            except ray.exceptions.RayError as error:
                raise NearfarError(f"--engine ray: the machine {_name(node)} cannot run nearfar ({error}).") from error
            if not seen:
                raise NearfarError(_not_shared(_name(node), str(root)))
    except BaseException:
        if root is not None:
            token.unlink(missing_ok=True)
        raise
    return name


def perform_remotely(
    line: str, token: str, environment: Mapping[str, str], search_path: Sequence[str]
) -> dict[str, Any]:
    """Perform a task in a worker of Ray; the fields of its outcome. ``token`` is that of :func:`check_machines`."""
    os.environ.update(environment)
    sys.path.extend(path for path in search_path if path not in sys.path)
    task = Task.from_json(line)
    if token and not sees_token(token):
        return Outcome(task.key, "failed", message=_not_shared(platform.node(), str(Path(token).parent)))._asdict()
    inputs = [Path(task.root, key) for key in task.job["inputs"].values()]
    deadline = time.monotonic() + SHARED_SECONDS
    while not all(path.exists() for path in inputs) and time.monotonic() < deadline:
        os.listdir(task.root)  # a network file system then looks again
        time.sleep(0.1)
    return perform(task, capture=captured)._asdict()


def sees_token(token: str) -> bool:
    """Whether this machine sees the token file with its content; an empty token is no file."""
    if not token:
        return True
    deadline = time.monotonic() + SHARED_SECONDS
    path = Path(token)
    while path.parent.is_dir():
        if path.is_file():
            return path.read_text(encoding="utf-8") == path.name
        if time.monotonic() > deadline:
            break
        os.listdir(path.parent)
        time.sleep(0.1)
    return False


def _not_shared(machine: str, root: str) -> str:
    return (
        f"--engine ray: the machine {machine} does not see the folder {root} of this one; keep it on a file system "
        "that all machines of the cluster mount at the same path."
    )


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeID"])


def first_line(error: BaseException) -> str:
    """The first line of a message, or the name of the exception."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
