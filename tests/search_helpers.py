"""Files to search in, a tiny encoder, and the content of an index."""

from pathlib import Path
from typing import Any

import numpy as np

from nearfar.commands.search.build import IndexUpdate, update_index
from nearfar.commands.search.corpus import Corpus
from nearfar.encoder.encoder import Encoder
from nearfar.neighbours.index import IndexReader
from tests.tiny import sentences

SETTINGS = {"normalize": True, "model": "tiny"}
ROWS = [(f"{number}", text) for number, text in enumerate([*sentences(23, seed=3), *sentences(4, seed=3), "a dog ."])]
"""Identifiers and texts, of which four are repeated."""


def write_rows(rows: list[tuple[str, str]] = ROWS, file: str = "docs.tsv") -> None:
    """Write a table with the columns id and text."""
    Path(file).write_text("id\ttext\n" + "".join(f"{one}\t{text}\n" for one, text in rows), encoding="utf-8")


def update(encoder: Encoder, folder: str = "index", file: str = "docs.tsv", **settings: Any) -> IndexUpdate:
    """Bring an index up to date in small blocks."""
    return update_index(Path(folder), Corpus(file), encoder, SETTINGS, **{"block": 5, **settings})[1]


def opened(encoder: Encoder, folder: str = "index", file: str = "docs.tsv") -> IndexReader:
    """The index after an update."""
    return update_index(Path(folder), Corpus(file), encoder, SETTINGS, block=5)[0]


def assert_is_the_index_of(rows: list[tuple[str, str]], reader: IndexReader, encoder: Encoder) -> None:
    """Compare an index with one computed directly: rows, texts in the order of first occurrence, vectors."""
    assert [reader.read_row(row) for row in range(len(reader.rows))] == [[text, one] for one, text in rows]
    distinct = list(dict.fromkeys(text for _, text in rows))
    assert [distinct[text] for text in reader.rows["text"]] == [text for _, text in rows]
    assert [rows[row][1] for row in reader.texts["row"]] == distinct
    assert len(set(reader.texts["hash"].tolist())) == len(distinct)
    np.testing.assert_allclose(reader.vectors, encoder.encode_document(distinct, normalize=True), atol=1e-5)
