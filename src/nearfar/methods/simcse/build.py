"""simcse-unsup, simcse-sup and info-nce: from rows and settings to the method."""

from collections.abc import Callable, Sequence

from torch import nn

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.data.rows import TextData, load_sentences
from nearfar.data.triplets import load_triplets, load_tuples
from nearfar.encoder.heads import MaskedLmHead
from nearfar.encoder.training_encoder import TrainingText
from nearfar.methods.base import Method
from nearfar.methods.build import BuildContext, BuiltMethod, initializer_range, require_data, text_facts
from nearfar.methods.roles import Roles
from nearfar.methods.simcse import InfoNceConfig, SimcseConfig, SimcseSupConfig, SimcseUnsupConfig
from nearfar.methods.simcse.masked_lm import masked_language_model
from nearfar.methods.simcse.method import contrastive_method, unsupervised
from nearfar.types import NearfarError


def read_sentences(config: SimcseUnsupConfig) -> TextData:
    """Read single sentences."""
    return load_sentences(config.data, column=config.text_column, limit=config.limit)


def read_triplets(config: SimcseSupConfig) -> TextData:
    """Read triplets, or build them from NLI rows."""
    return load_triplets(config.data, limit=config.limit)


def read_pairs(config: InfoNceConfig) -> TextData:
    """Read pairs, or triplets where a column of negatives is named."""
    negative = (config.negative_column,) if config.negative_column else ()
    columns = (config.anchor_column, config.positive_column, *negative)
    return load_tuples(require_data(config), columns=columns, limit=config.limit)


def build_unsupervised(config: SimcseUnsupConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build simcse-unsup."""
    batches = _batches(config, context, rows)
    method = unsupervised(config, context.encoder.embed, context.encoder.encoder.dim, batches)
    return BuiltMethod(method, text_facts(rows), _extra_losses(config, context, batches))


def build_supervised(config: SimcseSupConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build simcse-sup."""
    roles = Roles.of(context.encoder)
    batches = _batches(config, context, rows, roles)
    method = contrastive_method(config, context.encoder.embed, context.encoder.encoder.dim, batches, roles)
    return BuiltMethod(method, text_facts(rows), _extra_losses(config, context, batches, method.extract_items))


def build_info_nce(config: InfoNceConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build info-nce."""
    roles = Roles.of(context.encoder)
    dim = context.encoder.encoder.dim
    batches = context.batches(config, rows, roles=roles, distinct_texts=config.distinct_texts)
    return BuiltMethod(contrastive_method(config, context.encoder.embed, dim, batches, roles), text_facts(rows))


def _batches(config: SimcseConfig, context: BuildContext, rows: TextData, roles: Roles | None = None) -> TextBatches:
    if config.mlp == "kept":
        context.encoder.encoder.add_dense()
    distinct = isinstance(config, SimcseSupConfig) and config.distinct_texts
    return context.batches(config, rows, roles=roles, distinct_texts=distinct)


def _extra_losses(
    config: SimcseConfig,
    context: BuildContext,
    batches: TextBatches,
    texts: Callable[[TextBatch], Sequence[TrainingText]] = lambda batch: batch.sentences,
) -> tuple[tuple[Method, float], ...]:
    """The masked-language-model loss on the ``texts`` of a batch, if it has a weight."""
    if not config.mlm_weight:
        return ()
    encoder = context.encoder.encoder
    words = encoder.backbone.get_input_embeddings()
    assert isinstance(words, nn.Embedding)
    mask = encoder.tokenizer.mask_token_id
    if mask is None:
        raise NearfarError("--mlm-weight: this encoder's tokenizer has no mask token.")
    method = masked_language_model(
        config,
        context.encoder.ids,
        context.encoder.hidden,
        MaskedLmHead(encoder.backbone.config.hidden_size, words, std=initializer_range(encoder.backbone)),
        batches,
        mask_token=mask,
        vocabulary=words.num_embeddings,
        special=encoder.tokenizer.all_special_ids,
        texts=texts,
    )
    return ((method, config.mlm_weight),)
