"""Pooling: hidden states of a ragged batch -> one vector per text.

==================  =========================================================================================
``cls``             the first token's last hidden state
``mean``            mean over all tokens of the last layer, [CLS] and [SEP] included
``mean_without_cls``  the same without the first token (Liao 2021, section 3)
``max``             per-dimension maximum over all tokens of the last layer
``lasttoken``       the last token's last hidden state, which in a causal model alone has read the whole text
``weightedmean``    sum_i i h_i / sum_i i over the tokens i = 1, 2, ... of the last layer (Muennighoff 2022, "SGPT")
``first_last``      mean over all tokens and over the first and the last transformer layer; the first is layer 1, not
                    the embedding layer (SimCSE's code as corrected, and BERT-flow's, where it is called avg-last-2)
``embeddings_last``  the same with the embedding layer in place of layer 1 (the row "first-last avg." of SimCSE's paper)
``last_two``        the same with the last two layers (BERT-flow as its paper describes it)
``layer:K``         mean over all tokens of layer K; layer 0 is the embedding layer. ``layer:K:mean`` is the same
``layer:K:cls``     another pooling of layer K's tokens: ``cls``, ``max``, ... (Kim et al. 2021, Figure 1,
                    compares ``cls``, ``mean`` and ``max`` for every layer)
==================  =========================================================================================

Where a model's Pooling module has ``include_prompt: false``, the tokens of the prompt, and all before them, are left
out: ``mean``, ``weightedmean`` and ``max`` pool the other tokens, whose weights stay those of their places in the text,
and ``cls`` takes the first of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.encoder.ragged import RaggedBatch
from nearfar.encoder.tiles import TiledBatch
from nearfar.encoder.tokens import LengthGroup
from nearfar.runtime.gpu import to_device
from nearfar.types import NearfarError
from nearfar.validation import nearest

TokenPooling: TypeAlias = Literal["cls", "mean", "mean_without_cls", "max", "lasttoken", "weightedmean"]
TOKEN_POOLINGS: tuple[TokenPooling, ...] = get_args(TokenPooling)
LAYER_MEANS = ("first_last", "embeddings_last", "last_two")
POOLINGS = (
    *TOKEN_POOLINGS,
    *LAYER_MEANS,
    "layer:K",
    *(f"layer:K:{tokens}" for tokens in TOKEN_POOLINGS if tokens != "mean"),
)


class Pooling(NamedTuple):
    """A pooling's name, the layers that it averages (empty: only the last one), and how it pools the tokens."""

    name: str
    layers: tuple[int, ...]
    tokens: TokenPooling


def parse_pooling(name: str, *, layers: int) -> Pooling:
    """Parse the name of a pooling, for a backbone with ``layers`` transformer layers; the result has the shortest name.

    Raises:
        NearfarError: unknown pooling, or no such layer.
    """
    match name.split(":"):
        case [tokens] if tokens in TOKEN_POOLINGS:
            return Pooling(name, (), tokens)
        case ["first_last" | "embeddings_last" | "last_two"]:
            both = _layer_means(layers)[name]
            return Pooling(mean_of_layers(both, layers=layers) or name, both, "mean")
        case ["layer", number, *rest] if number.isdecimal() and rest in ([], *([own] for own in TOKEN_POOLINGS)):
            layer, tokens = int(number), cast("TokenPooling", rest[0] if rest else "mean")
            if layer > layers:
                raise NearfarError(f"pooling {name!r}: this encoder's layers are 0 (embeddings) to {layers}.")
            return Pooling(f"layer:{layer}" if tokens == "mean" else f"layer:{layer}:{tokens}", (layer,), tokens)
    raise NearfarError(f"unknown pooling {name!r}; choose one of {', '.join(POOLINGS)}.{nearest(name, POOLINGS)}")


def mean_of_layers(chosen: Sequence[int], *, layers: int) -> str | None:
    """The name of the mean over two layers, or None if it has no name; equal poolings have one name."""
    return next((name for name, both in _layer_means(layers).items() if tuple(chosen) == both), None)


def _layer_means(layers: int) -> dict[str, tuple[int, int]]:
    return {"first_last": (1, layers), "embeddings_last": (0, layers), "last_two": (layers - 1, layers)}


SHORTEST = 32
"""Largest length of the texts in the first of several blocks."""


class TextBlock(NamedTuple):
    """Neighbouring texts of a batch, padded to ``length`` tokens."""

    num_tokens: int
    num_texts: int
    length: int
    slots: Int[Tensor, " tokens"] | None
    """Position of each real token among the block's num_texts * length positions; None if all positions are real."""


@lru_cache(maxsize=8)
def padded_blocks(groups: tuple[LengthGroup, ...], device: torch.device) -> tuple[TextBlock, ...]:
    """Blocks of texts of up to :data:`SHORTEST` tokens, of up to twice as many, and so on; ``groups`` has all texts."""
    blocks = []
    for _, members in groupby(groups, key=lambda group: max(SHORTEST, 1 << (group.length - 1).bit_length())):
        lengths = np.array([group.length for group in members for _ in range(group.num_texts)])
        slots = np.flatnonzero(np.arange(lengths.max()) < lengths[:, None])
        with torch.inference_mode(False):  # cached, and a later backward pass may save it
            places = to_device(torch.from_numpy(slots), device)
        blocks.append(TextBlock(int(lengths.sum()), len(lengths), int(lengths.max()), places))
    return tuple(blocks)


def pool(
    hidden: list[Float[Tensor, "tokens dim"]],
    batch: RaggedBatch | TiledBatch,
    pooling: Pooling,
    *,
    padded: bool | None = None,
) -> Float[Tensor, "batch dim"]:
    """One vector per text, in the batch's packed order.

    Texts of one length are pooled together. On a GPU, which needs about as long for the texts of one length as for
    many, they are pooled on a few padded blocks (``padded``). The order of summation does not change from call to call,
    which ``index_add`` on a GPU does not promise.

    ``hidden`` is the last layer only, or all layers if ``pooling.layers`` is not empty. A text without tokens gets the
    zero vector.
    """
    states = torch.stack([hidden[layer] for layer in pooling.layers]).mean(0) if pooling.layers else hidden[-1]
    if isinstance(batch, TiledBatch):
        block = TextBlock(*batch.shape, batch.slots())
        return _pool_block(states, block, batch.lengths[:, None], None, tokens=pooling.tokens)
    if padded is None:
        padded = states.device.type == "cuda"
    blocks: Sequence[TextBlock]
    if padded:
        blocks = padded_blocks(tuple(batch.groups), states.device)
    else:
        blocks = [TextBlock(count * length, count, length, None) for _, count, length in batch.groups]
    sizes, prompts = [block.num_texts for block in blocks], batch.prompt_lengths
    parts = states.split([block.num_tokens for block in blocks])
    lengths = to_device(torch.tensor(batch.lengths), states.device)[:, None].split(sizes)
    skipped = [None] * len(blocks) if prompts is None else prompts[:, None].split(sizes)
    pooled = zip(parts, blocks, lengths, skipped, strict=True)
    return torch.cat([_pool_block(*arguments, tokens=pooling.tokens) for arguments in pooled])


def _pool_block(
    states: Float[Tensor, "tokens dim"],
    block: TextBlock,
    lengths: Int[Tensor, "texts 1"],
    prompts: Int[Tensor, "texts 1"] | None,
    *,
    tokens: TokenPooling,
) -> Float[Tensor, "texts dim"]:
    """Pool the texts of a block, given their numbers of tokens and of first tokens to leave out.

    As in sentence-transformers, the mean of no tokens is 0, and so is the last of none; [CLS] is one of the tokens of a
    prompt.
    """
    if not block.length:
        return states.new_zeros(block.num_texts, states.shape[1])
    rows, empty, padding = states, lengths == 0, -torch.inf if tokens == "max" else 0.0
    if block.slots is not None:
        places = states.new_full((block.num_texts * block.length, states.shape[1]), padding)
        rows = places.index_copy(0, block.slots, states)
    texts = rows.unflatten(0, (block.num_texts, block.length))
    if tokens == "cls" and prompts is not None:
        first = torch.where(prompts < lengths, prompts, 0)
        return texts.take_along_dim(first[:, :, None], dim=1).squeeze(1)
    if tokens == "cls":
        return texts[:, 0]
    if prompts is not None:
        positions = torch.arange(block.length, device=texts.device)
        texts = texts.masked_fill((positions < prompts)[:, :, None], padding)
    if tokens == "lasttoken":
        return texts.take_along_dim((lengths - 1).clamp(min=0)[:, :, None], dim=1).squeeze(1)
    if tokens == "weightedmean":
        places = torch.arange(1, block.length + 1, device=texts.device)
        kept = (places <= lengths) & (places > (0 if prompts is None else prompts))
        texts = texts * places[:, None].to(torch.promote_types(texts.dtype, torch.float32))
        lengths = (kept * places).sum(1, keepdim=True)
    elif prompts is not None:
        lengths = lengths - prompts
    elif tokens == "mean_without_cls":
        texts, lengths = texts[:, 1:], lengths - 1
    if tokens == "max":
        return texts.amax(1).masked_fill(empty, 0)
    total = texts.sum(1, dtype=torch.promote_types(texts.dtype, torch.float32))
    return (total / lengths.clamp(min=1)).to(states.dtype)
