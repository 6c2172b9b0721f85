"""Append rows of a file to an index: read them, encode the texts that are new, save block after block."""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.search.corpus import Corpus, Row
from nearfar.commands.search.hashes import HashTable
from nearfar.data.lines import MAX_BLOCK_CHARACTERS, SourceChangedError
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.neighbours.index import Block, IndexReader, SearchIndex
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class Survey(NamedTuple):
    """The first pass over a corpus."""

    rows: int
    digest: bytes
    equal: list[int]
    """How many rows at the beginning equal those of each stored index."""


class _Plan(NamedTuple):
    """A block of rows before its new texts are encoded."""

    rows: list[Row]
    row_texts: NDArray[np.int64]
    new: list[int]
    """The rows of the block in which a text of the index occurs for the first time."""
    kept: NDArray[np.int64]
    """For each of ``new``: the number of its vector in the old index; -1 if it has to be encoded."""


def survey_rows(corpus: Corpus, stored: list[NDArray[np.uint64]]) -> Survey:
    """Read all rows once: count and check them, and compare them with the stored ones."""
    digest, rows, equal = hashlib.sha256(), 0, [0] * len(stored)
    size = 2**16
    hashes = np.empty(size, np.uint64)

    def compare() -> None:
        digest.update(hashes[:filled].tobytes())
        for number, known in enumerate(stored):
            if equal[number] == rows - filled:  # equal so far
                part = known[rows - filled : rows]
                same = hashes[: len(part)] == part
                equal[number] += len(part) if same.all() else int(same.argmin())

    filled = 0
    for row in corpus.rows():
        hashes[filled] = row.row_hash
        filled, rows = filled + 1, rows + 1
        if filled == size:
            compare()
            filled = 0
    compare()
    if rows == 0:
        raise NearfarError(f"{corpus.path}: holds no texts.")
    return Survey(rows, digest.digest(), equal)


def extend_index(
    target: SearchIndex,
    corpus: Corpus,
    survey: Survey,
    encoder: "Encoder",
    *,
    cache: IndexReader | None,
    start: int,
    bf16: bool,
    block: int,
    progress: bool,
) -> int:
    """Append the rows from ``start`` on; returns the number of texts that were encoded."""
    from nearfar.encoder.stream import encode_blocks, tokenize_blocks

    plans: dict[int, _Plan] = {}
    normalize, encoded = bool(target.manifest.settings["normalize"]), 0

    def texts() -> Iterator[tuple[int, list[str]]]:
        for number, plan in _plans(target, corpus, survey, cache=cache, start=start, block=block):
            plans[number] = plan
            yield number, [plan.rows[row].text for row, kept in zip(plan.new, plan.kept, strict=True) if kept < 0]

    try:
        with (
            progress_bar("encoding", survey.rows, done=start, shown=progress, stderr=True) as advance,
            closing(
                encode_blocks(
                    encoder,
                    tokenize_blocks(encoder, texts(), prompt=encoder.document_prompt),
                    normalize=normalize,
                    dimensions=target.manifest.dim,
                    bf16=bf16,
                    on_batch=advance,
                )
            ) as blocks,
        ):
            for found, vectors in blocks:
                plan = plans.pop(found.start)
                target.append(_block(plan, vectors, target.manifest.dim, cache, found.tokenized.truncated))
                encoded += len(vectors)
                advance(len(plan.rows) - len(vectors))
    except NotFiniteError as error:
        number, plan = next(iter(plans.items()))
        row = [row for row, kept in zip(plan.new, plan.kept, strict=True) if kept < 0][error.number - number]
        raise NotFiniteError(number + row, plan.rows[row].text) from None
    except SourceChangedError:
        raise
    except NearfarError as error:
        done = target.manifest.rows
        raise NearfarError(f"{error} {done:,} of {survey.rows:,} rows are done; search again to continue.") from error
    return encoded


def _plans(
    target: SearchIndex, corpus: Corpus, survey: Survey, *, cache: IndexReader | None, start: int, block: int
) -> Iterator[tuple[int, _Plan]]:
    """The rows from ``start`` on, in blocks, with the number of the first row of each.

    Raises:
        SourceChangedError: the rows are not those of the survey.
    """
    known = HashTable(target.reader().texts["hash"])
    kept = HashTable(cache.texts["hash"] if cache is not None else np.empty(0, np.uint64))
    digest, rows, characters, number = hashlib.sha256(), list[Row](), 0, 0
    for number, row in enumerate(islice(corpus.rows(), survey.rows), 1):  # rows added since are for the next call
        digest.update(row.row_hash.to_bytes(8, "little"))
        if number <= start:
            continue
        if rows and (len(rows) == block or characters + len(row.line) > MAX_BLOCK_CHARACTERS):
            yield number - 1 - len(rows), _plan(rows, known, kept)
            rows, characters = [], 0
        rows.append(row)
        characters += len(row.line)
    if number != survey.rows or digest.digest() != survey.digest:
        raise SourceChangedError(f"{corpus.path}: changed while it was read. Search again when it no longer changes.")
    if rows:
        yield number - len(rows), _plan(rows, known, kept)


def _plan(rows: list[Row], known: HashTable, kept: HashTable) -> _Plan:
    hashes = np.array([row.text_hash for row in rows], np.uint64)
    row_texts = known.find(hashes)
    first: dict[int, int] = {}
    for row in np.flatnonzero(row_texts < 0).tolist():
        first.setdefault(rows[row].text_hash, row)
    new = np.array(list(first), np.uint64)
    known.add(new)
    return _Plan(rows, known.find(hashes), list(first.values()), kept.find(new))


def _block(plan: _Plan, encoded: NDArray[np.float32], dim: int, cache: IndexReader | None, truncated: int) -> Block:
    vectors = np.empty((len(plan.new), dim), np.float32)
    vectors[plan.kept < 0] = encoded
    if cache is not None:
        vectors[plan.kept >= 0] = cache.vectors[plan.kept[plan.kept >= 0]]
    rows = plan.rows
    return Block(
        [row.line for row in rows],
        np.array([row.row_hash for row in rows], np.uint64),
        plan.row_texts,
        np.array([rows[row].text_hash for row in plan.new], np.uint64),
        vectors,
        truncated,
    )
