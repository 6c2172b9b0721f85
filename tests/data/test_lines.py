"""Streams of texts: every source, counts and fingerprints, blocks, and detection of changes."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from nearfar.data.lines import SourceChangedError, blocks, read_texts, summarise_source, verify_unchanged

LINES = ["a dog", "", " two  cats ", "naïve 🐶\ttab", "a dog"]


def test_lines_are_unchanged_and_include_blank_ones(tmp_path: Path) -> None:
    for end, name in (("\n", "x.txt"), ("\r\n", "x.en")):
        (tmp_path / name).write_bytes((end.join(LINES) + end).encode())
        assert list(read_texts(tmp_path / name)) == LINES
    (tmp_path / "x.txt").write_bytes("\n".join(LINES).encode("utf-8-sig"))  # a byte order mark, no final line end
    assert list(read_texts(str(tmp_path / "x.txt"))) == LINES
    (tmp_path / "x.txt").write_text("a dog\n\n")
    assert list(read_texts(tmp_path / "x.txt")) == ["a dog", ""]
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    assert list(read_texts(tmp_path / "x.txt.gz")) == LINES


def test_columns_of_tables_are_normalized(tmp_path: Path) -> None:
    texts = ["a dog", " two  cats ", "one\tbird"]
    tidy = ["a dog", "two cats", "one bird"]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"said": text, "n": 1}) + "\n\n" for text in texts))
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b'n,said\n1,a dog\n2," two  cats "\n3,one\tbird\n'))
    (tmp_path / "x.tsv").write_text("said\tn\na dog\t1\n two  cats \t2\none bird\t3\n")
    pyarrow.parquet.write_table(pyarrow.table({"said": texts}), tmp_path / "x.parquet")
    for name in ("x.jsonl", "x.csv.gz", "x.tsv", "x.parquet"):
        assert list(read_texts(tmp_path / name, "said")) == tidy, name


def test_a_summary_distinguishes_texts() -> None:
    found = summarise_source(LINES)
    assert (found.texts, found.empty) == (5, False)
    assert found == summarise_source(iter(LINES))
    others = (LINES[::-1], LINES[:-1], ["a", " dog", *LINES[1:]], ["a dog\r", *LINES[1:]], [*LINES, ""])
    assert len({summarise_source(other).digest for other in others} | {found.digest}) == len(others) + 1
    assert summarise_source([]).empty
    assert summarise_source(["", ""]) == (2, summarise_source(["", ""]).digest, True)
    assert not summarise_source([" "]).empty


def test_changes_are_reported_at_the_end() -> None:
    summary = summarise_source(LINES)
    assert list(verify_unchanged(LINES, summary, "x.txt")) == LINES
    assert list(verify_unchanged([*LINES, "new"], summary, "x.txt")) == LINES  # appended texts are ignored
    for other in (LINES[:-1], [*LINES[:-1], "a cat"]):
        watched = verify_unchanged(other, summary, "x.txt")
        assert [next(watched) for _ in other] == other
        with pytest.raises(SourceChangedError, match=r"x\.txt: changed while it was read"):
            next(watched)


def test_blocks_are_limited_in_texts_and_characters() -> None:
    texts = [f"{number:02}" for number in range(11)]
    cut = list(blocks(iter(texts), size=4))
    assert [block.start for block in cut] == [0, 4, 8]
    assert [text for block in cut for text in block.texts] == texts
    assert [len(block.texts) for block in blocks(texts, size=11)] == [11]
    assert list(blocks([], size=3)) == []
    sizes = [block.texts for block in blocks(["aaa", "b", "c" * 9, "d", "", "e" * 4], size=10, characters=5)]
    assert sizes == [["aaa", "b"], ["c" * 9], ["d", "", "e" * 4]]
    assert [block.start for block in blocks(["aaa", "bbb", "c"], size=10, characters=5)] == [0, 1]


def test_blocks_are_lazy() -> None:
    endless = (str(number) for number in iter(int, 1))
    assert next(blocks(endless, size=3)).texts == ["0"] * 3
