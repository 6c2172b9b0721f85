"""regression: from scored pairs and settings to the method."""

from nearfar.data.rows import TextData, load_scored
from nearfar.methods.build import BuildContext, BuiltMethod, text_facts
from nearfar.methods.regression import RegressionConfig
from nearfar.methods.regression.method import regression


def read_rows(config: RegressionConfig) -> TextData:
    """Read scored pairs."""
    columns = (config.first_column, config.second_column, config.score_column)
    return load_scored(config.data, columns=columns, limit=config.limit)


def build_regression(config: RegressionConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build regression."""
    batches = context.batches(config, rows, min_batch_size=1)
    method = regression(config, context.encoder.embed, context.encoder.encoder.dim, batches)
    return BuiltMethod(method, text_facts(rows))
