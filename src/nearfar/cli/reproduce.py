"""``nearfar reproduce``: tables and figures of the papers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.cli.study import DRY_RUN, print_written, stopped
from nearfar.config.study import SCALES, ReproduceConfig

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
    from nearfar.studies.papers import plan, reproduce

    if extra_values["dry_run"]:
        for name, planned in plan(extra_values["names"], config).items():
            console.print("\n".join([name, *planned.lines(), ""]), markup=False, highlight=False)
        return 0
    try:
        tables = reproduce(extra_values["names"], config, console=console)
    except KeyboardInterrupt:
        return stopped(console, ["reproduce", *argv])
    for name, table in tables.items():
        print_written(console, table, Path(config.output) / name)
    return 0


def _list(config: ReproduceConfig, console: "Console") -> None:
    from nearfar.studies.papers import PAPERS, list_tables

    papers = list_tables(config)
    width = max(len(one.name) for tables in papers.values() for one in tables)
    lines = [f"  {'name':<{width}}  cells", f"  {'':<{width}}  {'/'.join(SCALES)}"]
    for paper, tables in papers.items():
        lines += ["", PAPERS[paper]]
        for one in tables:
            cells = " / ".join(f"{one.cells[scale]:>3}" for scale in SCALES)
            lines.append(f"  {one.name:<{width}}  {cells:<15}  {one.title.partition(': ')[2]}")
            lines.append(f"  {'':<{width}}  {'':<15}  reads {', '.join(one.data)}")
            lines += [f"  {'':<{width}}  {'':<15}  missing: {missing}" for missing in one.missing]
    lines += ["", "nearfar reproduce NAME --dry-run lists the cells."]
    console.print("\n".join(lines), markup=False, highlight=False)
