"""Writing so that a kill, a full disk or a cut cable leaves the old file whole and never half of a new one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
