"""Nearest and farthest texts against plain sorting, and the change of neighbourhoods against sets."""

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.evaluation.explorer.page import (
    Neighbourhoods,
    change,
    compared_neighbours,
    cosines,
    neighbourhoods,
    order_by_change,
    unit_vectors,
)
from tests.evaluation.explorer.pages import random_vectors, sorted_neighbours


@pytest.mark.parametrize("count", [2, 5, 11, 12, 300])
def test_lists_are_those_of_a_full_sort(count: int) -> None:
    vectors = random_vectors(count)
    computed: list[int] = []
    found = neighbourhoods(vectors, on_block=computed.append)
    near, far, exact = sorted_neighbours(vectors, range(count))
    assert found.nearest.tolist() == near.tolist()
    assert found.farthest.tolist() == far.tolist()
    assert sum(computed) == 2 * count**2
    assert cosines(vectors, found.nearest) == pytest.approx(np.take_along_axis(exact, near, axis=1), abs=1e-6)


def test_a_text_is_never_its_own_neighbour_even_among_many_equal_vectors() -> None:
    vectors = np.ones((40, 1), dtype=np.float32)
    found = neighbourhoods(vectors)
    assert found.nearest.shape == (40, 10)
    assert found.farthest.shape == (40, 5)
    for number in range(40):
        others = [other for other in range(40) if other != number]
        assert found.nearest[number].tolist() == others[:10]
        assert found.farthest[number].tolist() == others[:5]


def test_unit_vectors() -> None:
    found = unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0]]), "m")
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0], [1, 0]]))
    with pytest.raises(NearfarError, match="m: the vector of text 2 is not finite"):
        unit_vectors(np.array([[1.0], [np.nan]]), "m")


@pytest.mark.parametrize(("texts", "expected"), [(2, 1), (3, 1), (5, 2), (20, 9), (21, 10), (50_000, 10)])
def test_number_of_compared_neighbours(texts: int, expected: int) -> None:
    assert compared_neighbours(texts) == expected


def test_change_is_the_jaccard_distance() -> None:
    before, after = (neighbourhoods(random_vectors(60, 4, seed=seed)) for seed in (0, 1))
    expected = [1 - len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(before.nearest, after.nearest, strict=True)]
    assert change(before, after) == pytest.approx(expected, abs=1e-7)
    assert len(set(expected)) > 3
    assert change(before, before).tolist() == [0] * 60


def test_change_of_few_texts_compares_the_first_half_only() -> None:
    far = np.zeros((5, 1), dtype=np.int64)
    before = Neighbourhoods(np.array([[1, 2, 3, 4]] * 5), far)
    after = Neighbourhoods(np.array([[2, 1, 3, 4], [3, 4, 1, 2], [1, 3, 2, 4], [1, 2, 4, 3], [4, 3, 2, 1]]), far)
    assert change(before, after) == pytest.approx([0, 1, 2 / 3, 0, 1])


def test_equal_changes_are_ordered_by_the_drop_of_cosines() -> None:
    changes = np.array([0.5, 1.0, 0.5, 0.0, 0.5], dtype=np.float32)
    before = np.full((5, 2), 0.9, dtype=np.float32)
    after = np.array([[0.8, 0.8], [0.9, 0.9], [0.1, 0.3], [0, 0], [0.8, 0.8]], dtype=np.float32)
    assert order_by_change(changes, before, after).tolist() == [1, 2, 0, 4, 3]
