"""Makes a shallower encoder of some of an encoder's transformer layers."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from nearfar.encoder.ragged import RaggedBatch, Route, hidden_states, transformer_layers
from nearfar.encoder.transformers_types import PreTrainedModel
from nearfar.types import NearfarError


def parse_layers(given: str, *, layers: int) -> list[int]:
    """The layers to keep, counted from 1, of an encoder with ``layers`` transformer layers.

    ``given`` is a number of layers, which are then evenly spaced and end with the last, or their numbers.

    >>> parse_layers("3", layers=12), parse_layers("1,2,6", layers=12)
    ([4, 8, 12], [1, 2, 6])

    Raises:
        NearfarError: it is neither; a layer that the encoder does not have; numbers that do not ascend.
    """
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise NearfarError(
            f"--keep-layers {given}: must be a number of layers such as 3, or layers such as 2,4,6, counted from 1."
        )
    numbers = [int(part) for part in parts]
    if not all(1 <= number <= layers for number in numbers):
        raise NearfarError(f"--keep-layers {given}: this encoder has the layers 1 to {layers}.")
    if len(numbers) == 1:
        return [round(place * layers / numbers[0]) for place in range(1, numbers[0] + 1)]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise NearfarError(f"--keep-layers {given}: write each layer once, in ascending order.")
    return numbers


def keep_layers(backbone: PreTrainedModel, given: str) -> list[int]:
    """Remove all other transformer layers of ``backbone`` in place, and return the numbers of the kept ones.

    Embeddings and the modules after the last layer stay. ``given`` is as in :func:`parse_layers`.

    Raises:
        NearfarError: as :func:`parse_layers`; or the architecture has no list of layers, or layers that differ by their
            place, so that a model of the kept ones cannot be saved.
    """
    if not backbone.config.num_hidden_layers:
        raise NearfarError(f"--keep-layers {given}: a static encoder has no layers.")
    kept = parse_layers(given, layers=backbone.config.num_hidden_layers)
    stack = transformer_layers(backbone)
    if len(kept) == len(stack):
        return kept
    fewer = nn.ModuleList(stack[number - 1] for number in kept)
    for module in backbone.modules():
        for name, child in module.named_children():
            if child is stack:
                setattr(module, name, fewer)
    config, before = backbone.config, backbone.config.num_hidden_layers
    if isinstance(kinds := getattr(config, "layer_types", None), list) and len(kinds) == before:
        config.layer_types = [kinds[number - 1] for number in kept]
    config.num_hidden_layers = len(kept)
    if not _survives_saving(backbone):
        raise NearfarError(
            f"--keep-layers {given}: the layers of {type(backbone).__name__} differ by their place, so that a model of "
            "these layers cannot be saved; keep the first ones, such as "
            f"{','.join(str(number) for number in range(1, max(2, len(kept)) + 1))}, or choose another encoder."
        )
    return kept


def _survives_saving(backbone: PreTrainedModel) -> bool:
    """Whether a new backbone with the same config and weights gives the same hidden states. Keeps the random state."""
    weights = backbone.state_dict()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            fresh: Any = type(backbone)(backbone.config)
            if getattr(backbone, "pooler", None) is None and hasattr(fresh, "pooler"):
                fresh.pooler = None
            fresh.load_state_dict(weights)
        except (RuntimeError, ValueError, KeyError, IndexError):
            return False
        fresh.to(backbone.device, backbone.dtype).eval()
        first = (backbone.config.pad_token_id or 0) + 1
        length = 2 * (getattr(backbone.config, "sliding_window", None) or 0) + 9
        length = min(length, getattr(backbone.config, "max_position_embeddings", None) or 512)
        tokens = [first + number % max(1, backbone.config.vocab_size - first) for number in range(length)]
        batch = RaggedBatch.pack([tokens], device=backbone.device)
        was_training = backbone.training
        expected, found = (hidden_states(one.eval(), batch, Route(ragged=False))[0] for one in (backbone, fresh))
        backbone.train(was_training)
    return bool(torch.allclose(expected, found, rtol=1e-3, atol=1e-4))
