"""The engine of Ray: each job is one task on a Ray cluster, or on a Ray that this engine starts on this machine.

Only the description of a job goes through Ray: function, settings and paths. Results are files, so all machines of the
cluster must see the folder of the store under the same path. Ray performs many tasks in one process, so what a function
keeps in its module, such as an encoder, is often there for the next job.
"""

import os
import platform
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from nearfar.jobs.job import Outcome, Task, perform
from nearfar.jobs.process import GRACE_SECONDS, captured
from nearfar.types import NearfarError

CLUSTER_SLOTS = 1000
"""Number of tasks that wait in Ray or run there, where Ray decides how many run."""
SHARED_SECONDS = 30.0
"""How long a machine may take to see a new file of another machine."""
CONNECT_SECONDS = 10.0
"""How long the address of a cluster may take to answer."""
OBJECT_STORE_BYTES = 100 * 2**20
"""Size of Ray's object store on this machine; descriptions of jobs are small."""
_FORWARDED = ("NEARFAR_", "HF_HUB_OFFLINE")
"""Beginnings of the names of environment variables that the workers get."""


class RayEngine:
    """Performs tasks on Ray, each with ``threads`` CPUs, and with a GPU if the job uses ``gpu``.

    Without ``address``, a Ray is started on this machine with ``workers`` times ``threads`` CPUs, and stopped at the
    end; on a cluster, one worker stands for as many as it has room for. A Ray that this process has already initialised
    is used, and left running.

    Raises:
        NearfarError: Ray is not installed, or the cluster cannot be reached or has no machine with ``threads`` CPUs.
    """

    def __init__(self, *, workers: int, threads: int, address: str | None) -> None:
        self._ray = _import_ray()
        forwarded = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        self._environment = {**forwarded, "OMP_NUM_THREADS": str(threads)}
        self._running: dict[Any, Future[Outcome]] = {}
        """By Ray's references of the tasks."""
        self._owned = not self._ray.is_initialized()
        if self._owned:
            _initialise(self._ray, address, workers * threads)
        self.slots = CLUSTER_SLOTS if address is not None and workers == 1 else workers
        # max_calls 0: a process with a GPU performs many tasks, too, so that it opens a model once
        self._remote = self._ray.remote(num_cpus=threads, max_retries=0, max_calls=0)(perform_remotely)
        if all(node["Resources"].get("CPU", 0) < threads for node in self._ray.nodes() if node["Alive"]):
            self.close()
            raise NearfarError(f"--engine ray: no machine of the cluster has {threads} CPUs; lower --threads.")

    def submit(self, task: Task, *, uses: str | None) -> Future[Outcome]:
        """Give the task to Ray."""
        gpus = 1 if uses == "gpu" else 0
        if gpus and not self._ray.cluster_resources().get("GPU"):
            raise NearfarError(f"--engine ray: job {task.key} uses a GPU, but no machine of the cluster has one.")
        remote = self._remote.options(num_gpus=gpus)
        reference = remote.remote(task, self._environment, sys.path)
        self._running[reference] = future = Future[Outcome]()
        reference.future().add_done_callback(lambda done: self._finish(reference, task.key, done))
        return future

    def _finish(self, reference: Any, key: str, done: Future[Outcome]) -> None:
        errors = self._ray.exceptions
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.RaySystemError)
        future = self._running.pop(reference)
        try:
            future.set_result(done.result())
        except died as error:
            future.set_result(Outcome(key, "died", message=f"its worker died ({_first_line(error)})"))
        except errors.RayError as error:
            message = f"Ray reports {type(error).__name__}: {_first_line(error)}"
            future.set_result(Outcome(key, "failed", message=message))

    def close(self) -> None:
        """Interrupt the tasks, kill those that do not end, and stop Ray if this engine started it."""
        pending = list(self._running)
        try:
            if pending and self._ray.is_initialized():
                for reference in pending:
                    self._ray.cancel(reference, force=False)
                _, pending = self._ray.wait(pending, num_returns=len(pending), timeout=GRACE_SECONDS)
        finally:  # also after a second Ctrl-C
            if self._owned:
                self._ray.shutdown()
            elif self._ray.is_initialized():
                for reference in pending:
                    self._ray.cancel(reference, force=True)
            self._running = {}


def _import_ray() -> Any:
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


def _initialise(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to the cluster at ``address``, or start a Ray on this machine."""
    quiet = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    local = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE_BYTES}
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address and (place := re.fullmatch(r"(?:ray://)?([^/:]+):(\d+)", address)):
            socket.create_connection((place[1], int(place[2])), CONNECT_SECONDS).close()  # Ray itself tries for minutes
        ray.init(address=address or "local", **quiet, **({} if address else local))
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        where = f"--ray-address {address}: no Ray cluster can be reached" if address else "Ray cannot be started here"
        raise NearfarError(f"{where} ({_first_line(error)}).") from error
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray installs its own, which does not interrupt the tasks


def perform_remotely(task: Task, environment: Mapping[str, str], search_path: Sequence[str]) -> Outcome:
    """Perform a task in a worker of Ray, whose machine must see the folder of the store."""
    os.environ.update(environment)
    sys.path.extend(path for path in search_path if path not in sys.path)
    if not _appears(Path(task.root)):
        problem = (
            f"--engine ray: the machine {platform.node()} does not see the folder {task.root} of the one that leads; "
            "keep it on a file system that all machines of the cluster mount at the same path."
        )
        return Outcome(task.key, "failed", message=problem)
    for key in task.job["inputs"].values():
        _appears(Path(task.root, key))
    return perform(task, capture=captured)


def _appears(path: Path) -> bool:
    """Whether a file or folder that another machine has written is there, or comes soon, in a folder that is there."""
    deadline = time.monotonic() + SHARED_SECONDS
    while not path.exists() and path.parent.is_dir() and time.monotonic() < deadline:
        os.listdir(path.parent)  # a network file system then looks again
        time.sleep(0.1)
    return path.exists()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
