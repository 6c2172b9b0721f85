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
_OUT_OF_MEMORY = ("can't allocate memory", "Cannot allocate memory")
_MEMORY_ADVICE = (
    "choose a smaller --micro-batch, which leaves the gradient of a training unchanged, a smaller --batch-size or "
    "--max-length, fewer --processes, or a smaller model"
)
MAX_MESSAGE_CHARS = 300
PACKAGES = ("nearfar", "torch", "transformers", "sentence-transformers", "datasets", "tokenizers", "numpy")


def describe_exception(error: Exception, argv: Sequence[str]) -> tuple[int, str]:
    """The exit status and the message for ``error``.

    The message is empty if the reader of the output has closed it, as ``head`` does. With ``NEARFAR_DEBUG=1`` an
    unexpected ``error`` is raised again.
    """
    if isinstance(error, BrokenPipeError) and _is_output_closed():
        _discard_output()
        return EXIT_PIPE_CLOSED, ""
    error = torch_file_error(error) or error
    command = _truncate(shlex.join(["nearfar", *argv]))
    about = _file_of(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _discard_unwritable_output()
        return 2, f"{command}: {about}no space is left on the disk; free some, or write to another place."
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return 2, f"{command}: {about}too many open files; raise the limit, as by ulimit -n 4096, and try again."
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        reason = f"{about or 'a file: '}cannot be used ({error.strerror})"
        return 2, f"{command}: {reason}; check the disk and the permissions."
    if _is_out_of_memory(error):
        return 2, f"{command}: out of memory; {_MEMORY_ADVICE}."
    if os.environ.get("NEARFAR_DEBUG") == "1":
        raise error
    reason = " ".join(str(error).split())
    what = f"{about}{type(error).__name__}{f' ({_truncate(reason)})' if reason else ''}"
    return EXIT_FAULT, f"{command}: {what}: this is a bug in nearfar: {_write_fault_log(error, argv)}"


def torch_file_error(error: Exception) -> OSError | None:
    """The OSError for which torch raised a RuntimeError, or None."""
    found = _TORCH_FILE_ERROR.search(str(error)) if isinstance(error, RuntimeError) else None
    return OSError(int(found["errno"]), found["reason"], found["file"]) if found else None


def _is_output_closed() -> bool:
    """Whether the reader of stdout has closed it; a broken pipe may also be that of a worker."""
    with suppress(AttributeError, OSError, ValueError):  # no file
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))
    return sys.platform == "win32"  # has no poll


def _discard_unwritable_output() -> None:
    """:func:`_discard_output`, if stdout is what cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    except (AttributeError, ValueError):  # no file
        pass


def _discard_output() -> None:
    """Redirect stdout, which cannot be written: Python would write its buffer at exit, and fail with status 120."""
    with suppress(AttributeError, OSError, ValueError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _file_of(error: Exception) -> str:
    names = [error.filename, error.filename2] if isinstance(error, OSError) else []
    return "".join(f"{_truncate(os.fsdecode(name))}: " for name in names if isinstance(name, (str, bytes, os.PathLike)))


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if type(error).__name__ == "OutOfMemoryError":  # torch's, of a GPU
        return True
    # of this machine's memory, as torch and OpenVINO say it
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _OUT_OF_MEMORY)


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
