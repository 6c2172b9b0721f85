"""Batches of a fixed shape, for CUDA graphs: batches of similar size have the same shape, and all else is in tensors.

A CUDA graph repeats operations on the same memory, so it can only compute batches of the shape it was recorded with.
Linear layers run on concatenated tokens, as in a ragged batch; only the ends of three dimensions are padded: the number
of tokens, the number of texts, and the length to which attention pads each text (:class:`BatchShape`).
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoder.padded_attention import MULTIPLE, PaddedBlock
from nearfar.encoder.tokens import TokenRows


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

    @property
    def inputs(self) -> int:
        """Number of elements of :attr:`FixedShapeBatch.inputs`."""
        return 3 * self.tokens + 2 * self.texts


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
        self.ids, self._positions, self._slots, self._lengths, self._rows = inputs.split(sizes)
        self._blocks: dict[tuple[int | None, torch.dtype], PaddedBlock] = {}

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
        inputs = np.zeros(shape.inputs, dtype=np.int64)
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

    @property
    def lengths(self) -> Int[Tensor, " texts"]:
        """Number of tokens of each text."""
        return self._lengths

    def block(self, window: int | None, dtype: torch.dtype) -> PaddedBlock:
        """The whole batch as one block of attention, with the mask of a local ``window`` if one is given."""
        key = (window if window is not None and self.shape.length > window else None, dtype)
        if key not in self._blocks:
            self._blocks[key] = PaddedBlock(*self.shape, self._slots, self._mask(*key))
        return self._blocks[key]

    def _mask(self, window: int | None, dtype: torch.dtype) -> Float[Tensor, "texts 1 queries keys"]:
        positions = torch.arange(self.shape.length, device=self.ids.device)
        real = positions < self._lengths[:, None]
        attends = real[:, None, None, :]
        if window is not None:
            near = (positions[:, None] - positions).abs() < window
            attends = attends & (
                near | ~real[:, None, :, None]
            )  # padding attends to all tokens: a row without any is NaN
        return torch.zeros(attends.shape, dtype=dtype, device=self.ids.device).masked_fill(~attends, -torch.inf)

    def restore_order(self, packed: Float[Tensor, "texts dim"]) -> Float[Tensor, "texts dim"]:
        """Pooled texts -> one vector per place: the caller's texts, then repetitions of the first."""
        return packed.index_select(0, self._rows)
