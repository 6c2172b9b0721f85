"""``nearfar evaluate``: scores of encoders, as tables and result files."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.verbs import EvaluateConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Score encoders one by one and print tables; returns the exit status."""
    extra = ExtraOption(
        "models",
        tuple[File, ...],
        "Model folders, run folders, owner/name on the Hugging Face Hub, or baselines "
        "(bow, glove:FILE, wk:MODEL, whitening:MODEL@TEXTS, flow:MODEL@TEXTS, use).",
        default=(),
        positional_name="MODEL ...",
    )
    config, extra_values = parse(EvaluateConfig, argv, prog="nearfar evaluate", extras=(extra,))
    models, console = extra_values["models"], make_console()
    if not models:
        raise NearfarError("no model given: nearfar evaluate MODEL [MODEL ...]")
    if config.output and len(models) > 1:
        raise NearfarError("--output is for the result of one model; evaluate the models one by one.")

    from nearfar.commands.evaluate.command import evaluate
    from nearfar.evaluation.render import to_rich
    from nearfar.evaluation.tables.evaluation import evaluation_tables

    for model in models:
        result = evaluate(model, config)
        tables = evaluation_tables(
            result, metrics=[config.metric], measure=config.measure, subsets=config.subsets, screen=True
        )
        for table in tables:
            console.print(to_rich(table), soft_wrap=False)
    return 0
