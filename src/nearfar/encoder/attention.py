"""Softmax attention inside each of many texts that lie end to end, by the fastest backend that is there.

    out_i = sum_j m_ij softmax_j(q_i k_j / sqrt(dim)) v_j / P(m = 1),   j over the tokens of i's own text,

m being attention dropout. On a CPU, texts of up to 128 tokens go through a compiled kernel, all of them at once and
without a matrix of scores in memory. Where that cannot be built, and for longer texts, texts of one length at a time
go through torch's own attention; with dropout on a CPU, whose kernels there have none, through its formula. Both ways
drop the same, as a mask is a function of its seed and the place. On a GPU :mod:`nearfar.encoder.cuda_attention` takes
all texts in one call where it can.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from nearfar.encoder.cuda_attention import AttentionBackend, choose_backend, jagged_layout, nested, varlen
from nearfar.encoder.dropout import Mask
from nearfar.encoder.kernels import DTYPES, HEAD_DIMS, MAX_TOKENS, AttentionLayout, Kernels, kernels


class LengthGroup(NamedTuple):
    """``texts`` neighbouring texts of ``length`` tokens each; the first token is number ``start`` of the batch."""

    start: int
    texts: int
    length: int

    @property
    def span(self) -> slice:
        """The group's tokens."""
        return slice(self.start, self.start + self.texts * self.length)


def attend(
    query: Float[Tensor, "tokens heads head_dim"],
    key: Float[Tensor, "tokens heads head_dim"],
    value: Float[Tensor, "tokens heads head_dim"],
    groups: Sequence[LengthGroup],
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    backend: AttentionBackend | None = None,
) -> Float[Tensor, "tokens heads head_dim"]:
    """Attend within texts, whose groups are in the order of their lengths, the shortest first.

    ``scaling`` takes the place of 1 / sqrt(head_dim). ``sliding_window`` w lets a token see those less than w away.
    ``backend`` takes the place of what :func:`nearfar.encoder.cuda_attention.choose_backend` chooses; ``nested`` has no
    window.
    """
    scaling = query.shape[2] ** -0.5 if scaling is None else scaling
    longest_text = groups[-1].length
    if backend is None:
        backend = choose_backend(
            query, key, value, longest=longest_text, dropout=dropout, sliding_window=sliding_window
        )
    if backend == "varlen":
        layout = jagged_layout(tuple(groups), query.device)
        return varlen(query, key, value, layout, scaling=scaling, window=sliding_window)
    if backend == "nested" and (sliding_window is None or longest_text <= sliding_window):
        layout = jagged_layout(tuple(groups), query.device)
        return nested(query, key, value, layout, scaling=scaling, dropout=dropout)
    plain = query.device.type == "cpu" and query.dtype in DTYPES
    compiled, short = kernels("attention") if plain and query.shape[2] in HEAD_DIMS else None, 0
    if compiled is not None:
        longest = MAX_TOKENS if sliding_window is None else min(MAX_TOKENS, sliding_window)
        short = sum(group.length <= longest for group in groups)
    mask = Mask.draw(dropout if plain else 0.0)
    words = -(-longest_text // 4)
    # Split once: the gradient of a slice would be as large as the whole, for each of them.
    sizes = [groups[short - 1].span.stop if short else 0, *(group.texts * group.length for group in groups[short:])]
    whole = len(sizes) == 1
    parts = [(tensor,) if whole else tensor.split(sizes) for tensor in (query, key, value)]
    first, *others = zip(*parts, strict=True)
    outputs = []
    if compiled is not None and short:
        lengths = [group.length for group in groups[:short] for _ in range(group.texts)]
        attention_layout = AttentionLayout(lengths, scaling=scaling, mask=mask, words=words)
        outputs.append(_CompiledAttention.apply(*first, compiled, attention_layout))  # type: ignore[no-untyped-call]
    for group, one in zip(groups[short:], others, strict=True):
        q, k, v = (tensor.unflatten(0, (group.texts, group.length)).transpose(1, 2) for tensor in one)
        window_mask = _window_mask(group.length, sliding_window, query.device)
        if plain and dropout:
            found = _eager_attention(
                q * scaling, k, v, window_mask, _factors(mask, words, group, query.shape[1]).to(q.dtype)
            )
        else:
            found = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=window_mask, dropout_p=dropout, scale=scaling
            )
        outputs.append(found.transpose(1, 2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _factors(mask: Mask, words: int, group: LengthGroup, heads: int) -> Float[Tensor, "texts heads length length"]:
    """What the shares of each row are multiplied with: row token * heads + head begins at word ``words`` * row."""
    tokens = torch.arange(group.span.start, group.span.stop).view(group.texts, 1, group.length, 1)
    rows = tokens * heads + torch.arange(heads).view(-1, 1, 1)
    kept = mask.keep_mask(rows * words + torch.arange(-(-group.length // 4)))
    return kept[..., : group.length] * mask.scale


def _eager_attention(
    query: Float[Tensor, "texts heads length head_dim"],
    key: Float[Tensor, "texts heads length head_dim"],
    value: Float[Tensor, "texts heads length head_dim"],
    window_mask: Bool[Tensor, "length length"] | None,
    factors: Float[Tensor, "texts heads length length"],
) -> Float[Tensor, "texts heads length head_dim"]:
    """Texts of one length, from scaled queries, with what each share is multiplied with."""
    scores = query @ key.transpose(2, 3)
    if window_mask is not None:
        scores = scores.masked_fill(~window_mask, -torch.inf)
    return (scores.softmax(dim=3) * factors) @ value


def _window_mask(length: int, window: int | None, device: torch.device) -> Bool[Tensor, "length length"] | None:
    """Which tokens see each other, where not all do."""
    if window is None or length <= window:
        return None
    place = torch.arange(length, device=device)
    return (place[:, None] - place[None, :]).abs() < window


class _CompiledAttention(torch.autograd.Function):
    """Short texts, by the kernels. Keeps its inputs, the random bits, and two numbers for each token and head."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        compiled: Kernels
        attention_layout: AttentionLayout
        *heads, compiled, attention_layout = inputs
        query, key, value = (tensor.contiguous() for tensor in heads)
        out, softmax_stats = compiled.attend(query, key, value, attention_layout)
        ctx.save_for_backward(query, key, value, softmax_stats)
        ctx.compiled, ctx.attention_layout = compiled, attention_layout
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        *inputs, softmax_stats = ctx.saved_tensors
        return (
            *ctx.compiled.attend_backward(tuple(inputs), grad_output.contiguous(), softmax_stats, ctx.attention_layout),
            None,
            None,
        )
