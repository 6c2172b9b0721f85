"""What :func:`nearfar.jobs.run_jobs` reports: events while it runs, and the jobs that failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from nearfar.jobs.job import Job
from nearfar.types import NearfarError

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """A change in the state of one job."""

    kind: Literal["found", "started", "waiting", "finished", "retried", "failed", "skipped"]
    """``found``: finished by an earlier run or another process; ``waiting``: another process runs it now;
    ``retried``: its worker died; ``skipped``: a job that it needs failed."""
    job: Job
    seconds: float | None = None
    """How long a finished job took."""
    message: str = ""
    """Why a job failed, was retried or was skipped."""
    attempt: int = 1
    """The number of the attempt, from 1."""
    done: int = 0
    """Number of jobs that are finished, failed or skipped, this one included."""
    total: int = 0
    """Number of jobs of the run, those found at the start included."""


class JobFailure(NamedTuple):
    """A job that failed."""

    job: Job
    message: str
    folder: Path | None
    """What the job left, with ``error.txt`` if it raised an exception and ``log.txt`` if it printed something; None if
    it ran in a temporary folder."""


class JobsFailedError(NearfarError):
    """Jobs failed; all jobs that do not need them are finished."""

    def __init__(self, failures: Sequence[JobFailure], skipped: Sequence[Job]) -> None:
        self.failures = tuple(failures)
        self.skipped = tuple(skipped)
        count = f"{len(failures)} {'job' if len(failures) == 1 else 'jobs'} failed"
        lines = [f"{count}; {len(skipped)} that need them were skipped:" if skipped else f"{count}:"]
        for failure in failures[:_SHOWN]:
            see = f" (see {failure.folder})" if failure.folder else ""
            lines.append(f"  {failure.job.function} {failure.job.key}: {failure.message}{see}")
        if len(failures) > _SHOWN:
            lines.append(f"  and {len(failures) - _SHOWN} more")
        lines.append("The finished jobs are kept; the same call runs only the others.")
        super().__init__("\n".join(lines))
