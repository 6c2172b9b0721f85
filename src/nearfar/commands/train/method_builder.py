"""From a method's settings and rows to the method: how rows are batched, what the encoder has to give."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nearfar.commands.train.training_data import Rows, fit_batch_size, has_default_batch_size
from nearfar.config import (
    METHODS,
    AugmentConfig,
    BtConfig,
    BtSgOptConfig,
    Cap,
    InfoNceConfig,
    RegressionConfig,
    SbertConfig,
    SclConfig,
    SgConfig,
    SimcseSupConfig,
    SimcseUnsupConfig,
    SupconTextConfig,
    TrainConfig,
    build,
    flag,
    load_toml,
    method_of,
    unknown_name_message,
)
from nearfar.data.batching import NliBatches, TextBatches
from nearfar.data.label_counts import label_summary
from nearfar.data.nli import NliData
from nearfar.data.rows import TextData
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide, freeze_embeddings
from nearfar.encoder.heads import MaskedLmHead
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods import Method, kim, liao, masked_lm, regression, simcse, supcon_text
from nearfar.objectives import SelfGuidedVariant, parameter_drift
from nearfar.types import NearfarError

SHARED_SETTINGS = {field.name for field in fields(TrainConfig)} - {"batch_size", "limit"}
"""Settings that a second objective shares with the first."""


class BuiltMethod(NamedTuple):
    """A method, ready to train."""

    method: Method
    facts: list[str]
    """Where the rows come from and how many there are, in words."""
    extra_losses: tuple[tuple[Method, float], ...] = ()
    """What else is trained on the same batches, and its weight."""


@dataclass(frozen=True)
class BuildContext:
    """What every built needs beside its own settings."""

    encoder: TrainingEncoder
    batch_size: int
    """Rows in a batch, of all processes together."""
    may_shrink_batch: bool = False
    """Whether the batch size may become that of the rows, where they are fewer."""

    def batches(
        self, config: TrainConfig, loaded: TextData, *, balanced: bool = False, min_batch_size: int = 2
    ) -> TextBatches:
        """Read the texts, and batch their rows."""
        self.encoder.read(loaded.rows)
        targets = loaded.targets
        return TextBatches(
            loaded.rows, self.batch_size, config.seed, targets, balanced=balanced, min_batch_size=min_batch_size
        )


def second_objective_config(config: TrainConfig) -> TrainConfig | None:
    """The settings of the second objective that ``config`` asks for, or None.

    Its own file may set the method, its data and what that method adds; what belongs to the run (model, epochs,
    learning rate, ...) is the first's, and the batch size too unless the file has one.

    Raises:
        NearfarError: no such method or file, or a key that belongs to the run.
    """
    if config.second is None:
        return None
    if config.second.endswith(".toml"):
        named, values = load_toml(config.second)
        if not issubclass(named, TrainConfig):
            raise NearfarError(f"--second {config.second}: is fine-tuning, which goes by itself: nearfar finetune.")
        kind = named
    elif config.second in METHODS:
        kind, values = METHODS[config.second], {}
    else:
        raise NearfarError(f"--second: {unknown_name_message(config.second, METHODS, what='method')}")
    for key in values:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    shared = {name: getattr(config, name) for name in ("output", "seed", "lora_rank", "batch_size", "limit")}
    return build(kind, {**shared, **values}, source=config.second)


def may_shrink_batch(config: TrainConfig, second: TrainConfig | None = None) -> bool:
    """Whether batches, of the ``second`` objective where there is one, shrink to few rows: no size was asked for."""
    if second is None:
        return has_default_batch_size(config)
    return has_default_batch_size(second) or (second.batch_size == config.batch_size and has_default_batch_size(config))


def build_method(config: TrainConfig, context: BuildContext, rows: Rows) -> BuiltMethod:
    """Build the method on its rows (:func:`nearfar.commands.train.training_data.read_rows`).

    Raises:
        NearfarError: whatever is wrong with rows or settings, before anything is trained.
    """
    size, fitted = fit_batch_size(config, rows, context.batch_size, may_shrink_batch=context.may_shrink_batch)
    built = _build_method(config, replace(context, batch_size=size), rows)
    built = built._replace(facts=[*built.facts, *fitted])
    if built.method.count_tokens is not None:
        return built
    return built._replace(method=replace(built.method, count_tokens=context.encoder.lengths))  # its items are texts


def _build_method(config: TrainConfig, context: BuildContext, rows: Rows) -> BuiltMethod:
    match config, rows:
        case SbertConfig(), NliData():
            return _nli(config, context, rows)
        case SimcseUnsupConfig() | SimcseSupConfig(), TextData():
            return _simcse(config, context, rows)
        case BtSgOptConfig() | BtConfig() | SgConfig(), TextData():
            return _kim(config, context, rows)
        case InfoNceConfig(), TextData():
            return _info_nce(config, context, rows)
        case SupconTextConfig(), TextData():
            return _supcon_text(config, context, rows)
        case RegressionConfig(), TextData():
            return _regression(config, context, rows)
    raise NearfarError(f"{type(config).__name__} names no method for these rows.")


def _nli(config: SbertConfig, context: BuildContext, data: NliData) -> BuiltMethod:
    rows = data.rows[: config.limit]
    context.encoder.read([row[:2] for row in rows])
    batches = NliBatches(rows, context.batch_size, config.seed, config.order)
    if len({row[:2] for row in rows}) == 1:
        raise NearfarError(
            f"all {len(rows)} rows have the same premise and hypothesis, {rows[0].premise!r} and "
            f"{rows[0].hypothesis!r}, so there is nothing to tell apart; bring rows of other texts too"
        )
    embed, dim = context.encoder.embed, context.encoder.encoder.dim
    match config:
        case SclConfig():
            margin = config.false_negative_margin
            if margin is not None and not 0 <= margin < math.inf:
                raise NearfarError(f"--false-negative-margin must be 0 or more, not {margin}")
            method = liao.scl(
                embed,
                dim,
                batches,
                head_layers=config.head_layers,
                scl_weight=config.scl_weight,
                temperature=config.temperature,
                similarity=config.similarity,
                hard_negatives=config.hard_negatives,
                max_positives=_cap(config.max_positives),
                max_negatives=_cap(config.max_negatives),
                false_negative_margin=margin,
            )
        case AugmentConfig():
            method = liao.augment(
                embed,
                dim,
                batches,
                head_layers=config.head_layers,
                max_positives=_cap(config.max_positives),
                max_negatives=_cap(config.max_negatives),
            )
        case _:
            method = liao.sbert(embed, dim, batches, head_layers=config.head_layers)
    counts = ", ".join(f"{count:,} {label}" for label, count in data.counts.items())
    facts = [*data.sources, f"{len(data.rows):,} rows: {counts}", f"{len(batches.premises):,} premises"]
    if config.limit is not None and config.limit < len(data.rows):
        facts.append(f"the first {config.limit:,} rows are used")
    if data.repaired:
        facts.append(f"{data.repaired} fields had control characters or irregular white space, now single spaces")
    if batches.oversized:
        facts.append(f"{batches.oversized} premises have more rows than a batch, and make batches of their own")
    return BuiltMethod(method, facts)


def _simcse(config: SimcseUnsupConfig | SimcseSupConfig, context: BuildContext, loaded: TextData) -> BuiltMethod:
    encoder = context.encoder.encoder
    if config.mlp == "kept":
        encoder.add_dense()
    train_only = config.mlp == "train_only"
    batches = context.batches(config, loaded)
    if isinstance(config, SimcseSupConfig):
        method = simcse.contrastive_method(
            "simcse-sup",
            context.encoder.embed,
            encoder.dim,
            batches,
            temperature=config.temperature,
            hard_negative_weight=config.hard_negative_weight,
            mlp=train_only,
            false_negative_margin=config.false_negative_margin,
        )
    else:
        method = simcse.unsupervised(
            context.encoder.embed,
            encoder.dim,
            batches,
            temperature=config.temperature,
            mlp=train_only,
            false_negative_margin=config.false_negative_margin,
        )
    if not config.mlm_weight:
        return BuiltMethod(method, _facts(loaded))
    return BuiltMethod(method, _facts(loaded), ((_masked_lm(config, context, batches), config.mlm_weight),))


def _masked_lm(config: SimcseUnsupConfig | SimcseSupConfig, context: BuildContext, batches: TextBatches) -> Method:
    encoder = context.encoder.encoder
    words = encoder.backbone.get_input_embeddings()
    assert isinstance(words, nn.Embedding)
    mask = encoder.tokenizer.mask_token_id
    if mask is None:
        raise NearfarError("--mlm-weight: this encoder's tokenizer has no mask token.")
    return masked_lm.masked_language_model(
        context.encoder.ids,
        context.encoder.hidden,
        MaskedLmHead(
            encoder.backbone.config.hidden_size, words, std=getattr(encoder.backbone.config, "initializer_range", 0.02)
        ),
        batches,
        mask_token=mask,
        vocabulary=words.num_embeddings,
        special=encoder.tokenizer.all_special_ids,
        probability=config.mlm_probability,
    )


def _kim(config: SgConfig | BtSgOptConfig | BtConfig, context: BuildContext, loaded: TextData) -> BuiltMethod:
    encoder = context.encoder.encoder
    if config.lora_rank is not None and config.drift_weight:
        raise NearfarError(
            "--lora-rank: adapters leave the weights where they are, so there is no drift to regularise; "
            "set --drift-weight 0 with it."
        )
    batches = context.batches(config, loaded)
    guide = _guide(config, encoder)
    if config.freeze_embeddings:
        freeze_embeddings(encoder.backbone)

    def drift() -> Tensor:
        if not config.drift_weight:
            return torch.zeros((), device=encoder.device)
        # What is frozen is where it was, and half of a small encoder is its embedding layer.
        trained = [name for name, part in encoder.backbone.named_children() if _is_trained(part)]
        parts = [(encoder.backbone.get_submodule(name), guide.backbone.get_submodule(name)) for name in trained]
        return torch.stack([parameter_drift(*part) for part in parts]).sum()

    std = getattr(encoder.backbone.config, "initializer_range", 0.02)
    if isinstance(config, BtConfig):
        method = kim.back_translation(
            context.encoder.embed,
            encoder.dim,
            batches,
            drift=drift,
            temperature=config.temperature,
            drift_weight=config.drift_weight,
            width=config.projection,
            head_std=std,
            false_negative_margin=config.false_negative_margin,
        )
        return BuiltMethod(method, _facts(loaded))
    guide.precompute_views(context.encoder.ids([row[-1] for row in loaded.rows]))
    method = kim.self_guided(
        context.encoder.embed,
        context.encoder.views(guide),
        drift,
        encoder.dim,
        batches,
        variant=_VARIANTS[method_of(config)],
        temperature=config.temperature,
        drift_weight=config.drift_weight,
        width=config.projection,
        head_std=std,
        false_negative_margin=config.false_negative_margin,
        views=f"{config.view_pooling} over tokens, layers {guide.layers[0]} to {guide.layers[1]}",
    )

    def count_tokens(items: Sequence[kim.TextPair]) -> list[int]:
        return context.encoder.lengths([own for own, _ in items])

    return BuiltMethod(replace(method, count_tokens=count_tokens), _facts(loaded))


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _guide(config: SgConfig | BtSgOptConfig | BtConfig, encoder: Encoder) -> Guide:
    """The frozen copy, as the encoder is before training: of views, or for ``bt`` of weights alone."""
    if isinstance(config, BtConfig):
        return Guide(encoder.backbone, encoder.route)
    if encoder.dim != encoder.backbone.config.hidden_size:
        raise NearfarError(
            f"{config.model}: a Dense module makes its embeddings {encoder.dim} wide, its layers are "
            f"{encoder.backbone.config.hidden_size}; {method_of(config)} compares the two, so they must be alike."
        )
    return Guide(
        encoder.backbone,
        encoder.route,
        pooling=config.view_pooling,
        layers=_layers(config.views),
        dropout=config.guide_dropout,
        keep=config.keep_views,
    )


_VARIANTS: dict[str, SelfGuidedVariant] = {name: variant for variant, name in kim.VARIANT_NAMES.items()} | {
    "bt+sg-opt": "opt3"
}


def _layers(views: str) -> tuple[int, int] | None:
    if views == "all":
        return None
    layers = views.split("-")
    if len(layers) > 2 or not all(layer.isdecimal() for layer in layers):
        raise NearfarError(f"--views {views}: take all, a layer such as 6, or a range such as 6-12.")
    return int(layers[0]), int(layers[-1])


def _info_nce(config: InfoNceConfig, context: BuildContext, loaded: TextData) -> BuiltMethod:
    method = simcse.contrastive_method(
        "info-nce",
        context.encoder.embed,
        context.encoder.encoder.dim,
        context.batches(config, loaded),
        temperature=config.temperature,
        similarity=config.similarity,
        hard_negative_weight=config.hard_negative_weight,
        false_negative_margin=config.false_negative_margin,
    )
    return BuiltMethod(method, _facts(loaded))


def _supcon_text(config: SupconTextConfig, context: BuildContext, loaded: TextData) -> BuiltMethod:
    method = supcon_text.supcon_text(
        context.encoder.embed,
        context.encoder.encoder.dim,
        context.batches(config, loaded, balanced=True),
        temperature=config.temperature,
        label_names=loaded.label_names,
    )
    counts = Counter(loaded.targets or ())
    labels = label_summary({name: counts[number] for number, name in enumerate(loaded.label_names)})
    return BuiltMethod(method, [*_facts(loaded), *labels])


def _regression(config: RegressionConfig, context: BuildContext, loaded: TextData) -> BuiltMethod:
    method = regression.regression(
        context.encoder.embed,
        context.encoder.encoder.dim,
        context.batches(config, loaded, min_batch_size=1),
        head=config.head,
    )
    return BuiltMethod(method, _facts(loaded))


def _facts(loaded: TextData) -> list[str]:
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows"]
    if loaded.dropped:
        facts.append(f"{loaded.dropped:,} rows were left out: repeated, or saying nothing")
    if loaded.repaired:
        facts.append(f"{loaded.repaired} fields had control characters or irregular white space, now single spaces")
    return facts


def _cap(cap: Cap) -> int | None:
    return None if cap == "all" else cap
