"""The compiled kernels of kernels.cpp: built once by the machine's own compiler, or done without.

Where there is no compiler, or it fails, or ``NEARFAR_KERNELS=0`` is set, :func:`kernels` gives None and plain torch
computes the same. Built for Linux only, as macOS' compiler comes without OpenMP.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from nearfar.encoder.dropout import Mask

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-std=gnu++17", "-shared", "-fPIC")
LONGEST = 128
"""Tokens of a text that the attention kernels take."""
HEAD_DIMS = (16, 32, 64)
WIDEST, LANES, PIECE = 4096, 16, 64
"""Of the sums with LayerNorm: numbers of a token at most, what divides them, and tokens whose shares are added up."""
Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]
Tokens: TypeAlias = Float[Tensor, "*tokens width"]
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


class _Mask(ctypes.Structure):
    """As in kernels.cpp."""

    _fields_ = (("seed", ctypes.c_int64), ("threshold", ctypes.c_int), ("scale", ctypes.c_float))


class _Batch(ctypes.Structure):
    """As in kernels.cpp."""

    _fields_ = (
        ("starts", ctypes.c_void_p),
        ("texts", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("scaling", ctypes.c_float),
        ("mask", _Mask),
        ("words", ctypes.c_int64),
    )


class _Norm(ctypes.Structure):
    """As in kernels.cpp."""

    _fields_ = (
        ("mask", _Mask),
        ("tokens", ctypes.c_int64),
        ("width", ctypes.c_int),
        ("epsilon", ctypes.c_float),
        ("x", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
    )


class Kernels:
    """The functions of the built library, on contiguous CPU tensors of float32 or bfloat16."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def drop(self, x: Tensor, mask: "Mask") -> Tensor:
        """``x`` times the mask's scale where it keeps a number, else 0."""
        out = torch.empty_like(x)
        self._on("drop", x)(ctypes.byref(_Mask(*mask)), *_pointers(x, out), ctypes.c_int64(x.numel()))
        return out

    def add_norm(self, inputs: "Summed", mask: "Mask", epsilon: float) -> tuple[Tensor, Tensor]:
        """What :func:`nearfar.encoder.fused.add_norm` gives, and what the backward pass needs, [tokens, 2]."""
        width = len(inputs.weight)
        out, kept = torch.empty_like(inputs.x), inputs.weight.new_empty(inputs.x.numel() // width, 2)
        norm = _Norm(_Mask(*mask), len(kept), width, epsilon, *_pointers(*inputs, kept))
        self._on("add_norm", out)(ctypes.byref(norm), *_pointers(out))
        return out, kept

    def add_norm_backward(
        self, inputs: "Summed", mask: "Mask", slope: Tokens, kept: Float[Tensor, "tokens 2"]
    ) -> list[Tensor]:
        """Gradients of all inputs."""
        tokens, width = len(kept), len(inputs.weight)
        of_x, of_residual = torch.empty_like(slope), torch.empty_like(slope)
        of_weights = kept.new_empty(-(-tokens // PIECE), 2, width)
        norm = _Norm(_Mask(*mask), tokens, width, 0.0, *_pointers(*inputs, kept))
        self._on("add_norm_backward", slope)(ctypes.byref(norm), *_pointers(slope, of_x, of_residual, of_weights))
        return [of_x, of_residual, *of_weights.sum(dim=0)]

    def attend(self, query: Heads, key: Heads, value: Heads, how: "How") -> tuple[Tensor, Tensor]:
        """What :func:`nearfar.encoder.attention.attend` gives, and what the backward pass needs [tokens, heads, 2]."""
        out, kept = torch.empty_like(query), query.new_empty(*query.shape[:2], 2, dtype=torch.float32)
        batch = how.batch(query.shape[1])
        self._on("attend", query, query.shape[2])(ctypes.byref(batch), *_pointers(query, key, value, out, kept))
        return out, kept

    def attend_backward(
        self, inputs: tuple[Heads, Heads, Heads], slope: Heads, kept: Float[Tensor, "tokens heads 2"], how: "How"
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value."""
        query, key, value = inputs
        found = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
        batch = how.batch(query.shape[1])
        self._on("attend_backward", query, query.shape[2])(
            ctypes.byref(batch), *_pointers(*inputs, slope, kept, *found)
        )
        return found

    def _on(self, name: str, tensor: Tensor, *sizes: int) -> "ctypes._NamedFuncPointer":
        return getattr(self._library, "_".join(map(str, (name, DTYPES[tensor.dtype], *sizes))))


class Summed(NamedTuple):
    """What a sum with LayerNorm is made of: ``x`` and the residual in one dtype, the weights in float32."""

    x: Tokens
    residual: Tokens
    weight: Float[Tensor, " width"]
    bias: Float[Tensor, " width"]


class How:
    """Texts of these lengths, end to end, and how attention inside them is computed.

    The scores of a token and a head are row token * heads + head, whose dropout takes ``words`` words of the mask.
    """

    def __init__(self, lengths: Sequence[int], *, scaling: float, mask: "Mask", words: int) -> None:
        self.starts = torch.tensor([0, *accumulate(lengths)])
        self.scaling, self.mask, self.words = scaling, mask, words

    def batch(self, heads: int) -> _Batch:
        """As C takes it; no longer good than this object is there."""
        texts = len(self.starts) - 1
        return _Batch(self.starts.data_ptr(), texts, heads, self.scaling, _Mask(*self.mask), self.words)


@cache
def kernels() -> Kernels | None:
    """The kernels, built at the first call, or None."""
    if os.environ.get("NEARFAR_KERNELS") == "0" or sys.platform != "linux":
        return None
    try:
        return Kernels(ctypes.CDLL(str(_built())))
    except (OSError, subprocess.SubprocessError):
        return None


def _built() -> Path:
    """The library in the user's cache, for this source, compiler and processor. Raises OSError where none is to be."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise FileNotFoundError("no C++ compiler")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    key = hashlib.sha256()
    for part in (SOURCE.read_bytes(), " ".join(FLAGS).encode(), version, _processor()):
        key.update(part)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nearfar"
    library = folder / f"kernels-{key.hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:  # renamed when whole: others may build at the same time
            made = Path(fresh) / library.name
            command = [compiler, *FLAGS, "-o", str(made), str(SOURCE)]
            subprocess.run(command, capture_output=True, check=True, timeout=300)
            made.replace(library)
    return library


def _processor() -> bytes:
    """What -march=native goes by: a home folder may be shared by several kinds of machine."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    said = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return "\n".join([platform.machine(), *dict.fromkeys(said)]).encode()


def _pointers(*tensors: Tensor) -> list[ctypes.c_void_p]:
    assert all(tensor.is_contiguous() for tensor in tensors)
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
