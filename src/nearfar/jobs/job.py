"""A job, which is one call of a function; where its results are; and how a process performs it.

A :class:`JobStore` has a folder ``KEY/`` for each finished job, and ``KEY.part/`` for one that is running or was
stopped.
"""

import hashlib
import json
import os
import pkgutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from nearfar.disk import disk_errors, publish, read_json
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import FolderBusyError, folder_lock
from nearfar.runtime import memory
from nearfar.types import NearfarError
from nearfar.validation import convert

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A value that JSON can express."""
KEY_LENGTH = 16
_MAX_WHOLE = 2.0**53


class _Attempt(Struct):
    seconds: float


@dataclass(frozen=True, eq=False)
class Job:
    """One call of ``function(settings, inputs, folder)``, which writes its results as files into ``folder``.

    The function gets ``settings`` and ``local`` as one dict, the finished folder of each input as a path, and the
    folder to write to. It returns nothing. After an interrupted attempt it is called again with the same folder, which
    then holds the files of that attempt. A function that handles Ctrl-C itself must end with KeyboardInterrupt.

    Two jobs with the same key are equal.

    Raises:
        NearfarError: the function is not written as ``package.module:name``, or a setting is no JSON value.
    """

    function: str
    """Where the function is: ``package.module:name``."""
    settings: Mapping[str, JSON] = field(default_factory=dict)
    """Values that decide the results. They are copied."""
    inputs: Mapping[str, "Job"] = field(default_factory=dict)
    """Jobs whose results the function reads, by the names it knows them by."""
    local: Mapping[str, JSON] = field(default_factory=dict, kw_only=True)
    """Settings that do not change the results, such as paths and devices of this machine; not part of the key."""
    uses: str | None = field(default=None, kw_only=True)
    """``gpu`` for a job that needs a GPU of the Ray cluster; not part of the key."""
    key: str = field(init=False)
    """The first 16 hex digits of the SHA-256 of function, settings and the keys of the inputs, as canonical JSON."""

    def __post_init__(self) -> None:
        module, _, name = self.function.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), name)):
            raise NearfarError(f"job {self.function!r}: the function must be written as package.module:name.")
        for attribute in ("settings", "local"):
            try:
                copy = json.loads(json.dumps(getattr(self, attribute), allow_nan=False))
            except (TypeError, ValueError) as error:
                raise NearfarError(f"job {self.function}: {attribute}: {error}.") from None
            object.__setattr__(self, attribute, copy)
        object.__setattr__(self, "inputs", dict(self.inputs))
        content = json.loads(json.dumps(self._content()), parse_float=_canonical)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "key", hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def _content(self) -> dict[str, Any]:
        inputs = {name: job.key for name, job in self.inputs.items()}
        return {"function": self.function, "settings": self.settings, "inputs": inputs}

    def describe(self) -> dict[str, Any]:
        """The job in JSON values, inputs by their keys, without ``local``: the content of its ``job.json``."""
        return {"key": self.key, **self._content()}


def _canonical(text: str) -> float:
    """A whole float as an integer, as RFC 8785 writes numbers: 1.0 and 1 are the same setting."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= _MAX_WHOLE else number


PART = ".part"
"""The suffix of the folder of an unfinished job."""
JOB_FILE, ATTEMPT_FILE, LOG_FILE, ERROR_FILE = "job.json", "attempt.json", "log.txt", "error.txt"
"""Files that are written into the folder of a job; the functions of jobs must not use these names."""


class JobStore:
    """The folders of jobs. Several runs, and several machines that share a file system, can use it at once.

    A folder ``KEY`` is made by renaming ``KEY.part`` after all its files are on the disk, so it is always complete.

    Raises:
        NearfarError: ``root`` is a file or cannot be used as a path.
    """

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
        """Whether the job's results are there."""
        return self.folder(job).exists()

    def seconds(self, job: Job) -> float | None:
        """How long the attempt took that finished the job; None if it is not finished or this is not known.

        Raises:
            NearfarError: ``attempt.json`` is damaged.
        """
        file = self.folder(job) / ATTEMPT_FILE
        if not file.is_file():
            return None
        recorded = read_json(file, otherwise="Delete it; the results are kept.")
        return convert(recorded, _Attempt, source=str(file)).seconds


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

    @staticmethod
    def of(job: Job, store: JobStore | None, folder: str) -> "Task":
        """The task that performs a job."""
        root, folder = (str(store.root), folder) if store else ("", "")
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


def perform(task: Task, capture: Callable[[Path], AbstractContextManager[None]] | None = None) -> Outcome:
    """Run a job and return how it ended.

    The exceptions of its function are outcomes, except KeyboardInterrupt, and SystemExit outside a worker. The folder
    of a store is renamed to its final name when it is complete.

    Args:
        task: the job.
        capture: in a worker, a function of the path of a log file, which returns a context in which output goes to
            that file.
    """
    started = time.perf_counter()
    failures = (Exception, SystemExit) if capture else (Exception,)
    folder = Path(task.root, task.key) if task.root else None
    try:
        with _working_folder(folder) as part:
            if folder and folder.exists():
                return Outcome(task.key, "found")
            try:
                with capture(part / LOG_FILE) if capture else nullcontext():
                    _call(task, part)
            except failures as error:
                with suppress(OSError):  # of a full disk
                    (part / ERROR_FILE).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
                return Outcome(task.key, "failed", message=_in_one_line(error))
            seconds = time.perf_counter() - started
            if folder:
                with disk_errors(part):
                    if (log := part / LOG_FILE).is_file() and not log.stat().st_size:
                        log.unlink()
                    attempt = {"seconds": round(seconds, 3), **({"local": task.local} if task.local else {})}
                    (part / ATTEMPT_FILE).write_text(json.dumps(attempt, ensure_ascii=False) + "\n", encoding="utf-8")
                publish(part, folder)
    except FolderBusyError:
        return Outcome(task.key, "busy")
    except (NearfarError, OSError) as error:
        return Outcome(task.key, "failed", message=_in_one_line(error))
    finally:
        memory.release()
    return Outcome(task.key, "finished", seconds=seconds)


@contextmanager
def _working_folder(folder: Path | None) -> Iterator[Path]:
    """The folder in which a job works: beside its final one, locked; or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="nearfar-job-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    part = folder.with_name(folder.name + PART)
    with folder_lock(part):
        yield part


def _call(task: Task, part: Path) -> None:
    """Call the job's function in its working folder."""
    (part / ERROR_FILE).unlink(missing_ok=True)
    job = json.dumps(task.job, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (part / JOB_FILE).write_text(job, encoding="utf-8")  # now, because it says what a stopped job is
    before = os.getcwd()
    try:
        os.chdir(task.folder or part)
        settings = json.loads(json.dumps({**task.job["settings"], **task.local}))
        inputs = {name: Path(task.root, key) for name, key in task.job["inputs"].items()}
        pkgutil.resolve_name(task.job["function"])(settings, inputs, part)
    finally:
        with suppress(OSError):
            os.chdir(before)


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, NearfarError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
