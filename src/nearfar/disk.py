"""Writing so that a kill, a full disk or a cut cable leaves the old file whole and never half of a new one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nearfar.types import NearfarError


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn what the disk refuses into a :class:`NearfarError` that names the place."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NearfarError(
            f"{place}: cannot be written ({reason}). What was saved before is untouched; make room or choose another "
            "place."
        ) from error


def write_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    fresh = file.with_name(file.name + ".new")
    with disk_errors(file):
        try:
            fresh.write_text(text, encoding="utf-8")
            flush(fresh)
            fresh.replace(file)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def flush(place: Path) -> None:
    """Wait until the file, or each file of the folder, is on the disk, and the names too."""
    for path in (*(place.iterdir() if place.is_dir() else ()), place, place.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def apply_umask(place: Path) -> None:
    """Give the file, or the folder and all in it, the permissions that the process's umask says."""
    mask = _umask()
    for path in (place, *(place.rglob("*") if place.is_dir() else ())):
        if not path.is_symlink():
            path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _umask() -> int:
    """The process's umask; where Linux tells it, without setting it, which other threads would notice."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
