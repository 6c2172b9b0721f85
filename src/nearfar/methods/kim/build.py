"""sg, sg-opt1, sg-opt2, sg-opt, bt and bt+sg-opt: from rows and settings to the method; frozen copy and drift."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor, nn

from nearfar.config.files import method_of
from nearfar.data.batching import TextBatches
from nearfar.data.named_sets import OWN, VOCABULARY
from nearfar.data.rows import TextData, load_sentences
from nearfar.data.triplets import load_tuples
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide, freeze_embeddings
from nearfar.encoder.vocabulary import vocabulary_texts
from nearfar.methods.build import BuildContext, BuiltMethod, initializer_range, require_data, text_facts
from nearfar.methods.kim import BtConfig, BtSgOptConfig, GuidedConfig, KimConfig, SgConfig
from nearfar.methods.kim.method import VARIANT_NAMES, DriftFn, TextPair, back_translation, self_guided
from nearfar.objectives import SelfGuidedVariant, matching_parameters, squared_distance
from nearfar.types import NearfarError

_VARIANTS: dict[str, SelfGuidedVariant] = {name: variant for variant, name in VARIANT_NAMES.items()} | {
    "bt+sg-opt": "opt3"
}


def read_sentences(config: SgConfig, own: Sequence[str] | None = None) -> TextData:
    """Read single sentences, or make them of the words of the model's vocabulary; ``own`` are those called ``own``."""
    generated: dict[str, Sequence[str]] = {}
    if VOCABULARY in config.data:
        generated[VOCABULARY] = vocabulary_texts(config.model)
    if own is not None:
        generated[OWN] = own
    return load_sentences(config.data, column=config.text_column, limit=config.limit, generated=generated)


def read_translations(config: BtConfig | BtSgOptConfig) -> TextData:
    """Read sentences and their back-translations."""
    columns = (config.sentence_column, config.translation_column)
    return load_tuples(require_data(config), columns=columns, limit=config.limit)


def build_back_translation(config: BtConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build bt."""
    encoder, batches = context.encoder.encoder, _batches(config, context, rows)
    drift = _drift(config, encoder, Guide(encoder.backbone, encoder.route))
    method = back_translation(
        config,
        context.encoder.embed,
        encoder.dim,
        batches,
        drift=drift,
        head_std=initializer_range(encoder.backbone),
    )
    return BuiltMethod(method, text_facts(rows))


def build_self_guided(config: GuidedConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build a method with a frozen copy that guides."""
    encoder, batches = context.encoder.encoder, _batches(config, context, rows)
    guide = _guide(config, encoder)
    drift = _drift(config, encoder, guide)
    guide.precompute_views(context.encoder.ids([row[-1] for row in rows.rows]))
    method = self_guided(
        config,
        context.encoder.embed,
        context.encoder.views(guide),
        encoder.dim,
        batches,
        drift=drift,
        variant=_VARIANTS[method_of(config)],
        head_std=initializer_range(encoder.backbone),
        views=f"{config.view_pooling} over tokens, layers {guide.layers[0]} to {guide.layers[1]}",
    )

    def count_tokens(items: Sequence[TextPair]) -> list[int]:
        return context.encoder.lengths([own for own, _ in items])

    return BuiltMethod(replace(method, count_tokens=count_tokens), text_facts(rows))


def _batches(config: KimConfig, context: BuildContext, rows: TextData) -> TextBatches:
    if config.lora_rank is not None and config.drift_weight:
        raise NearfarError(
            "--lora-rank: adapters do not change the encoder's weights, so there is no drift to regularise; "
            "set --drift-weight 0 with it."
        )
    return context.batches(config, rows)


def _guide(config: GuidedConfig, encoder: Encoder) -> Guide:
    """The frozen copy: the encoder as it is before training."""
    if encoder.dim != encoder.backbone.config.hidden_size:
        raise NearfarError(
            f"{config.model}: a Dense module makes its embeddings {encoder.dim} wide, its layers are "
            f"{encoder.backbone.config.hidden_size}; {method_of(config)} compares the two, so they "
            "must be equally wide."
        )
    return Guide(
        encoder.backbone,
        encoder.route,
        pooling=config.view_pooling,
        layers=_layers(config.views),
        dropout=config.guide_dropout,
        keep=config.keep_views,
    )


def _drift(config: KimConfig, encoder: Encoder, initial: Guide) -> DriftFn:
    """The squared distance of the trained weights from the initial ones; freezes what is not trained."""
    if config.freeze_embeddings:
        freeze_embeddings(encoder.backbone)

    if not config.drift_weight:
        return lambda: torch.zeros((), device=encoder.device)
    # Found once, with the first step, which is after the last change of what is trained.
    weights = cache(partial(trained_weights, encoder.backbone, initial.backbone))
    return lambda: squared_distance(*weights())


def trained_weights(backbone: nn.Module, initial: nn.Module) -> tuple[list[nn.Parameter], list[Tensor]]:
    """The weights of a backbone's children with trained weights, and the initial ones, from which they drift."""
    # Frozen modules have not moved, and half of a small encoder is its embedding layer.
    trained = [name for name, part in backbone.named_children() if _is_trained(part)]
    parts = [(backbone.get_submodule(name), initial.get_submodule(name)) for name in trained]
    found = [matching_parameters(*part) for part in parts]
    return [each for now, _ in found for each in now], [each for _, before in found for each in before]


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _layers(views: str) -> tuple[int, int] | None:
    if views == "all":
        return None
    layers = views.split("-")
    if len(layers) > 2 or not all(layer.isdecimal() for layer in layers):
        raise NearfarError(f"--views {views}: must be all, a layer such as 6, or a range such as 6-12.")
    return int(layers[0]), int(layers[-1])
