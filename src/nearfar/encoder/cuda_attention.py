"""Attention inside each of many texts on a GPU: all texts in one call, where that is known to be right.

Three ways compute the same:

- ``groups``: torch's attention, once for each length. Takes every dtype, window and dropout; the reference.
- ``varlen``: :func:`torch.nn.attention.varlen.varlen_attn`, one call. Half precision, compute capability 8.0 or above,
  no dropout.
- ``nested``: torch's attention on jagged nested tensors, a few calls. Dropout too; no window.

By default a GPU takes ``varlen`` where it can and ``groups`` elsewhere. ``NEARFAR_CUDA_ATTENTION`` set to ``groups`` or
``nested`` takes that backend wherever it can. Flex attention is none of the ways: it changes scores before the softmax,
and dropout zeroes shares behind it. Before its first use each backend but ``groups`` computes a small batch; where the
result is wrong, ``groups`` takes its place, with a warning.
"""

import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from inspect import signature
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int32
from torch import Tensor
from torch.nn import functional

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.attention import LengthGroup

AttentionBackend: TypeAlias = Literal["groups", "varlen", "nested"]
VARIABLE = "NEARFAR_CUDA_ATTENTION"
HALF = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8
"""Head dims that the flash kernel takes: at most, and what divides them."""
TOLERANCE = 2e-2
"""Relative error of a backend in half precision against float32; rounding alone gives about 3e-3."""
SELF_CHECK_LENGTHS = (1, 2, 5, 5, 17, 40)
"""Lengths of the texts of the batch that a backend is checked on."""
Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]


class JaggedLayout(NamedTuple):
    """Where the texts lie: text i is tokens cu_seqlens[i] to cu_seqlens[i + 1]."""

    cu_seqlens: Int32[Tensor, " texts+1"]
    min_seqlen: int
    max_seqlen: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "JaggedLayout":
        """Texts of these lengths, end to end."""
        with torch.inference_mode(False):  # it is kept, and saved for a backward pass later
            starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
        return cls(starts, min(lengths), max(lengths))


@lru_cache(maxsize=8)  # all layers have the same texts, and each copy to the GPU would wait for it
def jagged_layout(groups: "tuple[LengthGroup, ...]", device: torch.device) -> JaggedLayout:
    """The layout of a batch."""
    return JaggedLayout.of([group.length for group in groups for _ in range(group.texts)], device)


def choose_backend(
    query: Heads, key: Heads, value: Heads, *, longest: int, dropout: float, sliding_window: int | None
) -> AttentionBackend:
    """The backend to compute attention on these tensors, by default or by ``NEARFAR_CUDA_ATTENTION``.

    Raises:
        NearfarError: the variable names no backend.
    """
    if query.device.type != "cuda":
        return "groups"
    requested = os.environ.get(VARIABLE, "auto")
    if requested not in ("auto", "groups", "nested"):
        raise NearfarError(f"{VARIABLE}={requested}: must be auto, groups or nested.")
    half = query.dtype in HALF and query.dtype == key.dtype == value.dtype
    head_dim = query.shape[2]
    if requested == "auto" and dropout == 0 and half and head_dim % HEAD_DIM_MULTIPLE == 0 and head_dim <= MAX_HEAD_DIM:
        able = torch.cuda.get_device_capability(query.device) >= (8, 0)
        if able and has_varlen() and passes_self_check("varlen", query.device, query.dtype, head_dim):
            return "varlen"
    windowed = sliding_window is not None and longest > sliding_window
    if requested == "nested" and not windowed and passes_self_check("nested", query.device, query.dtype, head_dim):
        return "nested"
    return "groups"


def varlen(
    query: Heads, key: Heads, value: Heads, layout: JaggedLayout, *, scaling: float, window: int | None
) -> Heads:
    """All texts by the flash kernel, without dropout. A token sees those less than ``window`` away."""
    from torch.nn.attention.varlen import varlen_attn

    starts, longest = layout.cu_seqlens, layout.max_seqlen
    reach = -1 if window is None or longest <= window else window - 1  # tokens seen on either side, -1 for all
    mixed = varlen_attn(query, key, value, starts, starts, longest, longest, scale=scaling, window_size=(reach, reach))
    assert isinstance(mixed, Tensor)
    return mixed


def nested(query: Heads, key: Heads, value: Heads, layout: JaggedLayout, *, scaling: float, dropout: float) -> Heads:
    """All texts as nested tensors [texts, heads, tokens of the text, head_dim]."""
    starts = layout.cu_seqlens.long()
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            tensor,
            starts,
            min_seqlen=layout.min_seqlen,
            max_seqlen=layout.max_seqlen,  # else read from the GPU
        ).transpose(1, 2)
        for tensor in (query, key, value)
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
    return _ContiguousGrad.apply(mixed.transpose(1, 2).values())  # type: ignore[no-untyped-call]


class _ContiguousGrad(torch.autograd.Function):
    """The identity; a gradient that is a view of a larger tensor is copied.

    On a CPU torch's nested tensors ignore such a view's storage offset, and read other numbers.
    """

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, grad_output: Tensor) -> Tensor:
        return grad_output.clone() if grad_output.storage_offset() or not grad_output.is_contiguous() else grad_output


@cache
def has_varlen() -> bool:
    """Whether this torch has ``varlen_attn`` with a scale and a window; from 2.6 on, nearfar runs without."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"scale", "window_size"} <= signature(varlen_attn).parameters.keys()


@cache
def passes_self_check(backend: AttentionBackend, device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether ``backend`` gives the values and gradients of attention on each text alone; warns once where it does not.

    Draws nothing from torch's generators.
    """
    try:
        error = _error(backend, device, dtype, head_dim)
    except (RuntimeError, TypeError, ValueError, ImportError) as refused:
        reason = f"{type(refused).__name__}: {str(refused).splitlines()[0] if str(refused) else 'no reason given'}"
    else:
        if error <= TOLERANCE:
            return True
        reason = f"off by {error:.2g}, relative to float32"
    warnings.warn(
        f"{backend} attention of torch {torch.__version__} fails its check on {device} for {dtype} "
        f"and heads of {head_dim} ({reason}). Attention runs by groups of equal length, which is right and slower.",
        stacklevel=2,
    )
    return False


def _error(backend: AttentionBackend, device: torch.device, dtype: torch.dtype, head_dim: int) -> float:
    """The largest relative error of values and gradients on a small random batch; infinite where one is not finite."""
    scaling, layout = head_dim**-0.5, JaggedLayout.of(SELF_CHECK_LENGTHS, device)
    windows = (None, 4) if backend == "varlen" else (None,)
    worst = 0.0
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(4, sum(SELF_CHECK_LENGTHS), 2, head_dim, generator=generator).to(device, dtype)
        for window in windows:
            if backend == "varlen":
                attend = partial(varlen, layout=layout, scaling=scaling, window=window)
            else:
                attend = partial(nested, layout=layout, scaling=scaling, dropout=0.0)
            found = _with_gradients(drawn, attend)
            expected = _with_gradients(drawn.float(), partial(_reference_attention, scaling=scaling, window=window))
            for ours, right in zip(found, expected, strict=True):
                error = float((ours.float() - right).norm() / right.norm())
                worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def _with_gradients(drawn: Float[Tensor, "4 tokens heads head_dim"], attend: Callable[..., Tensor]) -> list[Tensor]:
    """What ``attend`` makes of query, key and value, and their gradients."""
    *given, grad_output = drawn.detach().unbind()  # views, as a backbone's tensors may be
    inputs = [tensor.requires_grad_() for tensor in given]
    out = attend(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, grad_output)]


def _reference_attention(query: Heads, key: Heads, value: Heads, *, scaling: float, window: int | None) -> Heads:
    """The formula on each text of :data:`SELF_CHECK_LENGTHS` by itself."""
    mixed = []
    for q, k, v in zip(
        *(tensor.transpose(0, 1).split(SELF_CHECK_LENGTHS, dim=1) for tensor in (query, key, value)), strict=True
    ):
        scores = q @ k.transpose(1, 2) * scaling
        if window is not None:
            place = torch.arange(q.shape[1], device=q.device)
            scores = scores.masked_fill((place[:, None] - place).abs() >= window, -torch.inf)
        mixed.append((scores.softmax(dim=2) @ v).transpose(0, 1))
    return torch.cat(mixed)
