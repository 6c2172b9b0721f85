"""The engine of Ray with workers that stay: what a function keeps in its module is there for the next job."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nearfar.jobs.engine import Outcome, Task
from nearfar.jobs.ray_machines import Connection, first_line, perform_remotely
from nearfar.jobs.scratch import Store
from nearfar.types import NearfarError

MAX_FAILED_STARTS = 3
"""So many workers may die, one after the other, before any task has ended."""


class _Worker:
    """An actor: one process of the cluster, which performs one task at a time."""

    def ready(self) -> None:
        """Do nothing: the answer says that the process runs."""

    def perform(
        self, line: str, token: str, environment: Mapping[str, str], search_path: Sequence[str]
    ) -> dict[str, Any]:
        """The fields of the outcome of a task."""
        return perform_remotely(line, token, environment, search_path)


class RayWorkers:
    """Performs tasks in ``workers`` actors, each with ``threads`` CPUs and ``gpus`` GPUs.

    An actor takes tasks when it runs, so a cluster that grows later is used then, and one that has too few CPUs for all
    workers uses some of them. An actor that dies is replaced.

    Raises:
        NearfarError: as :class:`nearfar.jobs.ray_machines.Connection`, which starts and stops Ray; ``gpus`` is not 0,
            and no machine has a GPU; or the actors die when they start.
    """

    def __init__(
        self, store: Store, *, workers: int, threads: int = 1, gpus: int = 0, address: str | None = None
    ) -> None:
        self._connection = Connection(store.root, workers=workers, threads=threads, address=address)
        self._ray = self._connection.ray
        self._tasks: dict[Any, tuple[Any, str]] = {}
        """Ray's reference of a task -> its actor, and the key of its job."""
        self._starting: dict[Any, Any] = {}
        """Ray's reference of an actor's first answer -> the actor."""
        self._idle: list[Any] = []
        self._failed_starts = 0
        self._actor = self._ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=0)(_Worker)
        try:
            if gpus and not self._connection.has_gpu():
                raise NearfarError("--device cuda with --engine ray: no machine of the cluster has a GPU.")
            for _ in range(workers):
                self._start()
            self._wait_for_a_worker()
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> int:
        """Number of actors that run."""
        return len(self._idle) + len(self._tasks)

    def submit(self, task: Task, *, uses: str | None) -> None:  # noqa: ARG002
        """Give the task to an idle actor."""
        actor = self._idle.pop()
        shared = self._connection
        reference = actor.perform.remote(task.to_json(), shared.token, shared.environment, sys.path)
        self._tasks[reference] = actor, task.key

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Wait until a task has ended, or until another actor runs."""
        ended, _ = self._ray.wait([*self._tasks, *self._starting], num_returns=1, timeout=timeout)
        outcomes = [self._outcome(reference) for reference in ended if reference in self._tasks]
        for reference in ended:
            if reference in self._starting:
                self._started(reference)
        self._wait_for_a_worker()
        return outcomes

    def _outcome(self, reference: Any) -> Outcome:
        actor, key = self._tasks.pop(reference)
        errors = self._ray.exceptions
        died = (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        try:
            outcome = Outcome(**self._ray.get(reference))
        except died as error:
            self._start()
            return Outcome(key, "died", message=f"its worker died ({first_line(error)})")
        except errors.RayError as error:
            outcome = Outcome(key, "failed", message=f"Ray reports {type(error).__name__}: {first_line(error)}")
        self._idle.append(actor)
        self._failed_starts = 0
        return outcome

    def _start(self) -> None:
        actor = self._actor.remote()
        self._starting[actor.ready.remote()] = actor

    def _started(self, reference: Any) -> None:
        """An actor has answered, or has died before."""
        actor = self._starting.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts > MAX_FAILED_STARTS:
                raise NearfarError(f"--engine ray: workers die when they start ({first_line(error)}).") from error
            self._start()
        else:
            self._idle.append(actor)

    def _wait_for_a_worker(self) -> None:
        """Wait until at least one actor runs."""
        while not self.slots:
            ended, _ = self._ray.wait(list(self._starting), num_returns=1)
            for reference in ended:
                self._started(reference)

    def close(self) -> None:
        """Kill the actors, and stop Ray if this engine started it."""
        actors = [*self._idle, *self._starting.values(), *(actor for actor, _ in self._tasks.values())]
        self._idle, self._starting, self._tasks = [], {}, {}
        try:
            if self._ray.is_initialized():
                for actor in actors:
                    self._ray.kill(actor)
        finally:
            self._connection.close()
