"""Parts of a .npy file that is written in place: its header, and flushing to the disk; sizes in words."""

import os
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np


def format_bytes(size: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def npy_header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """The header of a .npy file."""
    stream = BytesIO()
    layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, layout)
    return stream.getvalue()


def sync(stream: BinaryIO) -> None:
    """Flush an open file to the disk."""
    stream.flush()
    os.fsync(stream.fileno())
