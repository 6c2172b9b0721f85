"""Locks of files and folders, which end with the block or the process that holds them."""

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
HAS_FLOCK = _fcntl is not None
"""Whether any open file or folder can be locked. On Windows, ranges of bytes of a file can."""


def locked(path: Path, opened: Callable[[], int], *, busy: NearfarError | None, follow: bool = True) -> int:
    """The descriptor of a file or folder, locked where the file system can; to close it ends the lock.

    Args:
        path: what to lock.
        opened: opens it. Another process may have removed or replaced it before it is locked; then it is opened again.
        busy: the error if another process holds the lock; None to wait for it.
        follow: a symbolic link at ``path`` stands for what it points to.

    Raises:
        NearfarError: ``busy``.
    """
    while True:
        descriptor = opened()
        try:
            _lock(descriptor, busy)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=follow)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, busy: NearfarError | None) -> None:
    try:
        if HAS_FLOCK:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | (_fcntl.LOCK_NB if busy else 0))
        elif _msvcrt is not None:
            _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if busy and (isinstance(error, BlockingIOError) or not HAS_FLOCK):
            raise busy from None
        # else the file system does not support locks
