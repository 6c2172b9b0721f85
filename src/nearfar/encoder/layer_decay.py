"""Learning rates that fall from the top layer to the embeddings (``--layer-decay``)."""

from torch import nn

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.ragged import transformer_layers
from nearfar.encoder.transformers_types import PreTrainedModel
from nearfar.types import NearfarError


def learning_rate_factors(encoder: Encoder | PreTrainedModel, decay: float) -> dict[nn.Parameter, float]:
    """The factor of each parameter's learning rate: decay^(L - l) in layer l of L, and decay^L in the embeddings.

    Layers count from 1, the lowest, to L, so the top layer has the factor 1. So has everything above it: a pooler, a
    final norm, and the modules after the pooling of an :class:`nearfar.Encoder`. What comes before the first layer, and
    every table of embeddings (position biases of MPNet and DeBERTa too), has decay^L. This is the layer-wise
    decreasing learning rate of Sun et al. 2019 ("How to Fine-Tune BERT for Text Classification?"); the
    code of ELECTRA (Clark et al. 2020) has two more powers of the decay, decay^(L + 2 - l), between head and layers.

    Args:
        encoder: an encoder, or the backbone of a classifier, with or without LoRA adapters.
        decay: in (0, 1]; 1 gives no factors, that is, the same rate for all.

    Raises:
        NearfarError: the backbone has no list of its layers, as ALBERT, whose layers share their weights.
    """
    if decay == 1:
        return {}
    backbone = encoder.backbone if isinstance(encoder, Encoder) else encoder
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
