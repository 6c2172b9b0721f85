"""Check paths before they are opened: existence, kind of file, suggestions for misspelt names. Opens no file."""

import errno
import os
import stat
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from nearfar.disk import check_regular
from nearfar.types import NearfarError

_MAX_CANDIDATES = 1000
"""Maximum number of names to search for a suggestion: difflib takes seconds for a million."""


def as_path(name: str | Path) -> Path:
    """Return the path of a name, with ``~`` resolved.

    Raises NearfarError for the home of an unknown user and for a name that is not UTF-8.
    """
    check_encodable(name)
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise NearfarError(f"{name}: {error} Write the full path.") from None


def check_encodable(name: str | Path) -> None:
    """Raise NearfarError for a name that is not UTF-8: it could not be written to a result file."""
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise NearfarError(f"{str(name)!r}: the name is not UTF-8. Rename the file.") from None


def status(path: Path) -> os.stat_result | None:
    """Return the file status of ``path``, following links, or None if it does not exist.

    Raises NearfarError for an invalid file name, and if the system denies access.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise NearfarError(f"{str(path)!r}: a file name cannot contain a NUL character.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = str(path)
            raise NearfarError(
                f"{name[:40]}...{name[-20:]}: {len(name)} characters are too long for a file name."
            ) from None
        raise NearfarError(f"{path}: cannot be opened ({error.strerror}).") from None


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Size, time of modification and inode of a file, which differ after it was written or replaced; None if missing.

    Raises NearfarError as :func:`status`.
    """
    found = status(path)
    return None if found is None else (found.st_size, found.st_mtime_ns, found.st_ino)


def is_file(path: Path) -> bool:
    """Whether ``path`` is a regular file; for errors see :func:`status`."""
    found = status(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; for errors see :func:`status`."""
    found = status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def check_file(path: Path) -> None:
    """Raise unless ``path`` is a regular file: a pipe or a device may never end, and can be read only once.

    Raises:
        NearfarError: no such file, a folder, a pipe (``<(...)`` and ``/dev/stdin`` are pipes), a socket or a device.
    """
    check_encodable(path)
    found = status(path)
    if found is None:
        raise missing_file_error(path)
    if stat.S_ISDIR(found.st_mode):
        raise NearfarError(f"{path}: is a folder. Name a file.")
    try:
        check_regular(path)
    except NearfarError as error:
        raise NearfarError(
            f"{error} Input is read more than once: write the content to a file first, and name that file."
        ) from None


def missing_file_error(path: Path) -> NearfarError:
    """Return the error for a missing file, which suggests a file with a similar name in the same folder."""
    if not is_folder(path.parent):
        return NearfarError(f"{path}: no such file; the folder {path.parent} does not exist.")
    names = list_names(path.parent)
    if path.name in names:
        return NearfarError(f"{path}: is a link to a file that does not exist.")
    return NearfarError(f"{path}: no such file.{nearest(path.name, names)}")


def list_names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; an empty list if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a question that suggests the most similar of ``names``, to end a message with, or an empty string."""
    others = [other for other in names[:_MAX_CANDIDATES] if other != name]
    close = get_close_matches(name[:200], others, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def shown(value: object, *, most: int = 80) -> str:
    """Return the repr of ``value`` for messages, truncated to ``most`` characters.

    >>> shown("tab\\t"), shown([0] * 100, most=10)
    ("'tab\\\\t'", '[0, 0, 0, ...')
    """
    try:
        written = repr(value[: most + 1] if isinstance(value, str | bytes | list) else value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return written if len(written) <= most else f"{written[:most]}..."
