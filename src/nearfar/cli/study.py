"""``nearfar study``: runs a table described by a file, plans it, or writes its page again."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.study import StudyConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.evaluation.results import StudyTable

PROG = "nearfar study FILE.toml"
DRY_RUN = ExtraOption(
    "dry_run",
    bool,
    "Do not run anything. List the cells, what is finished, and data that are missing and how to get them.",
    False,
)


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Run a study, or only plan it (--dry-run), or write its page again (--report); returns the exit status."""
    if argv[:1] == ["--report"]:
        return _report(argv[1:], make_console())
    extras = (
        ExtraOption("file", File | None, "The study, a TOML file.", None, positional_name="FILE.toml"),
        DRY_RUN,
        ExtraOption(
            "report",
            File | None,
            "Alone: write page.md, table.csv, table.tex and the plots of this folder again, from its study.json.",
            None,
        ),
    )
    config, extra_values = parse(StudyConfig, argv, prog="nearfar study", extras=extras)
    if extra_values["report"] is not None:
        raise NearfarError("--report FOLDER stands alone: nearfar study --report FOLDER")
    if extra_values["file"] is None:
        raise NearfarError("no study given: nearfar study FILE.toml --output FOLDER")
    return run(extra_values["file"], config, make_console(), dry=extra_values["dry_run"], argv=["study", *argv])


def run(file: str, config: StudyConfig, console: "Console", *, dry: bool, argv: list[str]) -> int:
    """Plan or run a study file; ``argv`` is the command, which is printed after Ctrl-C."""
    if dry:
        from nearfar.studies.run import dry_run

        planned = dry_run(file, config)
        console.print("\n".join(planned.lines()), markup=False, highlight=False)
        return 0
    from nearfar.studies.run import study

    try:
        table = study(file, config, console=console)
    except KeyboardInterrupt:
        return stopped(console, argv)
    print_written(console, table, Path(config.output))
    return 0


def stopped(console: "Console", argv: list[str]) -> int:
    """Print, after Ctrl-C, the command that goes on; returns the exit status."""
    again = shlex.join(["nearfar", *argv])
    console.print(f"\nStopped; the same command goes on:\n  {again}", markup=False, highlight=False)
    return 130


def print_written(console: "Console", table: "StudyTable", folder: Path) -> None:
    """Print where the models and the page of a table are, and how many of its cells have no result."""
    from nearfar.studies.collect import model_lines

    for line in model_lines(folder):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    note = f" {len(table.missing)} cells have no result; the page lists them." if table.missing else ""
    console.print(f"The table is in {folder / 'page.md'}.{note}", markup=False, highlight=False)


def _report(argv: list[str], console: "Console") -> int:
    if len(argv) != 1 or argv[0].startswith("-"):
        raise NearfarError("nearfar study --report FOLDER takes one folder, and no other flags.")
    from nearfar.evaluation.results import StudyTable
    from nearfar.studies.page import write_outputs

    folder = Path(argv[0])
    table = StudyTable.load(folder / "study.json")
    write_outputs(table, folder)
    print_written(console, table, folder)
    return 0
