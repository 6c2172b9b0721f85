"""Files to search in, a tiny encoder, and the content of an index."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.commands.search.corpus import Corpus
from nearfar.commands.search.index import ROW, Manifest, SearchIndex, hash_bytes, update_index
from nearfar.encoder.encoder import Encoder
from tests.tiny import sentences

SETTINGS = {"normalize": True, "model": "tiny", "weights": "tiny"}
ROWS = [(f"{number}", text) for number, text in enumerate([*sentences(23, seed=3), *sentences(4, seed=3), "a dog ."])]
"""Identifiers and texts, of which four are repeated."""


def write_rows(rows: list[tuple[str, str]] = ROWS, file: str = "docs.tsv") -> None:
    """Write a table with the columns id and text."""
    Path(file).write_text("id\ttext\n" + "".join(f"{one}\t{text}\n" for one, text in rows), encoding="utf-8")


def update(encoder: Encoder, folder: str = "index", file: str = "docs.tsv", **settings: Any) -> int | None:
    """Bring an index up to date; returns how many texts were encoded."""
    opened = OpenEncoder(encoder, "tiny", bf16=False)
    return update_index(Path(folder), Corpus(file), opened, SETTINGS, **settings)[1]


def opened(folder: str = "index") -> SearchIndex:
    """An index that is there."""
    return SearchIndex.open(Path(folder))


def assert_is_the_index_of(rows: list[tuple[str, str]], index: SearchIndex, encoder: Encoder) -> None:
    """Compare an index with one computed directly: rows, texts in the order of first occurrence, vectors."""
    assert [index.read_row(row) for row in range(len(index.rows))] == [[text, one] for one, text in rows]
    distinct = list(dict.fromkeys(text for _, text in rows))
    assert [distinct[text] for text in index.rows["text"]] == [text for _, text in rows]
    assert [rows[row][1] for row in index.first_rows] == distinct
    np.testing.assert_allclose(index.vectors, encoder.encode_document(distinct, normalize=True), atol=1e-5)


def index_of(folder: Path, vectors: np.ndarray, generation: str = "one") -> SearchIndex:
    """An index of different texts with these vectors."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps([f"text {number}"]).encode() + b"\n" for number in range(len(vectors))]
    rows = np.zeros(len(lines), ROW)
    rows["line_hash"] = rows["text_hash"] = [hash_bytes(line[:-1]) for line in lines]
    rows["text"], rows["end"] = np.arange(len(lines)), np.cumsum([len(line) for line in lines])
    (folder / "rows.jsonl").write_bytes(b"".join(lines))
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "rows.npy", rows)
    Manifest(settings={}, source={}, generation=generation).write(folder)
    return SearchIndex.open(folder)
