"""Many runs as jobs: each a function called with values, identified by their hash, its results files in a folder.

>>> from nearfar.jobs import Job, JobStore, run_jobs

A job that is finished is never run again; a run that was stopped continues where it was; the same jobs run in this
process, in worker processes, or on a Ray cluster.
"""

from nearfar.jobs.engine import Engine, Outcome, Task
from nearfar.jobs.events import JobEvent, JobFailure, JobsFailedError
from nearfar.jobs.graph import shard_of, unfinished, with_inputs
from nearfar.jobs.job import JSON, Job
from nearfar.jobs.run import ENGINES, run_jobs
from nearfar.jobs.scratch import ScratchStore, Store
from nearfar.jobs.store import JobStore

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
