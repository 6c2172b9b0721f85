"""Jobs that publish their own results: what :func:`nearfar.jobs.run_jobs` needs of a store, and a store of nothing."""

from pathlib import Path
from typing import Protocol

from nearfar.jobs.job import Job


class Store(Protocol):
    """Knows which jobs are finished, and where they run."""

    @property
    def root(self) -> Path | None:
        """A folder that every machine must see; None if there is none."""

    @property
    def in_scratch(self) -> bool:
        """Whether jobs run in temporary folders."""

    def is_finished(self, job: Job) -> bool:
        """Whether the job need not run."""

    def part(self, job: Job) -> Path | None:
        """The folder in which the job runs, if it stays after a failure."""


class ScratchStore:
    """Jobs whose functions publish their results themselves, under names of their own, anywhere.

    The folder that a function gets is a new temporary folder of the machine that runs it, and its working folder. It is
    removed when the function ends. Every job runs, so a function must look whether its result is already there, and
    must publish it at once (rename or completed upload). No lock keeps two runs from performing the same job: its
    function must write the same bytes each time.

    Args:
        shared: a folder that every machine must see, such as that of the results; None if results are not files.
    """

    in_scratch = True

    def __init__(self, shared: Path | None = None) -> None:
        self.root = shared

    def is_finished(self, job: Job) -> bool:  # noqa: ARG002
        """False: only the function knows."""
        return False

    def part(self, job: Job) -> None:  # noqa: ARG002
        """None: nothing is left of a failed job."""
        return
