"""``nearfar predict``: the labels of a file of texts, from a fine-tuned classifier."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.verbs import PredictConfig

if TYPE_CHECKING:
    from rich.console import Console

MODEL = ExtraOption(
    "model",
    File,
    "Run folder of nearfar finetune, its model folder, or any sequence classifier of transformers.",
    positional_name="MODEL",
)


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write predicted labels and probabilities; returns the exit status."""
    config, extra_values = parse(PredictConfig, argv, prog="nearfar predict", extras=(MODEL,))

    from nearfar.commands.predict import predict

    rows = predict(extra_values["model"], config)
    make_console().print(f"Wrote predictions for {rows:,} rows to {config.output}", highlight=False, markup=False)
    return 0
