"""Softmax attention within each text of a ragged batch, by the fastest backend available.

    out_i = sum_j m_ij softmax_j(q_i k_j / sqrt(head_dim)) v_j / P(m = 1),   j over the tokens of i's own text,

where m is the mask of attention dropout.

On a CPU, a compiled kernel computes all texts of up to 128 tokens in one call and never stores a score matrix. Longer
texts, and all texts where the kernel cannot be built, are computed by torch, one length at a time: by
``scaled_dot_product_attention`` without dropout and by the formula with dropout. Both ways drop the same elements,
because the mask is a function of its seed and the element's index.

On a GPU, :mod:`nearfar.encoder.cuda_attention` computes all texts in one call or a few.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from nearfar.encoder.cuda_attention import AttentionBackend, choose_backend, jagged_layout, varlen
from nearfar.encoder.dropout import DropoutMask
from nearfar.encoder.kernels import DTYPES, HEAD_DIMS, MAX_TOKENS, AttentionLayout, Kernels, kernels
from nearfar.encoder.padded_attention import Heads, LengthGroup, padded, padded_blocks


def attend(
    query: Heads,
    key: Heads,
    value: Heads,
    groups: Sequence[LengthGroup],
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
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
        backend: overrides :func:`nearfar.encoder.cuda_attention.choose_backend`.
    """
    scaling, device = query.shape[2] ** -0.5 if scaling is None else scaling, query.device
    if backend is None:
        backend = choose_backend(query, key, value, dropout=dropout)
    if backend == "varlen":
        return varlen(query, key, value, jagged_layout(tuple(groups), device), scaling=scaling, window=sliding_window)
    if backend == "padded":
        blocks = padded_blocks(tuple(groups), sliding_window, device, query.dtype)
        return padded(query, key, value, blocks, scaling=scaling, dropout=dropout)
    on_cpu = device.type == "cpu" and query.dtype in DTYPES
    compiled = kernels() if on_cpu and query.shape[2] in HEAD_DIMS else None
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
        layout = AttentionLayout(lengths, scaling=scaling, mask=mask, words_per_row=words_per_row)
        outputs.append(_CompiledAttention.apply(*compiled_part, compiled, layout))  # type: ignore[no-untyped-call]
    for group, part in zip(groups[num_compiled:], group_parts, strict=True):
        q, k, v = (tensor.unflatten(0, (group.num_texts, group.length)).transpose(1, 2) for tensor in part)
        window = _window_mask(group.length, sliding_window, device)
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


def _window_mask(length: int, window: int | None, device: torch.device) -> Bool[Tensor, "length length"] | None:
    """Which tokens attend to which; None if the window does not limit a text of this length."""
    if window is None or length <= window:
        return None
    position = torch.arange(length, device=device)
    return (position[:, None] - position[None, :]).abs() < window


class _CompiledAttention(torch.autograd.Function):
    """The compiled kernel. Saves its inputs and two numbers per token and head for the backward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        compiled: Kernels
        layout: AttentionLayout
        *tensors, compiled, layout = inputs
        query, key, value = (tensor.contiguous() for tensor in tensors)
        out, softmax_stats = compiled.attend(query, key, value, layout)
        ctx.save_for_backward(query, key, value, softmax_stats)
        ctx.compiled, ctx.layout = compiled, layout
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        *inputs, softmax_stats = ctx.saved_tensors
        gradients = ctx.compiled.attend_backward(tuple(inputs), grad_output.contiguous(), softmax_stats, ctx.layout)
        return (*gradients, None, None)
