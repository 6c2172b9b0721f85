"""What an engine is: it performs tasks, each the description of one job, and reports their outcomes."""

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from nearfar.jobs.job import Job
from nearfar.jobs.scratch import Store


class Task(NamedTuple):
    """The description of a job that a worker gets: values and paths, nothing else."""

    root: str
    """The folder of the store; empty if the job runs in a temporary folder."""
    job: Mapping[str, Any]
    """What :meth:`nearfar.jobs.Job.describe` returns."""
    local: Mapping[str, Any]
    """Settings that are not in the key."""
    folder: str
    """The working folder, which relative paths in the settings refer to; empty for the folder of the job."""

    @property
    def key(self) -> str:
        """The key of the job."""
        return str(self.job["key"])

    def to_json(self) -> str:
        """The task as one line."""
        return json.dumps(self._asdict())

    @staticmethod
    def from_json(text: str) -> "Task":
        """The task of one line that :meth:`to_json` wrote."""
        return Task(**json.loads(text))

    @staticmethod
    def of(job: Job, store: Store, folder: str) -> "Task":
        """The task that performs a job."""
        root, folder = ("", "") if store.in_scratch else (str(store.root), folder)
        return Task(root, job.describe(), job.local, folder)


class Outcome(NamedTuple):
    """How a task ended.

    ``found``: another process had finished the job; ``busy``: another process runs it now; ``failed``: it raised an
    exception; ``died``: the process that performed it has ended.
    """

    key: str
    kind: Literal["finished", "found", "busy", "failed", "died"]
    seconds: float | None = None
    message: str = ""


class Engine(Protocol):
    """Performs tasks. Order, retries, dependencies and events are decided by :func:`nearfar.jobs.run_jobs`."""

    @property
    def slots(self) -> int:
        """How many tasks it takes at once."""

    def submit(self, task: Task, *, uses: str | None) -> None:
        """Start a task; called only while fewer than ``slots`` are unfinished. ``uses`` is :attr:`Job.uses`."""

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return the outcomes of tasks that have ended, at least one, or none after ``timeout`` seconds."""

    def close(self) -> None:
        """Stop all workers; unfinished tasks are interrupted."""
