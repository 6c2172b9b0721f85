"""All pairs in blocks: nearest others and connected components equal plain NumPy references."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from nearfar.neighbours import pairs
from nearfar.neighbours.pairs import compare_all
from nearfar.types import NearfarError

BLOCKS = [(512, 16_384), (7, 11), (4, 4), (1, 3), (20, 5)]


def vectors(seed: int, count: int = 60) -> np.ndarray:
    """Small integers: inner products are exact, and many of them are equal."""
    return np.random.default_rng(seed).integers(-2, 3, (count, 4)).astype(np.float32)


def scores_of(some: np.ndarray) -> np.ndarray:
    scores = some @ some.T
    np.fill_diagonal(scores, -np.inf)
    return scores


@pytest.fixture(params=BLOCKS)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The numbers of rows and columns of a block."""
    monkeypatch.setattr(pairs, "ROWS", request.param[0])
    monkeypatch.setattr(pairs, "COLUMNS", request.param[1])
    monkeypatch.setattr(pairs, "MERGED", 9)
    return request.param


@pytest.mark.long
@pytest.mark.parametrize("threshold", [None, -50, 7.5, 50])
def test_nearest_others_and_groups_equal_a_full_matrix(blocks: tuple[int, int], threshold: float | None) -> None:
    some, done = vectors(sum(blocks), 90), list[int]()
    found = compare_all(some, threshold, on_rows=done.append)
    scores = scores_of(some)
    np.testing.assert_array_equal(found.scores, scores.max(axis=1))
    np.testing.assert_array_equal(found.ids, scores.argmax(axis=1))
    count, labels = connected_components(scores >= (np.inf if threshold is None else threshold))
    lowest = np.array([np.flatnonzero(labels == label)[0] for label in labels])
    np.testing.assert_array_equal(found.groups, lowest)
    assert count == {-50: 1, 7.5: count, 50: 90, None: 90}[threshold]
    assert (sum(done), len(done)) == (90, -(-90 // blocks[0]))


def test_a_vector_that_is_not_finite_is_named(blocks: tuple[int, int]) -> None:
    some = vectors(0)
    some[33, 1] = np.nan
    with pytest.raises(NearfarError, match=r"vector of text 33 .counted from 0. is not finite"):
        compare_all(some)
