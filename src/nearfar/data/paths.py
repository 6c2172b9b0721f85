"""Check paths before they are opened: existence, kind of file, suggestions for misspelt names. Opens no file."""

import os
import stat
from pathlib import Path

from nearfar.disk import check_regular
from nearfar.types import NearfarError
from nearfar.validation import format_text, nearest


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
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise NearfarError(f"{format_text(str(path))}: cannot be opened ({why}).") from None


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
    if is_folder(path):
        raise NearfarError(f"{path}: is a folder. Name a file.")
    if status(path) is None:
        raise missing_file_error(path)
    check_regular(path)


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
