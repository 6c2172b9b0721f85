"""The engine that performs jobs one after the other in this process."""

from nearfar.jobs.engine import Outcome, Task
from nearfar.jobs.perform import perform


class InlineEngine:
    """Performs each task when :meth:`wait` is called.

    Threads are those of this process, output is not redirected, and a job that ends the process ends the run.
    """

    slots = 1

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def submit(self, task: Task, *, uses: str | None) -> None:  # noqa: ARG002
        """Keep the task for :meth:`wait`."""
        self._tasks.append(task)

    def wait(self, timeout: float | None) -> list[Outcome]:  # noqa: ARG002
        """Perform the tasks."""
        tasks, self._tasks = self._tasks, []
        return [perform(task) for task in tasks]

    def close(self) -> None:
        """Forget the tasks."""
        self._tasks = []
