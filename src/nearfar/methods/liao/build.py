"""sbert, scl and augment: from NLI rows and settings to the method."""

from nearfar.data.batching import NliBatches
from nearfar.data.nli import NliData, load_nli
from nearfar.methods.build import BuildContext, BuiltMethod, nli_facts
from nearfar.methods.liao import AugmentConfig, SbertConfig, SclConfig
from nearfar.methods.liao.method import augment, sbert, scl
from nearfar.methods.roles import Roles
from nearfar.types import NearfarError


def read_rows(config: SbertConfig) -> NliData:
    """Read the NLI rows."""
    return load_nli(
        config.data,
        premise_column=config.premise_column,
        hypothesis_column=config.hypothesis_column,
        label_column=config.label_column,
    )


def build_sbert(config: SbertConfig, context: BuildContext, data: NliData) -> BuiltMethod:
    """Build sbert."""
    roles, batches = Roles.of(context.encoder), _batches(config, context, data)
    method = sbert(config, context.encoder.embed, context.encoder.encoder.dim, batches, roles)
    return BuiltMethod(method, nli_facts(data, batches))


def build_scl(config: SclConfig, context: BuildContext, data: NliData) -> BuiltMethod:
    """Build scl."""
    roles, batches = Roles.of(context.encoder), _batches(config, context, data)
    method = scl(config, context.encoder.embed, context.encoder.encoder.dim, batches, roles)
    return BuiltMethod(method, nli_facts(data, batches))


def build_augment(config: AugmentConfig, context: BuildContext, data: NliData) -> BuiltMethod:
    """Build augment."""
    roles, batches = Roles.of(context.encoder), _batches(config, context, data)
    method = augment(config, context.encoder.embed, context.encoder.encoder.dim, batches, roles)
    return BuiltMethod(method, nli_facts(data, batches))


def _batches(config: SbertConfig, context: BuildContext, data: NliData) -> NliBatches:
    rows = data.rows[: config.limit]
    context.encoder.read(Roles.of(context.encoder).rows([row[:2] for row in rows]))
    batches = NliBatches(rows, context.batch_size, config.seed, config.order)
    if len({row[:2] for row in rows}) == 1:
        raise NearfarError(
            f"all {len(rows)} rows have the same premise and hypothesis, {rows[0].premise!r} and "
            f"{rows[0].hypothesis!r}, so there is nothing to tell apart; add rows of other texts"
        )
    return batches
