"""Files and folders: written whole or not at all, read with clear errors, and locked.

A file is replaced as a whole or left as it was, and is flushed to the disk; so is a folder of one step, which is
written aside and renamed when it is complete. Compiled code is loaded only from private folders, which no other user
of the machine can plant, replace or read, and temporary files in shared folders are never what another user put there.
On Windows the folders of a user are the user's own, so nothing is checked. Locks end with the block or the process
that holds them.
"""

import csv
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.types import NearfarError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_MAX_NUMBER = 1e100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # one, or half a pair


@contextmanager
def read_errors(path: object) -> Iterator[None]:
    """Turn a failed read (a damaged disk, no permission) into a :class:`NearfarError` that names ``path``.

    Python's own error has no name if the file was opened before it failed.
    """
    try:
        yield
    except OSError as error:
        raise NearfarError(f"{path}: cannot be read ({error.strerror or error}).") from error


def check_regular(file: Path) -> None:
    """Refuse a pipe, a socket or a device, whose content may never end.

    Raises:
        NearfarError: the file is one of these.
        OSError: there is no file, or its mode cannot be read.
    """
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise NearfarError(f"{file}: is {kind}, not a regular file; write its content to a file first.")


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits.

    Raises:
        NearfarError: it is not a regular file, or cannot be read.
        OSError: it cannot be opened.
    """
    check_regular(file)
    with file.open("rb") as stream, read_errors(file):
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_text(file: Path, *, otherwise: str = "") -> str:
    """Return the text of a file that nearfar wrote.

    ``otherwise`` ends the error message of a damaged file: what to do about it.

    Raises:
        NearfarError: it is missing, is not a regular file, cannot be read, or is not UTF-8.
    """
    try:
        with read_errors(file):
            check_regular(file)
            return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise NearfarError(f"{file}: is damaged: byte {error.start} is not UTF-8 text. {otherwise}".rstrip()) from error


def read_json(file: Path, *, otherwise: str = "") -> Any:
    """Return the content of a JSON file that nearfar wrote.

    ``otherwise`` ends the error message: what to do about a damaged file.

    Raises:
        NearfarError: as :func:`read_text`, or it is not complete JSON, or it holds a number that is not finite or is
            above 1e100 in absolute value, or half a surrogate pair.
    """
    text = read_text(file, otherwise=otherwise)
    try:
        found = json.loads(text, parse_float=_number, parse_int=_number, parse_constant=_number)
        check_characters(found, text)
        return found
    except (ValueError, RecursionError) as error:
        raise NearfarError(f"{file}: is not a complete JSON file ({error}). {otherwise}".rstrip()) from error


def check_characters(value: Any, text: str) -> None:
    """ValueError if JSON, given as value and as text, holds half a surrogate pair, which cannot be written again."""
    if not _SURROGATE.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it holds half a surrogate pair, which is not a character") from None


def _number(text: str) -> int | float:
    """Parse a JSON number; ValueError if it is not finite or so large that it would overflow later."""
    if not math.isfinite(number := float(text)) or abs(number) > _MAX_NUMBER:
        raise ValueError(f"{text[:20]} is not finite, or too large")
    return int(text) if text.lstrip("-").isdecimal() else number


HAS_FLOCK = fcntl is not None
"""Whether files and folders can be locked: not on Windows."""


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
        if not HAS_FLOCK:
            return descriptor
        try:
            with suppress(FileNotFoundError):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
                except OSError as error:
                    if busy and isinstance(error, BlockingIOError):
                        raise busy from None
                    # else the file system does not support locks
                if os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=follow)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


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
        raise NearfarError(f"{folder}: belongs to another user, in a shared folder; choose another {flag}.")


def _is_replaceable(status: os.stat_result) -> bool:
    """Whether another user can rename what is in this folder."""
    if status.st_uid not in (0, os.getuid()):
        return True
    group_is_own = status.st_gid == os.getuid() == os.getgid()  # as where each user has a group of the same name
    others = stat.S_IWOTH if group_is_own else _OTHERS_WRITE
    return bool(status.st_mode & others) and not status.st_mode & stat.S_ISVTX


TABLES = (".tsv", ".csv", ".jsonl")
"""Suffixes of the tables that :func:`write_table` writes."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write (disk full, no permission) into a :class:`NearfarError` that names ``path``."""
    from safetensors import SafetensorError

    try:
        yield
    except Exception as error:
        of_tokenizers = type(error) is Exception and "(os error " in str(error)  # "Permission denied (os error 13)"
        if not isinstance(error, OSError | SafetensorError) and not of_tokenizers:
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NearfarError(f"{path}: cannot be written ({reason}). The previous version is unchanged.") from error


def write_text(file: Path, text: str) -> None:
    """Write a text file by :func:`new_file`.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, content: bytes) -> None:
    """Write a binary file by :func:`new_file`.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    with new_file(file) as temporary:
        temporary.write_bytes(content)


def write_npy(file: Path, dtype: "np.dtype[Any]", shape: tuple[int, ...], blocks: "Iterable[NDArray[Any]]") -> None:
    """Write a .npy file, little-endian, from blocks of its rows; one block is in memory at a time.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    import numpy as np

    stored = dtype.newbyteorder("<")
    layout = {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": shape}
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, layout)
        for block in blocks:
            stream.write(np.ascontiguousarray(block, stored).view(np.uint8).data)


def write_table(file: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows one at a time in the format of the file's suffix, of :data:`TABLES`, by :func:`new_file`.

    In TSV too, fields with quotation marks are enclosed, as pandas does it, so that they are read back as they are.

    Raises:
        NearfarError: the file cannot be written.
    """
    with new_file(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        if file.suffix == ".jsonl":
            for row in rows:
                stream.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n")
        else:
            writer = csv.writer(stream, delimiter="\t" if file.suffix == ".tsv" else ",", lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)


@contextmanager
def new_file(file: Path, *, refuse_busy: bool = False) -> Iterator[Path]:
    """The path of an empty file to write to, which becomes ``file`` at the end of the block, or is removed if it fails.

    It takes the place of whatever has its name, and no other call can replace or write to it in the block. So of two
    processes that write the same file, none publishes what the other has half written. A process that is killed leaves
    it, but no lock. Without locks (Windows, some network file systems) it is only empty.

    Args:
        file: the file. What has this name stays as it is until the block ends.
        refuse_busy: another process that writes the same file is an error; by default this process waits for it.

    Raises:
        NearfarError: the disk is full or cannot be written, or, with ``refuse_busy``, another process writes the file.
    """
    temporary = file.with_name(file.name + ".new")
    busy = NearfarError(f"{file}: another process is writing it now; wait until it ends, or choose another path.")

    def open_own() -> int:
        with suppress(FileNotFoundError):
            status = temporary.lstat()
            own = HAS_FLOCK and status.st_uid == os.getuid() and status.st_nlink == 1 and status.st_mode & stat.S_IWUSR
            if not own or not stat.S_ISREG(status.st_mode):  # nothing that another process of this user is writing
                temporary.unlink()
        return os.open(temporary, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o666)

    with disk_errors(file):
        lock = locked(temporary, open_own, busy=busy if refuse_busy else None, follow=False)
        try:
            os.ftruncate(lock, 0)
            yield temporary
            apply_umask(temporary)
            publish(temporary, file)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(lock)


@contextmanager
def new_file_in_folder(file: Path) -> Iterator[Path]:
    """As :func:`new_file`, for one writer of a library that writes to a file of another name first, and renames it.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    folder = file.with_name(file.name + ".new")
    with disk_errors(file):
        remove(folder)
        folder.mkdir(parents=True)
        try:
            yield folder / file.name
            apply_umask(folder)
            publish(folder / file.name, file)
        finally:
            remove(folder)


def publish(source: Path, target: Path, *, durable: bool = True) -> None:
    """Give a complete file or folder its name, on the same disk; a file of that name is replaced.

    It is flushed before it gets the name, and the name after that, so a power loss leaves all of it or nothing. All
    renames of nearfar are here.

    Raises:
        OSError: it cannot be flushed or renamed.
    """
    if durable:
        flush_tree(source)
    source.replace(target)
    if durable:
        for folder in dict.fromkeys((target.parent, source.parent)):
            flush_entries(folder)


def create_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and wait until their entries are on the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            break
        except FileExistsError:
            with suppress(FileNotFoundError):  # another process has removed the empty folder; it is made again
                if not stat.S_ISDIR(folder.stat().st_mode):
                    raise
    for path in missing:
        with suppress(FileNotFoundError):  # another process removed the empty folder
            flush_entries(path.parent)


def remove(path: Path) -> None:
    """Delete a file, or a folder with everything in it, if it exists.

    Raises:
        NearfarError: it cannot be deleted.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise NearfarError(f"{path}: cannot be deleted ({error.strerror or error}). Delete it.") from error


def flush_tree(path: Path) -> None:
    """Wait until a file, or a folder and everything in it, is on the disk; not its entry in its folder.

    Symbolic links are not followed.
    """
    for part in (*sorted(path.rglob("*"), reverse=True), path):
        if not part.is_symlink():
            flush_entries(part)


def flush_entries(path: Path) -> None:
    """Wait until a file, or the entries of a folder (names, renames), are on the disk; not what is in its files."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder, and so cannot flush one
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def apply_umask(path: Path) -> None:
    """Set the permissions of a file, or of a folder and its contents, to what the process's umask allows.

    Libraries that write through a temporary file leave files that only the owner can read.
    """
    if os.name == "nt":
        return
    umask = _umask()
    for part in (path, *path.rglob("*")):
        if not part.is_symlink():
            mode = part.stat().st_mode
            part.chmod((stat.S_IMODE(mode) & ~0o777) | ((0o777 if part.is_dir() else 0o666) & ~umask))


def _umask() -> int:
    """Return the process's umask, from /proc where possible: setting it to read it races with other threads."""
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("\nUmask:")[2].split()[0], 8)
    umask = os.umask(0o022)
    os.umask(umask)
    return umask
