"""The engine of Ray: each job is one task on a Ray cluster, or on a Ray that this engine starts on this machine.

Only the description of a job goes through Ray: function, settings and paths. Results are files, so all machines of the
cluster must see the folder of the store under the same path.
"""

import sys
from typing import Any

from nearfar.jobs.engine import Outcome, Task
from nearfar.jobs.process import GRACE_SECONDS
from nearfar.jobs.ray_machines import Connection, first_line, perform_remotely
from nearfar.jobs.scratch import Store
from nearfar.types import NearfarError

CLUSTER_SLOTS = 1000
"""Number of tasks that wait in Ray or run there; Ray decides how many run."""


class RayEngine:
    """Performs tasks on Ray, each with ``threads`` CPUs, and with a GPU if the job uses ``gpu``.

    Raises:
        NearfarError: as :class:`nearfar.jobs.ray_machines.Connection`, which starts and stops Ray.
    """

    def __init__(self, store: Store, *, workers: int, threads: int, address: str | None) -> None:
        self._connection = Connection(store.root, workers=workers, threads=threads, address=address)
        self._ray = self._connection.ray
        self._running: dict[Any, str] = {}
        """Ray's reference of a task -> the key of its job."""
        self.slots = workers if address is None else CLUSTER_SLOTS
        self._remote = self._ray.remote(num_cpus=threads, max_retries=0)(perform_remotely)

    def submit(self, task: Task, *, uses: str | None) -> None:
        """Give the task to Ray."""
        gpus = 1 if uses == "gpu" else 0
        if gpus and not self._connection.has_gpu():
            raise NearfarError(f"--engine ray: job {task.key} uses a GPU, but no machine of the cluster has one.")
        remote = self._remote.options(num_gpus=gpus)
        shared = self._connection
        self._running[remote.remote(task.to_json(), shared.token, shared.environment, sys.path)] = task.key

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Wait until a task has ended."""
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        return [self._outcome(reference) for reference in ended]

    def _outcome(self, reference: Any) -> Outcome:
        key = self._running.pop(reference)
        errors = self._ray.exceptions
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.RaySystemError)
        try:
            return Outcome(**self._ray.get(reference))
        except died as error:
            return Outcome(key, "died", message=f"its worker died ({first_line(error)})")
        except errors.RayError as error:
            return Outcome(key, "failed", message=f"Ray reports {type(error).__name__}: {first_line(error)}")

    def close(self) -> None:
        """Interrupt the tasks, kill those that do not end, and stop Ray if this engine started it."""
        pending = list(self._running)
        try:
            if pending and self._ray.is_initialized():
                for reference in pending:
                    self._ray.cancel(reference, force=False)
                _, pending = self._ray.wait(pending, num_returns=len(pending), timeout=GRACE_SECONDS)
        finally:  # also after a second Ctrl-C
            if not self._connection.owned and self._ray.is_initialized():
                for reference in pending:
                    self._ray.cancel(reference, force=True)
            self._running = {}
            self._connection.close()
