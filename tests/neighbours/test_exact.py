"""Exact search equals a stable sort of all similarities, and comparing all pairs a full matrix, for any block size."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from nearfar.neighbours import exact
from nearfar.neighbours.exact import compare_all, nearest
from nearfar.types import NearfarError, VectorSimilarity


def reference(
    queries: np.ndarray, documents: np.ndarray, k: int, similarity: VectorSimilarity = "dot"
) -> tuple[np.ndarray, np.ndarray]:
    """Sort all similarities of each query; of equals the first document comes first."""
    differences = queries[:, None] - documents[None]
    scores = {
        "dot": queries @ documents.T,
        "euclidean": -np.sqrt((differences**2).sum(axis=2)),
        "manhattan": -np.abs(differences).sum(axis=2),
    }[similarity]
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, axis=1)


@pytest.mark.parametrize("blocks", [(512, 16_384), (3, 7), (1, 1)])
@pytest.mark.parametrize("k", [1, 5, 40, 100])
@pytest.mark.parametrize("similarity", ["dot", "euclidean", "manhattan"])
def test_nearest_equals_a_stable_sort_with_ties(
    blocks: tuple[int, int], k: int, similarity: VectorSimilarity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "QUERY_BLOCK", blocks[0])
    monkeypatch.setattr(exact, "DOCUMENT_BLOCK", blocks[1])
    rng = np.random.default_rng(k)
    queries = rng.integers(-2, 3, (9, 4)).astype(np.float32)  # small integers: exact products, and many of them equal
    documents = rng.integers(-2, 3, (53, 4)).astype(np.float32)
    found = nearest(queries, documents, k, similarity=similarity)
    ids, scores = reference(queries, documents, k, similarity)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, scores)


def test_nearest_reads_memory_mapped_float16_vectors_and_counts_its_work(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "DOCUMENT_BLOCK", 32)
    rng = np.random.default_rng(0)
    documents = rng.standard_normal((100, 8)).astype(np.float16)
    np.save(f"{tmp_path}/vectors.npy", documents)
    queries = rng.standard_normal((5, 8)).astype(np.float32)
    done: list[int] = []
    mapped = np.load(f"{tmp_path}/vectors.npy", mmap_mode="r")
    found = nearest(queries, mapped, 3, on_block=done.append)
    np.testing.assert_array_equal(found.ids, reference(queries, documents.astype(np.float32), 3)[0])
    assert sum(done) == 500


def test_nearest_without_documents_or_queries_is_empty() -> None:
    empty, two = np.zeros((0, 4), np.float32), np.ones((2, 4), np.float32)
    assert nearest(two, empty, 3).ids.shape == (2, 0)
    assert nearest(empty, two, 3).ids.shape == (0, 2)


@pytest.mark.parametrize(
    ("queries", "documents", "k", "message"),
    [
        (np.ones((2, 4)), np.array([[1, 1, 1, 1], [1, np.nan, 1, 1]]), 1, "document 1 .counted from 0. is not finite"),
        (np.array([[np.inf, 0, 0, 0]]), np.ones((3, 4)), 1, "query 0"),
    ],
)
def test_nearest_refuses_bad_input(queries: np.ndarray, documents: np.ndarray, k: int, message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        nearest(queries.astype(np.float32), documents.astype(np.float32), k)


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
    monkeypatch.setattr(exact, "QUERY_BLOCK", request.param[0])
    monkeypatch.setattr(exact, "DOCUMENT_BLOCK", request.param[1])
    monkeypatch.setattr(exact, "MERGED", 9)
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
