"""Pins a worker to cores that no other worker on this machine uses."""

import os

from nearfar.disk import FolderBusyError, folder_lock, private_temporary_folder
from nearfar.types import NearfarError


def pin(count: int) -> list[int]:
    """Restrict this process to ``count`` cores that no other pinned worker of this user has, until it ends.

    Cores are claimed by locks on folders in a private temporary folder. Returns the cores; empty, and
    nothing is changed, if the platform cannot pin or fewer cores are free.
    """
    if not (hasattr(os, "sched_getaffinity") and hasattr(os, "getuid")):
        return []
    if (root := private_temporary_folder("nearfar-cores-")) is None:
        return []
    locks, claimed = [], []
    for core in sorted(os.sched_getaffinity(0)):
        lock = folder_lock(root / str(core))
        try:
            lock.__enter__()
        except FolderBusyError:
            continue
        except NearfarError:  # the temporary folder cannot be written
            break
        locks.append(lock)
        claimed.append(core)
        if len(claimed) == count:
            os.sched_setaffinity(0, claimed)
            _HELD.extend(locks)
            return claimed
    for lock in locks:
        lock.__exit__(None, None, None)
    return []


_HELD: list[object] = []
"""Locks that this process keeps."""
