"""64-bit hashes of texts and of pairs of texts, equal where two texts differ in case, spaces and punctuation only."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.disk.rows import distinct

Hashes: TypeAlias = NDArray[np.uint64]

_ASCII_DROPPED = bytes(byte for byte in range(128) if not chr(byte).isalnum())


def normalize_for_hash(text: str) -> str:
    """The lower-cased letters and digits of a text, or the text itself if it has none.

    Letters and digits of every script count, and so do marks that belong to a letter (accents, vowel signs). Composed
    and decomposed accents give the same result (Unicode form NFC).

    >>> normalize_for_hash("A man's playing, now!"), normalize_for_hash("Caf\\u00e9 No. 5"), normalize_for_hash("?!")
    ('amansplayingnow', 'caféno5', '?!')
    """
    if text.isascii():
        kept = text.encode().lower().translate(None, _ASCII_DROPPED).decode()
    else:
        kept = "".join(_letters_and_marks(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())))
    return kept or text


def _letters_and_marks(text: str) -> Iterator[str]:
    keep = False
    for char in text:
        keep = char.isalnum() or (keep and unicodedata.category(char)[0] == "M")
        if keep:
            yield char


def text_hashes(texts: Iterable[str]) -> Hashes:
    """One hash for each text, shape (texts,): BLAKE2b with a digest of 8 bytes (little-endian) of the normalised text.

    The text is normalised by `normalize_for_hash` and encoded as UTF-8. Hashes are the same in each process, on each
    machine and in each version of nearfar. Of n different texts, about n² / 2⁶⁵ pairs share a hash by chance.
    """
    return _hashes(normalize_for_hash(text).encode("utf-8", "surrogatepass") for text in texts)


def pair_hashes(pairs: Iterable[tuple[str, str]]) -> Hashes:
    """One hash for each pair of texts, shape (pairs,); the order of the two texts does not matter."""
    listed = list(pairs)
    return combine_hashes(text_hashes(first for first, _ in listed), text_hashes(second for _, second in listed))


def combine_hashes(first: Hashes, second: Hashes) -> Hashes:
    """Hashes of pairs, given the hashes of their texts, all of shape (pairs,).

    hash(a, b) = BLAKE2b(min(hash(a), hash(b)) ‖ max(hash(a), hash(b))), each in 8 bytes, little-endian.
    """
    both = np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1).astype("<u8").tobytes()
    return _hashes(both[start : start + 16] for start in range(0, len(both), 16))


def among(known: Hashes, hashes: Hashes) -> NDArray[np.bool_]:
    """Which of the hashes are among ``known``, of which there may be many; these are sorted."""
    if not len(known):
        return np.zeros(len(hashes), dtype=np.bool_)
    return known.take(np.searchsorted(known, hashes), mode="clip") == hashes


class RowHashes(NamedTuple):
    """Hashes of the texts and pairs of rows."""

    texts: Hashes
    """One for each distinct text."""
    pairs: Hashes
    """For each row, one for each text after its first: the pair of the first text and that text."""


def row_hashes(rows: Iterable[Sequence[object]]) -> RowHashes:
    """Hash rows of one or more texts: (text,), pairs, triplets, NLI rows, scored pairs.

    Fields that are not text, such as labels and scores, are ignored. A row (anchor, positive, negative) has the pairs
    anchor-positive and anchor-negative.

    >>> hashes = row_hashes([("a", "b", 0.5), ("b", "a", 1.0), ("a", "c", "d")])
    >>> len(hashes.texts), len(hashes.pairs), hashes.pairs[0] == hashes.pairs[1]
    (4, 4, np.True_)
    """
    numbers: dict[str, int] = {}
    first: list[int] = []
    second: list[int] = []
    for row in rows:
        found = [numbers.setdefault(text, len(numbers)) for text in row if isinstance(text, str)]
        first += found[:1] * (len(found) - 1)
        second += found[1:]
    texts = text_hashes(numbers)
    pairs = combine_hashes(texts[np.array(first, dtype=np.intp)], texts[np.array(second, dtype=np.intp)])
    return RowHashes(texts, pairs)


class ConnectedRows(NamedTuple):
    """Rows of one or two texts; rows that share a text are connected, and so are rows connected to the same row."""

    hashes: Hashes
    """One for each distinct text, in ascending order."""
    of_texts: NDArray[np.int64]
    """The group of connected rows that each of these texts belongs to."""
    of_rows: NDArray[np.int64]
    """The group of each row."""


def connect_rows(rows: Sequence[Sequence[str]]) -> ConnectedRows:
    """The groups of connected rows, of which there is at least one; all rows have the same number of texts."""
    hashes = [text_hashes(row[column] for row in rows) for column in range(len(rows[0]))]
    known = distinct(*hashes)
    places = [np.searchsorted(known, hashes[column]) for column in (0, -1)]  # a single text is connected with itself
    del hashes  # of many rows, memory for the following
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(rows), dtype=np.int8), tuple(places)), shape=(len(known), len(known)))
    group_of_text = connected_components(edges, directed=False)[1].astype(np.int64)
    return ConnectedRows(known, group_of_text, group_of_text[places[0]])


def units_of_rows(rows: Sequence[Sequence[str]]) -> list[int] | None:
    """The independent unit of each row: rows that share a text are one; None where no two rows share one.

    >>> units_of_rows([("a", "b"), ("c", "d"), ("B", "e"), ("f", "g")])
    [0, 1, 0, 2]
    """
    units = number_units(connect_rows(rows).of_rows) if rows else np.zeros(0, dtype=np.int64)
    return None if len(units) == len(distinct(units)) else units.tolist()


def number_units(groups: ArrayLike) -> NDArray[np.int64]:
    """The groups of rows as numbers from 0 in the order of their first rows."""
    _, first, of_rows = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[of_rows]


def _hashes(chunks: Iterable[bytes]) -> Hashes:
    digests = bytearray()
    for chunk in chunks:
        digests += blake2b(chunk, digest_size=8).digest()
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False)
