"""Smaller embeddings of ``nearfar encode``: the codes that it writes, and the ranges of int8 codes beside them."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.output import PartialOutput
from nearfar.config.encode import EncodeConfig
from nearfar.disk import disk_errors, flush
from nearfar.quantization import Quantization, int8_ranges, quantize, read_ranges

ROWS = 2**14
"""Number of embeddings that are quantized at a time."""


class Codes(NamedTuple):
    """How embeddings [texts, dim] are stored."""

    kind: Quantization | None
    """None for the data type of the config."""
    dtype: str
    """Data type of the file that is written block by block."""
    width: int
    """Number of values of an embedding in the file."""
    final_dtype: str | None = None
    """int8, where the ranges are those of the embeddings: these are written as float32 first."""
    ranges: NDArray[np.float32] | None = None
    """The ranges of ``--calibrate``."""

    @property
    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common."""
        found: dict[str, Any] = {} if self.kind is None else {"quantize": self.kind}
        if self.ranges is not None:
            found["calibrate"] = hashlib.sha256(self.ranges.tobytes()).hexdigest()[:16]
        return found

    def of_block(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """What is stored of a block of embeddings before all are known."""
        if self.kind is None or self.final_dtype is not None:
            return vectors
        return quantize(vectors, self.kind, self.ranges)


def choose_codes(config: EncodeConfig, dim: int) -> Codes:
    """How the embeddings of a run, which have ``dim`` dimensions, are stored.

    Raises:
        NearfarError: the file of ``--calibrate`` cannot be used.
    """
    if config.quantize is None:
        return Codes(None, config.dtype, dim)
    if config.quantize == "float16":
        return Codes("float16", "float16", dim)
    if config.quantize == "binary":
        return Codes("binary", "uint8", -(-dim // 8))
    if config.calibrate is None:
        return Codes("int8", "float32", dim, final_dtype="int8")
    return Codes("int8", "int8", dim, ranges=read_ranges(Path(config.calibrate).expanduser(), dim, flag="--calibrate"))


def quantize_all(partial: PartialOutput, codes: Codes) -> None:
    """Quantize the complete embeddings if that has not been done block by block; write the ranges of int8.

    An interrupted call is repeated by the resumed run.

    Raises:
        NearfarError: the disk is full or a file cannot be written.
    """
    if codes.kind != "int8" or partial.renamed or (partial.is_converted and codes.final_dtype is not None):
        return
    ranges = int8_ranges(partial.stored(ROWS)) if codes.ranges is None else codes.ranges
    with disk_errors(partial.ranges):
        with partial.ranges.open("wb") as stream:
            np.save(stream, ranges)
        flush(partial.ranges)
    if codes.final_dtype is not None:
        partial.convert(quantize(block, "int8", ranges) for block in partial.stored(ROWS))
