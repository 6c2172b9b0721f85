"""Approximate and quantized search: exact scores of what is found, a true recall, and files that follow the index."""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.commands.search import inexact
from nearfar.commands.search.index import SearchIndex
from nearfar.commands.search.inexact import (
    InexactSearch,
    measure_recall,
    nearest_codes,
    search_codes,
    search_graph,
)
from nearfar.neighbours.exact import nearest
from nearfar.quantization import quantize
from tests.search_helpers import index_of

DIM, TEXTS = 48, 700
NEEDS_USEARCH = pytest.mark.skipif(importlib.util.find_spec("usearch") is None, reason="needs usearch")
Open = Callable[[SearchIndex], InexactSearch]
CODES: tuple[Any, ...] = ("int8", "binary")
KINDS = [
    pytest.param(search_graph, id="graph", marks=NEEDS_USEARCH),
    *(pytest.param(partial(search_codes, kind=kind), id=kind) for kind in CODES),
]


def unit_vectors(count: int, seed: int = 0) -> np.ndarray:
    """Vectors in 40 clusters, so that neighbours are nearer than other documents."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, DIM))
    vectors = (centres[draw.integers(40, size=count)] + 0.4 * draw.standard_normal((count, DIM))).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def index(tmp_path: Path) -> SearchIndex:
    return index_of(tmp_path / "index", unit_vectors(TEXTS))


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each later call adds to a graph or quantizes."""
    counts: list[int] = []

    def counted(vectors: np.ndarray, *arguments: Any) -> np.ndarray:
        counts.append(len(vectors))
        return quantize(vectors, *arguments)

    monkeypatch.setattr(inexact, "quantize", counted)
    if importlib.util.find_spec("usearch") is not None:
        from usearch.index import Index

        add = Index.add
        monkeypatch.setattr(Index, "add", lambda self, keys, rows: counts.append(len(keys)) or add(self, keys, rows))
    return counts


@pytest.mark.parametrize("opened", KINDS)
@pytest.mark.parametrize("queries", [0, 1, 7])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_scores_and_order_are_exact_for_what_is_found(index: SearchIndex, opened: Open, queries: int, k: int) -> None:
    vectors = unit_vectors(queries, seed=1)
    found = opened(index).search(vectors, k)
    assert found.ids.shape == (queries, min(k, TEXTS))
    products = np.einsum("qd,qkd->qk", vectors, index.vectors[found.ids])
    np.testing.assert_allclose(found.scores, products, atol=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in found.ids.tolist())
    if k == 1000 and opened is not search_graph:  # every document is a candidate
        np.testing.assert_allclose(found.scores, nearest(vectors, index.vectors, k).scores, atol=1e-6)


@pytest.mark.parametrize("opened", KINDS)
def test_a_vector_that_is_not_finite_is_reported(opened: Open, tmp_path: Path) -> None:
    vectors = unit_vectors(20)
    vectors[7, 3] = np.nan
    with pytest.raises(NearfarError, match=r"vectors\.npy: holds a vector that is not finite\. The index is damaged"):
        opened(index_of(tmp_path / "nan", vectors))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "alone", "rescored"), [("int8", 0.97, 0.999), ("binary", 0.4, 0.95)])
def test_recall_against_exact_search(index: SearchIndex, kind: Any, alone: float, rescored: float) -> None:
    """The data are seeded and the codes exact, so that the recall is the same in every run."""
    queries = unit_vectors(300, seed=2)
    exact = nearest(queries, index.vectors, 10)
    shares = []
    for factor in (1, 2, 4, 10):
        found = search_codes(index, kind, factor=factor).search(queries, 10)
        same = [len(set(one) & set(other)) / 10 for one, other in zip(found.ids, exact.ids, strict=True)]
        shares.append(float(np.mean(same)))
    assert shares == sorted(shares)
    assert shares[0] >= alone
    assert shares[-1] >= rescored
    search = search_codes(index, kind, factor=4).search
    assert measure_recall(search, index.vectors, queries).value == pytest.approx(shares[2], abs=1e-3)


@NEEDS_USEARCH
@pytest.mark.parametrize("queries", [1, 4])
def test_where_the_graph_finds_too_few_search_is_exact(
    queries: int, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from usearch.index import Index

    search, vectors = search_graph(index), unit_vectors(queries, seed=1)
    monkeypatch.setattr(Index, "search", lambda *_: SimpleNamespace(keys=np.zeros((5, 10)), counts=np.full(5, 8)))
    np.testing.assert_array_equal(search.search(vectors, 10).ids, nearest(vectors, index.vectors, 10).ids)


@NEEDS_USEARCH
@pytest.mark.parametrize("opened", KINDS)
def test_derived_files_are_kept_while_the_index_is(
    index: SearchIndex, opened: Open, added: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inexact, "ROWS", 300)
    recall = opened(index).recall
    assert added[:3] == [300, 300, 100]
    added.clear()
    assert opened(index).recall == recall
    assert added == []
    new = unit_vectors(50, seed=3)
    more = opened(index_of(index.folder, np.vstack([index.vectors, new]), generation="two"))
    assert added[:3] == [300, 300, 150]
    assert (more.search(new, 1).ids[:, 0] >= TEXTS).mean() > 0.8


GRAPH, INT8, BINARY = KINDS
DAMAGE: list[tuple[Any, str, bytes | None]] = [
    (GRAPH, "approximate.usearch", b""),  # zeros of the right length
    (GRAPH, "approximate.usearch", None),
    (INT8, "int8.json", b"{"),
    (BINARY, "binary.json", b'{"texts": "x"}'),
    (INT8, "int8.npy", b"[]"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("opened", "name", "content"),
    [pytest.param(*kind.values, name, content, marks=kind.marks) for kind, name, content in DAMAGE],
)
def test_damaged_files_are_made_again(
    opened: Open, name: str, content: bytes | None, index: SearchIndex, added: list[int]
) -> None:
    opened(index)
    added.clear()
    file = index.folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content or bytes(file.stat().st_size))
    again = opened(index)
    assert sum(added) >= TEXTS
    assert again.recall.value > 0.9


def test_hamming_distances_equal_those_of_unpacked_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inexact, "ROWS", 16)
    draw = np.random.default_rng(0)
    for width in (1, 3, 8, 16):
        documents, queries = (draw.integers(256, size=(count, width), dtype=np.uint8) for count in (50, 6))
        bits, own = np.unpackbits(documents, axis=1), np.unpackbits(queries, axis=1)
        distances = (own[:, None] != bits[None]).sum(axis=2)
        for k in (1, 7, 50, 60):
            expected = np.argsort(distances, axis=1, kind="stable")[:, :k]  # of equal distances the first document
            np.testing.assert_array_equal(nearest_codes(queries, documents, k), expected)


def test_values_that_codes_cannot_hold_are_refused() -> None:
    """Instead of infinity or NaN, which would be found at the search."""
    huge = np.array([[1.0, 7e4], [0.0, -2e38]], dtype=np.float32)
    with pytest.raises(NearfarError, match="float16 holds values up to 65504, but a vector has larger ones"):
        quantize(huge, "float16")
    assert np.isfinite(quantize(huge / 1e35, "float16")).all()
    with pytest.raises(NearfarError, match="the range of a dimension is too wide for float32"):
        quantize(huge, "int8", np.array([[0, -3e38], [1, 3e38]], dtype=np.float32))
