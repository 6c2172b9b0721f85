"""Attention and dropout on processors with AVX-512: kernels.cpp, which the machine's compiler builds at the first use.

Elsewhere, and where they cannot be built, :func:`kernels` returns None and plain torch computes the same: with AVX2
alone the kernels save nothing. The environment variable NEARFAR_KERNELS switches them: ``0`` off, ``1`` on with any
processor, ``rebuild`` the same after compiling again. By default they are on under Linux on a processor with AVX-512.
"""

import ctypes
import os
import warnings
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder.kernels import build
from nearfar.encoder.kernels.build import KernelBuildError
from nearfar.runtime import machine
from nearfar.types import NearfarError

VARIABLE = "NEARFAR_KERNELS"
NOT_USED = "the compiled kernels are not used"
"""Start of the warning that gives the reason."""
MAX_TOKENS = 128
"""Longest text that the attention kernels support, in tokens."""
HEAD_DIMS = (16, 32, 64)
Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]
SoftmaxStats: TypeAlias = Float[Tensor, "tokens heads 2"]
"""What the backward pass of attention needs of the forward pass."""
Mask: TypeAlias = tuple[int, int, float]
"""A :class:`nearfar.encoder.dropout.DropoutMask`: seed, threshold and scale."""
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


class _Mask(ctypes.Structure):
    """struct Mask in kernels.cpp."""

    _fields_ = (("seed", ctypes.c_int64), ("threshold", ctypes.c_int), ("scale", ctypes.c_float))


class AttentionBatch(ctypes.Structure):
    """struct Batch in kernels.cpp."""

    _fields_ = (
        ("starts", ctypes.c_void_p),
        ("texts", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("scaling", ctypes.c_float),
        ("mask", _Mask),
        ("words_per_row", ctypes.c_int64),
    )

    @classmethod
    def of(cls, lengths: Sequence[int], *, heads: int, scaling: float, mask: Mask, words: int) -> "AttentionBatch":
        """The concatenated texts of these lengths, and the settings of attention within them.

        The attention weights of a token and a head are row ``token * heads + head``; each row uses this number of
        words of the dropout mask.
        """
        starts = torch.tensor([0, *accumulate(lengths)])
        batch = cls(starts.data_ptr(), len(lengths), heads, scaling, _Mask(*mask), words)
        batch.pointed_to = starts  # which must live as long
        return batch


class Kernels:
    """The functions of the compiled library, for contiguous CPU tensors of float32 or bfloat16."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def drop(self, x: Tensor, mask: Mask) -> Tensor:
        """``x`` times the mask's scale where the mask keeps an element, else 0."""
        out = torch.empty_like(x)
        self._function("drop", x)(ctypes.byref(_Mask(*mask)), *_pointers(x, out), ctypes.c_int64(x.numel()))
        return out

    def attend(self, query: Heads, key: Heads, value: Heads, batch: AttentionBatch) -> tuple[Heads, SoftmaxStats]:
        """Attention, and the softmax statistics that the backward pass needs."""
        out, softmax_stats = torch.empty_like(query), query.new_empty(*query.shape[:2], 2, dtype=torch.float32)
        self._function("attend", query, query.shape[2])(
            ctypes.byref(batch), *_pointers(query, key, value, out, softmax_stats)
        )
        return out, softmax_stats

    def attend_backward(
        self, inputs: tuple[Heads, Heads, Heads], grad_output: Heads, softmax_stats: SoftmaxStats, batch: AttentionBatch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value."""
        query, key, value = inputs
        gradients = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
        self._function("attend_backward", query, query.shape[2])(
            ctypes.byref(batch), *_pointers(*inputs, grad_output, softmax_stats, *gradients)
        )
        return gradients

    def _function(self, name: str, tensor: Tensor, *sizes: int) -> "ctypes._NamedFuncPointer":
        """The C function for this tensor's dtype and these sizes, such as ``attend_float32_64``."""
        return getattr(self._library, "_".join(map(str, (name, DTYPES[tensor.dtype], *sizes))))


def kernels() -> Kernels | None:
    """The kernels, built at the first call; None if they are off or cannot be built.

    Raises:
        NearfarError: NEARFAR_KERNELS has an unknown value.
    """
    return load()[0]


@cache
def load() -> tuple[Kernels | None, str]:
    """The kernels, or the reason why there are none; warns once of a failure."""
    if off := why_off():
        return None, off
    try:
        return Kernels(build.load(rebuild=os.environ.get(VARIABLE) == "rebuild")), ""
    except KernelBuildError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes on this machine, only the first one warns
            advice = f"Plain torch computes the same, slower; {VARIABLE}=0 silences this."
            warnings.warn(f"{NOT_USED}: {error}. {advice}", stacklevel=2)
        return None, str(error)


def why_off() -> str | None:
    """Why the kernels are off; None if they are on.

    Raises:
        NearfarError: NEARFAR_KERNELS has an unknown value.
    """
    requested = os.environ.get(VARIABLE, "").strip()
    if requested not in ("", "0", "1", "rebuild"):
        raise NearfarError(f"{VARIABLE}={requested}: must be 0 (off), 1 (on) or rebuild (on, and compile again).")
    if requested == "0":
        return f"{VARIABLE}=0"
    if requested or (machine.SYSTEM == "linux" and "avx512f" in machine.instruction_sets()):
        return None
    return f"off without Linux and AVX-512; {VARIABLE}=1 turns them on"


def kernels_status() -> dict[str, Any]:
    """Whether this process uses the kernels, and the compiler, or why not. Builds nothing."""
    loaded, problem = load() if load.cache_info().currsize else (None, why_off() or "not needed")
    if loaded is None:
        return {"used": False, "why_not": problem}
    return {"used": True, "compiler": Path(build.find_compiler()[0]).name}


def _pointers(*tensors: Tensor) -> list[ctypes.c_void_p]:
    assert all(tensor.is_contiguous() for tensor in tensors)
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
