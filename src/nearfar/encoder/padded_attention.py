"""Texts of a ragged batch by length, and attention within each text on a GPU, on a few padded blocks of similar length.

A GPU needs about as long for a call on few tokens as on many, so that one call for each length, as on a CPU, costs more
than the padding saves. Texts of up to :data:`SHORTEST` tokens form one block, and each further block has texts of up to
twice the length. Only attention is padded: about 1 percent of a layer's operations for texts of 32 tokens.

Batches of a fixed shape are for CUDA graphs: a CUDA graph repeats operations on the same memory, so it can only compute
batches of the shape it was recorded with. Batches of similar size have the same shape, and all else is in tensors.
Linear layers run on concatenated tokens, as in a ragged batch; only the ends of three dimensions are padded: the number
of tokens, the number of texts, and the length to which attention pads each text (:class:`BatchShape`).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from nearfar.encoder.tokens import TokenRows

Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]


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
    groups: tuple[LengthGroup, ...],
    window: int | None,
    device: torch.device,
    dtype: torch.dtype,
    causal: bool = False,
) -> tuple[PaddedBlock, ...]:
    """Divide a batch into blocks; ``groups`` are its texts by length, shortest first."""
    by_limit = groupby(groups, key=lambda group: max(SHORTEST, 1 << (group.length - 1).bit_length()))
    return tuple(_block(list(members), window, device, dtype, causal) for _, members in by_limit)


def _block(
    groups: Sequence[LengthGroup], window: int | None, device: torch.device, dtype: torch.dtype, causal: bool
) -> PaddedBlock:
    lengths = np.repeat([group.length for group in groups], [group.num_texts for group in groups])
    longest, texts, tokens = int(lengths.max()), len(lengths), int(lengths.sum())
    windowed = window is not None and longest > window
    if len(groups) == 1 and not windowed and not causal:
        return PaddedBlock(tokens, texts, longest, None, None)
    length = -(-longest // MULTIPLE) * MULTIPLE
    with torch.inference_mode(False):  # cached, and a later backward pass may save it
        slots = torch.from_numpy(np.flatnonzero(np.arange(length) < lengths[:, None]))
        mask = attention_mask(torch.from_numpy(lengths), length, window if windowed else None, dtype, causal)
        return PaddedBlock(tokens, texts, length, slots.to(device), mask.to(device))


def attends(positions: Int[Tensor, " length"], window: int | None, causal: bool) -> Bool[Tensor, "length length"]:
    """Which tokens of a text attend to which: those less than ``window`` away, and if ``causal`` none after it."""
    before = positions[:, None] - positions
    near = before.abs() < (len(positions) if window is None else window)
    return near & (before >= 0) if causal else near


def attention_mask(
    lengths: Int[Tensor, " texts"], length: int, window: int | None, dtype: torch.dtype, causal: bool = False
) -> Float[Tensor, "texts 1 queries keys"]:
    """The mask of a :class:`PaddedBlock` of texts of these lengths, padded to ``length`` tokens."""
    positions = torch.arange(length, device=lengths.device)
    real = positions < lengths[:, None]
    seen = real[:, None, None, :]
    if window is not None or causal:
        near = attends(positions, window, causal)
        seen = seen & (near | ~real[:, None, :, None])  # padding attends to all tokens: a row without any is NaN
    return torch.zeros(seen.shape, dtype=dtype, device=lengths.device).masked_fill_(~seen, -torch.inf)


def padded(
    query: Heads, key: Heads, value: Heads, blocks: Sequence[PaddedBlock], *, scaling: float, dropout: float
) -> Heads:
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


class BatchShape(NamedTuple):
    """Numbers of tokens, texts and tokens per text for which a batch has room, padding included."""

    tokens: int
    texts: int
    length: int

    @classmethod
    def of(cls, lengths: NDArray[np.int64]) -> "BatchShape":
        """The shape of a batch of texts of these lengths: numbers are rounded up, and there is room for one text more.

        That text holds the padding tokens. Tokens are rounded up by less than an eighth, because all layers compute
        the padding; texts by less than a quarter and lengths by less than a half, because attention alone does.
        """
        return cls(
            round_up(int(lengths.sum()), steps=8, multiple=64),
            round_up(len(lengths) + 1, steps=4, multiple=8),
            round_up(int(lengths.max()), steps=2, multiple=2 * MULTIPLE),
        )


def round_up(number: int, *, steps: int, multiple: int) -> int:
    """The next multiple of ``multiple`` and of 1 / ``steps`` of the largest power of two that is at most ``number``."""
    step = max(multiple, 2 ** (number.bit_length() - 1) // steps)
    return -(-number // step) * step


class FixedShapeBatch:
    """Texts in the caller's order, concatenated, then padding tokens; the counterpart of a ragged batch.

    Args:
        inputs: int64, all that distinguishes batches of one shape; see :meth:`layout`.
        shape: the batch's shape.
    """

    types = None
    """Token type ids; None for the backbone's default."""

    def __init__(self, inputs: Int[Tensor, " inputs"], shape: BatchShape) -> None:
        self.shape = shape
        sizes = [shape.tokens, shape.tokens, shape.tokens, shape.texts, shape.texts]
        self.ids, self._positions, self._slots, self.lengths, self._rows = inputs.split(sizes)
        self._blocks: dict[tuple[int | None, torch.dtype, bool], PaddedBlock] = {}

    @staticmethod
    def layout(rows: TokenRows, shape: BatchShape, *, padding: int) -> NDArray[np.int64]:
        """The batch's inputs: token ids, positions, slots, lengths of texts, and the text of each embedding.

        A slot is a token's place among the texts x length places of attention. Padding tokens have the id ``padding``
        and the slots of the last text, which is none of the caller's. Embeddings without a text repeat the first one,
        so that no module after the pooling sees a vector that no text has.
        """
        texts, tokens = len(rows), int(rows.lengths.sum())
        starts = rows.lengths.cumsum() - rows.lengths  # of each text in the batch
        positions = np.arange(tokens) - np.repeat(starts, rows.lengths)
        inputs = np.zeros(3 * shape.tokens + 2 * shape.texts, dtype=np.int64)
        ids, all_positions, slots, lengths, embedded = np.split(
            inputs, np.cumsum([shape.tokens, shape.tokens, shape.tokens, shape.texts])
        )
        ids[:tokens] = rows.flat[np.repeat(rows.starts, rows.lengths) + positions]
        ids[tokens:] = padding
        all_positions[:tokens] = positions
        slots[:tokens] = np.repeat(np.arange(texts), rows.lengths) * shape.length + positions
        slots[tokens:] = (shape.texts - 1) * shape.length + np.arange(shape.tokens - tokens) % shape.length
        lengths[:texts] = rows.lengths
        lengths[texts:] = shape.length
        embedded[:texts] = np.arange(texts)
        return inputs

    def positions(self) -> Int[Tensor, " tokens"]:
        """Each token's position in its own text, from 0."""
        return self._positions

    def block(self, window: int | None, dtype: torch.dtype, causal: bool = False) -> PaddedBlock:
        """The whole batch as one block of attention, with the mask of :func:`attends` if it is needed."""
        key = (window if window is not None and self.shape.length > window else None, dtype, causal)
        if key not in self._blocks:
            self._blocks[key] = PaddedBlock(
                *self.shape, self._slots, attention_mask(self.lengths, self.shape.length, *key)
            )
        return self._blocks[key]

    def restore_order(self, packed: Float[Tensor, "texts dim"]) -> Float[Tensor, "texts dim"]:
        """Pooled texts -> one vector per place: the caller's texts, then repetitions of the first."""
        return packed.index_select(0, self._rows)
