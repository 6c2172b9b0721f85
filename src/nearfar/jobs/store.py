"""Where the results of jobs are.

A :class:`JobStore` has a folder ``KEY/`` for each finished job, and ``KEY.part/`` for one that is running or was
stopped. A :class:`ScratchStore` is for jobs that publish their results themselves.
"""

import json
from pathlib import Path
from typing import TypeAlias

from nearfar.disk import path_errors, read_json, read_text
from nearfar.jobs.job import Job, key_of
from nearfar.types import NearfarError

PART = ".part"
"""The suffix of the folder of an unfinished job."""
JOB_FILE, ATTEMPT_FILE, LOG_FILE, ERROR_FILE = "job.json", "attempt.json", "log.txt", "error.txt"
"""Files that the store writes into the folder of a job; the functions of jobs must not use these names."""


class JobStore:
    """The folders of jobs. Several runs, and several machines that share a file system, can use it at once.

    A folder ``KEY`` is made by renaming ``KEY.part`` after all its files are on the disk, so it is always complete.

    Raises:
        NearfarError: ``root`` is a file or cannot be used as a path.
    """

    in_scratch = False

    @path_errors()
    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().absolute()
        if self.root.exists() and not self.root.is_dir():
            raise NearfarError(f"{self.root}: is a file, but finished jobs are kept in a folder; name another one.")

    def folder(self, job: Job) -> Path:
        """The folder of the finished job."""
        return self.root / job.key

    def part(self, job: Job) -> Path:
        """The folder in which the job runs."""
        return self.root / (job.key + PART)

    @path_errors()
    def is_finished(self, job: Job) -> bool:
        """Whether the job's results are there.

        Raises:
            NearfarError: its folder is there, but ``job.json`` is missing, damaged or describes another job.
        """
        folder = self.folder(job)
        if not folder.exists():
            return False
        advice = f"Delete the folder {folder}; the job is then run again."
        if not (folder / JOB_FILE).is_file():
            raise NearfarError(f"{folder}: is not a finished job: {JOB_FILE} is missing. {advice}")
        text = read_text(folder / JOB_FILE, otherwise=advice)
        try:
            found = json.loads(text)
            key = key_of(found["function"], found["settings"], found["inputs"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise NearfarError(f"{folder / JOB_FILE}: does not describe a job ({error!r}). {advice}") from error
        if key != job.key:
            raise NearfarError(f"{folder / JOB_FILE}: describes another job, with the key {key}. {advice}")
        return True

    def seconds(self, job: Job) -> float | None:
        """How long the attempt took that finished the job; None if it is not finished or this is not known.

        Raises:
            NearfarError: ``attempt.json`` is damaged.
        """
        file = self.folder(job) / ATTEMPT_FILE
        if not file.is_file():
            return None
        found = read_json(file, otherwise="Delete it; the results are kept.")
        seconds = found.get("seconds") if isinstance(found, dict) else None
        if not isinstance(seconds, int | float):
            raise NearfarError(f"{file}: has no seconds. Delete it; the results are kept.")
        return float(seconds)


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


Store: TypeAlias = JobStore | ScratchStore
