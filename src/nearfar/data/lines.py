"""Stream the texts of a source of any size: count and fingerprint them once, then yield them in blocks."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nearfar.data.cells import text_field
from nearfar.data.files import is_known, read_lines
from nearfar.data.paths import as_path
from nearfar.data.sources import read_columns
from nearfar.types import NearfarError

MAX_BLOCK_CHARACTERS = 2**22
"""Maximum characters per block, so that memory does not grow with the length of the texts."""


class SourceChangedError(NearfarError):
    """The texts of a source changed between the first and the second pass."""


class SourceSummary(NamedTuple):
    """Number and fingerprint of the texts of a source."""

    texts: int
    digest: str
    """Fingerprint of the texts, in order."""
    empty: bool
    """Whether all texts are empty."""


Block: TypeAlias = tuple[int, list[str]]
"""Consecutive texts, after the index of the first in the source, counted from 0."""


def read_texts(source: str | Path, column: str | None = None) -> Iterator[str]:
    """Yield the texts of ``source``, in order, one at a time.

    Without ``column`` they are the lines of a text file (gzipped if its name ends in .gz), unchanged, without line
    ends, including blank lines. With ``column`` they are that column of any table that :mod:`nearfar.data.sources`
    reads, with white space normalised as in :func:`~nearfar.data.cells.text_field`.

    Raises:
        NearfarError: the source or the column cannot be found or read, a line is not UTF-8, a field is empty or not
            text (each with file and line), or a table without ``column``.
    """
    if column is not None:
        for where, (value,) in read_columns(source, (column,)):
            yield text_field(value, column, where)
        return
    path = as_path(source)
    if str(source).startswith("hub:") or path.is_dir() or is_known(path):
        raise NearfarError(f"{source}: is a table; name the column of the texts with --column.")
    for _, line in read_lines(path, keep_blank=True):
        yield line


def summarise_source(texts: Iterable[str]) -> SourceSummary:
    """Count and fingerprint texts; reading all of them also raises the error of any faulty one."""
    count, empty, digest = 0, True, hashlib.sha256()
    for text in texts:
        count, empty = count + 1, empty and not text
        digest.update(f"{text}\n".encode())  # the separator is in no text
    return SourceSummary(count, digest.hexdigest()[:16], empty)


def verify_unchanged(texts: Iterable[str], summary: SourceSummary, source: object) -> Iterator[str]:
    """Yield the texts and check them against their summary; texts appended since are ignored.

    Raises:
        SourceChangedError: after the last text, if the texts differ from those summarised.
    """
    digest = hashlib.sha256()
    for text in islice(texts, summary.texts):  # fewer texts have another digest
        yield text
        digest.update(f"{text}\n".encode())
    if digest.hexdigest()[:16] != summary.digest:
        raise SourceChangedError(f"{source}: changed while it was read. Start again when it no longer changes.")


def blocks(texts: Iterable[str], *, size: int, start: int = 0) -> Iterator[Block]:
    """Split texts into blocks of ``size``, or of fewer with :data:`MAX_BLOCK_CHARACTERS`; at least one per block.

    The first text has the index ``start``.
    """
    block, length = list[str](), 0
    for text in texts:
        if block and (len(block) == size or length + len(text) > MAX_BLOCK_CHARACTERS):
            yield start, block
            start, block, length = start + len(block), [], 0
        block.append(text)
        length += len(text)
    if block:
        yield start, block
