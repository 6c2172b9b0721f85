"""Batches: every row once, premises together, the order determined by the seed, from any step."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.batching import NliBatches, TextBatches
from nearfar.types import NearfarError, NliRow

# Few texts, so that premises repeat, also far apart, and a text can be both premise and hypothesis.
texts = st.sampled_from([f"text {n}" for n in range(9)])
row_lists = st.lists(st.builds(NliRow, texts, texts, st.integers(0, 2)), min_size=1, max_size=40)
orders = st.sampled_from(["premise", "file", "rows"])


def rows_of(sizes):
    """Return shuffled rows with distinct texts in which premise k has sizes[k] hypotheses."""
    rows = [NliRow(f"premise {k}", f"hypothesis {k} {n}", n % 3) for k, size in enumerate(sizes) for n in range(size)]
    return rows[::2] + rows[1::2]


@st.composite
def batchings(draw):
    rows = draw(row_lists)
    return NliBatches(rows, draw(st.integers(1, len(rows))), draw(st.integers(0, 99)), draw(orders))


@pytest.mark.long
@given(batchings(), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_every_row_occurs_once_per_epoch_and_indices_are_correct(batches, epoch):
    seen, rest, oversized = [], set(range(len(batches.rows))), 0
    for batch in batches.epoch(epoch):
        assert len(set(batch.sentences)) == len(batch.sentences)
        for premise, hypothesis, label, row in zip(
            batch.premises, batch.hypotheses, batch.labels, batch.rows, strict=True
        ):
            assert batches.rows[row] == (batch.sentences[premise], batch.sentences[hypothesis], label)
        assert set(batch.premises) | set(batch.hypotheses) == set(range(len(batch.sentences)))
        seen += batch.rows
        rest -= {*batch.rows}
        if batches.order == "premise":  # the rows of each share a batch
            assert not {batches.rows[row].premise for row in rest} & {batches.rows[row].premise for row in batch.rows}
        oversized += len(batch.rows) > batches.batch_size
        assert len(batch.rows) <= batches.batch_size or len(set(batch.premises)) == 1
    assert sorted(seen) == list(range(len(batches.rows)))
    assert batches.oversized == oversized
    assert batches.order == "premise" or oversized == 0
    lengths = [len(list(batches.epoch(number))) for number in range(epoch + 1)]
    assert [batches.steps(number) for number in range(epoch + 1)] == lengths
    assert batches.total_steps(epoch + 1) == sum(lengths)


@given(batchings(), st.integers(0, 3), st.data())
@settings(max_examples=50, deadline=None)
def test_an_epoch_can_be_resumed_at_any_step_by_another_object(batches, epoch, data):
    again = NliBatches(list(batches.rows), batches.batch_size, batches.seed, batches.order)
    list(batches.epoch(epoch + 1))  # earlier calls have no effect
    every = list(batches.epoch(epoch))
    start = data.draw(st.integers(0, len(every)))
    assert list(again.epoch(epoch, start)) == every[start:]


def test_premises_fill_a_batch_while_they_fit():
    batches = NliBatches(rows_of([3] * 10), batch_size=10)
    assert [len(batch.rows) for batch in batches.epoch(0)] == [9, 9, 9, 3]
    # Two consecutive batches together would exceed the batch size.
    batches = NliBatches(rows_of([1, 2, 3, 4, 5, 6, 7]), batch_size=8)
    for epoch in range(5):
        plan = [batch.rows for batch in batches.epoch(epoch)]
        first_premises = [
            [row for row in rows if batches.rows[row].premise == batches.rows[rows[0]].premise] for rows in plan
        ]
        for rows, following in zip(plan, first_premises[1:], strict=False):
            assert len(rows) + len(following) > 8


def test_file_order_keeps_the_order_and_may_split_premises():
    batches = NliBatches(rows_of([3, 3, 3]), batch_size=4, order="file")
    for epoch in range(2):
        assert [batch.rows for batch in batches.epoch(epoch)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


@pytest.mark.parametrize("order", ["premise", "rows"])
def test_each_epoch_and_each_seed_has_its_own_order(order):
    rows = rows_of([3] * 20)
    orders = {
        tuple(row for batch in NliBatches(rows, 10, seed, order).epoch(epoch) for row in batch.rows)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def test_shuffling_is_uniform_over_premises():
    batches, epochs = NliBatches(rows_of([1] * 10), batch_size=1), 400
    first = [next(batches.epoch(epoch)).rows[0] for epoch in range(epochs)]
    spread = (epochs * 0.1 * 0.9) ** 0.5
    assert all(abs(first.count(row) - epochs / 10) < 4 * spread for row in range(10))


def test_the_order_is_the_same_in_another_process():
    code = (
        "from nearfar.data.batching import NliBatches; from nearfar.types import NliRow; "
        "rows = [NliRow(f'p{n % 7}', f'h{n}', 0) for n in range(30)]; "
        "print([batch.rows for batch in NliBatches(rows, 8, 5).epoch(2)])"
    )
    # String hashing, and so the order of sets, differs between processes; the batches must not.
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    rows = [NliRow(f"p{n % 7}", f"h{n}", 0) for n in range(30)]
    assert printed == {f"{[batch.rows for batch in NliBatches(rows, 8, 5).epoch(2)]}\n"}


@st.composite
def text_batchings(draw):
    width = draw(st.integers(1, 3))
    rows = draw(st.lists(st.tuples(*[texts] * width), min_size=2, max_size=40))
    targets = draw(st.none() | st.just([float(number) for number in range(len(rows))]))
    min_batch_size = draw(st.integers(1, 2))
    size = draw(st.integers(min_batch_size, len(rows)))
    return TextBatches(rows, size, draw(st.integers(0, 99)), targets, min_batch_size=min_batch_size)


def read_back(batch):
    """Reconstruct the rows of a batch from its indices."""
    return [tuple(batch.sentences[index] for index in indices) for indices in zip(*batch.columns, strict=True)]


@pytest.mark.long
@given(text_batchings(), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_every_text_row_occurs_once_per_epoch_and_indices_are_correct(batches, epoch):
    seen = []
    for batch in batches.epoch(epoch):
        assert read_back(batch) == [batches.texts[row] for row in batch.rows]
        # In order of first appearance; the indices have no gaps, and no text is repeated.
        appearance = [text for row in batch.rows for text in batches.texts[row]]
        assert batch.sentences == sorted(set(appearance), key=appearance.index)
        assert batch.targets == ([] if batches.targets is None else [float(row) for row in batch.rows])
        seen += batch.rows
    assert sorted(seen) == list(range(len(batches.texts)))


@pytest.mark.long
@given(text_batchings(), st.integers(0, 3), st.data())
@settings(max_examples=50, deadline=None)
def test_text_batches_have_equal_sizes_and_can_be_resumed_at_any_step(batches, epoch, data):
    again = TextBatches(
        list(batches.texts), batches.batch_size, batches.seed, batches.targets, min_batch_size=batches.min_batch_size
    )
    list(batches.epoch(epoch + 1))
    every = list(batches.epoch(epoch))
    start = data.draw(st.integers(0, len(every)))
    assert list(again.epoch(epoch, start)) == every[start:]
    sizes = [len(batch.rows) for batch in every]
    assert sizes[:-1] == [batches.batch_size] * (len(sizes) - 1)
    assert batches.min_batch_size <= sizes[-1] < batches.batch_size + batches.min_batch_size
    assert batches.steps(epoch) == len(every)
    assert batches.total_steps(3) == sum(len(list(batches.epoch(number))) for number in range(3))


@pytest.mark.parametrize("order", ["file", "rows"])
def test_total_steps_of_equal_epochs_are_computed_without_iterating(order):
    rows = [NliRow("p", str(number), 0) for number in range(5)]
    assert NliBatches(rows, 2, order=order).total_steps(10**15) == 3 * 10**15
    assert TextBatches(singles(5), 2).total_steps(10**15) == 2 * 10**15


def singles(count):
    return [(f"text {number}",) for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "min_batch_size", "sizes"),
    [(8, 2, [4, 4]), (9, 2, [4, 5]), (10, 2, [4, 4, 2]), (9, 1, [4, 4, 1]), (4, 2, [4])],
)
def test_a_single_remaining_row_joins_the_previous_batch_by_default(rows, min_batch_size, sizes):
    batches = TextBatches(singles(rows), 4, min_batch_size=min_batch_size)
    assert [len(batch.rows) for batch in batches.epoch(0)] == sizes


def of_labels(texts, *labels):
    return lambda size: TextBatches([(text,) for text in texts], size, targets=list(labels) or None, balanced=True)


def of_premises(*sizes, **settings):
    return lambda size: NliBatches(rows_of(sizes), size, **settings)


def of_texts(count, **settings):
    return lambda size: TextBatches(singles(count), size, **settings)


@pytest.mark.parametrize(
    ("make", "batch_size", "message"),
    [
        (of_premises(3, 3), 7, "--batch-size is 7, but must be from 1 to the number of rows, 6"),
        (of_premises(3, 3), 0, "--batch-size is 0"),
        (of_premises(3, 3), -1, "is -1"),
        (of_premises(), 1, "no NLI rows"),
        (of_premises(3, order="random"), 1, "order must be one of premise, file, rows, not 'random'"),
        (of_texts(1), 2, "there is 1 row to train on, but a contrastive loss needs at least 2"),
        (of_texts(6), 1, r"is 1, but must be from 2 to the number of rows, 6 \(a contrastive loss needs other rows"),
        (of_texts(6), 7, "--batch-size is 7, but must be from 2 to the number of rows, 6$"),
        (of_texts(6), 0, "--batch-size is 0"),
        (of_texts(0), 2, "no rows"),
        (of_texts(3, targets=[0, 1]), 2, "there are 2 targets for 3 rows"),
        (of_labels("abcd"), 4, "need an integer label"),
        (of_labels("abcd", 0, 0.5, 1, 1), 4, "need an integer label for each row"),
        (of_labels("abcd", 1, 1, 1, 1), 4, "at least two classes"),
        (of_labels("abcc", 0, 0, 1, 1), 4, "label 1 has a single text, 'c'"),
        (of_labels("abcd", 0, 0, 1, 1), 3, "--batch-size is 3, but .* at least 4"),
    ],
)
def test_rows_that_cannot_be_batched_raise(make, batch_size, message):
    with pytest.raises(NearfarError, match=message):
        make(batch_size)


def test_the_smallest_and_the_largest_batch_are_possible():
    assert of_premises(3, 3)(6).steps(0) == 1
    assert of_texts(6, min_batch_size=1)(1).steps(0) == 6
