"""A small corpus of Parquet files, its embeddings in one file, and what a folder of parts holds."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from nearfar.commands.encode import encode
from tests.tiny import save_tiny, sentences

ROWS, SHARD_ROWS, GROUP = 200, 23, 17
"""Numbers that do not divide each other: parts begin inside row groups and files."""
ENDS = (0, 40, 41, 130, ROWS)
"""Where the files of the corpus begin and end."""
TEXTS = sentences(ROWS, seed=5, longest=20)


def write_corpus(folder: Path, texts: Sequence[str] = TEXTS, ends: Sequence[int] = ENDS) -> None:
    """Write a tiny encoder, files with texts and other columns to ``in``, and all texts to ``all.parquet``."""
    save_tiny(folder / "tiny")
    (folder / "in").mkdir()
    table = pyarrow.table(
        {
            "id": [f"id-{number}" for number in range(len(texts))],
            "text": list(texts),
            "kind": [None if number % 5 == 0 else number % 3 for number in range(len(texts))],
        }
    )
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        file = folder / "in" / f"{number}.parquet"
        pyarrow.parquet.write_table(table.slice(start, stop - start), file, row_group_size=GROUP)
    pyarrow.parquet.write_table(table, folder / "all.parquet")


def make_corpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus in a folder, which becomes the working directory."""
    write_corpus(folder)
    monkeypatch.chdir(folder)
    return folder


def encoded(output: str = "out", **settings: Any) -> tuple[int, int]:
    """Encode the corpus into parts, in fp32, without a progress bar."""
    defaults = {"input": "in/*.parquet", "column": "text", "shard_rows": SHARD_ROWS, "precision": "fp32"}
    return encode("tiny", output=output, progress=False, **{**defaults, **settings})


def in_one_file(output: str = "one.npy", **settings: Any) -> NDArray[Any]:
    """The embeddings of the corpus by ``nearfar encode`` into one file."""
    defaults = {"input": "all.parquet", "column": "text", "precision": "fp32"}
    encode("tiny", output=output, progress=False, **{**defaults, **settings})
    found: NDArray[Any] = np.load(output)
    return found


def part_files(folder: str | Path = "out") -> list[Path]:
    """The parts, in order."""
    return sorted(Path(folder).glob("part-*.parquet"))


def read_parts(folder: str | Path = "out") -> pyarrow.Table:
    """All parts as one table."""
    return pyarrow.concat_tables([pyarrow.parquet.read_table(file) for file in part_files(folder)])


def vectors_of(table: pyarrow.Table) -> NDArray[Any]:
    """The vectors of a table of parts, [rows, dim]."""
    flat: NDArray[Any] = table["vector"].combine_chunks().flatten().to_numpy()
    return flat.reshape(len(table), -1)


def contents(folder: str | Path = "out") -> dict[str, bytes]:
    """The files of a folder of parts by their names, without those that are being written."""
    root = Path(folder)
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file() and file.parent.name != "writing"
    }


def manifest(folder: str | Path = "out") -> dict[str, Any]:
    """The manifest."""
    found: dict[str, Any] = json.loads((Path(folder) / "_manifest.json").read_text(encoding="utf-8"))
    return found
