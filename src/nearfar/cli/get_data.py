"""``nearfar get-data``: downloads and converts public data sets, and lists the named sets."""

import shlex
from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.data import GetDataConfig

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.get_data.command import GetDataResult, SetStatus

WIDTH = 110


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Download, convert or list data sets; returns the exit status."""
    extra = ExtraOption(
        "names",
        tuple[str, ...],
        "Named sets, tasks, or the suites sts and transfer; with --source, the sets to convert (default: all).",
        default=(),
        positional_name="NAME ...",
    )
    config, values = parse(GetDataConfig, argv, prog="nearfar get-data", extras=(extra,))
    console = make_console()

    from nearfar.commands.get_data.command import get_data

    try:
        result = get_data(values["names"], config)
    except KeyboardInterrupt:
        again = shlex.join(["nearfar", "get-data", *argv])
        console.print(f"\nStopped; finished files are kept. Resume with:\n  {again}", markup=False, highlight=False)
        return 130
    lines = _list(result) if result.listed else _summary(result)
    console.print("\n".join(lines), markup=False, highlight=False)
    return 0


def _summary(result: "GetDataResult") -> Iterator[str]:
    for file in result.converted:
        dropped = "".join(f"; {count:,} rows {why} dropped" for why, count in file.dropped.items())
        yield f"{file.file}: {file.rows:,} rows{dropped}"
    if result.existing:
        yield f"{len(result.existing):,} files exist already; --overwrite makes them again."
    if result.missing:
        yield f"Not in the source: {', '.join(result.missing)}"
    for warning in result.warnings:
        yield f"warning: {warning}"
    yield f"Data folder: {result.folder} (set NEARFAR_DATA to it). Sources and checksums: sources.json."


def _list(result: "GetDataResult") -> Iterator[str]:
    yield f"Data folder: {result.folder or 'none; set NEARFAR_DATA'}"
    for one in result.listed:
        yield ""
        yield f"{one.name}: {one.place}"
        for name, text in _details(one):
            if text:
                yield from wrap(f"{name}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def _details(one: "SetStatus") -> Iterator[tuple[str, str]]:
    yield "rows", ", ".join(_rows(file.file, file.rows, file.published) for file in one.files)
    yield "hub", one.hub or ""
    yield "licence", one.licence
    yield "cite", one.cite
    yield "needed for", "; ".join(one.used_in)
    yield "get it", one.get if one.place != "local" else ""


def _rows(file: str, rows: int | None, published: int | None) -> str:
    name = file.rpartition("/")[2].removesuffix(".tsv")
    if rows is None:
        return f"{name} missing" + (f" ({published:,})" if published else "")
    return f"{name} {rows:,}" + (f" (published: {published:,})" if published not in (None, rows) else "")
