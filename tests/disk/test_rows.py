"""Rows on disk, and numbers of items by their hashes: the same as lists and dictionaries, however small the blocks."""

import random
from pathlib import Path

import numpy as np
import pytest

from nearfar.disk import rows
from nearfar.disk.rows import DiskRows, NumberedItems, RowWriter, distinct
from nearfar.types import NearfarError


def written(count: int) -> tuple[list[tuple[str, ...]], DiskRows]:
    """Rows of three texts, and the same on disk."""
    texts = [(f"a {number}", f"é{number}\ud800", f"雪 {number % 3}") for number in range(count)]
    writer = RowWriter()
    for row in texts:
        writer.add(row)
    assert len(writer) == count
    on_disk = writer.finish()
    assert isinstance(on_disk, DiskRows)
    return texts, on_disk


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder; from 10 rows on they are on disk, in blocks of 4."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rows, "IN_MEMORY", 10)
    monkeypatch.setattr(rows, "BLOCK", 4)
    return tmp_path / "nearfar" / "rows"


@pytest.mark.parametrize("count", [10, 12, 13, 50])
def test_rows_on_disk_are_those_of_a_list(count: int, cache: Path) -> None:
    texts, on_disk = written(count)
    assert not list(cache.iterdir())  # the file is gone with the process
    assert len(on_disk) == count
    assert list(on_disk) == texts
    assert [on_disk[row] for row in range(-count, count)] == texts + texts
    assert list(on_disk[2:-1:3]) == texts[2:-1:3]
    assert list(on_disk[:0]) == []
    with pytest.raises(IndexError):
        on_disk[count]
    order = random.Random(count).sample(range(count), count - 1)
    taken = on_disk.take(np.array(order))
    assert list(taken) == [texts[row] for row in order]
    assert list(taken.first_texts(2)[1:]) == [texts[row][:2] for row in order[1:]]
    assert taken.first_texts(1)[0] == texts[order[0]][:1]


def test_few_rows_are_a_list() -> None:
    writer = RowWriter()
    for number in range(9):
        writer.add((str(number),))
    assert writer.finish() == [(str(number),) for number in range(9)]


def test_a_cache_that_cannot_be_written_is_named(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file")
    with pytest.raises(NearfarError, match=f"{cache}: cannot be written"):
        written(20)


@pytest.mark.parametrize(("recent", "in_memory"), [(1, 2**20), (7, 100), (1000, 0)])
def test_items_are_numbered_in_their_order(recent: int, in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "RECENT", recent)
    monkeypatch.setattr(rows, "ARRAY_IN_MEMORY", in_memory)
    draws = random.Random(recent)
    items, numbered, expected = [(str(draws.randrange(60)), "x") for _ in range(200)], NumberedItems(), {}
    for place, item in enumerate(items):
        assert numbered.add(item) == (item not in expected)
        expected.setdefault(item, len(expected))
        assert len(numbered) == len(expected)
        if place % 50 == 0:
            assert numbered.numbers(items[: place + 1]).tolist() == [expected[one] for one in items[: place + 1]]
    with pytest.raises(KeyError, match="never"):
        numbered.numbers([*items[:3], "never"])


def test_distinct_numbers_are_those_of_numpy() -> None:
    draws = np.random.default_rng(0)
    hashes, more = (draws.integers(0, 2**64, 200, dtype=np.uint64) for _ in range(2))
    for arrays in ((hashes,), (hashes, more[:0]), (hashes, hashes[::2], more), (more[:0],)):
        np.testing.assert_array_equal(distinct(*arrays), np.unique(np.concatenate(arrays)))
        assert distinct(*arrays).dtype == np.uint64
