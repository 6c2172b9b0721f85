"""Write files atomically: a file is replaced as a whole or left as it was, and is flushed to the disk."""

import csv
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.disk.private import exclusive_file
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TABLES = (".tsv", ".csv", ".jsonl")
"""Suffixes of the tables that :func:`write_table` writes."""
_CAN_OPEN_FOLDERS = os.name != "nt"  # Windows cannot open a folder, and so cannot flush one


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write (disk full, no permission) into a :class:`NearfarError` that names ``path``."""
    from safetensors import SafetensorError

    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError | SafetensorError) and not _is_error_of_tokenizers(error):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NearfarError(
            f"{path}: cannot be written ({reason}). The previous version is unchanged; free some space, or choose "
            "another path."
        ) from error


def _is_error_of_tokenizers(error: Exception) -> bool:
    """Whether the package tokenizers could not write a file, as in ``Exception("Permission denied (os error 13)")``."""
    return type(error) is Exception and "(os error " in str(error)


def write_text(file: Path, text: str) -> None:
    """Write a text file by :func:`new_file`.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    with new_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


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


class _Line:
    """What a CSV writer writes to: ``writerow`` returns the line."""

    write = staticmethod(str)


def table_lines(kind: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    r"""The lines of a table: ``.jsonl``, or with a header ``.csv`` or ``.tsv``.

    In TSV too, fields with quotation marks are enclosed, as pandas does it, so that they are read back as they are.

    >>> list(table_lines(".csv", ["text", "score"], [("a, b", 0.5)]))
    ['text,score\n', '"a, b",0.5\n']
    """
    if kind == ".jsonl":
        return (
            json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n" for row in rows
        )
    every = chain([columns], rows)
    writer = csv.writer(_Line, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
    return map(writer.writerow, every)


def write_table(file: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows one at a time in the format of the file's suffix (:func:`table_lines`), by :func:`new_file`.

    Raises:
        NearfarError: the file cannot be written.
    """
    with new_file(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(table_lines(file.suffix, columns, rows))


@contextmanager
def new_file(file: Path, *, refuse_busy: bool = False, durable: bool = True) -> Iterator[Path]:
    """The path of an empty file to write to, which becomes ``file`` at the end of the block, or is removed if it fails.

    Args:
        file: the file. What has this name stays as it is until the block ends.
        refuse_busy: another process that writes the same file is an error; by default this process waits for it.
        durable: wait until the file is on the disk. Otherwise it survives a kill, but perhaps no power loss.

    Raises:
        NearfarError: the disk is full or cannot be written, or, with ``refuse_busy``, another process writes the file.
    """
    temporary = file.with_name(file.name + ".new")
    with disk_errors(file), exclusive_file(temporary, output=file if refuse_busy else None):
        try:
            yield temporary
            apply_umask(temporary)
            publish(temporary, file, durable=durable)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def publish(source: Path, target: Path, *, durable: bool = True) -> None:
    """Give a complete file or folder its name, on the same disk; a file of that name is replaced.

    It is flushed before it gets the name, and the name after that, so a power loss leaves all of it or nothing. All
    renames of nearfar are here.

    Raises:
        OSError: it cannot be flushed or renamed.
    """
    if durable:
        flush_tree(source) if source.is_dir() else _fsync(source, is_folder=False)
    source.replace(target)
    if durable:
        for folder in dict.fromkeys((target.parent, source.parent)):
            flush_entries(folder)


def create_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and wait until their entries are on the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
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
        raise NearfarError(
            f"{path}: cannot be deleted ({error.strerror or error}). Run the command again, or delete it."
        ) from error


def flush(path: Path) -> None:
    """Wait until a file, or each file of a folder, is on the disk, and the folder entries too."""
    for part in (*(path.iterdir() if path.is_dir() else ()), path, path.parent):
        _fsync(part, is_folder=not _CAN_OPEN_FOLDERS and part.is_dir())


def flush_tree(folder: Path) -> None:
    """Wait until a folder and everything in it, in subfolders too, is on the disk; not its entry in its parent.

    Symbolic links are not followed.
    """
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode):
                _fsync(path, is_folder=False)
        _fsync(Path(parent), is_folder=True)


def flush_entries(folder: Path) -> None:
    """Wait until the entries of a folder (names, renames) are on the disk, not the contents of its files."""
    _fsync(folder, is_folder=True)


def _fsync(path: Path, *, is_folder: bool) -> None:
    if is_folder and not _CAN_OPEN_FOLDERS:
        return
    descriptor = os.open(path, os.O_RDONLY if _CAN_OPEN_FOLDERS else os.O_RDWR)
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
    paths = [str(path)]
    for folder, folders, files in os.walk(path):
        paths += [os.path.join(folder, name) for name in (*folders, *files)]
    for name in paths:
        mode = os.lstat(name).st_mode
        if stat.S_ISLNK(mode):
            continue
        wanted = (0o777 if stat.S_ISDIR(mode) else 0o666) & ~umask
        if stat.S_IMODE(mode) & 0o777 != wanted:
            os.chmod(name, (stat.S_IMODE(mode) & ~0o777) | wanted)


def _umask() -> int:
    """Return the process's umask, from /proc where possible: setting it to read it races with other threads."""
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("\nUmask:")[2].split()[0], 8)
    umask = os.umask(0o022)
    os.umask(umask)
    return umask
