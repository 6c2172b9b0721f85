"""Attention within each text of a ragged batch on a GPU: few calls, where the result is checked.

Three backends compute the same:

- ``groups``: torch's attention, one call per length: the reference, and slow for texts of many lengths.
- ``varlen``: :func:`torch.nn.attention.varlen.varlen_attn`, one call. Half precision, compute capability 8.0 or above,
  no dropout.
- ``padded``: torch's attention on padded blocks (:mod:`nearfar.encoder.padded_attention`). Supports everything.

By default a GPU uses ``varlen`` where it is supported and ``padded`` elsewhere; ``NEARFAR_CUDA_ATTENTION`` set to
``groups`` or ``padded`` always selects that backend. Flex attention is not used: it modifies scores before the softmax,
while dropout acts on the attention weights after it. Nested tensors are not used: with dropout in float32 their
gradients are wrong on an H100 (torch 2.11). Before its first use, ``varlen`` computes a small batch; if the result is
wrong, ``padded`` replaces it, with a warning.
"""

import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from inspect import signature
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from nearfar.encoder.padded_attention import Heads, LengthGroup
from nearfar.types import NearfarError

AttentionBackend: TypeAlias = Literal["groups", "varlen", "padded"]
VARIABLE = "NEARFAR_CUDA_ATTENTION"
HALF = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8
"""Head dimensions that the flash kernel supports: multiples of 8 up to 256."""
TOLERANCE = 2e-2
"""Largest accepted relative error of ``varlen`` in half precision against float32; rounding alone gives about 3e-3."""
SELF_CHECK_LENGTHS = (1, 2, 5, 5, 17, 40)
"""Text lengths of the batch on which ``varlen`` is checked."""


class JaggedLayout(NamedTuple):
    """Boundaries of the texts in a ragged batch: text i is tokens cu_seqlens[i] to cu_seqlens[i + 1] - 1."""

    cu_seqlens: Int32[Tensor, " texts+1"]
    max_seqlen: int

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device: torch.device) -> "JaggedLayout":
        """The layout of concatenated texts of these lengths."""
        with torch.inference_mode(False):  # the layout is cached, and a later backward pass may save it
            starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
        return cls(starts, max(lengths))


@lru_cache(maxsize=8)  # all layers use the same layout, and each copy to the GPU would synchronise with it
def jagged_layout(groups: tuple[LengthGroup, ...], device: torch.device) -> JaggedLayout:
    """The layout of a batch."""
    return JaggedLayout.from_lengths([group.length for group in groups for _ in range(group.num_texts)], device)


def choose_backend(query: Heads, key: Heads, value: Heads, *, dropout: float) -> AttentionBackend:
    """Choose the backend for these tensors: the default, or the one that ``NEARFAR_CUDA_ATTENTION`` names.

    Raises:
        NearfarError: the variable has an unknown value.
    """
    if query.device.type != "cuda":
        return "groups"
    requested = os.environ.get(VARIABLE, "auto")
    if requested not in ("auto", "groups", "padded"):
        raise NearfarError(f"{VARIABLE}={requested}: must be auto, groups or padded.")
    if requested != "auto":
        return "groups" if requested == "groups" else "padded"
    half = query.dtype in HALF and query.dtype == key.dtype == value.dtype
    head_dim = query.shape[2]
    if dropout == 0 and half and head_dim % HEAD_DIM_MULTIPLE == 0 and head_dim <= MAX_HEAD_DIM:
        supported = torch.cuda.get_device_capability(query.device) >= (8, 0)
        if supported and has_varlen() and passes_self_check(query.device, query.dtype, head_dim):
            return "varlen"
    return "padded"


def varlen(
    query: Heads, key: Heads, value: Heads, layout: JaggedLayout, *, scaling: float, window: int | None
) -> Heads:
    """All texts by the flash kernel, without dropout. Tokens attend to tokens less than ``window`` away."""
    from torch.nn.attention.varlen import varlen_attn

    starts, longest = layout.cu_seqlens, layout.max_seqlen
    reach = -1 if window is None or longest <= window else window - 1  # tokens attended to on either side, -1 for all
    out = varlen_attn(query, key, value, starts, starts, longest, longest, scale=scaling, window_size=(reach, reach))
    assert isinstance(out, Tensor)
    return out


@cache
def has_varlen() -> bool:
    """Whether this torch has ``varlen_attn`` with a scale and a window. Older releases, from 2.6 on, lack it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"scale", "window_size"} <= signature(varlen_attn).parameters.keys()


@cache
def passes_self_check(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether ``varlen`` gives the values and gradients of attention on each text alone; warns once if it does not.

    Uses no random numbers of torch's global generators.
    """
    try:
        error = _largest_error(device, dtype, head_dim)
    except (RuntimeError, TypeError, ValueError, ImportError) as failure:
        reason = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else 'no reason given'}"
    else:
        if error <= TOLERANCE:
            return True
        reason = f"relative error {error:.2g} against float32"
    warnings.warn(
        f"varlen attention of torch {torch.__version__} fails its check on {device} for {dtype} "
        f"and head dimension {head_dim} ({reason}). Attention uses the backend 'padded' instead: correct, but slower.",
        stacklevel=2,
    )
    return False


def _largest_error(device: torch.device, dtype: torch.dtype, head_dim: int) -> float:
    """The largest relative error of values and gradients on a small random batch; infinite if any is not finite."""
    scaling, layout = head_dim**-0.5, JaggedLayout.from_lengths(SELF_CHECK_LENGTHS, device)
    worst = 0.0
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(4, sum(SELF_CHECK_LENGTHS), 2, head_dim, generator=generator).to(device, dtype)
        for window in (None, 4):
            actual = _with_gradients(drawn, partial(varlen, layout=layout, scaling=scaling, window=window))
            expected = _with_gradients(drawn.float(), partial(_reference_attention, scaling=scaling, window=window))
            for ours, reference in zip(actual, expected, strict=True):
                error = float((ours.float() - reference).norm() / reference.norm())
                worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def _with_gradients(drawn: Float[Tensor, "4 tokens heads head_dim"], attend: Callable[..., Tensor]) -> list[Tensor]:
    """The output of ``attend`` and the gradients of query, key and value."""
    *tensors, grad_output = drawn.detach().unbind()  # views, as a backbone's tensors may be
    inputs = [tensor.requires_grad_() for tensor in tensors]
    out = attend(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, grad_output)]


def _reference_attention(query: Heads, key: Heads, value: Heads, *, scaling: float, window: int | None) -> Heads:
    """The formula, for each text of :data:`SELF_CHECK_LENGTHS` separately."""
    outputs = []
    for q, k, v in zip(
        *(tensor.transpose(0, 1).split(SELF_CHECK_LENGTHS, dim=1) for tensor in (query, key, value)), strict=True
    ):
        scores = q @ k.transpose(1, 2) * scaling
        if window is not None:
            position = torch.arange(q.shape[1], device=q.device)
            scores = scores.masked_fill((position[:, None] - position).abs() >= window, -torch.inf)
        outputs.append((scores.softmax(dim=2) @ v).transpose(0, 1))
    return torch.cat(outputs)
