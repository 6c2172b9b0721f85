"""Quantized search: exact scores, the recall that is reported, codes that follow their index, damaged files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.neighbours import quantized
from nearfar.neighbours.exact import nearest
from nearfar.neighbours.index import SearchIndex
from nearfar.neighbours.quantized import QuantizedSearch, nearest_codes
from nearfar.quantization import int8_ranges, quantize
from tests.search_helpers import index_of

DIM, TEXTS = 48, 700
KINDS: tuple[Any, ...] = ("int8", "binary")


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
def quantized_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each later call quantizes."""
    counts: list[int] = []

    def counted(vectors: np.ndarray, *arguments: Any) -> np.ndarray:
        counts.append(len(vectors))
        return quantize(vectors, *arguments)

    monkeypatch.setattr(quantized, "quantize", counted)
    return counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [0, 1, 7])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_scores_and_order_are_exact_for_what_is_found(index: SearchIndex, kind: Any, queries: int, k: int) -> None:
    vectors = unit_vectors(queries, seed=1)
    found, exact = QuantizedSearch(index, kind).search(vectors, k), nearest(vectors, index.vectors, k)
    assert found.ids.shape == exact.ids.shape == (queries, min(k, TEXTS))
    products = np.einsum("qd,qkd->qk", vectors, index.vectors[found.ids])
    np.testing.assert_allclose(found.scores, products, atol=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in found.ids.tolist())
    if k == 1000:  # every document is a candidate
        np.testing.assert_allclose(found.scores, exact.scores, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "alone", "rescored"), [("int8", 0.97, 0.999), ("binary", 0.4, 0.95)])
def test_recall_against_exact_search(index: SearchIndex, kind: Any, alone: float, rescored: float) -> None:
    """The data are seeded and the codes exact, so that the recall is the same in every run."""
    queries = unit_vectors(300, seed=2)
    exact = nearest(queries, index.vectors, 10)
    shares = []
    for factor in (1, 2, 4, 10):
        found = QuantizedSearch(index, kind, factor=factor).search(queries, 10)
        same = [len(set(one) & set(other)) / 10 for one, other in zip(found.ids, exact.ids, strict=True)]
        shares.append(float(np.mean(same)))
    assert shares == sorted(shares)
    assert shares[0] >= alone
    assert shares[-1] >= rescored
    assert QuantizedSearch(index, kind, factor=4).measure(queries).value == pytest.approx(shares[2], abs=1e-3)


def test_hamming_distances_equal_those_of_unpacked_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "ROWS", 16)
    draw = np.random.default_rng(0)
    for width in (1, 3, 8, 16):
        documents, queries = (draw.integers(256, size=(count, width), dtype=np.uint8) for count in (50, 6))
        bits, own = np.unpackbits(documents, axis=1), np.unpackbits(queries, axis=1)
        distances = (own[:, None] != bits[None]).sum(axis=2)
        for k in (1, 7, 50, 60):
            expected = np.argsort(distances, axis=1, kind="stable")[:, :k]  # of equal distances the first document
            np.testing.assert_array_equal(nearest_codes(queries, documents, k), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_kept_while_the_index_is(
    index: SearchIndex, kind: Any, quantized_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "ROWS", 300)
    first = QuantizedSearch(index, kind)
    of_queries = [200] if kind == "binary" else []  # the sample for the recall
    assert quantized_rows == [300, 300, 100, *of_queries]
    quantized_rows.clear()
    assert QuantizedSearch(index, kind).recall == first.recall
    assert quantized_rows == []
    more = index_of(index.folder, np.vstack([index.vectors, unit_vectors(50, seed=3)]))
    again = QuantizedSearch(more, kind)
    assert quantized_rows == [300, 300, 150, *of_queries]
    ranges = int8_ranges([np.array(more.vectors)]) if kind == "int8" else None
    np.testing.assert_array_equal(again.codes, quantize(np.array(more.vectors), kind, ranges))
    assert {f"{kind}.npy", f"{kind}.json"} < {file.name for file in index.folder.iterdir()}


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [("int8", "json", b"{"), ("binary", "json", b'{"texts": "x"}'), ("int8", "npy", b"[]"), ("binary", "npy", None)],
)
def test_damaged_codes_are_made_again(index: SearchIndex, kind: Any, name: str, content: bytes | None) -> None:
    queries = unit_vectors(5, seed=1)
    expected = QuantizedSearch(index, kind).search(queries, 5)
    file = index.folder / f"{kind}.{name}"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    found = QuantizedSearch(index, kind).search(queries, 5)
    np.testing.assert_array_equal(found.ids, expected.ids)


def test_codes_of_another_index_are_made_again(index: SearchIndex, tmp_path: Path) -> None:
    QuantizedSearch(index, "binary")
    other = index_of(tmp_path / "other", -unit_vectors(TEXTS), "two")
    for name in ("binary.npy", "binary.json"):
        (other.folder / name).write_bytes((index.folder / name).read_bytes())
    search = QuantizedSearch(other, "binary")
    np.testing.assert_array_equal(search.codes, quantize(np.array(other.vectors), "binary"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [1, 2, 11])
def test_a_few_texts(kind: Any, texts: int, tmp_path: Path) -> None:
    index = index_of(tmp_path / "few", unit_vectors(texts))
    search = QuantizedSearch(index, kind)
    found = search.search(np.array(index.vectors), 3)
    assert found.ids.shape == (texts, min(3, texts))
    np.testing.assert_array_equal(found.ids[:, 0], np.arange(texts))


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_that_is_not_finite_is_reported(kind: Any, tmp_path: Path) -> None:
    vectors = unit_vectors(20)
    vectors[7, 3] = np.nan
    with pytest.raises(NearfarError, match=r"vectors\.npy: holds a vector that is not finite\. The index is damaged"):
        QuantizedSearch(index_of(tmp_path / "nan", vectors), kind)


def test_values_that_codes_cannot_hold_are_refused() -> None:
    """Instead of infinity or NaN, which would be found at the search."""
    huge = np.array([[1.0, 7e4], [0.0, -2e38]], dtype=np.float32)
    with pytest.raises(NearfarError, match="float16 holds values up to 65504, but a vector has larger ones"):
        quantize(huge, "float16")
    assert np.isfinite(quantize(huge / 1e35, "float16")).all()
    with pytest.raises(NearfarError, match="the range of a dimension is too wide for float32"):
        quantize(huge, "int8", np.array([[0, -3e38], [1, 3e38]], dtype=np.float32))
