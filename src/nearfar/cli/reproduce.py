"""``nearfar reproduce``: tables and figures of the papers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.cli.study import DRY_RUN, print_written, stopped
from nearfar.config.reproduce import ReproduceConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Run tables, plan them (--dry-run), or list them; returns the exit status."""
    extras = (
        ExtraOption("names", tuple[str, ...], "Tables to reproduce; none: list all.", (), positional_name="NAME ..."),
        DRY_RUN,
    )
    config, extra_values = parse(ReproduceConfig, argv, prog="nearfar reproduce", extras=extras)
    console = make_console()
    if not extra_values["names"]:
        _list(config, console)
        return 0
    if extra_values["dry_run"]:
        from nearfar.commands.reproduce.command import plan

        for name, planned in plan(extra_values["names"], config).items():
            lines = [f"{name}", *planned.lines(workers=config.workers), ""]
            console.print("\n".join(lines), markup=False, highlight=False)
        return 0
    from nearfar.commands.reproduce.command import reproduce

    try:
        tables = reproduce(extra_values["names"], config, console=console)
    except KeyboardInterrupt:
        return stopped(console, ["reproduce", *argv])
    for name, table in tables.items():
        print_written(console, table, Path(config.output) / name)
    return 0


def _list(config: ReproduceConfig, console: "Console") -> None:
    from nearfar.commands.reproduce.catalog import PAPERS
    from nearfar.commands.reproduce.listing import describe, list_tables

    papers = list_tables(config)
    width = max(len(one.name) for tables in papers.values() for one in tables)
    lines = [f"  {'name':<{width}}  {'cells':<15}  {'time here':>9}", f"  {'':<{width}}  paper/here/tiny"]
    for paper, tables in papers.items():
        lines += ["", PAPERS[paper], *describe(tables, width=width)]
    lines += [
        "",
        "time here: about, for the scale here with one worker. nearfar reproduce NAME --dry-run lists the cells.",
    ]
    console.print("\n".join(lines), markup=False, highlight=False)
