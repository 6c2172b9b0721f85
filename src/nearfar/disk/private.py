"""Files and folders that no other user of the machine can plant, replace or read.

Compiled code is loaded only from private folders, and temporary files in shared folders are never what another user
put there. On Windows the folders of a user are the user's own, so nothing is checked.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nearfar.disk.locks import HAS_FLOCK, locked
from nearfar.types import NearfarError

_HAS_OWNERS = hasattr(os, "getuid") and hasattr(os, "getgid")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(folder: Path) -> bool:
    """Whether ``folder`` is a folder, no link, that this user owns, and that nobody else can write to or replace.

    The folders above it must belong to this user or root; others may write to them only if they cannot rename what is
    not theirs (the sticky bit, as of ``/tmp``).
    """
    if not _HAS_OWNERS:
        return folder.is_dir()
    try:
        status = folder.lstat()
        parent = folder.absolute().parent.resolve()
        above = [path.stat() for path in (parent, *parent.parents)]
    except (OSError, RuntimeError):
        return False
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & _OTHERS_WRITE
    return own and not any(_is_replaceable(each) for each in above)


def private_temporary_folder(prefix: str, *, create: bool = True) -> Path | None:
    """A private folder of this user in the temporary folder, the same for all processes; None if there is none.

    Its name is ``prefix`` and random characters, so that nobody else can create it first.

    Args:
        prefix: start of the name.
        create: create the folder if there is none.
    """
    root = Path(tempfile.gettempdir())
    with suppress(OSError):
        if create and not _private_folders(root, prefix):
            tempfile.mkdtemp(prefix=prefix, dir=root)
        return next(iter(_private_folders(root, prefix)), None)
    return None


def refuse_planted(folder: Path, *, flag: str = "--output") -> None:
    """Refuse a folder of another user in a folder where every user can create files, such as ``/tmp``.

    Raises:
        NearfarError: the folder, or the link, belongs to another user.
    """
    if not _HAS_OWNERS:
        return
    try:
        status, parent = folder.lstat(), folder.absolute().parent.stat()
    except OSError:
        return
    shared = parent.st_mode & stat.S_ISVTX and parent.st_mode & stat.S_IWOTH
    if shared and status.st_uid not in (os.getuid(), parent.st_uid):
        raise NearfarError(
            f"{folder}: belongs to another user, in a folder that every user can write to; choose another {flag}."
        )


def _fresh_file(file: Path) -> None:
    """Create an empty file in place of whatever has this name; a link is replaced, not followed.

    Raises:
        OSError: what has this name cannot be removed, or the file cannot be created.
    """
    file.unlink(missing_ok=True)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


@contextmanager
def exclusive_file(file: Path, *, output: Path | None = None) -> Iterator[None]:
    """An empty file in place of whatever has this name, which no other call can replace or write to in the block.

    So of two processes that write the same file through the same temporary file, none publishes what the other has
    half written. A process that is killed leaves the file, but no lock. Without locks (Windows, some network file
    systems) it is only empty.

    Args:
        file: the temporary file.
        output: if given, the file that messages name, and another process that holds the lock is an error; by default
            this process waits for it.

    Raises:
        NearfarError: with ``output``, another process is writing the file.
        OSError: what has this name cannot be removed, or the file cannot be created.
    """
    if not HAS_FLOCK:
        _fresh_file(file)
        yield
        return

    def open_own() -> int:
        with suppress(FileNotFoundError):
            status = file.lstat()
            own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_nlink == 1
            usable = status.st_mode & stat.S_IRUSR and status.st_mode & stat.S_IWUSR
            if not own or not usable:  # nothing that another process of this user is writing
                _fresh_file(file)
        return os.open(file, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o666)

    busy = NearfarError(f"{output}: another process is writing it now; wait until it ends, or choose another path.")
    descriptor = locked(file, open_own, busy=busy if output else None, follow=False)
    try:
        os.ftruncate(descriptor, 0)
        yield
    finally:
        os.close(descriptor)


def _is_replaceable(status: os.stat_result) -> bool:
    """Whether another user can rename what is in this folder."""
    if status.st_uid not in (0, os.getuid()):
        return True
    group_is_own = status.st_gid == os.getuid() == os.getgid()  # as where each user has a group of the same name
    others = stat.S_IWOTH if group_is_own else _OTHERS_WRITE
    return bool(status.st_mode & others) and not status.st_mode & stat.S_ISVTX


def _private_folders(root: Path, prefix: str) -> list[Path]:
    return [folder for folder in sorted(root.glob(f"{prefix}*")) if is_private(folder)]
