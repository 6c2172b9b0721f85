"""Vectors in fewer bytes: float16, int8 with a range for each dimension, or one bit for each dimension; and back.

=============  =================================  =======================================
kind           codes                              bytes of a vector with d dimensions
=============  =================================  =======================================
``float16``    float16 [vectors, d]               2 d
``int8``       int8 [vectors, d], and ranges      d
``binary``     uint8 [vectors, ceil(d / 8)]       ceil(d / 8)
=============  =================================  =======================================

int8: with l_j and h_j the range of dimension j and s_j = (h_j - l_j) / 255, x becomes round((x - l_j) / s_j) - 128,
clipped to -128 .. 127. Inside the range the error is at most s_j / 2.

binary: bit j is 1 where x_j > 0, packed by :func:`numpy.packbits`, the first dimension in the highest bit.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.types import ARRAY_ERRORS, NearfarError

Quantization: TypeAlias = Literal["float16", "int8", "binary"]
ROWS = 2**16
"""Number of vectors that are read at a time."""


def bytes_per_vector(dim: int, kind: Quantization | Literal["float32"]) -> int:
    """Number of bytes of a vector with ``dim`` dimensions.

    >>> [bytes_per_vector(100, kind) for kind in ("float32", "float16", "int8", "binary")]
    [400, 200, 100, 13]
    """
    return {"float32": 4 * dim, "float16": 2 * dim, "int8": dim, "binary": -(-dim // 8)}[kind]


def int8_ranges(blocks: Iterable[NDArray[Any]]) -> NDArray[np.float32]:
    """The least and the greatest value of each dimension, [2, dim], over blocks of vectors [vectors, dim].

    Raises:
        NearfarError: there are no vectors, or one is not finite.
    """
    ends = [np.stack([block.min(axis=0), block.max(axis=0)]) for block in blocks if len(block)]
    if not ends:
        raise NearfarError("the ranges of int8 codes need one or more vectors, but there are none.")
    ranges = np.stack([np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]]).astype(np.float32)
    if not np.isfinite(ranges).all():
        raise NearfarError("the ranges of int8 codes need finite vectors, but one has NaN or infinity.")
    return ranges


def quantize(vectors: NDArray[Any], kind: Quantization, ranges: NDArray[Any] | None = None) -> NDArray[Any]:
    """Codes of vectors [vectors, dim]; the table of this module has their type and width.

    ``ranges`` [2, dim] are those of :func:`int8_ranges`, needed for ``int8`` only. Values outside their range get the
    nearest code.

    Raises:
        NearfarError: an unknown kind; ``int8`` without ranges, or with ranges of another width; ``float16`` of a value
            above 65504.

    >>> quantize(np.array([[-1.0, 0.2, 3.0]]), "int8", np.array([[-1, -1, -1], [1, 1, 1]])).tolist()
    [[-128, 25, 127]]
    >>> quantize(np.array([[-1.0, 0.2, 3.0]]), "binary").tolist()  # 011 and five bits of padding
    [[96]]
    """
    _check_kind(kind)
    if kind == "float16":
        with np.errstate(over="ignore"):  # refused below
            codes = vectors.astype(np.float16)
        if (np.isinf(codes) & np.isfinite(vectors)).any():
            raise NearfarError(
                f"float16 holds values up to {np.finfo(np.float16).max:g}, but a vector has larger ones."
            )
        return codes
    if kind == "binary":
        return np.packbits(vectors > 0, axis=1)
    low, step = _steps(ranges, vectors.shape[1])
    codes = np.rint((vectors - low) / np.where(step > 0, step, 1)) - 128
    return np.clip(codes, -128, 127).astype(np.int8)


def dequantize(
    codes: NDArray[Any], kind: Quantization, ranges: NDArray[Any] | None = None, *, dim: int | None = None
) -> NDArray[np.float32]:
    """Vectors [vectors, dim], float32, from :func:`quantize`.

    A bit becomes 1 / sqrt(dim) or -1 / sqrt(dim), so that binary vectors have unit length. ``dim`` is the number of
    dimensions of binary codes, by default 8 for each byte.

    Raises:
        NearfarError: as :func:`quantize`.
    """
    _check_kind(kind)
    if kind == "float16":
        return codes.astype(np.float32)
    if kind == "binary":
        bits = np.unpackbits(codes, axis=1, count=dim)
        return ((bits.astype(np.float32) * 2 - 1) / np.sqrt(np.float32(max(bits.shape[1], 1)))).astype(np.float32)
    low, step = _steps(ranges, codes.shape[1])
    return (low + (codes.astype(np.float32) + 128) * step).astype(np.float32)


def read_ranges(file: Path, *, flag: str) -> NDArray[np.float32]:
    """The ranges [2, dim] of the vectors in a ``.npy`` file; the file may hold ranges themselves, which give the same.

    Raises:
        NearfarError: the file is missing or is no array of finite floating point vectors, or all are equal; the message
            names ``flag``.
    """
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # a pipe or a device may never end
            raise NearfarError(f"{flag} {file}: is not a regular file.")
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise NearfarError(f"{flag} {file}: does not exist.") from None
    except ARRAY_ERRORS as error:
        raise NearfarError(f"{flag} {file}: cannot be read as a .npy file ({error}).") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise NearfarError(f"{flag} {file}: must hold vectors of floating point numbers, [vectors, dimensions].")
    try:
        ranges = int8_ranges(vectors[start : start + ROWS] for start in range(0, len(vectors), ROWS))
    except NearfarError as error:
        raise NearfarError(f"{flag} {file}: {error}") from error
    if (ranges[0] == ranges[1]).all():  # as of a single vector: all codes would be the same
        raise NearfarError(f"{flag} {file}: all its vectors are equal; name vectors of many typical texts.")
    return ranges


def _steps(ranges: NDArray[Any] | None, dim: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The lower end of the range of each dimension, and the distance of its codes."""
    if ranges is None:
        raise NearfarError("int8 codes need the range of each dimension; get them by int8_ranges.")
    if ranges.shape != (2, dim):
        raise NearfarError(f"the ranges are {list(ranges.shape)}, but vectors with {dim} dimensions need [2, {dim}].")
    low, high = ranges.astype(np.float32)
    with np.errstate(over="ignore"):
        width = high - low
    if not np.isfinite(width).all():
        raise NearfarError("the range of a dimension is too wide for float32; the vectors have values above 1e38.")
    return low, width / np.float32(255)


def _check_kind(kind: str) -> None:
    if kind not in get_args(Quantization):
        raise NearfarError(f"quantize must be one of {', '.join(get_args(Quantization))}, not {kind!r}.")
