"""The texts of a source one after the other, however many: counted and fingerprinted once, handed out in blocks."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nearfar.data.files import is_known, read_lines
from nearfar.data.paths import as_path, is_folder, status
from nearfar.data.sources import read_columns, text_field
from nearfar.types import NearfarError

CHARACTERS = 2**22
"""A block of long texts ends before it has more than these, so that memory does not grow with the texts' length."""


class SourceChangedError(NearfarError):
    """A source gives other texts than it gave when it was surveyed."""


class SourceSummary(NamedTuple):
    """What is known of a source once it has been gone through."""

    texts: int
    digest: str
    """Fingerprint of the texts in their order."""
    empty: bool
    """Whether no text has a character."""


class Block(NamedTuple):
    """Neighbouring texts; the first is number ``start`` of the source, counted from 0."""

    start: int
    texts: list[str]


def read_texts(source: str | Path, column: str | None = None) -> Iterator[str]:
    """Yield the texts of ``source``, in order, one at a time.

    Without ``column`` they are the lines of a text file, gzipped where its name ends in .gz: as they stand, without
    their line ends, a blank line being a text too. With ``column`` they are that column of any table that
    :mod:`nearfar.data.sources` reads, tidied as :func:`~nearfar.data.sources.text_field` does.

    Raises:
        NearfarError: the source or the column cannot be found or read, a line is not UTF-8, a field is empty or no
            text (each with file and line), or a table without ``column``.
    """
    if column is not None:
        for where, (value,) in read_columns(source, (column,)):
            yield text_field(value, column, where)
        return
    path = as_path(source)
    if str(source).startswith("hub:") or is_folder(path) or is_known(path):
        raise NearfarError(f"{source}: is a table; say with --column which column holds the texts.")
    if status(path) is None:
        raise NearfarError(f"{source}: cannot be read: there is no such file.")
    for _, line in read_lines(path, keep_blank=True):
        yield line


def summarise_source(texts: Iterable[str]) -> SourceSummary:
    """Count and fingerprint texts by going through them, which finds what is wrong with any of them, too."""
    counter = _Fingerprint()
    for text in texts:
        counter.add(text)
    return counter.summary()


def verify_unchanged(texts: Iterable[str], summary: SourceSummary, source: object) -> Iterator[str]:
    """The same texts, watched; what has come behind them since is left out.

    Raises:
        SourceChangedError: at the end: they are not those that were surveyed.
    """
    counter = _Fingerprint()
    for text in islice(texts, summary.texts):
        counter.add(text)
        yield text
    if counter.summary() != summary:
        raise SourceChangedError(f"{source}: was changed while it was read. Start again, once it stays as it is.")


def blocks(texts: Iterable[str], *, size: int, characters: int = CHARACTERS) -> Iterator[Block]:
    """Texts in blocks of ``size``, or fewer where they have more than ``characters`` together; one at least."""
    start, block, length = 0, list[str](), 0
    for text in texts:
        if block and (len(block) == size or length + len(text) > characters):
            yield Block(start, block)
            start, block, length = start + len(block), [], 0
        block.append(text)
        length += len(text)
    if block:
        yield Block(start, block)


class _Fingerprint:
    def __init__(self) -> None:
        self.texts, self._empty, self._digest = 0, True, hashlib.sha256()

    def add(self, text: str) -> None:
        self.texts += 1
        self._empty = self._empty and not text
        self._digest.update(text.encode())
        self._digest.update(b"\n")  # which no text contains

    def summary(self) -> SourceSummary:
        return SourceSummary(self.texts, self._digest.hexdigest()[:16], self._empty)
