"""``nearfar compare``: tests of differences between models."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.verbs import CompareConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Test whether the first side is better than the others; returns the exit status."""
    extra = ExtraOption(
        "sides",
        tuple[File, ...],
        "Two or more: models, result files, or folders of result files (the seeds of one setting).",
        default=(),
        positional_name="SIDE ...",
    )
    config, extra_values = parse(CompareConfig, argv, prog="nearfar compare", extras=(extra,))
    sides, console = extra_values["sides"], make_console()
    if len(sides) < 2:
        raise NearfarError("two sides are needed: nearfar compare FIRST SECOND [MORE ...]")

    from nearfar.commands.compare import compare
    from nearfar.evaluation.render import to_rich
    from nearfar.evaluation.tables.comparison import comparison_tables

    console.print(to_rich(comparison_tables(compare(*sides, config=config))[0]), soft_wrap=False)
    return 0
