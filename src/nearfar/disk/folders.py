"""Output folders of one step: checked before the work, written aside, and renamed when they are complete."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nearfar.disk.checks import check_writable_folder, path_errors
from nearfar.disk.locking import folder_lock
from nearfar.disk.writing import apply_umask, create_folder, disk_errors, flush_entries, flush_tree
from nearfar.types import NearfarError


@path_errors()
def check_new_folder(output: Path, *, flag: str = "--output") -> None:
    """Raise an error now if ``output`` could not become a new folder at the end of a long computation.

    Missing parent folders are made later, by :func:`new_folder`. An empty folder counts as new.

    Raises:
        NearfarError: it exists and is no empty folder, has no name, or is in a file or an unwritable folder.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        _remove_leftover(output)
        raise NearfarError(f"{flag} {output}: already exists; choose another folder.")
    if not output.name or output.name == "..":
        raise NearfarError(f"{flag} {output}: name a new folder.")
    check_writable_folder(output.absolute().parent, output, flag=flag)


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder to write into, which becomes ``output`` at the end of the block; a kill leaves no half of it there.

    Raises:
        NearfarError: the disk is full or cannot be written; ``output`` is no longer free, or another process makes it.
    """
    with disk_errors(output):
        create_folder(output.parent)
        temporary = _temporary(output)  # the next call removes what a killed one left
        fresh = temporary / "folder"
        with folder_lock(temporary, what=output, remove_if_empty=True):
            shutil.rmtree(fresh, ignore_errors=True)
            try:
                yield fresh
                apply_umask(fresh)
                flush_tree(fresh)
                if output.is_dir():
                    output.rmdir()
                fresh.rename(output)
                flush_entries(temporary)
                flush_entries(output.parent)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)


def _remove_leftover(output: Path) -> None:
    """Remove what a process that was killed, or lost its power, left when its folder had become ``output``."""
    temporary = _temporary(output)
    if temporary.is_dir():
        with suppress(OSError, NearfarError), folder_lock(temporary, remove_if_empty=True):
            shutil.rmtree(temporary / "folder", ignore_errors=True)


def _temporary(output: Path) -> Path:
    return output.with_name(f".{output.name}.new")
