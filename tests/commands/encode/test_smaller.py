"""``nearfar encode --dimensions --quantize``: fewer dimensions and fewer bytes, in every file format, resumable."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from nearfar import Encoder, NearfarError
from nearfar.quantization import dequantize, int8_ranges, quantize
from tests.damaged_arrays import DAMAGED_HEADERS
from tests.encode_helpers import TEXTS, encoded, make_workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_workspace(tmp_path, monkeypatch)


def vectors(**settings: Any) -> np.ndarray:
    return Encoder.from_pretrained("tiny").encode(TEXTS, precision="fp32", **settings)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.long
@pytest.mark.parametrize("normalize", [False, True])
def test_the_first_dimensions_are_scaled_again_if_the_vectors_are(workspace: Path, normalize: bool) -> None:
    encoded(dimensions=12, normalize=normalize)
    expected = vectors()[:, :12]
    expected = unit(expected) if normalize else expected
    np.testing.assert_allclose(np.load("x.npy"), expected, atol=1e-5)
    np.testing.assert_allclose(vectors(dimensions=12, normalize=normalize), expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "suffix"), [("float16", "npy"), ("int8", "parquet"), ("binary", "npy")])
def test_codes_are_those_of_the_vectors(workspace: Path, kind: Any, suffix: str) -> None:
    how = {"dimensions": 20, "normalize": True}
    plain = np.frombuffer(encoded("plain.npy", **how), np.float32, offset=128).reshape(-1, 20)
    encoded(f"x.{suffix}", quantize=kind, **how)
    ranges = int8_ranges([plain]) if kind == "int8" else None
    if suffix == "npy":
        found = np.load("x.npy")
    else:
        column = pyarrow.parquet.read_table("x.parquet")["embedding"].combine_chunks()
        found = column.flatten().to_numpy().reshape(len(TEXTS), -1)
    assert found.dtype == {"float16": np.float16, "int8": np.int8, "binary": np.uint8}[kind]
    assert found.shape == (len(TEXTS), 3 if kind == "binary" else 20)
    np.testing.assert_array_equal(found, quantize(plain, kind, ranges))
    assert Path("x.ranges.npy").exists() == (kind == "int8")
    if kind == "int8":
        np.testing.assert_array_equal(np.load("x.ranges.npy"), ranges)


@pytest.mark.long
def test_ranges_of_another_file_make_codes_comparable(workspace: Path) -> None:
    encoded("x.npy", quantize="int8")
    Path("y.txt").write_text("\n".join(TEXTS[:7]) + "\n")
    encoded("y.npy", source="y.txt", quantize="int8", calibrate="x.ranges.npy")
    np.testing.assert_array_equal(np.load("y.npy"), np.load("x.npy")[:7])
    np.testing.assert_array_equal(np.load("y.ranges.npy"), np.load("x.ranges.npy"))
    encoded("plain.npy")
    encoded("z.npy", source="y.txt", quantize="int8", calibrate="plain.npy")  # vectors have the same ranges
    np.testing.assert_array_equal(np.load("z.npy"), np.load("y.npy"))


def test_int8_codes_are_within_half_a_step(workspace: Path) -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(1000, 7)).astype(np.float32)
    rows[:, 3] = 0.25  # a constant dimension
    ranges = int8_ranges(np.array_split(rows, 9))
    np.testing.assert_array_equal(ranges, [rows.min(axis=0), rows.max(axis=0)])
    codes = quantize(rows, "int8", ranges)
    assert codes.dtype == np.int8
    assert {codes[:, 0].min(), codes[:, 0].max()} == {-128, 127}
    error = np.abs(dequantize(codes, "int8", ranges) - rows)
    steps = (ranges[1] - ranges[0]) / 255
    assert (error <= 0.501 * steps + 1e-7).all()
    assert error.max() > 0.4 * steps.max()
    outside = quantize(np.array([[100.0] * 7, [-100.0] * 7]), "int8", ranges)
    assert outside[:, [0, 1, 2]].tolist() == [[127] * 3, [-128] * 3]  # the nearest code, not one that wraps around


def test_codes_agree_with_sentence_transformers() -> None:
    rows = unit(np.random.default_rng(1).normal(size=(50, 24)).astype(np.float32))
    np.testing.assert_array_equal(quantize(rows, "binary"), quantize_embeddings(rows, precision="ubinary"))
    ranges = int8_ranges([rows])
    theirs = quantize_embeddings(rows, precision="int8", ranges=ranges).astype(int)  # rounds down
    assert np.abs(quantize(rows, "int8", ranges).astype(int) - theirs).max() <= 1
    bits = dequantize(quantize(rows, "binary"), "binary", dim=24)
    np.testing.assert_allclose(bits, np.where(rows > 0, 1, -1) / np.sqrt(24), rtol=1e-6)
    np.testing.assert_array_equal(dequantize(quantize(rows, "float16"), "float16"), rows.astype(np.float16))


@pytest.mark.long
def test_what_is_refused(workspace: Path) -> None:
    np.save("narrow.npy", np.eye(3, 8))
    np.save("nan.npy", np.full((3, 32), np.nan))
    np.save("equal.npy", np.ones((9, 32), np.float32))
    for name, damage in DAMAGED_HEADERS.items():
        Path(f"{name}.npy").write_bytes(damage(Path("equal.npy").read_bytes()))
    for file, message in {
        "narrow": "its vectors have 8 dimensions, those to quantize 32",
        "nan": "the ranges of int8 codes need finite vectors",
        "equal": "all its vectors are equal",
        **dict.fromkeys(DAMAGED_HEADERS, ""),
    }.items():
        with pytest.raises(NearfarError, match=rf"--calibrate {file}\.npy: {message}"):
            encoded(quantize="int8", calibrate=f"{file}.npy")
    with pytest.raises(NearfarError, match=r"--dimensions 33: must be from 1 to 32, the model's width\."):
        encoded(dimensions=33)
    assert not Path("x.npy.partial").exists()
    Path("x.ranges.npy").write_text("mine")
    with pytest.raises(NearfarError, match=r"--output x\.ranges\.npy: exists; replace it by --overwrite"):
        encoded(quantize="int8")
    encoded(overwrite=True, quantize="int8")
    with pytest.raises(NearfarError, match="would overwrite the input"):
        encoded(overwrite=True, quantize="int8", calibrate="x.ranges.npy")
