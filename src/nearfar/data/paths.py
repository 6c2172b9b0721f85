"""Check paths before they are opened: existence, kind of file, suggestions for misspelt names. Opens no file."""

import os
from pathlib import Path

from nearfar.disk import check_regular
from nearfar.disk.checks import expanded, path_errors
from nearfar.types import NearfarError
from nearfar.validation import format_value, nearest


def as_path(name: str | Path) -> Path:
    """Return the path of a name, with ``~`` resolved.

    Raises NearfarError for the home of an unknown user, and as :func:`check_encodable`.
    """
    check_encodable(name)
    return expanded(name)


def check_encodable(name: str | Path) -> None:
    """Raise NearfarError for a name with a NUL character, or that is not UTF-8: no result file could hold it."""
    try:
        if b"\0" not in str(name).encode():
            return
    except UnicodeEncodeError:
        pass
    raise NearfarError(f"{format_value(str(name))}: the name is not UTF-8, or holds a NUL character. Rename the file.")


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Size, time of modification and inode of a file, which differ after it was written or replaced; None if missing.

    Raises:
        OSError: the system denies access.
    """
    if not path.exists():
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


@path_errors()
def check_file(path: Path) -> None:
    """Raise unless ``path`` is a regular file: a pipe or a device may never end, and can be read only once.

    Raises:
        NearfarError: no such file, a folder, a pipe (``<(...)`` and ``/dev/stdin`` are pipes), a socket or a device.
    """
    check_encodable(path)
    if path.is_dir():
        raise NearfarError(f"{path}: is a folder. Name a file.")
    if not path.exists():
        raise missing_file_error(path)
    check_regular(path)


def missing_file_error(path: Path) -> NearfarError:
    """Return the error for a missing file, which suggests a file with a similar name in the same folder."""
    if not path.parent.is_dir():
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
