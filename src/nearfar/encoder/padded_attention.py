"""Texts of a ragged batch by length, and attention within each text on a GPU, on a few padded blocks of similar length.

A GPU needs about as long for a call on few tokens as on many, so that one call for each length, as on a CPU, costs more
than the padding saves. Texts of up to :data:`SHORTEST` tokens form one block, and each further block has texts of up to
twice the length. Only attention is padded: about 1 percent of a layer's operations for texts of 32 tokens.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


class LengthGroup(NamedTuple):
    """``num_texts`` neighbouring texts of ``length`` tokens each; ``start`` is the batch's index of the first token."""

    start: int
    num_texts: int
    length: int

    @property
    def span(self) -> slice:
        """The group's tokens within the batch."""
        return slice(self.start, self.start + self.num_texts * self.length)


def group_by_length(lengths: Iterable[int]) -> list[LengthGroup]:
    """Group neighbouring texts of equal length; ``lengths`` are those of concatenated texts, in order."""
    groups: list[LengthGroup] = []
    start = 0
    for length, run in groupby(lengths):
        groups.append(LengthGroup(start, len(list(run)), length))
        start = groups[-1].span.stop
    return groups


SHORTEST = 32
"""Largest length of the texts in the first block."""
MULTIPLE = 8
"""Padded lengths are multiples of this number, which torch's kernels need for the mask in half precision."""


BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention backends of torch without cuDNN, which prepares a plan for each new shape: most batches have new ones."""


class PaddedBlock(NamedTuple):
    """Neighbouring texts of a batch, padded to ``length`` tokens."""

    num_tokens: int
    num_texts: int
    length: int
    slots: Int[Tensor, " tokens"] | None
    """Position of each real token among the block's num_texts * length positions; None if all positions are real."""
    mask: Float[Tensor, "texts 1 queries keys"] | None
    """0 where a query attends to a key, else minus infinity; one row for all queries without a window."""


@lru_cache(maxsize=8)  # all layers use the same blocks
def padded_blocks(
    groups: tuple[LengthGroup, ...], window: int | None, device: torch.device, dtype: torch.dtype
) -> tuple[PaddedBlock, ...]:
    """Divide a batch into blocks; ``groups`` are its texts by length, shortest first."""
    blocks: list[PaddedBlock] = []
    limit, members = SHORTEST, list[LengthGroup]()
    for group in groups:
        if group.length > limit and members:
            blocks.append(_block(members, window, device, dtype))
            members = []
        while group.length > limit:
            limit *= 2
        members.append(group)
    return (*blocks, _block(members, window, device, dtype))


def _block(groups: Sequence[LengthGroup], window: int | None, device: torch.device, dtype: torch.dtype) -> PaddedBlock:
    lengths = np.repeat([group.length for group in groups], [group.num_texts for group in groups])
    longest, texts, tokens = int(lengths.max()), len(lengths), int(lengths.sum())
    windowed = window is not None and longest > window
    if len(groups) == 1 and not windowed:
        return PaddedBlock(tokens, texts, longest, None, None)
    length = -(-longest // MULTIPLE) * MULTIPLE
    positions = np.arange(length)
    real = positions < lengths[:, None]
    attends = real[:, None, None, :]
    if windowed:
        assert window is not None
        near = np.abs(positions[:, None] - positions) < window
        attends = attends & (near | ~real[:, None, :, None])  # padding attends to all tokens: a row without any is NaN
    with torch.inference_mode(False):  # cached, and a later backward pass may save it
        mask = torch.zeros(attends.shape, dtype=dtype).masked_fill_(torch.from_numpy(~attends), -torch.inf).to(device)
        slots = torch.from_numpy(np.flatnonzero(real)).to(device)
        return PaddedBlock(tokens, texts, length, slots, mask)


def padded(
    query: Float[Tensor, "tokens heads head_dim"],
    key: Float[Tensor, "tokens heads head_dim"],
    value: Float[Tensor, "tokens heads head_dim"],
    blocks: Sequence[PaddedBlock],
    *,
    scaling: float,
    dropout: float,
) -> Float[Tensor, "tokens heads head_dim"]:
    """Softmax attention within each text, by torch's attention on each block."""
    outputs = []
    stacked = torch.stack((query, key, value))
    parts = (stacked,) if len(blocks) == 1 else stacked.split([block.num_tokens for block in blocks], dim=1)
    for block, real in zip(blocks, parts, strict=True):
        filled = real
        if block.slots is not None:
            empty = real.new_zeros(3, block.num_texts * block.length, *real.shape[2:])
            filled = empty.index_copy(1, block.slots, real)
        q, k, v = filled.unflatten(1, (block.num_texts, block.length)).transpose(2, 3).unbind()
        with sdpa_kernel(BACKENDS):
            out = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=block.mask, dropout_p=dropout, scale=scaling
            )
        out = out.transpose(1, 2).flatten(0, 1)
        outputs.append(out if block.slots is None else out.index_select(0, block.slots))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
