"""From a method's settings and rows to the method: how rows are batched, what the encoder has to give."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nearfar.commands.train.reading import Rows, fit_batch, has_default_batch
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
    nearest,
)
from nearfar.data.batching import NliBatches, TextBatches
from nearfar.data.label_counts import label_facts
from nearfar.data.nli import NliData
from nearfar.data.rows import Texts
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide, freeze_embeddings
from nearfar.encoder.heads import MaskedLmHead
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods import Method, kim, liao, masked_lm, regression, simcse, supcon_text
from nearfar.objectives import SelfGuidedVariant, parameter_drift
from nearfar.types import NearfarError

OF_THE_RUN = {field.name for field in fields(TrainConfig)} - {"batch_size", "limit"}
"""Settings that a second objective shares with the first."""


class Recipe(NamedTuple):
    """A method, ready to train."""

    method: Method
    facts: list[str]
    """Where the rows come from and how many there are, in words."""
    beside: tuple[tuple[Method, float], ...] = ()
    """What else is trained on the same batches, and its weight."""


@dataclass(frozen=True)
class Kitchen:
    """What every recipe needs beside its own settings."""

    encoder: TrainingEncoder
    batch_size: int
    """Rows in a batch, of all processes together."""
    shrinks: bool = False
    """Whether the batch size may become that of the rows, where they are fewer."""

    def batches(self, config: TrainConfig, loaded: Texts, *, balanced: bool = False, smallest: int = 2) -> TextBatches:
        """Read the texts, and batch their rows."""
        self.encoder.read(loaded.rows)
        targets = loaded.targets
        return TextBatches(loaded.rows, self.batch_size, config.seed, targets, balanced=balanced, smallest=smallest)


def second_of(config: TrainConfig) -> TrainConfig | None:
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
        raise NearfarError(f"--second: {nearest(config.second, METHODS, what='method')}")
    for key in values:
        if key in OF_THE_RUN:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    shared = {name: getattr(config, name) for name in ("output", "seed", "lora_rank", "batch_size", "limit")}
    return build(kind, {**shared, **values}, source=config.second)


def shrinks(config: TrainConfig, second: TrainConfig | None = None) -> bool:
    """Whether batches, of the ``second`` objective where there is one, shrink to few rows: no size was asked for."""
    if second is None:
        return has_default_batch(config)
    return has_default_batch(second) or (second.batch_size == config.batch_size and has_default_batch(config))


def follow(config: TrainConfig, kitchen: Kitchen, rows: Rows) -> Recipe:
    """Build the method on its rows (:func:`nearfar.commands.train.reading.read_rows`).

    Raises:
        NearfarError: whatever is wrong with rows or settings, before anything is trained.
    """
    size, fitted = fit_batch(config, rows, kitchen.batch_size, shrinks=kitchen.shrinks)
    recipe = _recipe(config, replace(kitchen, batch_size=size), rows)
    recipe = recipe._replace(facts=[*recipe.facts, *fitted])
    if recipe.method.tokens_of is not None:
        return recipe
    return recipe._replace(method=replace(recipe.method, tokens_of=kitchen.encoder.lengths))  # its items are texts


def _recipe(config: TrainConfig, kitchen: Kitchen, rows: Rows) -> Recipe:
    match config, rows:
        case SbertConfig(), NliData():
            return _nli(config, kitchen, rows)
        case SimcseUnsupConfig() | SimcseSupConfig(), Texts():
            return _simcse(config, kitchen, rows)
        case BtSgOptConfig() | BtConfig() | SgConfig(), Texts():
            return _kim(config, kitchen, rows)
        case InfoNceConfig(), Texts():
            return _info_nce(config, kitchen, rows)
        case SupconTextConfig(), Texts():
            return _supcon_text(config, kitchen, rows)
        case RegressionConfig(), Texts():
            return _regression(config, kitchen, rows)
    raise NearfarError(f"{type(config).__name__} names no method for these rows.")


def _nli(config: SbertConfig, kitchen: Kitchen, data: NliData) -> Recipe:
    rows = data.rows[: config.limit]
    kitchen.encoder.read([row[:2] for row in rows])
    batches = NliBatches(rows, kitchen.batch_size, config.seed, config.order)
    if len({row[:2] for row in rows}) == 1:
        raise NearfarError(
            f"all {len(rows)} rows have the same premise and hypothesis, {rows[0].premise!r} and "
            f"{rows[0].hypothesis!r}, so there is nothing to tell apart; bring rows of other texts too"
        )
    embed, dim = kitchen.encoder.embed, kitchen.encoder.encoder.dim
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
    return Recipe(method, facts)


def _simcse(config: SimcseUnsupConfig | SimcseSupConfig, kitchen: Kitchen, loaded: Texts) -> Recipe:
    encoder = kitchen.encoder.encoder
    if config.mlp == "kept":
        encoder.add_dense()
    train_only = config.mlp == "train_only"
    batches = kitchen.batches(config, loaded)
    if isinstance(config, SimcseSupConfig):
        method = simcse.contrast(
            "simcse-sup",
            kitchen.encoder.embed,
            encoder.dim,
            batches,
            temperature=config.temperature,
            hard_negative_weight=config.hard_negative_weight,
            mlp=train_only,
            false_negative_margin=config.false_negative_margin,
        )
    else:
        method = simcse.unsupervised(
            kitchen.encoder.embed,
            encoder.dim,
            batches,
            temperature=config.temperature,
            mlp=train_only,
            false_negative_margin=config.false_negative_margin,
        )
    if not config.mlm_weight:
        return Recipe(method, _facts(loaded))
    return Recipe(method, _facts(loaded), ((_masked_lm(config, kitchen, batches), config.mlm_weight),))


def _masked_lm(config: SimcseUnsupConfig | SimcseSupConfig, kitchen: Kitchen, batches: TextBatches) -> Method:
    encoder = kitchen.encoder.encoder
    words = encoder.backbone.get_input_embeddings()
    assert isinstance(words, nn.Embedding)
    mask = encoder.tokenizer.mask_token_id
    if mask is None:
        raise NearfarError("--mlm-weight: this encoder's tokenizer has no mask token.")
    return masked_lm.masked_language_model(
        kitchen.encoder.ids,
        kitchen.encoder.hidden,
        MaskedLmHead(
            encoder.backbone.config.hidden_size, words, std=getattr(encoder.backbone.config, "initializer_range", 0.02)
        ),
        batches,
        mask_token=mask,
        vocabulary=words.num_embeddings,
        special=encoder.tokenizer.all_special_ids,
        probability=config.mlm_probability,
    )


def _kim(config: SgConfig | BtSgOptConfig | BtConfig, kitchen: Kitchen, loaded: Texts) -> Recipe:
    encoder = kitchen.encoder.encoder
    if config.lora_rank is not None and config.drift_weight:
        raise NearfarError(
            "--lora-rank: adapters leave the weights where they are, so there is no drift to regularise; "
            "set --drift-weight 0 with it."
        )
    batches = kitchen.batches(config, loaded)
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
            kitchen.encoder.embed,
            encoder.dim,
            batches,
            drift=drift,
            temperature=config.temperature,
            drift_weight=config.drift_weight,
            width=config.projection,
            head_std=std,
            false_negative_margin=config.false_negative_margin,
        )
        return Recipe(method, _facts(loaded))
    guide.remember(kitchen.encoder.ids([row[-1] for row in loaded.rows]))
    method = kim.self_guided(
        kitchen.encoder.embed,
        kitchen.encoder.views(guide),
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

    def tokens_of(items: Sequence[kim.Sides]) -> list[int]:
        return kitchen.encoder.lengths([own for own, _ in items])

    return Recipe(replace(method, tokens_of=tokens_of), _facts(loaded))


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


_VARIANTS: dict[str, SelfGuidedVariant] = {name: variant for variant, name in kim.NAMES.items()} | {"bt+sg-opt": "opt3"}


def _layers(views: str) -> tuple[int, int] | None:
    if views == "all":
        return None
    layers = views.split("-")
    if len(layers) > 2 or not all(layer.isdecimal() for layer in layers):
        raise NearfarError(f"--views {views}: take all, a layer such as 6, or a range such as 6-12.")
    return int(layers[0]), int(layers[-1])


def _info_nce(config: InfoNceConfig, kitchen: Kitchen, loaded: Texts) -> Recipe:
    method = simcse.contrast(
        "info-nce",
        kitchen.encoder.embed,
        kitchen.encoder.encoder.dim,
        kitchen.batches(config, loaded),
        temperature=config.temperature,
        similarity=config.similarity,
        hard_negative_weight=config.hard_negative_weight,
        false_negative_margin=config.false_negative_margin,
    )
    return Recipe(method, _facts(loaded))


def _supcon_text(config: SupconTextConfig, kitchen: Kitchen, loaded: Texts) -> Recipe:
    method = supcon_text.supcon_text(
        kitchen.encoder.embed,
        kitchen.encoder.encoder.dim,
        kitchen.batches(config, loaded, balanced=True),
        temperature=config.temperature,
        label_names=loaded.label_names,
    )
    counts = Counter(loaded.targets or ())
    labels = label_facts({name: counts[number] for number, name in enumerate(loaded.label_names)})
    return Recipe(method, [*_facts(loaded), *labels])


def _regression(config: RegressionConfig, kitchen: Kitchen, loaded: Texts) -> Recipe:
    method = regression.regression(
        kitchen.encoder.embed,
        kitchen.encoder.encoder.dim,
        kitchen.batches(config, loaded, smallest=1),
        head=config.head,
    )
    return Recipe(method, _facts(loaded))


def _facts(loaded: Texts) -> list[str]:
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows"]
    if loaded.dropped:
        facts.append(f"{loaded.dropped:,} rows were left out: repeated, or saying nothing")
    if loaded.repaired:
        facts.append(f"{loaded.repaired} fields had control characters or irregular white space, now single spaces")
    return facts


def _cap(cap: Cap) -> int | None:
    return None if cap == "all" else cap
