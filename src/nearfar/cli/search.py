"""``nearfar search``: the nearest texts of a file, printed or written; without a query, it asks for queries."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nearfar.cli.parsing import ExtraOption, parse, report_interrupt
from nearfar.config.search import SearchConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.search.command import OpenedSearch
    from nearfar.commands.search.hits import Hit

QUERIES = ExtraOption("query", tuple[str, ...], "Texts to search for.", default=(), positional_name="QUERY ...")
PROMPT = "query (an empty line ends): "
STATES = {
    "unchanged": "up to date",
    "new": "made",
    "extended": "extended",
    "changed": "made again, because rows have changed",
}
"""What was done with the index, in words."""


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Search and print or write the hits; returns the exit status."""
    config, extra_values = parse(SearchConfig, argv, prog="nearfar search", extras=(QUERIES,))
    config.check_queries(extra_values["query"])
    given, asks = extra_values["query"], sys.stdin is not None and sys.stdin.isatty()
    if not given and config.queries is None and (not asks or config.output is not None):
        raise NearfarError("no query given: name one, or a file with --queries FILE. In a terminal, nearfar asks.")

    from rich.console import Console

    from nearfar.commands.search.command import check_output, gather_queries, open_search, search_all

    queries = gather_queries(given, config)
    check_output(config)
    console, notes = make_console(), Console(stderr=True, soft_wrap=True, emoji=False, highlight=False)
    try:
        opened = open_search(config, queries=queries, progress=True)
    except KeyboardInterrupt:
        return report_interrupt("; finished blocks are kept", notes, "search", argv, resume=config.resume)
    notes.print(_describe(opened), markup=False)
    if queries is None:
        _ask(opened, console)
        return 0
    if config.output is not None:
        found = sum(map(len, search_all(opened.searcher, queries, config)))
        notes.print(f"Wrote {found:,} hits of {len(queries):,} queries to {config.output}", markup=False)
        return 0
    _print_all(queries, search_all(opened.searcher, queries, config), opened, console)
    return 0


def _describe(opened: "OpenedSearch") -> str:
    """What was done with the index, in one line, and the recall of a search that is not exact in another."""
    update = opened.update
    line = f"Index {opened.folder}: {STATES[update.state]}; {update.rows:,} rows, {update.texts:,} distinct texts"
    if update.state != "unchanged":
        line += f", {update.encoded:,} encoded now"
    kind = "Quantized" if opened.quantized else "Approximate"
    return line + (f"\n{kind} search: {opened.recall}" if opened.recall else "")


def _ask(opened: "OpenedSearch", console: "Console") -> None:
    """Ask for queries until an empty line or the end of the input."""
    import importlib
    from contextlib import suppress

    from nearfar.data.sources import normalize_whitespace

    with suppress(ImportError):
        importlib.import_module("readline")  # input() then has line editing and a history
    while True:
        try:
            query = normalize_whitespace(input(PROMPT)).encode("utf-8", "replace").decode()
        except EOFError:
            console.print()
            return
        if not query:
            return
        console.print(_table(query, opened.searcher.search([query])[0], opened), soft_wrap=False)


def _print_all(queries: Sequence[str], found: "Any", opened: "OpenedSearch", console: "Console") -> None:
    """Print a table for each query; to a file or a pipe, the lines of a .tsv file."""
    from nearfar.commands.search.hits import format_hits, table_header

    columns = opened.searcher.columns
    if not console.is_terminal:
        console.file.write(table_header(columns))
    for query, hits in zip(queries, found, strict=True):
        if console.is_terminal:
            console.print(_table(query, hits, opened), soft_wrap=False)
        else:
            console.file.writelines(format_hits(query, hits, columns, json_lines=False))


def _table(query: str, hits: "Sequence[Hit]", opened: "OpenedSearch") -> "Any":
    """The hits of a query as a table; the number of equal rows is shown if it is above 1 for any hit."""
    from rich.table import Table
    from rich.text import Text

    from nearfar.commands.search.hits import show_value

    columns, counted = opened.searcher.columns, any(hit.count > 1 for hit in hits)
    table = Table(title=Text(query), title_justify="left")
    for name in ("", "score", "row", "text", *(["rows"] if counted else []), *map(show_value, columns)):
        numeric = name in ("", "score", "row", "rows") and name not in columns
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for hit in hits:
        cells = [str(hit.rank), f"{hit.score:.4f}", f"{hit.row:,}", hit.text, *([str(hit.count)] if counted else [])]
        table.add_row(*map(Text, cells), *(Text(show_value(hit.columns[name])) for name in columns))
    return table
