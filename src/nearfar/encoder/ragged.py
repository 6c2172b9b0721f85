"""Ragged batches: texts laid end to end without padding, and the attention that keeps them apart.

A batch is packed shortest text first, so that texts of one length lie next to each other. Attention then is one
dense call per length, on views, and no padding is ever computed. The function is registered with transformers, so
that an encoder of the hub runs unpadded without a model class of our own. Some backbones ignore it (and would mix up
the texts); therefore each backbone is tried on a few made-up tokens before it is trusted, and falls back to padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nearfar.encoder.attention import LengthGroup, attend
from nearfar.encoder.tokens import TokenRows
from nearfar.encoder.transformers_types import AttentionInterface, PreTrainedModel
from nearfar.types import NearfarError

ATTENTION = "nearfar_ragged"


@dataclass(frozen=True)
class RaggedBatch:
    """Texts of a batch, end to end, shortest first; ``order[i]`` is the caller's place of the i-th packed text.

    ``types`` are the token types, which tell the second text of a pair from the first; None leaves them to the
    backbone, which takes all tokens for the first's.
    """

    ids: Int[Tensor, " tokens"]
    lengths: tuple[int, ...]
    order: Int[Tensor, " batch"]
    types: Int[Tensor, " tokens"] | None = None

    @classmethod
    def pack(
        cls,
        token_ids: Sequence[Sequence[int]],
        *,
        types: Sequence[Sequence[int]] | None = None,
        device: torch.device | str = "cpu",
    ) -> "RaggedBatch":
        """Lay the texts' token ids end to end. The sort is stable: equal lengths keep the caller's order."""
        if types is None and isinstance(token_ids, TokenRows):
            return cls.gather(token_ids, device=device)
        order = sorted(range(len(token_ids)), key=lambda text: len(token_ids[text]))

        def end_to_end(rows: Sequence[Sequence[int]]) -> Int[Tensor, " tokens"]:
            return torch.tensor([token for text in order for token in rows[text]], dtype=torch.long).to(device)

        return cls(
            ids=end_to_end(token_ids),
            lengths=tuple(len(token_ids[text]) for text in order),
            order=torch.tensor(order, dtype=torch.long, device=device),
            types=None if types is None else end_to_end(types),
        )

    @classmethod
    def gather(cls, rows: TokenRows, *, device: torch.device | str = "cpu") -> "RaggedBatch":
        """What :meth:`pack` makes of the same ids, read from the store that holds them without a loop over tokens."""
        order = np.argsort(rows.lengths, kind="stable")
        starts, lengths = rows.starts[order], rows.lengths[order]
        begins = lengths.cumsum() - lengths  # of each text in the batch
        tokens = np.arange(lengths.sum()) + np.repeat(starts - begins, lengths)
        return cls(
            ids=torch.from_numpy(rows.flat[tokens].astype(np.int64)).to(device),
            lengths=tuple(lengths.tolist()),
            order=torch.from_numpy(order).to(device),
        )

    @cached_property
    def groups(self) -> list[LengthGroup]:
        """Runs of equal length, in packed order."""
        groups: list[LengthGroup] = []
        start = 0
        for length, run in groupby(self.lengths):
            groups.append(LengthGroup(start, len(list(run)), length))
            start += groups[-1].texts * length
        return groups

    def positions(self) -> Int[Tensor, " tokens"]:
        """Each token's place in its own text, from 0."""
        return torch.cat([torch.arange(group.length).repeat(group.texts) for group in self.groups]).to(self.ids.device)

    def restore_order(self, packed: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Rows in packed order -> rows in the caller's order."""
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(len(self.order), device=self.order.device)
        return packed[place]

    def restore_token_order(self, packed: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens dim"]:
        """Tokens of the texts in packed order -> of the texts in the caller's order, still end to end."""
        owner = torch.repeat_interleave(self.order, torch.tensor(self.lengths, device=self.order.device))
        return packed[owner.argsort(stable=True)]


class Route(NamedTuple):
    """How a backbone is run: ragged, with positions from ``first_position`` on, or padded."""

    ragged: bool
    first_position: int = 0


def hidden_states(
    backbone: PreTrainedModel, batch: RaggedBatch, route: Route, *, all_layers: bool = False
) -> list[Float[Tensor, "tokens dim"]]:
    """Hidden states of every real token: the last layer's, or (``all_layers``) all, the embedding layer first."""
    arguments, real = _arguments(backbone, batch, route)
    output = backbone(**arguments, output_hidden_states=all_layers)
    layers = output.hidden_states if all_layers else (output.last_hidden_state,)
    return [layer[real] for layer in layers]


def visit_hidden_states(
    backbone: PreTrainedModel, batch: RaggedBatch, route: Route, visit: Callable[[int, Tensor], None]
) -> None:
    """Call ``visit(layer, states)``, states being [tokens, dim], on what :func:`hidden_states` gives for all layers.

    Each layer's come as soon as they are computed, the embedding layer's (0) first, so that one layer's states are
    alive at a time unless ``visit`` keeps them. Read where a transformer layer takes them in, the last ones where the
    backbone hands them out, which is behind ModernBERT's final norm.

    Raises:
        NearfarError: the backbone keeps no list of its layers.
    """
    arguments, real = _arguments(backbone, batch, route)

    def capture_input(number: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        visit(number, (args[0] if args else kwargs["hidden_states"])[real])

    layers = transformer_layers(backbone)
    hooks = [
        layer.register_forward_pre_hook(partial(capture_input, number), with_kwargs=True)
        for number, layer in enumerate(layers)
    ]
    try:
        last = backbone(**arguments, output_hidden_states=False).last_hidden_state
    finally:
        for hook in hooks:
            hook.remove()
    visit(len(layers), last[real])


def transformer_layers(backbone: PreTrainedModel) -> nn.ModuleList:
    """The backbone's transformer layers, first to last, whatever its architecture calls them.

    Raises:
        NearfarError: it keeps no list of as many layers as its config says.
    """
    count = backbone.config.num_hidden_layers
    for module in backbone.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise NearfarError(f"{type(backbone).__name__} keeps no list of its {count} layers, so they cannot be reached.")


def _arguments(backbone: PreTrainedModel, batch: RaggedBatch, route: Route) -> tuple[dict[str, Any], Any]:
    """What to call the backbone with, and the index that takes the real tokens, end to end, out of its states."""
    if route.ragged:
        positions = batch.positions()[None] + route.first_position
        arguments: dict[str, Any] = {"input_ids": batch.ids[None], "position_ids": positions, "segments": batch}
        if batch.types is not None:
            arguments["token_type_ids"] = batch.types[None]
        return arguments, 0
    ids = _padded(batch.ids, batch.lengths, backbone.config.pad_token_id or 0)
    real = torch.arange(ids.shape[1], device=ids.device) < torch.tensor(batch.lengths, device=ids.device)[:, None]
    arguments = {"input_ids": ids, "attention_mask": real.long()}
    if batch.types is not None:
        arguments["token_type_ids"] = _padded(batch.types, batch.lengths, 0)
    return arguments, real


def _padded(tokens: Tensor, lengths: tuple[int, ...], padding: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(tokens.split(list(lengths))), batch_first=True, padding_value=padding)


def uses_token_types(backbone: PreTrainedModel) -> bool:
    """Whether the backbone tells the tokens of a pair's first text from those of its second."""
    several = (getattr(backbone.config, "type_vocab_size", None) or 0) > 1
    return several and "token_type_ids" in signature(backbone.forward).parameters


def choose_route(backbone: PreTrainedModel) -> Route:
    """Ragged where the backbone gives the padded vectors that way, else padded.

    Tried with positions from 0 and, as RoBERTa numbers them, from behind the padding id. The made-up texts are longer
    than a local attention window where the backbone has one, and pairs where it has token types. Draws no random
    numbers.
    """
    if not backbone._supports_attention_backend:
        return Route(ragged=False)
    config = backbone.config
    window = getattr(config, "sliding_window", None) or 0
    longest = min(2 * window + 9, getattr(config, "max_position_embeddings", None) or 512)
    usable = [token for token in range(min(64, config.vocab_size)) if token != config.pad_token_id]
    texts = [[usable[(7 * text + token) % len(usable)] for token in range(n)] for text, n in enumerate((3, 5, longest))]
    types = [[int(2 * token >= len(text)) for token in range(len(text))] for text in texts]
    batch = RaggedBatch.pack(texts, types=types if uses_token_types(backbone) else None, device=backbone.device)
    was_training, previous = backbone.training, config._attn_implementation
    backbone.eval()
    with torch.no_grad():
        expected = hidden_states(backbone, batch, Route(ragged=False))[0].float()
        backbone.set_attn_implementation(ATTENTION)
        for first_position in (0, (config.pad_token_id or 0) + 1):
            route = Route(ragged=True, first_position=first_position)
            if _matches_padded(backbone, batch, route, expected):
                backbone.train(was_training)
                return route
    backbone.set_attn_implementation(previous)
    backbone.train(was_training)
    return Route(ragged=False)


def _matches_padded(
    backbone: PreTrainedModel, batch: RaggedBatch, route: Route, expected: Float[Tensor, "tokens dim"]
) -> bool:
    try:
        found = hidden_states(backbone, batch, route)[0].float()
    except (TypeError, ValueError, IndexError, RuntimeError):  # refuses the arguments or the positions
        return False
    tolerance = 1e-4 if backbone.dtype == torch.float32 else 5e-2
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())


def ragged_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads tokens head_dim"],
    key: Float[Tensor, "1 heads tokens head_dim"],
    value: Float[Tensor, "1 heads tokens head_dim"],
    attention_mask: Tensor | None,  # noqa: ARG001  (segments say it all)
    *,
    segments: RaggedBatch,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[Float[Tensor, "1 tokens heads head_dim"], None]:
    """Softmax attention inside each text: the attention function that transformers calls (its interface's names).

    ``sliding_window`` w lets a token see those less than w away, as ModernBERT's local layers need.
    """
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    mixed = attend(
        query,
        key,
        value,
        segments.groups,
        dropout=dropout if module.training else 0.0,
        scaling=scaling,
        sliding_window=sliding_window,
    )
    return mixed[None], None


AttentionInterface.register(ATTENTION, ragged_attention)
