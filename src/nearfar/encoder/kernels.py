"""Python bindings of the compiled kernels in kernels.cpp, which the machine's own compiler builds at the first use.

If the kernels are switched off or cannot be built, :func:`kernels` returns None and plain torch computes the same. The
environment variable NEARFAR_KERNELS selects them: ``0`` for none, ``1`` for all, ``rebuild`` for all after compiling
again, or a list of names (:data:`KERNEL_NAMES`), such as ``attention,dropout``. By default all are used on Linux and
none elsewhere.
"""

import ctypes
import os
import warnings
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder import kernel_build
from nearfar.encoder.dropout_mask import DropoutMask
from nearfar.encoder.kernel_build import BuiltLibrary, KernelBuildError
from nearfar.runtime import machine
from nearfar.types import NearfarError

VARIABLE = "NEARFAR_KERNELS"
KernelName: TypeAlias = Literal["attention", "dropout"]
KERNEL_NAMES: tuple[KernelName, ...] = ("attention", "dropout")
NOT_USED = "the compiled kernels are not used"
"""Start of the warning that gives the reason."""
MAX_TOKENS = 128
"""Longest text that the attention kernels support, in tokens."""
HEAD_DIMS = (16, 32, 64)
Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]
Tokens: TypeAlias = Float[Tensor, "*tokens width"]
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


class _Mask(ctypes.Structure):
    """struct Mask in kernels.cpp."""

    _fields_ = (("seed", ctypes.c_int64), ("threshold", ctypes.c_int), ("scale", ctypes.c_float))


class _Batch(ctypes.Structure):
    """struct Batch in kernels.cpp."""

    _fields_ = (
        ("starts", ctypes.c_void_p),
        ("texts", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("scaling", ctypes.c_float),
        ("mask", _Mask),
        ("words_per_row", ctypes.c_int64),
    )


class Kernels:
    """The functions of the compiled library, for contiguous CPU tensors of float32 or bfloat16."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def drop(self, x: Tensor, mask: DropoutMask) -> Tensor:
        """``x`` times the mask's scale where the mask keeps an element, else 0."""
        out = torch.empty_like(x)
        self._function("drop", x)(ctypes.byref(_Mask(*mask)), *_pointers(x, out), ctypes.c_int64(x.numel()))
        return out

    def attend(self, query: Heads, key: Heads, value: Heads, layout: "AttentionLayout") -> tuple[Tensor, Tensor]:
        """Attention, and the softmax statistics [tokens, heads, 2] that the backward pass needs."""
        out, softmax_stats = torch.empty_like(query), query.new_empty(*query.shape[:2], 2, dtype=torch.float32)
        batch = layout.batch(query.shape[1])
        self._function("attend", query, query.shape[2])(
            ctypes.byref(batch), *_pointers(query, key, value, out, softmax_stats)
        )
        return out, softmax_stats

    def attend_backward(
        self,
        inputs: tuple[Heads, Heads, Heads],
        grad_output: Heads,
        softmax_stats: Float[Tensor, "tokens heads 2"],
        layout: "AttentionLayout",
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value."""
        query, key, value = inputs
        gradients = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
        batch = layout.batch(query.shape[1])
        self._function("attend_backward", query, query.shape[2])(
            ctypes.byref(batch), *_pointers(*inputs, grad_output, softmax_stats, *gradients)
        )
        return gradients

    def _function(self, name: str, tensor: Tensor, *sizes: int) -> "ctypes._NamedFuncPointer":
        """The C function for this tensor's dtype and these sizes, such as ``attend_float32_64``."""
        return getattr(self._library, "_".join(map(str, (name, DTYPES[tensor.dtype], *sizes))))


class AttentionLayout:
    """Lengths of the concatenated texts, and the settings of attention within them.

    The attention weights of a token and a head are row ``token * heads + head``; each row uses ``words_per_row`` words
    of the dropout mask.
    """

    def __init__(self, lengths: Sequence[int], *, scaling: float, mask: DropoutMask, words_per_row: int) -> None:
        self.starts = torch.tensor([0, *accumulate(lengths)])
        self.scaling, self.mask, self.words_per_row = scaling, mask, words_per_row

    def batch(self, heads: int) -> _Batch:
        """The C structure. It points into this object, so it is valid only as long as this object exists."""
        texts = len(self.starts) - 1
        return _Batch(self.starts.data_ptr(), texts, heads, self.scaling, _Mask(*self.mask), self.words_per_row)


@cache
def kernels(kernel: KernelName | None = None) -> Kernels | None:
    """The kernels, built at the first call; None if they cannot be built, or if ``kernel`` is switched off.

    Raises:
        NearfarError: NEARFAR_KERNELS names a kernel that does not exist.
    """
    if not enabled_kernels() or (kernel is not None and kernel not in enabled_kernels()):
        return None
    built, _ = _built()
    if built is None:
        return None
    if kernel is not None:
        _used.add(kernel)
    return Kernels(built.library)


def enabled_kernels() -> tuple[KernelName, ...]:
    """The kernels that NEARFAR_KERNELS selects.

    Raises:
        NearfarError: it names a kernel that does not exist.
    """
    requested = os.environ.get(VARIABLE, "").strip()
    if requested in ("1", "rebuild") or (not requested and machine.SYSTEM == "linux"):
        return KERNEL_NAMES
    if requested in ("", "0"):
        return ()
    names = {name.strip() for name in requested.split(",")}
    if wrong := sorted(names - set(KERNEL_NAMES)):
        raise NearfarError(
            f"{VARIABLE}: unknown kernel {wrong[0]!r}. Set it to 0, 1, rebuild, or some of {', '.join(KERNEL_NAMES)}."
        )
    return tuple(kernel for kernel in KERNEL_NAMES if kernel in names)


def kernels_status() -> dict[str, Any]:
    """Which kernels this process has used and how they were built, or why it has used none. Builds nothing."""
    if not _built.cache_info().currsize:
        if os.environ.get(VARIABLE) == "0":
            return {"used": [], "why_not": f"{VARIABLE}=0"}
        if not os.environ.get(VARIABLE) and machine.SYSTEM != "linux":
            return {"used": [], "why_not": f"off on {machine.SYSTEM} unless {VARIABLE}=1"}
        return {"used": [], "why_not": "not needed"}
    built, problem = _built()
    if built is None:
        return {"used": [], "why_not": problem}
    return {
        "used": sorted(_used),
        "compiler": built.compiler,
        "flags": " ".join(flag for flag in built.flags if "/" not in flag),
    }


_used: set[str] = set()
machine.PROVENANCE_PROVIDERS["kernels"] = kernels_status


@cache
def _built() -> tuple[BuiltLibrary | None, str]:
    """The library, or the reason why there is none. Warns once of the reason."""
    try:
        return kernel_build.load(rebuild=os.environ.get(VARIABLE) == "rebuild"), ""
    except (KernelBuildError, OSError) as error:
        earlier = isinstance(error, KernelBuildError) and error.cached
        advice = f"{VARIABLE}=rebuild tries again" if earlier else f"{VARIABLE}=0 silences this"
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes on this machine, only the first one warns
            warnings.warn(f"{NOT_USED}: {error}. Plain torch computes the same, slower; {advice}.", stacklevel=2)
        return None, str(error)


def _pointers(*tensors: Tensor) -> list[ctypes.c_void_p]:
    assert all(tensor.is_contiguous() for tensor in tensors)
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
