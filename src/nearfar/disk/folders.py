"""Folders that one process holds, and folders of one step that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nearfar import disk
from nearfar.disk.checks import check_writable_folder, path_errors
from nearfar.types import NearfarError


class FolderBusyError(NearfarError):
    """Another process holds the lock of a folder."""


@contextmanager
def folder_lock(
    folder: Path, *, what: object = None, remove_if_empty: bool = False, flag: str = "--output"
) -> Iterator[None]:
    """Create the folder if needed, and lock it until the block ends or this process dies.

    A folder that this call created is removed at the end if it is still empty, with the parents created for it.

    Args:
        folder: what to lock.
        what: the file or folder that messages name, by default the folder.
        remove_if_empty: remove an empty folder at the end, even if it existed before.
        flag: the flag that names another folder, for messages.

    Raises:
        FolderBusyError: another process holds the lock.
        NearfarError: the folder cannot be created, or another user planted it in a shared folder.
    """
    busy = FolderBusyError(
        f"{what or folder}: another process is using it now; wait until it ends, or choose another {flag}."
    )
    created: list[Path] = []

    def open_folder() -> int:
        while True:
            created[:] = [path for path in (folder, *folder.parents) if not path.exists()]
            disk.create_folder(folder)
            disk.refuse_planted(folder, flag=flag)
            if not disk.HAS_FLOCK:
                return os.open(os.devnull, os.O_RDONLY)
            with suppress(FileNotFoundError):  # another process removed the empty folder
                return os.open(folder, os.O_RDONLY)

    with disk.disk_errors(folder):
        descriptor = disk.locked(folder, open_folder, busy=busy)
    try:
        yield
    finally:
        try:
            for path in dict.fromkeys([*([folder] if remove_if_empty else []), *created]):
                with suppress(OSError):
                    path.rmdir()
                    disk.flush_entries(path.parent)
        finally:
            os.close(descriptor)  # held until the folder is removed


@path_errors()
def check_new_folder(output: Path) -> None:
    """Raise an error now if ``output`` could not become a new folder at the end of a long computation.

    Missing parent folders are made later, by :func:`new_folder`. An empty folder counts as new.

    Raises:
        NearfarError: it exists and is no empty folder, has no name, or is in a file or an unwritable folder.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        forget_folder(output)
        raise NearfarError(f"--output {output}: already exists; choose another folder.")
    if not output.name or output.name == "..":
        raise NearfarError(f"--output {output}: name a new folder.")
    check_writable_folder(output.absolute().parent, output)


@contextmanager
def new_folder(output: Path, *, replace: bool = False, flag: str = "--output") -> Iterator[Path]:
    """An empty folder to write into, which becomes ``output`` at the end of the block, or is removed if it fails.

    While it is written it is ``.NAME.new/folder``. With ``replace``, the folder that has the name is ``.NAME.old``
    between two renames; :func:`restore_folder` undoes the first one if the process ended there.

    Args:
        output: the folder. Missing parent folders are created; an empty folder is replaced.
        replace: replace a folder that has something in it.
        flag: the flag that names another folder, for messages.

    Raises:
        NearfarError: the disk is full or cannot be written; ``output`` is no longer free, or another process makes it.
    """
    with disk.disk_errors(output):
        disk.create_folder(output.parent)
        temporary, old = _temporary(output), _old(output)
        fresh = temporary / "folder"
        with folder_lock(temporary, what=output, remove_if_empty=True, flag=flag):
            shutil.rmtree(fresh, ignore_errors=True)  # what a killed call left
            restore_folder(output)
            try:
                fresh.mkdir()
                yield fresh
                disk.apply_umask(fresh)
                disk.flush_tree(fresh)
                if output.is_dir() and not any(output.iterdir()):
                    output.rmdir()
                elif replace and output.exists():
                    # In the same folder as the next rename, so never both undone.
                    disk.publish(output, old, durable=False)
                disk.publish(fresh, output)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
                restore_folder(output)


def restore_folder(output: Path) -> None:
    """Give a folder its name again if a call that replaced it ended between its two renames; else remove the old one.

    Raises:
        OSError: it cannot be renamed.
    """
    old = _old(output)
    if output.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        disk.publish(old, output)


def forget_folder(output: Path) -> None:
    """Remove what a process that was killed, or lost its power, left beside ``output``: another half, or an old one."""
    temporary = _temporary(output)
    shutil.rmtree(_old(output), ignore_errors=True)
    if temporary.is_dir():
        with suppress(OSError, NearfarError), folder_lock(temporary, remove_if_empty=True):
            shutil.rmtree(temporary / "folder", ignore_errors=True)


def _temporary(output: Path) -> Path:
    return output.with_name(f".{output.name}.new")


def _old(output: Path) -> Path:
    return output.with_name(f".{output.name}.old")
