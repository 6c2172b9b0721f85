"""Approximate search: scores equal the exact ones, recall is measured truthfully, the graph follows its index."""

import builtins
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.neighbours import approximate
from nearfar.neighbours.approximate import ApproximateSearch, check_installed
from nearfar.neighbours.exact import nearest
from nearfar.neighbours.index import SearchIndex
from tests.search_helpers import index_of

pytest.importorskip("usearch", exc_type=ImportError)
DIM = 16


def unit_vectors(count: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, DIM), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def add_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each later call adds to a graph."""
    from usearch.index import Index

    added, add = [], Index.add
    monkeypatch.setattr(Index, "add", lambda self, keys, vectors: added.append(len(keys)) or add(self, keys, vectors))
    return added


@pytest.fixture
def index(tmp_path: Path) -> SearchIndex:
    return index_of(tmp_path / "index", unit_vectors(700))


@pytest.mark.parametrize("queries", [0, 1, 7])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_scores_and_order_are_exact_for_what_is_found(index: SearchIndex, queries: int, k: int) -> None:
    vectors = unit_vectors(queries, seed=1)
    found = ApproximateSearch(index).search(vectors, k)
    assert found.ids.shape == (queries, min(k, 700))
    products = np.einsum("qd,qkd->qk", vectors, index.vectors[found.ids])
    np.testing.assert_allclose(found.scores, products, atol=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in found.ids.tolist())


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_nine_tenths_of_the_nearest_are_found(index: SearchIndex, k: int) -> None:
    """Over many queries: the graph is built by several threads, so which ones it misses differs from run to run."""
    vectors = unit_vectors(200, seed=1)
    found, exact = ApproximateSearch(index).search(vectors, k), nearest(vectors, index.vectors, k)
    shared = [len(set(one) & set(other)) for one, other in zip(found.ids.tolist(), exact.ids.tolist(), strict=True)]
    assert np.mean(shared) >= 0.9 * min(k, 700)


@pytest.mark.parametrize("queries", [1, 4])
def test_queries_for_which_the_graph_finds_too_few_are_searched_exactly(
    queries: int, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from usearch.index import Index

    search = ApproximateSearch(index)
    original = Index.search

    def finds_too_few(self: Index, vectors: np.ndarray, count: int) -> object:
        matches = original(self, vectors, count)
        if queries == 1:
            return SimpleNamespace(keys=matches.keys[: count - 2])
        counts = np.array(matches.counts)
        counts[1] = count - 2
        return SimpleNamespace(keys=matches.keys, counts=counts)

    monkeypatch.setattr(Index, "search", finds_too_few)
    vectors = unit_vectors(queries, seed=1)
    row = min(queries - 1, 1)
    np.testing.assert_array_equal(search.search(vectors, 10).ids[row], nearest(vectors, index.vectors, 10).ids[row])


def test_equal_scores_come_in_the_order_of_the_documents(tmp_path: Path) -> None:
    index = index_of(tmp_path / "index", np.repeat(unit_vectors(3), 5, axis=0))
    found = ApproximateSearch(index).search(np.array(index.vectors[:1]), 5)
    assert found.ids.tolist() == [[0, 1, 2, 3, 4]]


def test_recall_is_the_share_of_exact_neighbours_that_is_found(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ApproximateSearch(index)
    queries = unit_vectors(50, seed=2)
    assert search.measure(queries).value > 0.9
    blind = approximate.Neighbours  # a graph that never finds the first 350 documents

    def half_blind(self: ApproximateSearch, vectors: np.ndarray, k: int) -> approximate.Neighbours:
        ids, scores = nearest(vectors, np.array(index.vectors[350:]), k)
        return blind(ids + 350, scores)

    monkeypatch.setattr(ApproximateSearch, "search", half_blind)
    exact = nearest(queries, index.vectors, 10).ids
    assert search.measure(queries) == (pytest.approx((exact >= 350).mean()), 10, 50)


def test_recall_over_texts_leaves_the_text_itself_out(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_itself(self: ApproximateSearch, vectors: np.ndarray, k: int) -> approximate.Neighbours:
        itself = nearest(vectors, index.vectors, 1)
        others = nearest(vectors, -np.asarray(index.vectors), k - 1)  # the farthest
        return approximate.Neighbours(
            np.hstack([itself.ids, others.ids]), np.hstack([itself.scores, -others.scores]).astype(np.float32)
        )

    monkeypatch.setattr(ApproximateSearch, "search", only_itself)
    assert ApproximateSearch(index).recall == (0.0, 10, 200)


@pytest.mark.parametrize("texts", [1, 2, 5])
def test_recall_of_a_few_texts(texts: int, tmp_path: Path) -> None:
    recall = ApproximateSearch(index_of(tmp_path / "index", unit_vectors(texts))).recall
    assert recall == (1.0, texts - 1, texts)


def test_a_graph_is_kept_and_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit_vectors(300)
    index = index_of(tmp_path / "index", vectors)
    added = add_calls(monkeypatch)
    assert ApproximateSearch(index).recall == ApproximateSearch(index).recall
    more = ApproximateSearch(index_of(tmp_path / "index", np.vstack([vectors, unit_vectors(20, seed=5)])))
    assert added == [300, 20]
    assert more.search(unit_vectors(20, seed=5), 1).ids[:, 0].tolist() == list(range(300, 320))


DAMAGE = {
    "graph": ("approximate.usearch", b"x" * 500),
    "no graph": ("approximate.usearch", None),
    "record": ("approximate.json", b"{"),
    "list": ("approximate.json", b"[]"),
    "no record": ("approximate.json", None),
}


@pytest.mark.parametrize(("name", "content"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_graph_is_made_again(
    name: str, content: bytes | None, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    ApproximateSearch(index)
    added = add_calls(monkeypatch)
    if content is None:
        (index.folder / name).unlink()
    else:
        (index.folder / name).write_bytes(content)
    assert ApproximateSearch(index).recall.value > 0.9
    assert sum(added) == 700


def test_a_graph_of_the_right_size_with_wrong_content_is_made_again(index: SearchIndex) -> None:
    ApproximateSearch(index)
    file = index.folder / "approximate.usearch"
    file.write_bytes(bytes(file.stat().st_size))
    assert ApproximateSearch(index).recall.value > 0.9


def test_the_graph_of_another_index_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ApproximateSearch(index_of(tmp_path / "one", unit_vectors(300)))
    other = index_of(tmp_path / "two", unit_vectors(300, seed=9), "two")
    for name in ("approximate.usearch", "approximate.json"):
        (other.folder / name).write_bytes((tmp_path / "one" / name).read_bytes())
    added = add_calls(monkeypatch)
    ApproximateSearch(other)
    assert added == [300]


def test_an_interrupted_graph_is_continued(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "ADDED_AT_ONCE", 100)

    def stop(count: int) -> None:
        done.append(count)
        if len(done) == 3:
            raise KeyboardInterrupt

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        ApproximateSearch(index, on_added=stop)
    added = add_calls(monkeypatch)
    assert ApproximateSearch(index).recall.value > 0.9
    assert sum(added) == 400


def test_without_usearch_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "usearch" else real(name).__spec__)
    with pytest.raises(NearfarError, match=r"pip install 'nearfar\[search\]'"):
        check_installed()
