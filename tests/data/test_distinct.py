"""Batches without repeated texts: no row is dropped, no text repeats where another order exists, deterministic."""

import random
from itertools import pairwise

import pytest

from nearfar.data.batching import WAITING, NliBatches, TextBatches, fill_distinct
from nearfar.types import NliRow


def repeats(batch, texts):
    """Texts of a batch that two of its groups share."""
    seen, found = set(), set()
    for group in batch:
        own = {text for row in group for text in texts[row]}
        found |= seen & own
        seen |= own
    return found


@pytest.mark.parametrize("seed", range(10))
def test_every_row_occurs_once_and_batches_of_single_rows_are_full(seed):
    draw = random.Random(seed)
    texts = [{f"{draw.randrange(30)}" for _ in range(2)} for _ in range(100)]
    batches = fill_distinct([[row] for row in range(100)], texts.__getitem__, 7)
    assert sorted(row for batch in batches for row in batch) == list(range(100))
    assert [len(batch) for batch in batches] == [7] * 14 + [2]


def test_no_text_repeats_where_there_are_enough_others():
    texts = [{f"text {row}", f"common {row % 50}"} for row in range(500)]
    rows = list(range(500))
    random.Random(0).shuffle(rows)
    batches = fill_distinct([[row] for row in rows], texts.__getitem__, 10)
    repeated = [len(repeats([[row] for row in batch], texts)) for batch in batches]
    assert sum(repeated[:-3]) == 0
    plain = [rows[start : start + 10] for start in range(0, 500, 10)]
    assert sum(len(repeats([[row] for row in batch], texts)) for batch in plain) > 20  # in the given order


def test_groups_stay_together_and_within_the_batch_size():
    draw = random.Random(1)
    sizes = [draw.randrange(1, 6) for _ in range(40)]
    starts = [sum(sizes[:group]) for group in range(41)]
    groups = [list(range(first, end)) for first, end in pairwise(starts)]
    owner = {row: number for number, group in enumerate(groups) for row in group}
    batches = fill_distinct(groups, lambda row: {f"text {owner[row] % 15}", f"{row}"}, 12)
    assert sorted(row for batch in batches for row in batch) == list(range(starts[-1]))
    assert max(map(len, batches)) <= 12
    for batch in batches:
        owners = [owner[row] for row in batch]
        assert all(owners.count(number) == sizes[number] for number in set(owners))
    assert sum(len({owner[row] % 15 for row in batch}) < len({owner[row] for row in batch}) for batch in batches) <= 1


def test_a_group_larger_than_the_batch_is_a_batch_by_itself():
    assert fill_distinct([[0], [1, 2, 3], [4]], lambda row: {str(row)}, 2) == [[0], [1, 2, 3], [4]]


def test_rows_that_all_share_a_text_are_batched_as_without():
    rows = 20 * WAITING
    batches = fill_distinct([[row] for row in range(rows)], lambda row: {"same", str(row)}, 4)
    assert [len(batch) for batch in batches] == [4] * (rows // 4)
    assert sorted(row for batch in batches for row in batch) == list(range(rows))


def test_fewer_groups_wait_than_the_limit(monkeypatch):
    monkeypatch.setattr("nearfar.data.batching.WAITING", 1)
    # a waits twice; the third a joins, because two groups wait already
    texts = ["a", "a", "a", "a", "b", "c"]
    assert fill_distinct([[row] for row in range(6)], lambda row: texts[row], 2) == [[0, 3], [1, 4], [2, 5]]


def test_pairs_in_batches_without_repeated_texts():
    rows = [(f"anchor {number // 3}", f"positive {number}") for number in range(90)]
    plain, distinct = (TextBatches(rows, 8, seed=3, distinct_texts=choice) for choice in (False, True))
    assert distinct.steps(0) == plain.steps(0)
    assert [len(batch.rows) for batch in distinct.epoch(1)] == [len(batch.rows) for batch in plain.epoch(1)]
    repeated = {
        choice: sum(len(batch.sentences) < 2 * len(batch.rows) for batch in batches.epoch(1))
        for choice, batches in ((False, plain), (True, distinct))
    }
    assert repeated[True] <= 1 < repeated[False]
    assert sorted(row for batch in distinct.epoch(1) for row in batch.rows) == list(range(90))
    assert [batch.rows for batch in distinct.epoch(1, start=3)] == [batch.rows for batch in distinct.epoch(1)][3:]
    assert [batch.rows for batch in distinct.epoch(0)] != [batch.rows for batch in distinct.epoch(1)]


def test_premises_in_batches_without_repeated_texts():
    """Every fourth premise has the same hypothesis; a premise keeps its three rows."""
    rows = [
        NliRow(f"premise {number}", f"of {number} {label}" if number % 4 or label else f"common {number % 8}", label)
        for number in range(48)
        for label in range(3)
    ]
    batches = NliBatches(rows, 12, seed=2, distinct_texts=True)
    assert batches.total_steps(2) == sum(len(list(batches.epoch(epoch))) for epoch in range(2))
    for batch in batches.epoch(0):
        assert len(batch.rows) == 12
        assert len(batch.sentences) == 4 + 12
    assert sorted(row for batch in batches.epoch(0) for row in batch.rows) == list(range(len(rows)))
    assert any(len(batch.sentences) < 16 for batch in NliBatches(rows, 12, seed=2).epoch(0))
