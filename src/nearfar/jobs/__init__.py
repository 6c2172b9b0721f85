"""Many runs as jobs: each a function called with values, identified by their hash, its results files in a folder.

>>> from nearfar.jobs import Job, JobStore, run_jobs

A job that is finished is never run again; a run that was stopped continues where it was; the same jobs run in this
process, in worker processes, or on a Ray cluster.
"""

from nearfar.jobs.job import JSON, Job
from nearfar.jobs.perform import Outcome, Task
from nearfar.jobs.run import (
    ENGINES,
    Engine,
    JobEvent,
    JobFailure,
    JobsFailedError,
    run_jobs,
    shard_of,
    unfinished,
    with_inputs,
)
from nearfar.jobs.store import JobStore, ScratchStore, Store

__all__ = [
    "ENGINES",
    "JSON",
    "Engine",
    "Job",
    "JobEvent",
    "JobFailure",
    "JobStore",
    "JobsFailedError",
    "Outcome",
    "ScratchStore",
    "Store",
    "Task",
    "run_jobs",
    "shard_of",
    "unfinished",
    "with_inputs",
]
