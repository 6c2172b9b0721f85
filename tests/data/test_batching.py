"""Batches: every row once, premises together, the order determined by the seed, from any step."""

import random
from collections import Counter
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.batching import TextBatches, fill_distinct, sample_balanced_batches
from nearfar.types import NearfarError

# Few texts, so that premises repeat, also far apart, and a text can be both premise and hypothesis.
texts = st.sampled_from([f"text {n}" for n in range(9)])


def pairs_of(sizes):
    """Return shuffled rows with distinct texts in which premise k has sizes[k] hypotheses."""
    rows = [(f"premise {k}", f"hypothesis {k} {n}") for k, size in enumerate(sizes) for n in range(size)]
    return rows[::2] + rows[1::2]


def of_order(rows, size, seed=0, order="premise", **settings):
    return TextBatches(rows, size, seed, min_batch_size=1, order=order, **settings)


@st.composite
def batchings(draw):
    rows = draw(st.lists(st.tuples(*[texts] * draw(st.integers(1, 3))), min_size=2, max_size=40))
    targets = draw(st.none() | st.just([float(number) for number in range(len(rows))]))
    settings = {"min_batch_size": draw(st.integers(1, 2)), "order": draw(st.sampled_from(["premise", "file", "rows"]))}
    size = draw(st.integers(settings["min_batch_size"], len(rows)))
    return TextBatches(rows, size, draw(st.integers(0, 99)), targets, **settings)


@pytest.mark.long
@given(batchings(), st.integers(0, 3), st.data())
@settings(max_examples=150, deadline=None)
def test_every_row_occurs_once_indices_are_correct_and_an_epoch_can_be_resumed_at_any_step(batches, epoch, data):
    again = replace(batches, texts=list(batches.texts))
    list(again.epoch(epoch + 1))  # earlier calls have no effect
    every, seen, rest = list(batches.epoch(epoch)), [], set(range(len(batches.texts)))
    start = data.draw(st.integers(0, len(every)))
    assert list(again.epoch(epoch, start)) == every[start:]
    for batch in every:
        rows = list(zip(*([batch.sentences[text] for text in column] for column in batch.columns), strict=True))
        assert rows == [batches.texts[row] for row in batch.rows]
        # In order of first appearance; the indices have no gaps, and no text is repeated.
        appearance = [text for row in batch.rows for text in batches.texts[row]]
        assert batch.sentences == sorted(set(appearance), key=appearance.index)
        assert batch.targets == ([] if batches.targets is None else [float(row) for row in batch.rows])
        seen += batch.rows
        rest -= {*batch.rows}
        if batches.order == "premise":  # the rows of each share a batch
            assert not {batches.texts[row][0] for row in rest} & {batches.texts[row][0] for row in batch.rows}
            assert len(batch.rows) <= batches.batch_size or len(set(batch.columns[0])) == 1
    assert sorted(seen) == list(range(len(batches.texts)))
    sizes = [len(batch.rows) for batch in every]
    if batches.order == "premise":
        assert all(size <= batches.batch_size or size in map(len, batches.premises) for size in sizes)
    else:
        assert batches.order == "rows" or seen == sorted(seen)
        assert sizes[:-1] == [batches.batch_size] * (len(sizes) - 1)
        assert batches.min_batch_size <= sizes[-1] < batches.batch_size + batches.min_batch_size
    assert batches.steps(epoch) == len(every)
    assert batches.total_steps(3) == sum(len(list(batches.epoch(number))) for number in range(3))


def test_the_order_is_the_same_in_every_process():
    """String hashing, and so the order of sets, differs between processes; the batches must not."""
    rows = [(f"p{n % 7}", f"h{n}") for n in range(12)]
    expected = {
        "premise": [[4, 11, 0, 7, 5], [3, 10, 6, 2, 9], [1, 8]],
        "rows": [[1, 10, 7, 8, 5], [0, 11, 9, 6, 3], [4, 2]],
    }
    for order, plan in expected.items():
        assert [batch.rows for batch in of_order(rows, 5, 5, order).epoch(2)] == plan


def singles(count):
    return [(f"text {number}",) for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "min_batch_size", "sizes"),
    [(8, 2, [4, 4]), (9, 2, [4, 5]), (10, 2, [4, 4, 2]), (9, 1, [4, 4, 1]), (4, 2, [4])],
)
def test_a_single_remaining_row_joins_the_previous_batch_by_default(rows, min_batch_size, sizes):
    batches = TextBatches(singles(rows), 4, min_batch_size=min_batch_size)
    assert [len(batch.rows) for batch in batches.epoch(0)] == sizes


@pytest.mark.parametrize(
    ("rows", "batch_size", "settings", "message"),
    [
        (6, 7, {"min_batch_size": 1}, "--batch-size is 7, but must be from 1 to the number of rows, 6$"),
        (6, 0, {"min_batch_size": 1}, "--batch-size is 0"),
        (6, 1, {}, r"is 1, but must be from 2 to the number of rows, 6: a contrastive loss needs other rows"),
        (0, 2, {}, "there are no rows to train on"),
        (4, 3, {"targets": [0, 0, 1, 1], "balanced": True}, "must be from 4 .*: two texts of each of two classes"),
    ],
)
def test_rows_that_cannot_be_batched_raise(rows, batch_size, settings, message):
    with pytest.raises(NearfarError, match=message):
        TextBatches(singles(rows), batch_size, **settings)


# --- balanced batches: equal numbers of texts per class, all classes in turn, no text twice ---


def of_classes(*sizes):
    """Return texts and labels, shuffled; class k has sizes[k] texts."""
    numbered = [(f"class {label}, text {number}", label) for label, size in enumerate(sizes) for number in range(size)]
    random.Random(0).shuffle(numbered)
    return [(text,) for text, _ in numbered], [label for _, label in numbered]


def balanced(sizes, batch_size, seed=0):
    texts, labels = of_classes(*sizes)
    return TextBatches(texts, batch_size, seed, labels, balanced=True)


def counts(batch):
    return dict(Counter(batch.targets))


@pytest.mark.long
@given(st.lists(st.integers(2, 12), min_size=2, max_size=7), st.data())
@settings(max_examples=100, deadline=None)
def test_batches_hold_every_class_evenly_and_no_text_twice(sizes, data):
    batches = balanced(sizes, data.draw(st.integers(4, sum(sizes))), data.draw(st.integers(0, 9)))
    share = batches.batch_size // len(sizes)
    epoch = list(batches.epoch(1))
    assert len(epoch) == batches.steps(1) == ceil(sum(sizes) / batches.batch_size)
    for batch in epoch:
        assert len(set(batch.rows)) == len(batch.rows) == len(batch.sentences) <= batches.batch_size
        assert [batches.targets[row] for row in batch.rows] == batch.targets
        if share >= 2:
            assert counts(batch) == {label: min(share, size) for label, size in enumerate(sizes)}
        else:
            assert len(counts(batch)) == min(batches.batch_size // 2, len(sizes))
            assert set(counts(batch).values()) == {2}


def test_all_classes_and_texts_are_drawn_equally_often():
    batches = balanced([6] * 10, 8)  # 4 of the 10 classes in each batch, 2 texts each
    labels = [label for batch in batches.epoch(0) for label in counts(batch)]
    assert len(labels) == 8 * 4
    # Drawn without replacement: after any number of complete rounds, class counts differ by at most one.
    assert max(Counter(labels).values()) - min(Counter(labels).values()) <= 1
    generator = random.Random(0)
    sampled = sample_balanced_batches({0: range(6), 1: range(10, 16)}, batch_size=4, steps=3, generator=generator)
    assert sorted(row for batch in sampled for row in batch) == [*range(6), *range(10, 16)]


# --- batches without repeated texts: no row is dropped, no text repeats where another order exists ---


def repeats(batch, texts):
    """Texts of a batch that two of its groups share."""
    seen, found = set(), set()
    for group in batch:
        own = {text for row in group for text in texts[row]}
        found |= seen & own
        seen |= own
    return found


def test_no_text_repeats_where_there_are_enough_others():
    texts = [{f"text {row}", f"common {row % 50}"} for row in range(500)]
    rows = list(range(500))
    random.Random(0).shuffle(rows)
    batches = list(fill_distinct([[row] for row in rows], texts.__getitem__, 10))
    repeated = [len(repeats([[row] for row in batch], texts)) for batch in batches]
    assert sum(repeated[:-3]) == 0
    plain = [rows[start : start + 10] for start in range(0, 500, 10)]
    assert sum(len(repeats([[row] for row in batch], texts)) for batch in plain) > 20  # in the given order


def test_a_group_larger_than_the_batch_is_a_batch_by_itself():
    batches = fill_distinct([[0], [1, 2, 3], [4]], lambda row: {str(row)}, 2)
    assert list(batches) == [[0], [1, 2, 3], [4]]


def test_premises_in_batches_without_repeated_texts():
    """Every fourth premise has the same hypothesis; a premise keeps its three rows."""
    rows = [
        (f"premise {number}", f"of {number} {label}" if number % 4 or label else f"common {number % 8}")
        for number in range(48)
        for label in range(3)
    ]
    batches = of_order(rows, 12, 2, distinct_texts=True)
    assert batches.total_steps(2) == sum(len(list(batches.epoch(epoch))) for epoch in range(2))
    for batch in batches.epoch(0):
        assert len(batch.rows) == 12
        assert len(batch.sentences) == 4 + 12
    assert sorted(row for batch in batches.epoch(0) for row in batch.rows) == list(range(len(rows)))
    assert any(len(batch.sentences) < 16 for batch in of_order(rows, 12, 2).epoch(0))
