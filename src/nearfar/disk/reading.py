"""Read nearfar's own text and JSON files, with one clear error for each way a file can be unusable."""

import hashlib
import json
import math
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError

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
        raise NearfarError(f"{file}: is {kind}, not a regular file.")


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
        check_regular(file)
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror}).") from error
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
