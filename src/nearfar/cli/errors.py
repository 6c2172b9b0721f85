"""Turns an unexpected exception into one sentence, and writes its traceback to a file."""

import errno
import os
import platform
import re
import select
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress

from nearfar.runtime.versions import package_version

EXIT_FAULT, EXIT_PIPE_CLOSED = 70, 141
_DISK_ERRORS = (errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ENXIO)
"""What a disk or a network file system can answer at any time."""
_TORCH_FILE_ERROR = re.compile(
    r"unable to (?:mmap|open)\b.* file <(?P<file>.*)>.*: (?P<reason>[^:]+) \((?P<errno>\d+)\)"
)
"""How a RuntimeError of torch says that a file could not be opened or mapped."""
_OUT_OF_MEMORY = re.compile("(?i)can(no|')t allocate memory")
"""How torch and OpenVINO say it of this machine's memory."""
_NO_SPACE = "no space is left on the disk; free some, or write to another place"
_NO_MEMORY = (
    "out of memory; choose a smaller --micro-batch, which leaves the gradient of a training unchanged, a smaller "
    "--batch-size or --max-length, fewer --workers, or a smaller model"
)
_TOO_MANY_FILES = "too many open files; raise the limit, as by ulimit -n 4096, and try again"
_SENTENCES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _NO_SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _TOO_MANY_FILES),
    errno.ENOMEM: _NO_MEMORY,
}
MAX_MESSAGE_CHARS = 300
PACKAGES = ("nearfar", "torch", "transformers", "sentence-transformers", "datasets", "tokenizers", "numpy")


def describe_exception(error: Exception, argv: Sequence[str]) -> tuple[int, str]:
    """The exit status and the message for ``error``.

    The message is empty if the reader of the output has closed it, as ``head`` does. With ``NEARFAR_DEBUG=1`` an
    unexpected ``error`` is raised again.
    """
    if isinstance(error, OSError):
        closed = isinstance(error, BrokenPipeError) and _is_output_closed()
        _discard_unwritable_output()
        if closed:
            return EXIT_PIPE_CLOSED, ""
    if isinstance(error, RuntimeError) and (match := _TORCH_FILE_ERROR.search(str(error))):
        error = OSError(int(match["errno"]), match["reason"], match["file"])
    command = _truncate(shlex.join(["nearfar", *argv]))
    about = _file_of(error)
    if isinstance(error, OSError) and error.errno in _SENTENCES:
        return 2, f"{command}: {about}{_SENTENCES[error.errno]}."
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        reason = f"{about or 'a file: '}cannot be used ({error.strerror})"
        return 2, f"{command}: {reason}; check the disk and the permissions."
    of_gpu = type(error).__name__ == "OutOfMemoryError"  # torch's
    of_machine = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    if isinstance(error, MemoryError) or of_gpu or of_machine:
        return 2, f"{command}: {_NO_MEMORY}."
    if os.environ.get("NEARFAR_DEBUG") == "1":
        raise error
    reason = " ".join(str(error).split())
    what = f"{about}{type(error).__name__}{f' ({_truncate(reason)})' if reason else ''}"
    return EXIT_FAULT, f"{command}: {what}: this is a bug in nearfar: {_write_fault_log(error, argv)}"


def _is_output_closed() -> bool:
    """Whether the reader of stdout has closed it; a broken pipe may also be that of a worker."""
    with suppress(AttributeError, OSError, ValueError):  # no file
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), 0)  # errors and a closed end are always reported
        return bool(waiting.poll(0))
    return sys.platform == "win32"  # has no poll


def _discard_unwritable_output() -> None:
    """Redirect stdout if it cannot be written: Python would write its buffer at exit, and fail with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    except (AttributeError, ValueError):  # no file
        pass


def _file_of(error: Exception) -> str:
    names = [error.filename, error.filename2] if isinstance(error, OSError) else []
    return "".join(f"{_truncate(os.fsdecode(name))}: " for name in names if isinstance(name, (str, bytes, os.PathLike)))


def _write_fault_log(error: Exception, argv: Sequence[str]) -> str:
    lines = [f"command: {shlex.join(['nearfar', *argv])}", f"system: {platform.platform()}"]
    lines += [f"python: {sys.version.split()[0]}"]
    lines += [f"{name}: {package_version(name) or '(not installed)'}" for name in PACKAGES]
    lines += ["", *traceback.format_exception(error)]
    text = "\n".join(lines)
    try:
        number, log = tempfile.mkstemp(prefix="nearfar-bug-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"please report it with the following text; no file could be written.\n{text}"
    return f"please report it with the file {log}"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 4]} ..."
