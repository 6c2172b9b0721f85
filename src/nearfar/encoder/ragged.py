"""Ragged batches: the tokens of all texts concatenated without padding, and the hidden states of a backbone on them.

A batch is packed shortest text first, so that texts of the same length are neighbours. Attention then runs on dense
views, one per length, and padding is never computed. :func:`ragged_attention` is registered with transformers, so that
encoders from the hub run unpadded without model classes of our own. Some backbones ignore the registered function and
would attend across texts, and some compute other vectors where texts are padded (convolutions over neighbouring tokens,
Fourier transforms). Therefore :func:`choose_route` compares ragged and then padded results on a few synthetic tokens
with those of each text alone; where both differ, only texts of equal length go together.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nearfar.encoder.attention import attend
from nearfar.encoder.dropout import evaluating
from nearfar.encoder.exported import GraphBackbone
from nearfar.encoder.pretrained import AttentionInterface, PreTrainedModel, reason
from nearfar.encoder.static import is_static
from nearfar.encoder.tiles import TiledBatch, attend_in_tiles
from nearfar.encoder.tokens import LengthGroup, TokenRows, group_by_length, token_positions
from nearfar.runtime.gpu import to_device
from nearfar.types import NearfarError

ATTENTION = "nearfar_ragged"
"""Name under which transformers knows :func:`ragged_attention`."""


@dataclass(frozen=True)
class RaggedBatch:
    """The concatenated texts of a batch, shortest first; ``order[i]`` is the caller's index of the i-th packed text.

    ``types`` are the token type ids, which distinguish the second text of a pair from the first; None for the
    backbone's default, which is 0 for all tokens. ``prompt_lengths`` are the numbers of first tokens of each packed
    text that pooling leaves out; None for none.
    """

    ids: Int[Tensor, " tokens"]
    lengths: tuple[int, ...]
    order: Int[Tensor, " batch"]
    types: Int[Tensor, " tokens"] | None = None
    prompt_lengths: Int[Tensor, " batch"] | None = None

    @classmethod
    def pack(
        cls,
        token_ids: Sequence[Sequence[int]],
        *,
        types: Sequence[Sequence[int]] | None = None,
        prompt_length: int = 0,
        device: torch.device | str = "cpu",
    ) -> "RaggedBatch":
        """Concatenate the texts' token ids. The sort is stable: texts of equal length keep the caller's order.

        ``prompt_length`` is that of all texts; rows of a token store have their own.
        """
        rows = token_ids if isinstance(token_ids, TokenRows) else TokenRows.of(token_ids, prompt_length=prompt_length)
        order = np.argsort(rows.lengths, kind="stable")
        starts, lengths = rows.starts[order], rows.lengths[order]
        batch_starts = lengths.cumsum() - lengths  # of each text in the batch
        tokens = np.arange(lengths.sum()) + np.repeat(starts - batch_starts, lengths)
        prompts = rows.prompt_lengths
        ordered_types = None if types is None else TokenRows.of([types[text] for text in order]).flat
        return cls(
            ids=to_device(torch.from_numpy(rows.flat[tokens].astype(np.int64)), device),
            lengths=tuple(lengths.tolist()),
            order=to_device(torch.from_numpy(order), device),
            types=None if ordered_types is None else to_device(torch.from_numpy(ordered_types), device),
            prompt_lengths=None if prompts is None else to_device(torch.from_numpy(prompts[order]), device),
        )

    @cached_property
    def groups(self) -> list[LengthGroup]:
        """Groups of texts of equal length, in packed order."""
        return group_by_length(self.lengths)

    def part(self, group: LengthGroup) -> "RaggedBatch":
        """The tokens of a group's texts, without their order."""
        types = None if self.types is None else self.types[group.span]
        return replace(self, ids=self.ids[group.span], lengths=(group.length,) * group.num_texts, types=types)

    def positions(self) -> Int[Tensor, " tokens"]:
        """Each token's position in its own text, from 0."""
        return to_device(torch.from_numpy(token_positions(np.array(self.lengths))), self.ids.device)

    def restore_order(self, packed: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Rows in packed order -> rows in the caller's order."""
        inverse = torch.empty_like(self.order)
        inverse[self.order] = torch.arange(len(self.order), device=self.order.device)
        return packed[inverse]

    def restore_token_order(self, packed: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens dim"]:
        """Concatenated tokens with the texts in packed order -> with the texts in the caller's order."""
        owner = torch.repeat_interleave(self.order, torch.tensor(self.lengths, device=self.order.device))
        return packed[owner.argsort(stable=True)]


class Route(NamedTuple):
    """How a backbone runs: on ragged batches with position ids from ``first_position`` on, or on padded batches.

    With ``equal_lengths``, a padded batch has texts of one length only, so that there is no padding.
    """

    ragged: bool
    first_position: int = 0
    equal_lengths: bool = False


PADDED, ALONE = Route(ragged=False), Route(ragged=False, equal_lengths=True)


def hidden_states(
    backbone: PreTrainedModel, batch: RaggedBatch | TiledBatch, route: Route, *, all_layers: bool = False
) -> list[Float[Tensor, "tokens dim"]]:
    """Hidden states of every real token: the last layer's, or with ``all_layers`` every layer's, embeddings first.

    Raises:
        NearfarError: the states of a layer are not those of the tokens.
    """
    if not len(batch.ids):  # texts without tokens, of a tokenizer that adds none
        states = torch.zeros(0, backbone.config.hidden_size, dtype=backbone.dtype, device=backbone.device)
        return [states] * (backbone.config.num_hidden_layers + 1 if all_layers else 1)
    if route.equal_lengths and isinstance(batch, RaggedBatch):
        alone = [batch.part(group) for group in batch.groups if group.length]
        parts = [hidden_states(backbone, part, PADDED, all_layers=all_layers) for part in alone]
        return [torch.cat(layer) for layer in zip(*parts, strict=True)]
    arguments, real = _arguments(backbone, batch, route)
    output = backbone(**arguments, output_hidden_states=all_layers)
    layers = output.hidden_states if all_layers else (output.last_hidden_state,)
    shape = (*arguments["input_ids"].shape, backbone.config.hidden_size)
    if wrong := [layer.shape for layer in layers if layer.shape != shape]:
        gives = f"gives hidden states of the shape {list(wrong[0])} for {list(shape)}"
        raise NearfarError(f"{type(backbone).__name__}: {gives}, so nearfar cannot pool them.")
    return [layer[real] for layer in layers]


def attends_causally(module: nn.Module) -> bool:
    """Whether tokens attend to no later ones in a backbone or in one of its modules, as they do in decoders."""
    causal = any(getattr(part, "is_causal", False) for part in module.modules())
    return causal and bool(getattr(getattr(module, "config", None), "is_causal", True))


def transformer_layers(backbone: PreTrainedModel) -> nn.ModuleList:
    """The backbone's transformer layers, first to last, for any architecture.

    Raises:
        NearfarError: the backbone has no module list with the number of layers in its config.
    """
    count = backbone.config.num_hidden_layers
    for module in backbone.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise NearfarError(f"{type(backbone).__name__} has no list of its {count} layers, so nearfar cannot access them.")


def _arguments(backbone: PreTrainedModel, batch: RaggedBatch | TiledBatch, route: Route) -> tuple[dict[str, Any], Any]:
    """Arguments of the backbone's forward, and the index that selects the concatenated tokens from its output."""
    tokens = {"input_ids": batch.ids} | ({} if batch.types is None else {"token_type_ids": batch.types})
    if route.ragged or isinstance(batch, TiledBatch):
        tokens["position_ids"] = batch.positions() + route.first_position
        return {name: ids[None] for name, ids in tokens.items()} | {"segments": batch}, 0
    lengths, pad = [length for length in batch.lengths if length], {"input_ids": backbone.config.pad_token_id or 0}
    padded_tokens = {
        name: nn.utils.rnn.pad_sequence(list(ids.split(lengths)), batch_first=True, padding_value=pad.get(name, 0))
        for name, ids in tokens.items()
    }
    device = batch.ids.device
    real = torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device)[:, None]
    return {**padded_tokens, "attention_mask": real.long()}, real


def uses_token_types(backbone: PreTrainedModel) -> bool:
    """Whether the backbone distinguishes the tokens of a pair's first text from those of its second by token types."""
    multiple_types = (getattr(backbone.config, "type_vocab_size", None) or 0) > 1
    return multiple_types and "token_type_ids" in signature(backbone.forward).parameters


def choose_route(backbone: PreTrainedModel) -> Route:
    """Ragged if the backbone gives the hidden states of each text alone, else padded if that does, else neither.

    Position ids are tried from 0 and, as RoBERTa numbers them, from ``pad_token_id + 1``. The synthetic texts include
    one longer than the local attention window, if the backbone has one, and pairs, if it uses token types. Draws no
    random numbers.

    Raises:
        NearfarError: as :func:`hidden_states`.
    """
    if is_static(backbone):
        return Route(ragged=True)
    if isinstance(backbone, GraphBackbone):
        return PADDED
    config, batch = backbone.config, synthetic_batch(backbone)
    previous = config._attn_implementation
    with evaluating(backbone), torch.no_grad():
        expected = hidden_states(backbone, batch, ALONE)[0].float()
        if backbone._supports_attention_backend:
            backbone.set_attn_implementation(ATTENTION)
            for first_position in (0, (config.pad_token_id or 0) + 1):
                route = Route(ragged=True, first_position=first_position)
                if _gives(backbone, batch, route, expected):
                    return route
            backbone.set_attn_implementation(previous)
        return PADDED if _gives(backbone, batch, PADDED, expected) else ALONE


def synthetic_batch(backbone: PreTrainedModel) -> RaggedBatch:
    """Three texts of different lengths, to try a backbone on: one is longer than its local attention window."""
    config = backbone.config
    window = getattr(config, "sliding_window", None) or 0
    positions = getattr(config, "max_position_embeddings", None) or 512
    longest = min(2 * window + 9, positions if positions > 0 else 512)
    padding = getattr(config, "pad_token_id", None)  # a static encoder has none
    usable = [token for token in range(min(64, config.vocab_size)) if token != padding]
    texts = [[usable[(7 * text + token) % len(usable)] for token in range(n)] for text, n in enumerate((3, 5, longest))]
    types = [[int(2 * token >= len(text)) for token in range(len(text))] for text in texts]
    return RaggedBatch.pack(texts, types=types if uses_token_types(backbone) else None, device=backbone.device)


def _gives(backbone: PreTrainedModel, batch: RaggedBatch, route: Route, expected: Float[Tensor, "tokens dim"]) -> bool:
    try:
        actual = hidden_states(backbone, batch, route)[0].float()
    except (TypeError, ValueError, IndexError, RuntimeError):  # the backbone rejects the arguments or the position ids
        return False
    tolerance = 1e-4 if backbone.dtype == torch.float32 else 5e-2
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max())


def bf16_runs(backbone: PreTrainedModel, route: Route) -> bool:
    """Whether the backbone computes under bfloat16 autocast; it is tried once, and a warning says if not.

    Some architectures mask by the smallest float32, which overflows in bfloat16 (DeBERTa), or mix types.
    """
    known: bool | None = getattr(backbone, "_bf16_runs", None)
    if known is None:
        with evaluating(backbone), torch.no_grad(), torch.autocast(backbone.device.type, dtype=torch.bfloat16):
            try:
                hidden_states(backbone, synthetic_batch(backbone), route)
                known = True
            except RuntimeError as error:
                known = False
                name = type(backbone).__name__
                warnings.warn(f"{name} does not run in bfloat16 ({reason(error)}); fp32 is used.", stacklevel=4)
        setattr(backbone, "_bf16_runs", known)  # noqa: B010  (an attribute of ours)
    return known


def ragged_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads tokens head_dim"],
    key: Float[Tensor, "1 key_heads tokens head_dim"],
    value: Float[Tensor, "1 key_heads tokens head_dim"],
    attention_mask: Tensor | None,  # noqa: ARG001  (``segments`` has the text boundaries)
    *,
    segments: RaggedBatch | TiledBatch,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Float[Tensor, "1 tokens heads head_dim"], None]:
    """Softmax attention within each text: the attention function that transformers calls, with its argument names.

    With ``sliding_window`` w, tokens attend only to tokens less than w away, as in ModernBERT's local layers. It is
    causal where the module says so, as those of decoders do, unless the config says otherwise.

    Raises:
        ValueError: of capped scores (Gemma 2) or of sinks (GPT-OSS).
    """
    if softcap is not None or s_aux is not None:
        raise ValueError("attention with capped scores or sinks needs padded batches")
    causal = attends_causally(module)
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotary positions make them float32 under autocast
    if (share := query.shape[1] // key.shape[1]) > 1:  # grouped queries
        key, value = (tensor.repeat_interleave(share, dim=1) for tensor in (key, value))
    dropout = dropout if module.training else 0.0
    if isinstance(segments, TiledBatch):
        scaling = query.shape[2] ** -0.5 if scaling is None else scaling
        mask = segments.mask(sliding_window, causal=causal)
        return attend_in_tiles(query, key, value, mask, scaling=scaling, dropout=dropout)[None], None
    how: dict[str, Any] = {"dropout": dropout, "scaling": scaling, "sliding_window": sliding_window, "causal": causal}
    return attend(query, key, value, segments.groups, **how)[None], None


AttentionInterface.register(ATTENTION, ragged_attention)
