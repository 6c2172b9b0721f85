"""Attention within texts on a GPU: whole texts share rows of 64 tokens or more, tiles, and other texts are masked.

    out_i = sum_j softmax_j(q_i k_j / sqrt(head_dim)) v_j,   j over the tokens of i's own text,

by plain matrix products over each tile. The tiles of the flash kernel are 128 tokens for *one* text, most of which is
empty where texts have 12; here less than a tenth is. Attention weights can have dropout, and a compiled layer computes
mask, softmax and dropout in one pass. Memory and time of a token grow with the length of its tile, so long texts have
another backend (:mod:`nearfar.encoder.attention`).

A :class:`TiledBatch` is for CUDA graphs. A CUDA graph repeats operations on the same memory, so it can only compute
batches of the shape it was recorded with; batches of similar size have the same shape, and all else is in tensors. All
layers compute its tokens in the order of the tiles, so that attention moves none of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nearfar.encoder.tokens import LengthGroup, TokenRows, token_positions
from nearfar.runtime.gpu import round_up, to_device

Heads: TypeAlias = Float[Tensor, "tokens heads head_dim"]

LENGTHS = (64, 128, 256, 512)
"""Lengths of tiles; a batch with a longer text has none."""
MULTIPLE = 8
"""Lengths of tiles of one batch alone are multiples of this number, which matrix products in half precision need."""
ATTENTION_SHARE = 1024
"""A token costs (1 + length / 1024) times as much in a tile of this length as without attention, approximately."""


def tile_starts(lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The place of each text's first token among the places of all tiles of ``size`` tokens.

    Longest texts first, each is put into the fullest tile that has room, or else into a new one.
    """
    starts = np.zeros(len(lengths), dtype=np.int64)
    tiles_by_room: list[list[int]] = [[] for _ in range(size + 1)]
    tiles = 0
    order = np.argsort(-lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
    for texts in np.split(order, ends[:-1]):  # of equal length
        length, placed = int(lengths[texts[0]]), 0
        if not length:  # texts without tokens
            break
        for room in range(length, size):
            while tiles_by_room[room] and placed < len(texts):
                tile, count = tiles_by_room[room].pop(), min(room // length, len(texts) - placed)
                first = tile * size + size - room
                starts[texts[placed : placed + count]] = first + length * np.arange(count)
                tiles_by_room[room - count * length].append(tile)
                placed += count
        rest, each = texts[placed:], size // length
        number = np.arange(len(rest))
        starts[rest] = (tiles + number // each) * size + number % each * length
        new = -(-len(rest) // each)
        for tile in range(tiles, tiles + new):
            tiles_by_room[size - length * min(each, len(rest) - (tile - tiles) * each)].append(tile)
        tiles += new
    return starts


def choose_tiles(lengths: NDArray[np.int64], sizes: Sequence[int]) -> tuple[int, int, NDArray[np.int64]]:
    """The length of tiles that costs least, the number of tiles, and :func:`tile_starts`; ``sizes`` has the lengths."""
    longest = int(lengths.max())
    choices = []
    for size in sorted({size for size in sizes if size >= longest}):
        starts = tile_starts(lengths, size)
        tiles = max(-(-int((starts + lengths).max()) // size), 1)
        choices.append((tiles * size * (1 + size / ATTENTION_SHARE), size, tiles, starts))
        if lengths.sum() > 0.9 * (tiles - 1) * size:  # longer tiles, but for the last, are hardly fuller
            break
    _, size, tiles, starts = min(choices, key=lambda choice: choice[:2])
    return size, tiles, starts


def tile_mask(
    texts: Int[Tensor, " places"], positions: Int[Tensor, " places"], size: int, window: int | None, causal: bool
) -> Bool[Tensor, "tiles 1 size size"]:
    """Which places of each tile attend to which: those of the same text, less than ``window`` away, none after it."""
    texts, positions = texts.view(-1, 1, size), positions.view(-1, 1, size)
    mask = texts[..., None] == texts[..., None, :]
    if window is None and not causal:
        return mask
    before = positions[..., None] - positions[..., None, :]
    if window is not None:
        mask = mask & (before.abs() < window)
    return mask & (before >= 0) if causal else mask


def attend_in_tiles(
    query: Float[Tensor, "places heads head_dim"],
    key: Float[Tensor, "places heads head_dim"],
    value: Float[Tensor, "places heads head_dim"],
    mask: Bool[Tensor, "tiles 1 size size"],
    *,
    scaling: float,
    dropout: float,
) -> Float[Tensor, "places heads head_dim"]:
    """Softmax attention within each text, of all places of the tiles; the softmax is computed in float32."""
    size = mask.shape[3]
    q, k, v = (tensor.unflatten(0, (-1, size)).transpose(1, 2) for tensor in (query, key, value))
    scores = (q @ k.transpose(2, 3) * scaling).masked_fill(~mask, -torch.inf)
    weights = functional.dropout(scores.softmax(dim=3, dtype=torch.float32).to(v.dtype), dropout)
    return (weights @ v).transpose(1, 2).flatten(0, 1)


class Tiles(NamedTuple):
    """The tiles of a ragged batch: the place of each of its tokens, and which places attend to which."""

    places: Int[Tensor, " tokens"]
    mask: Bool[Tensor, "tiles 1 size size"]


@lru_cache(maxsize=8)  # all layers use the same tiles
def tiles_of(groups: tuple[LengthGroup, ...], window: int | None, device: torch.device, causal: bool = False) -> Tiles:
    """The tiles of a batch; ``groups`` are its texts by length, shortest first, of up to the last :data:`LENGTHS`."""
    lengths = np.repeat([group.length for group in groups], [group.num_texts for group in groups])
    size, tiles, starts = choose_tiles(lengths, [*LENGTHS, -(-groups[-1].length // MULTIPLE) * MULTIPLE])
    places = np.repeat(starts, lengths) + token_positions(lengths)
    texts, positions = np.full(tiles * size, -1), np.zeros(tiles * size, dtype=np.int64)
    texts[places], positions[places] = np.repeat(np.arange(len(lengths)), lengths), token_positions(lengths)
    with torch.inference_mode(False):  # cached, and a later backward pass may save it
        on_device = [to_device(torch.from_numpy(array), device) for array in (texts, positions, places)]
        return Tiles(on_device[2], tile_mask(on_device[0], on_device[1], size, window, causal))


def tiled(query: Heads, key: Heads, value: Heads, tiles: Tiles, *, scaling: float, dropout: float) -> Heads:
    """Softmax attention within each text of a ragged batch, whose tokens are moved into tiles and back."""
    real = torch.stack((query, key, value))
    number, _, size, _ = tiles.mask.shape
    filled = real.new_zeros(3, number * size, *real.shape[2:]).index_copy(1, tiles.places, real)
    q, k, v = filled.unbind()
    out = attend_in_tiles(q, k, v, tiles.mask, scaling=scaling, dropout=dropout)
    return out.index_select(0, tiles.places)


class BatchShape(NamedTuple):
    """Numbers of places of tokens and of texts for which a batch has room, and the length of its tiles."""

    places: int
    texts: int
    size: int


class TiledBatch:
    """Texts in tiles, and filling up to the batch's shape; the counterpart of a ragged batch for CUDA graphs.

    Args:
        inputs: int64, all that distinguishes batches of one shape; see :meth:`layout`.
        shape: the batch's shape.
    """

    types = None
    """Token type ids; None for the backbone's default."""

    def __init__(self, inputs: Int[Tensor, " inputs"], shape: BatchShape) -> None:
        self.shape = shape
        sizes = [shape.places, shape.places, shape.places, shape.texts, shape.texts]
        self.ids, self._positions, self._texts, self.lengths, self._rows = inputs.split(sizes)

    @staticmethod
    def layout(rows: TokenRows, *, padding: int) -> tuple[NDArray[np.int64], BatchShape]:
        """The batch's inputs: token ids, positions and texts of all places, lengths of texts, each embedding's text.

        Numbers are rounded up, and there is room for one text more, which has the places that are left: tiles by less
        than an eighth, because all layers compute them; texts by less than a quarter, because pooling alone does. A
        place that is left has the id ``padding``. Embeddings without a text repeat the first one, so that no module
        after the pooling sees a vector that no text has.
        """
        size, tiles, starts = choose_tiles(rows.lengths, LENGTHS)
        texts = len(rows)
        shape = BatchShape(round_up(tiles, steps=8, multiple=1) * size, round_up(texts + 1, steps=4, multiple=8), size)
        inputs = np.zeros(3 * shape.places + 2 * shape.texts, dtype=np.int64)
        ids, positions, texts_of_places, lengths, embedded = np.split(
            inputs, np.cumsum([shape.places, shape.places, shape.places, shape.texts])
        )
        within = token_positions(rows.lengths)
        places = np.repeat(starts, rows.lengths) + within
        ids[:], texts_of_places[:], lengths[:] = padding, shape.texts - 1, size
        ids[places] = rows.flat[np.repeat(rows.starts, rows.lengths) + within]
        positions[places] = within
        texts_of_places[places] = np.repeat(np.arange(texts), rows.lengths)
        lengths[:texts] = rows.lengths
        embedded[:texts] = np.arange(texts)
        return inputs, shape

    def positions(self) -> Int[Tensor, " places"]:
        """Each token's position in its own text, from 0."""
        return self._positions

    def slots(self) -> Int[Tensor, " places"]:
        """For pooling: each token's place among ``texts`` x ``size``."""
        return self._texts * self.shape.size + self._positions

    def mask(self, window: int | None, *, causal: bool) -> Bool[Tensor, "tiles 1 size size"]:
        """:func:`tile_mask` of the batch, computed by each layer: that costs less than to read it."""
        return tile_mask(self._texts, self._positions, self.shape.size, window, causal)

    def restore_order(self, packed: Float[Tensor, "texts dim"]) -> Float[Tensor, "texts dim"]:
        """Pooled texts -> one vector per place: the caller's texts, then repetitions of the first."""
        return packed.index_select(0, self._rows)
