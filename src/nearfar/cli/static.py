"""``nearfar static``: a static encoder of any encoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.static import StaticConfig

if TYPE_CHECKING:
    from rich.console import Console

MODEL = ExtraOption("model", File, "Model folder, or owner/name on the Hugging Face Hub.", positional_name="MODEL")


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write a static encoder; returns the exit status."""
    config, extra_values = parse(StaticConfig, argv, prog="nearfar static", extras=(MODEL,))
    console = make_console()

    from nearfar.commands.static import static

    made = static(extra_values["model"], config)
    console.print(
        f"Wrote vectors of {made.tokens:,} tokens with {made.dim} dimensions to {made.folder}",
        highlight=False,
        markup=False,
    )
    return 0
