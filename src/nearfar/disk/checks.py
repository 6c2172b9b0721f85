"""Checks of files and folders before the work: where an output may be written, and what may not be replaced."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EPERM, EROFS
from pathlib import Path

from nearfar.types import NearfarError

_PATH_ERRNOS = {EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EPERM, EROFS}


@contextmanager
def path_errors() -> Iterator[None]:
    """Turn an operating system error about a path (name too long, no permission) into a :class:`NearfarError`.

    It can also decorate a function that takes paths.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _PATH_ERRNOS or error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
        way = "choose a shorter one" if error.errno == ENAMETOOLONG else "check its permissions, or choose another"
        raise NearfarError(f"{name[:160]}: this path cannot be used ({error.strerror}); {way}.") from error


def expanded(name: str | Path) -> Path:
    """The path of a name, with ``~`` resolved.

    Raises:
        NearfarError: it is in the home of an unknown user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise NearfarError(f"{name}: {error} Write the full path.") from None


def cache_folder() -> Path:
    """The folder ``nearfar`` in the user's cache, ``XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "nearfar"


@path_errors()
def check_output_path(file: Path, *, flag: str = "--output") -> None:
    """Raise an error now if an output file could not be written at the end of a long computation.

    Raises:
        NearfarError: it is a folder, its name is too long, or its folder is missing, a file or not writable.
    """
    if file.is_dir():
        raise NearfarError(f"{flag} {file}: is a folder; name a file.")
    if not file.parent.exists():
        raise NearfarError(f"{flag} {file}: the folder {file.parent} does not exist.")
    check_writable_folder(file.parent, file, flag=flag)


def check_output_file(
    file: Path, inputs: Iterable[object], *, overwrite: bool, flag: str = "--output", suffixes: Sequence[str] = ()
) -> None:
    """Raise an error now if an output file cannot be written, is one of the inputs, or exists without ``overwrite``.

    Raises:
        NearfarError: it has none of the ``suffixes``; see :func:`check_output_path`,
            :func:`refuse_overwriting_inputs` and :func:`refuse_existing`.
    """
    if suffixes and file.suffix not in suffixes:
        some = ", ".join(suffixes[:-1]), suffixes[-1]
        raise NearfarError(f"{flag} {file}: must end in {' or '.join(filter(None, some))}.")
    check_output_path(file, flag=flag)
    refuse_overwriting_inputs(file, inputs, flag=flag)
    refuse_existing([file], overwrite=overwrite, flag=flag)


def check_writable_folder(folder: Path, given: object, *, flag: str = "--output") -> None:
    """Raise an error if files cannot be created in ``folder``, or in the nearest folder above it that exists.

    Raises:
        NearfarError: that folder is a file, or not writable. The message names ``flag`` and its value ``given``.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir():
        raise NearfarError(f"{flag} {given}: {existing} is a file, not a folder.")
    if not os.access(existing, os.W_OK):
        raise NearfarError(f"{flag} {given}: the folder {existing} is not writable; choose another folder.")


@path_errors()
def refuse_overwriting_inputs(output: Path, inputs: Iterable[object], *, flag: str = "--output") -> None:
    """Raise an error if the output is one of the inputs, under whatever name or link.

    ``inputs`` that are not paths or do not exist are ignored.

    Raises:
        NearfarError: the output would overwrite an input.
    """
    outputs = [path for path in (output, output.with_name(output.name + ".new")) if path.exists()]
    for value in inputs if outputs else ():
        source = Path(value).expanduser() if isinstance(value, str | Path) else Path()
        if source.is_file() and any(path.samefile(source) for path in outputs):
            raise NearfarError(f"{flag} {output}: would overwrite the input {value}; choose another {flag}.")


@path_errors()
def refuse_existing(files: Iterable[Path], *, overwrite: bool, what: str = "exists", flag: str = "--output") -> None:
    """Raise an error if a file exists and ``overwrite`` is False.

    Raises:
        NearfarError: one of the files exists.
    """
    for file in files:
        if not overwrite and os.path.lexists(file):
            raise NearfarError(f"{flag} {file}: {what}; replace it by --overwrite, or choose another {flag}.")
