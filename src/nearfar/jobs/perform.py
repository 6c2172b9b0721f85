"""Performs one job in this process: lock its folder, call its function, write the files to the disk, rename."""

import importlib
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nearfar.disk import FolderBusyError, disk_errors, folder_lock, publish
from nearfar.jobs.job import Job
from nearfar.jobs.store import ATTEMPT_FILE, ERROR_FILE, JOB_FILE, LOG_FILE, PART, Store
from nearfar.runtime import memory
from nearfar.types import NearfarError

_CAN_RENAME_LOCKED = os.name != "nt"  # Windows cannot rename a folder with an open file in it


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
            with capture(part / LOG_FILE) if capture else nullcontext():
                message = _call(task, part, failures)
            if message is not None:
                return Outcome(task.key, "failed", message=message)
            seconds = time.perf_counter() - started
            if folder:
                _complete(task, part, seconds)
                if _CAN_RENAME_LOCKED:
                    publish(part, folder)
        if folder and not _CAN_RENAME_LOCKED:
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


def _call(task: Task, part: Path, failures: tuple[type[BaseException], ...]) -> str | None:
    """Call the job's function; returns the message of its exception, if it is one of ``failures``, or None."""
    (part / ERROR_FILE).unlink(missing_ok=True)
    (part / JOB_FILE).write_text(_job_text(task), encoding="utf-8")  # says what a stopped job is
    before = os.getcwd()
    try:
        os.chdir(task.folder or part)
        function = load_function(str(task.job["function"]))
        settings = json.loads(json.dumps({**task.job["settings"], **task.local}))
        function(settings, {name: Path(task.root, key) for name, key in task.job["inputs"].items()}, part)
    except failures as error:
        with suppress(OSError):  # of a full disk
            (part / ERROR_FILE).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        return _in_one_line(error)
    finally:
        with suppress(OSError):
            os.chdir(before)
    return None


def load_function(place: str) -> Callable[..., object]:
    """The function at ``package.module:name``.

    Raises:
        NearfarError: there is no such module or function.
    """
    module, _, name = place.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise NearfarError(f"the function {place} cannot be imported ({error}).") from error
    if not callable(found):
        raise NearfarError(f"{place}: is not a function.")
    return found


def _complete(task: Task, part: Path, seconds: float) -> None:
    """Write the store's own files."""
    with disk_errors(part):
        text = _job_text(task)
        with suppress(FileNotFoundError):
            if not (part / LOG_FILE).stat().st_size:
                (part / LOG_FILE).unlink()
        (part / JOB_FILE).write_text(text, encoding="utf-8")
        attempt = {"seconds": round(seconds, 3), **({"local": task.local} if task.local else {})}
        (part / ATTEMPT_FILE).write_text(json.dumps(attempt, ensure_ascii=False) + "\n", encoding="utf-8")


def _job_text(task: Task) -> str:
    return json.dumps(task.job, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, NearfarError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
