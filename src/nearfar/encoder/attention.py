"""Softmax attention within each text of a ragged batch, by the fastest backend available.

    out_i = sum_j m_ij softmax_j(q_i k_j / sqrt(head_dim)) v_j / P(m = 1),   j over the tokens of i's own text,

where m is the mask of attention dropout. In causal attention j is at most i.

On a CPU, a compiled kernel computes all texts of up to 128 tokens in one call and never stores a score matrix. Longer
texts, causal attention, and all texts where the kernel cannot be built, are computed by torch, one length at a time: by
``scaled_dot_product_attention`` without dropout and by the formula with dropout. Both ways drop the same elements,
because the mask is a function of its seed and the element's index.

On a GPU, three backends compute the same:

- ``tiles``: matrix products over tiles that hold whole texts (:mod:`nearfar.encoder.tiles`), for texts of up to
  :data:`SHORT` tokens, and of up to 512 where ``varlen`` is not supported.
- ``varlen``: :func:`torch.nn.attention.varlen.varlen_attn`, one call, for longer texts. Half precision, compute
  capability 8.0 or above, no dropout.
- ``groups``: torch's attention, one call per length: for longer texts still.

Flex attention is not used: it modifies scores before the softmax, while dropout acts on the attention weights after it.
Nested tensors are not used: with dropout in float32 their gradients are wrong on an H100 (torch 2.11).
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from inspect import signature
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from nearfar.encoder.dropout import DropoutMask
from nearfar.encoder.kernels import DTYPES, HEAD_DIMS, MAX_TOKENS, AttentionBatch, Kernels, kernels
from nearfar.encoder.tiles import LENGTHS, Heads, tiled, tiles_of
from nearfar.encoder.tokens import LengthGroup
from nearfar.runtime.gpu import to_device

AttentionBackend: TypeAlias = Literal["groups", "varlen", "tiles"]
SHORT = 128
"""Length of a tile of the flash kernel, which is for one text: it pays for longer texts only."""
HALF = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8
"""Head dimensions that the flash kernel supports: multiples of 8 up to 256."""


def attend(
    query: Heads,
    key: Heads,
    value: Heads,
    groups: Sequence[LengthGroup],
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    causal: bool = False,
    backend: AttentionBackend | None = None,
) -> Heads:
    """Compute attention within texts.

    Args:
        query: of all texts, concatenated.
        key: as ``query``.
        value: as ``query``.
        groups: the texts by length, shortest first.
        dropout: probability of dropping an attention weight.
        scaling: factor of the scores; 1 / sqrt(head_dim) by default.
        sliding_window: tokens attend only to tokens less than this far away; None for no limit.
        causal: tokens attend only to themselves and to tokens before them.
        backend: overrides :func:`choose_backend`.
    """
    scaling, device = query.shape[2] ** -0.5 if scaling is None else scaling, query.device
    if backend is None:
        backend = choose_backend(query, key, value, longest=groups[-1].length, dropout=dropout)
    if backend == "varlen":
        return varlen(query, key, value, tuple(groups), scaling=scaling, window=sliding_window, causal=causal)
    if backend == "tiles":
        tiles = tiles_of(tuple(groups), sliding_window, device, causal)
        return tiled(query, key, value, tiles, scaling=scaling, dropout=dropout)
    on_cpu = device.type == "cpu" and query.dtype in DTYPES
    compiled = kernels() if on_cpu and query.shape[2] in HEAD_DIMS and not causal else None
    num_compiled = 0  # leading groups, which are the shorter texts
    if compiled is not None:
        limit = MAX_TOKENS if sliding_window is None else min(MAX_TOKENS, sliding_window)
        num_compiled = sum(group.length <= limit for group in groups)
    mask = DropoutMask.draw(dropout if on_cpu else 0.0)
    words_per_row = -(-groups[-1].length // 4)
    # Split once: the backward pass of a slice allocates a gradient as large as the whole tensor.
    compiled_tokens = groups[num_compiled - 1].span.stop if num_compiled else 0
    sizes = [compiled_tokens, *(group.num_texts * group.length for group in groups[num_compiled:])]
    parts = [(tensor,) if len(sizes) == 1 else tensor.split(sizes) for tensor in (query, key, value)]
    compiled_part, *group_parts = zip(*parts, strict=True)
    outputs = []
    if compiled is not None and num_compiled:
        lengths = [group.length for group in groups[:num_compiled] for _ in range(group.num_texts)]
        batch = AttentionBatch.of(lengths, heads=query.shape[1], scaling=scaling, mask=mask, words=words_per_row)
        outputs.append(_CompiledAttention.apply(*compiled_part, compiled, batch))  # type: ignore[no-untyped-call]
    for group, part in zip(groups[num_compiled:], group_parts, strict=True):
        q, k, v = (tensor.unflatten(0, (group.num_texts, group.length)).transpose(1, 2) for tensor in part)
        window = _window_mask(group.length, sliding_window, causal, device)
        if on_cpu and dropout:  # by the formula
            scores = q * scaling @ k.transpose(2, 3)
            scores = scores if window is None else scores.masked_fill(~window, -torch.inf)
            out = (scores.softmax(dim=3) * _dropout_factors(mask, words_per_row, group, query.shape[1]).to(q.dtype)) @ v
        else:
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=window, dropout_p=dropout, scale=scaling)
        outputs.append(out.transpose(1, 2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _dropout_factors(
    mask: DropoutMask, words_per_row: int, group: LengthGroup, heads: int
) -> Float[Tensor, "texts heads length length"]:
    """0 or the mask's scale for each attention weight of a group.

    The attention weights of a token and a head are row ``token * heads + head``; its random bits start at word
    ``row * words_per_row``.
    """
    tokens = torch.arange(group.span.start, group.span.stop).view(group.num_texts, 1, group.length, 1)
    rows = tokens * heads + torch.arange(heads).view(-1, 1, 1)
    kept = mask.keep_mask(rows * words_per_row + torch.arange(-(-group.length // 4)))
    return kept[..., : group.length] * mask.scale


def _window_mask(
    length: int, window: int | None, causal: bool, device: torch.device
) -> Bool[Tensor, "length length"] | None:
    """Which tokens attend to which; None if each attends to all of a text of this length."""
    if not causal and (window is None or length <= window):
        return None
    positions = torch.arange(length, device=device)
    before = positions[:, None] - positions
    near = before.abs() < (length if window is None else window)
    return near & (before >= 0) if causal else near


class _CompiledAttention(torch.autograd.Function):
    """The compiled kernel. Saves its inputs and two numbers per token and head for the backward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        compiled: Kernels
        *tensors, compiled, batch = inputs
        query, key, value = (tensor.contiguous() for tensor in tensors)
        out, softmax_stats = compiled.attend(query, key, value, batch)
        ctx.save_for_backward(query, key, value, softmax_stats)
        ctx.compiled, ctx.batch = compiled, batch
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        *inputs, softmax_stats = ctx.saved_tensors
        gradients = ctx.compiled.attend_backward(tuple(inputs), grad_output.contiguous(), softmax_stats, ctx.batch)
        return (*gradients, None, None)


def choose_backend(query: Heads, key: Heads, value: Heads, *, longest: int, dropout: float) -> AttentionBackend:
    """Choose the backend for these tensors of texts of at most ``longest`` tokens."""
    if query.device.type != "cuda":
        return "groups"
    half = query.dtype in HALF and query.dtype == key.dtype == value.dtype
    head_dim = query.shape[2]
    supported = half and dropout == 0 and head_dim % HEAD_DIM_MULTIPLE == 0 and head_dim <= MAX_HEAD_DIM
    if longest > SHORT and supported and has_varlen(query.device):
        return "varlen"
    return "tiles" if longest <= LENGTHS[-1] else "groups"


@cache
def has_varlen(device: torch.device) -> bool:
    """Whether the GPU can compute the kernel, and torch has it with windows, as it has from 2.11 on."""
    if find_spec("torch.nn.attention.varlen") is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from torch.nn.attention.varlen import varlen_attn

    return "window_size" in signature(varlen_attn).parameters


def varlen(
    query: Heads,
    key: Heads,
    value: Heads,
    groups: tuple[LengthGroup, ...],
    *,
    scaling: float,
    window: int | None,
    causal: bool = False,
) -> Heads:
    """All texts by the flash kernel, without dropout. Tokens attend to tokens less than ``window`` away."""
    from torch.nn.attention.varlen import varlen_attn

    starts, longest = _starts(groups, query.device), groups[-1].length
    reach = -1 if window is None or longest <= window else window - 1  # tokens attended to on either side, -1 for all
    out = varlen_attn(
        query, key, value, starts, starts, longest, longest, scale=scaling, window_size=(reach, 0 if causal else reach)
    )
    assert isinstance(out, Tensor)
    return out


@lru_cache(maxsize=8)  # all layers use the same tensor, and each copy to the GPU would synchronise with it
def _starts(groups: tuple[LengthGroup, ...], device: torch.device) -> Tensor:
    """The first token of each text, and the number of tokens."""
    lengths = [group.length for group in groups for _ in range(group.num_texts)]
    with torch.inference_mode(False):  # cached, and a later backward pass may save it
        return to_device(torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), device)
