"""``nearfar export``: a model as one graph for ONNX Runtime or OpenVINO."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.export import ExportConfig

if TYPE_CHECKING:
    from rich.console import Console

MODEL = ExtraOption(
    "model",
    File,
    "Encoder or classifier: a model folder, a run folder, or owner/name on the Hugging Face Hub.",
    positional_name="MODEL",
)


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Export a model and print how it compares with the original; returns the exit status."""
    config, extra_values = parse(ExportConfig, argv, prog="nearfar export", extras=(MODEL,))
    console = make_console()

    from nearfar.commands.export.command import export

    if console.is_terminal:
        with console.status("") as status:
            result = export(extra_values["model"], config, step=lambda what: status.update(f"{what} ..."))
    else:
        result = export(extra_values["model"], config)

    from nearfar.commands.export.comparison import comparison_table
    from nearfar.evaluation.render import to_rich

    console.print(f"{result.texts:,} texts; score: {result.metric} on {result.evaluated_on}", markup=False)
    console.print(to_rich(comparison_table(result.sides)))
    for problem in result.problems:
        console.print(f"Kept by --force, although {problem}.", markup=False, highlight=False)
    size = sum(result.files.values()) / 2**20
    console.print(f"Wrote {size:,.1f} MiB and an example (README.md) to {config.output}", markup=False, highlight=False)
    return 0
