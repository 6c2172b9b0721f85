"""Names of files: what each stands for, told before anything is opened. Nothing here reads a byte of a file."""

import errno
import os
import stat
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from nearfar.types import NearfarError

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_CANDIDATES = 1000
"""So many names are searched for a near one: difflib takes seconds for a million."""


def as_path(name: str | Path) -> Path:
    """Return the path of a name, with ``~`` resolved.

    Raises NearfarError for the home of an unknown user and for a name that is no text.
    """
    check_name(name)
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise NearfarError(f"{name}: {error} Write the folder in full.") from None


def check_name(name: str | Path) -> None:
    """Raise NearfarError for a name that is not UTF-8, which could not be written into a result."""
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise NearfarError(f"{str(name)!r}: the name is not UTF-8. Rename the file.") from None


def status(path: Path) -> os.stat_result | None:
    """Return what the system says of ``path``, links followed, or None where nothing is there.

    Raises NearfarError for a name that no file can have, and where the system refuses to look.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise NearfarError(f"{str(path)!r}: the name holds a NUL character, which no file name can.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = str(path)
            raise NearfarError(
                f"{name[:40]}...{name[-20:]}: {len(name)} characters are too long for a file name."
            ) from None
        raise NearfarError(f"{path}: cannot be opened ({error.strerror}).") from None


def is_file(path: Path) -> bool:
    """Whether ``path`` is a regular file; for errors see :func:`status`."""
    found = status(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; for errors see :func:`status`."""
    found = status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def check_file(path: Path) -> None:
    """Refuse what is no regular file: a pipe or a device may never end, and can be read only once.

    Raises:
        NearfarError: nothing of that name, a folder, a pipe (``<(...)`` and ``/dev/stdin`` are pipes), a socket or a
            device.
    """
    check_name(path)
    found = status(path)
    if found is None:
        raise no_such_file(path)
    if stat.S_ISDIR(found.st_mode):
        raise NearfarError(f"{path}: is a folder. Name a file.")
    for is_kind, kind in _KINDS:
        if is_kind(found.st_mode):
            raise NearfarError(
                f"{path}: is {kind}, not a regular file. Files are read more than once: write the content to a file "
                "first, and name that."
            )


def no_such_file(path: Path) -> NearfarError:
    """Return the error for a missing file; it names the nearest file in that folder, or says that there is none."""
    if not is_folder(path.parent):
        return NearfarError(f"{path}: no such file, nor the folder {path.parent}.")
    names = names_in(path.parent)
    if path.name in names:
        return NearfarError(f"{path}: is a link to a file that is not there.")
    return NearfarError(f"{path}: no such file.{nearest(path.name, names)}")


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none where it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a question that offers the nearest of ``names``, to be put behind a message, or nothing."""
    others = [other for other in names[:_CANDIDATES] if other != name]
    close = get_close_matches(name[:200], others, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def shown(value: object, *, most: int = 80) -> str:
    """Return ``value`` as it is written in code, cut where it is long, for messages.

    >>> shown("tab\\t"), shown([0] * 100, most=10)
    ("'tab\\\\t'", '[0, 0, 0, ...')
    """
    try:
        written = repr(value[: most + 1] if isinstance(value, str | bytes | list) else value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return written if len(written) <= most else f"{written[:most]}..."
