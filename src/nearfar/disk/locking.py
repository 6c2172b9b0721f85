"""Lock a folder, so that one process at a time works in it."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nearfar.disk.private import refuse_planted
from nearfar.disk.writing import create_folder, disk_errors, flush_entries
from nearfar.types import NearfarError

LOCK = ".lock"
"""A file in a locked folder, on systems that cannot lock the folder itself."""


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")


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
    with disk_errors(folder):
        descriptor, created = _lock(folder, what or folder, flag)
    try:
        yield
    finally:
        if _fcntl is None and descriptor is not None:  # Windows cannot remove an open file
            os.close(descriptor)
            with suppress(OSError):
                (folder / LOCK).unlink()
        try:
            for path in dict.fromkeys([*([folder] if remove_if_empty else []), *created]):
                with suppress(OSError):
                    path.rmdir()
                    flush_entries(path.parent)
        finally:
            if _fcntl is not None and descriptor is not None:  # held until the folder is removed
                os.close(descriptor)


def _lock(folder: Path, what: object, flag: str) -> tuple[int | None, list[Path]]:
    """Return the file descriptor that holds the lock, and the folders created for it, innermost first."""
    while True:
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        create_folder(folder)
        refuse_planted(folder, flag=flag)
        if _fcntl is None and _msvcrt is None:
            return None, created
        path = folder if _fcntl is not None else folder / LOCK
        try:
            descriptor = os.open(path, os.O_RDONLY if _fcntl is not None else os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # another process removed the empty folder
            continue
        try:
            _flock(descriptor, what, flag)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor, created
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _flock(descriptor: int, what: object, flag: str) -> None:
    busy = FolderBusyError(f"{what}: another process is using it now; wait until it ends, or choose another {flag}.")
    if _fcntl is None:
        try:
            _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
        except OSError:
            raise busy from None
        return
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy from None
    except OSError:  # the file system does not support locks
        return
