"""nli-order: from NLI rows and settings to the method."""

from nearfar.data.batching import NliBatches
from nearfar.data.nli import NliData, load_nli
from nearfar.methods.build import BuildContext, BuiltMethod, nli_facts
from nearfar.methods.nli_order import NliOrderConfig
from nearfar.methods.nli_order.method import nli_order
from nearfar.methods.roles import Roles


def read_rows(config: NliOrderConfig) -> NliData:
    """Read the NLI rows."""
    return load_nli(
        config.data,
        premise_column=config.premise_column,
        hypothesis_column=config.hypothesis_column,
        label_column=config.label_column,
    )


def build_nli_order(config: NliOrderConfig, context: BuildContext, data: NliData) -> BuiltMethod:
    """Build nli-order."""
    roles, rows = Roles.of(context.encoder), data.rows[: config.limit]
    context.encoder.read(roles.rows([row[:2] for row in rows]))
    batches = NliBatches(rows, context.batch_size, config.seed, distinct_texts=config.distinct_texts)
    method = nli_order(config, context.encoder.embed, batches, roles)
    return BuiltMethod(method, nli_facts(data, batches))
