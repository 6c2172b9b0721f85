"""Samples: size, proportions, uniformity, and reproducibility."""

import random
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data.finetuning_splits import draw, hold_out, largest_remainder
from tests.data.files import error_of

TARGETS = [0] * 60 + [2] * 30 + [1] * 10


def counts(rows, targets=TARGETS):
    assert rows == sorted(set(rows))
    return Counter(targets[row] for row in rows)


error = partial(error_of, draw)


def test_a_balanced_sample_has_equal_counts():
    assert counts(draw(TARGETS, 30, balanced=True, seed=0)) == {0: 10, 1: 10, 2: 10}


def test_labels_with_one_more_row_are_chosen_at_random():
    more = Counter()
    for seed in range(60):
        drawn = counts(draw(TARGETS, 8, balanced=True, seed=seed))
        assert sorted(drawn.values()) == [2, 3, 3]
        more.update(label for label, count in drawn.items() if count == 3)
    assert min(more[label] for label in (0, 1, 2)) > 25  # 40 expected


def test_a_proportional_sample_has_the_proportions():
    assert counts(draw(TARGETS, 10, balanced=False, seed=0)) == {0: 6, 2: 3, 1: 1}
    assert counts(draw(TARGETS, 100, balanced=False, seed=0)) == Counter(TARGETS)


def test_a_rare_label_is_in_a_proportional_sample():
    targets = [0] * 96 + [1] * 2 + [2] * 2
    assert counts(draw(targets, 5, balanced=False, seed=0), targets) == {0: 3, 1: 1, 2: 1}
    assert counts(draw(targets, 3, balanced=False, seed=0), targets) == {0: 1, 1: 1, 2: 1}


def test_a_sample_is_a_function_of_its_seed():
    samples = [draw(TARGETS, 30, balanced=True, seed=seed) for seed in range(20)]
    assert samples == [draw(TARGETS, 30, balanced=True, seed=seed) for seed in range(20)]
    assert len({tuple(sample) for sample in samples}) == 20
    # two samples of 30 of 100 rows: on average 10 x 10/60 + 10 x 10/30 + 10 of 10 rows are in both
    shared = [len(set(one) & set(other)) for one, other in pairwise(samples)]
    assert 13 < sum(shared) / len(shared) < 17


def test_rows_are_sampled_uniformly():
    drawn = Counter(row for seed in range(300) for row in draw(TARGETS, 20, balanced=False, seed=seed))
    assert set(drawn) == set(range(100))
    assert max(drawn.values()) < 100  # 60 expected


def test_impossible_samples_raise():
    assert error(TARGETS, 2, balanced=False, seed=0).startswith(
        "A sample of 2 rows cannot be drawn: it must be from 3,"
    )
    assert "to 100, the number of rows" in error(TARGETS, 101, balanced=True, seed=0)
    assert error(TARGETS, 33, balanced=True, seed=0) == (
        "The label 1 has 10 rows, but a balanced sample of 33 needs 11. Draw fewer rows, or keep the proportions of "
        "the labels."
    )
    names = ("no", "maybe", "yes")
    assert error(TARGETS, 60, balanced=True, seed=0, label_names=names).startswith("The label 'maybe' has 10 rows")


def test_held_out_rows_are_stratified_and_leave_a_row_of_each_label():
    assert counts(hold_out(TARGETS, 10, seed="x")) == {0: 6, 2: 3, 1: 1}
    assert hold_out(TARGETS, 10, seed="x") != hold_out(TARGETS, 10, seed="y")
    targets = [0] * 10 + [1] + [2] * 2
    for seed in range(30):
        assert set(counts(hold_out(targets, 13, seed=seed), targets)) <= {0, 2}
        assert set(targets) == {targets[row] for row in set(range(13)) - set(hold_out(targets, 13, seed=seed))}
    assert len(hold_out(targets, 13, seed=0)) == 6
    assert hold_out([0, 1, 2], 1, seed=0) == []


@pytest.mark.long
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 100), st.integers())
def test_largest_remainders(sizes, percent, seed):
    total = sum(sizes)
    count = total * percent // 100
    shares = largest_remainder(sizes, count, random.Random(f"{seed}"))
    exact = [Fraction(count * size, total) for size in sizes]
    assert sum(shares) == count
    assert all(abs(share - part) < 1 for share, part in zip(shares, exact, strict=True))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    up = [part % 1 for share, part in zip(shares, exact, strict=True) if share > part]
    down = [part % 1 for share, part in zip(shares, exact, strict=True) if share < part]
    assert not up or not down or min(up) >= max(down)
