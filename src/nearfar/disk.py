"""Files and folders: written whole or not at all, read with one clear sentence on failure, one process at a time."""

import importlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EPERM, EROFS
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError

LOCK = ".lock"
"""A file in a locked folder, on systems that cannot lock a folder itself."""
_MAX_NUMBER = 1e100
_PATH_ERRNOS = {EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EPERM, EROFS}
_CAN_OPEN_FOLDERS = os.name != "nt"  # Windows opens no folders, so it cannot flush them either


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")


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


@contextmanager
def path_errors() -> Iterator[None]:
    """Turn what the system says of a path (name too long, no permission) into a :class:`NearfarError` that names it.

    Also a decorator, for functions that are given paths.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _PATH_ERRNOS or error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        shown = name if len(name) <= 160 else f"{name[:80]}...{name[-40:]}"
        way = "choose a shorter one" if error.errno == ENAMETOOLONG else "check its permissions, or choose another"
        raise NearfarError(f"{shown}: this path cannot be used ({error.strerror}); {way}.") from error


def read_text(file: Path) -> str:
    """The text of a file of nearfar's own.

    Raises:
        NearfarError: it is missing, is no regular file, cannot be read, or is not UTF-8.
    """
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
            raise NearfarError(f"{file}: is {kind}, not a regular file.")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise NearfarError(f"{file}: is damaged: byte {error.start} is not UTF-8 text.") from error


def read_json(file: Path, *, otherwise: str = "") -> Any:
    """The content of a JSON file of nearfar's own.

    ``otherwise`` says what to do about a damaged file.

    Raises:
        NearfarError: as :func:`read_text`, or it is not a whole JSON file.
    """
    text = read_text(file)
    try:
        return json.loads(text, parse_float=_number, parse_int=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise NearfarError(f"{file}: is not a whole JSON file ({error}). {otherwise}".rstrip()) from error


def _number(text: str) -> int | float:
    """A number of a JSON file; an error for what is none, or so large that it would overflow elsewhere."""
    if not math.isfinite(number := float(text)) or abs(number) > _MAX_NUMBER:
        raise ValueError(f"{text[:20]} is no number that is ever written")
    return int(text) if text.lstrip("-").isdecimal() else number


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
            with suppress(OSError):
                fresh.unlink()
            raise


def flush(place: Path) -> None:
    """Wait until the file, or each file of the folder, is on the disk, and the names too."""
    for path in (*(place.iterdir() if place.is_dir() else ()), place, place.parent):
        if not _CAN_OPEN_FOLDERS and path.is_dir():
            continue
        descriptor = os.open(path, os.O_RDONLY if _CAN_OPEN_FOLDERS else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def apply_umask(place: Path) -> None:
    """Give the file, or the folder and all in it, the permissions that the process's umask says.

    Libraries that write by way of a temporary file leave files that nobody but the owner can read.
    """
    if os.name == "nt":
        return
    umask = _umask()
    found = [str(place)]
    for folder, folders, files in os.walk(place):
        found += [os.path.join(folder, name) for name in (*folders, *files)]
    for path in found:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            continue
        wanted = (0o777 if stat.S_ISDIR(mode) else 0o666) & ~umask
        if stat.S_IMODE(mode) & 0o777 != wanted:
            os.chmod(path, (stat.S_IMODE(mode) & ~0o777) | wanted)


def _umask() -> int:
    """The process's umask; asked of the system, as reading it by setting it would race with other threads."""
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("\nUmask:")[2].split()[0], 8)
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


@contextmanager
def folder_lock(folder: Path, *, what: object = None, remove_if_empty: bool = False) -> Iterator[None]:
    """Make the folder, and keep other processes out of it until the end of the block, or the death of this process.

    If this made the folder and it is still empty at the end, it is removed, and the parents that were made with it.

    Args:
        folder: what to lock.
        what: the file or folder that messages name, by default the folder.
        remove_if_empty: remove an empty folder at the end, even one that was there before.

    Raises:
        NearfarError: another process is in it, or it cannot be made.
    """
    with disk_errors(folder):
        descriptor, made = _lock(folder, what or folder)
    try:
        yield
    finally:
        if _fcntl is None and descriptor is not None:  # Windows removes no file that is open
            os.close(descriptor)
            with suppress(OSError):
                (folder / LOCK).unlink()
        try:
            for path in dict.fromkeys([*([folder] if remove_if_empty else []), *made]):
                with suppress(OSError):
                    path.rmdir()
        finally:
            if _fcntl is not None and descriptor is not None:  # held until the folder is gone
                os.close(descriptor)


def _lock(folder: Path, what: object) -> tuple[int | None, list[Path]]:
    """The descriptor that holds the lock, and the folders that were made, the innermost first."""
    while True:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if _fcntl is None and _msvcrt is None:
            return None, made
        place = folder if _fcntl is not None else folder / LOCK
        try:
            descriptor = os.open(place, os.O_RDONLY if _fcntl is not None else os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # another process removed it as empty
            continue
        try:
            _flock(descriptor, what)
            if os.path.samestat(os.fstat(descriptor), os.stat(place)):
                return descriptor, made
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _flock(descriptor: int, what: object) -> None:
    busy = NearfarError(f"{what}: another process is using it now; wait until it ends, or choose another --output.")
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
    except OSError:  # a file system that knows no locks
        return


@path_errors()
def check_output_path(file: Path, *, flag: str = "--output") -> None:
    """Refuse an output file that could not be written, before hours are spent on what it would hold.

    Raises:
        NearfarError: it is a folder, its name is too long, or its folder is missing, a file or not writable.
    """
    if file.is_dir():
        raise NearfarError(f"{flag} {file}: is a folder; name a file.")
    if not file.parent.exists():
        raise NearfarError(f"{flag} {file}: there is no folder {file.parent}.")
    if not file.parent.is_dir():
        raise NearfarError(f"{flag} {file}: {file.parent} is a file, not a folder.")
    if not os.access(file.parent, os.W_OK):
        raise NearfarError(f"{flag} {file}: the folder {file.parent} cannot be written to; choose another place.")
    file.with_name(file.name + ".partial").exists()  # the longest name that stands in for it while it is written


@path_errors()
def refuse_overwriting_inputs(output: Path, inputs: Iterable[object], *, flag: str = "--output") -> None:
    """Refuse an output that is one of the inputs, by whatever name or link.

    ``inputs`` that are no paths, or are not there, are passed over.

    Raises:
        NearfarError: it is one of them.
    """
    places = [place for place in (output, output.with_name(output.name + ".new")) if place.exists()]
    for given in inputs:
        if not places or not isinstance(given, str | Path):
            continue
        source = Path(given).expanduser()
        if source.is_file() and any(place.samefile(source) for place in places):
            raise NearfarError(f"{flag} {output}: would overwrite the input {given}; choose another {flag}.")


@path_errors()
def refuse_existing(files: Iterable[Path], *, overwrite: bool, what: str = "exists") -> None:
    """Refuse to replace a file without ``--overwrite``.

    Raises:
        NearfarError: one of them is there.
    """
    for file in files:
        if not overwrite and os.path.lexists(file):
            raise NearfarError(f"--output {file}: {what}; replace it by --overwrite, or choose another --output.")


@path_errors()
def model_of_run(folder: Path) -> Path:
    """The model of a finished run's folder; any other folder stands for itself.

    Raises:
        NearfarError: it is a run that is not finished or has lost its model, or a group of runs.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / "run.json").is_file():
        if not (folder / "model").is_dir():
            raise NearfarError(f"{folder}: is a finished run, but its folder model is missing; train it again.")
        return folder / "model"
    seeds = sorted(one.name for one in folder.glob("seed-*") if (one / "config.toml").is_file())
    if seeds:
        done = (
            "a group of runs" if (folder / "group.json").is_file() else "a group that is not finished (no group.json)"
        )
        raise NearfarError(f"{folder}: is {done}; name one of its runs, such as {folder / seeds[0]}.")
    if (folder / "config.toml").is_file() and any(
        (folder / name).exists() for name in ("inputs.json", "metrics.jsonl")
    ):
        raise NearfarError(f"{folder}: is a run that is not finished (no run.json); finish it by --resume.")
    return folder
