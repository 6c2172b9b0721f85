"""Balanced batches: equal numbers of texts per class, all classes in turn, no text twice."""

import random
from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.batching import TextBatches, sample_balanced_batches


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


def test_a_small_class_is_reshuffled_when_used_up():
    batches = balanced([40, 4], 4)
    of_small = [tuple(row for row in batch.rows if batches.targets[row] == 1) for batch in batches.epoch(0)]
    seen = Counter(row for rows in of_small for row in rows)
    assert len(of_small) == 11
    assert set(seen.values()) <= {5, 6}
    assert len({frozenset(rows) for rows in of_small}) > 2


def test_the_same_seed_gives_the_same_batches_from_any_step():
    one, other = balanced([9, 5, 4], 6, seed=3), balanced([9, 5, 4], 6, seed=3)
    list(one.epoch(0))
    assert list(one.epoch(2, start=1)) == list(other.epoch(2))[1:]
    assert (
        len({str([batch.rows for batch in balanced([9, 5, 4], 6, seed).epoch(e)]) for seed in (0, 1) for e in (0, 1)})
        == 4
    )


def test_a_repeated_text_of_a_class_counts_once():
    texts, labels = [("a",), ("a",), ("b",), ("c",), ("d",), ("c",)], [0, 0, 0, 1, 1, 1]
    for batch in TextBatches(texts, 6, targets=labels, balanced=True).epoch(0):
        assert sorted(batch.rows) == [0, 2, 3, 4]
