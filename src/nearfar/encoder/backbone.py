"""Changes of a backbone before it is trained: fewer layers, learning rates by layer, frozen embeddings, less memory."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from nearfar.encoder.dropout import evaluating
from nearfar.encoder.pretrained import PreTrainedModel
from nearfar.encoder.ragged import ALONE, hidden_states, synthetic_batch, transformer_layers
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
        raise NearfarError(f"--keep-layers {given}: must be a number of layers such as 3, or layers such as 2,4,6.")
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
        raise NearfarError(f"--keep-layers {given}: this encoder has no layers.")
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
        first = ",".join(str(number) for number in range(1, max(2, len(kept)) + 1))
        problem = f"the layers of {type(backbone).__name__} differ by their place, so that these cannot be saved"
        raise NearfarError(f"--keep-layers {given}: {problem}; keep the first ones, as {first}.")
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
        batch = synthetic_batch(backbone)
        with evaluating(backbone):
            states, again = (hidden_states(model, batch, ALONE)[0] for model in (backbone, fresh))
    return bool(torch.allclose(states, again, rtol=1e-3, atol=1e-4))


def learning_rate_factors(backbone: PreTrainedModel, decay: float) -> dict[nn.Parameter, float]:
    """The factor of each parameter's learning rate: decay^(L - l) in layer l of L, and decay^L in the embeddings.

    Layers count from 1, the lowest, to L, so the top layer has the factor 1. So has everything above it, such as a
    pooler or a final norm. What comes before the first layer, and every table of embeddings (position biases of MPNet
    and DeBERTa too), has decay^L. This is the layer-wise decreasing learning rate of Sun et al. 2019 ("How to Fine-Tune
    BERT for Text Classification?"); the code of ELECTRA (Clark et al. 2020) has two more powers of the decay,
    decay^(L + 2 - l), between head and layers.

    Args:
        backbone: of an encoder or a classifier, with or without LoRA adapters.
        decay: in (0, 1]; 1 gives no factors, that is, the same rate for all.

    Raises:
        NearfarError: the backbone has no list of its layers, as ALBERT, whose layers share their weights.
    """
    if decay == 1:
        return {}
    try:
        layers = transformer_layers(backbone)
    except NearfarError as error:
        raise NearfarError(f"--layer-decay {decay:g}: {error} Leave the flag out.") from error
    count = len(layers)
    layer_of = {parameter: layer for layer, module in enumerate(layers, start=1) for parameter in module.parameters()}
    tables = {module.weight for module in backbone.modules() if isinstance(module, nn.Embedding)}
    factors: dict[nn.Parameter, float] = {}
    below = True
    for parameter in backbone.parameters():
        if parameter in layer_of:
            below = False
        top = 0 if below or parameter in tables else count
        factors[parameter] = decay ** (count - layer_of.get(parameter, top))
    return factors


def recompute_layers(backbone: PreTrainedModel) -> None:
    """Let training keep the input of each layer alone, and compute the layer again in the backward pass.

    This is gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). Dropout is the
    same both times, so gradients do not change.

    Raises:
        NearfarError: transformers cannot do this for the architecture.
    """
    if not getattr(backbone, "supports_gradient_checkpointing", False):
        problem = f"{type(backbone).__name__} cannot compute its layers again in the backward pass"
        raise NearfarError(f"--gradient-checkpointing: {problem}; leave the flag out, and use --micro-batch.")
    if hasattr(backbone, "activation_checkpointing_enable"):
        backbone.activation_checkpointing_enable()
    else:  # before transformers 5.24
        backbone.gradient_checkpointing_enable({"use_reentrant": False})


def freeze_embeddings(backbone: PreTrainedModel) -> None:
    """Freeze word and position embeddings and their LayerNorm (Kim et al. 2021, section 3).

    Raises:
        NearfarError: the backbone has no module called ``embeddings``.
    """
    embeddings = getattr(backbone, "embeddings", None)
    if not isinstance(embeddings, nn.Module):
        raise NearfarError(f"{type(backbone).__name__} has no embedding layer that nearfar knows how to freeze.")
    embeddings.requires_grad_(False)
