"""``nearfar report``: one page about runs and results."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.verbs import ReportConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write a report about runs and results; returns the exit status."""
    extra = ExtraOption(
        "what",
        tuple[File, ...],
        "Run folders, result files, folders of result files (the seeds of one setting), "
        "comparison files, geometry folders.",
        default=(),
        positional_name="RUN|RESULT ...",
    )
    config, extra_values = parse(ReportConfig, argv, prog="nearfar report", extras=(extra,))
    what, console = extra_values["what"], make_console()

    from nearfar.commands.report import report

    file = report(what, config)
    console.print(
        f"Wrote the report to {file} and, as Markdown, to {file.with_suffix('.md')}", highlight=False, markup=False
    )
    return 0
