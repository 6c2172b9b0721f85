"""The verbs that use a model: encode, search, predict, export, push, threshold, dedup."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nearfar
from nearfar.cli.verbs import Call, short, verb
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.dedup import DedupResult
    from nearfar.commands.search import Hit, Search

PROMPT = "query (an empty line ends): "
BAR = 30
"""Characters of the longest bar of the histogram of ``dedup``."""


@verb()
def encode(call: Call, config: "nearfar.EncodeConfig", model: str) -> int | None:
    """Write the embeddings of a file of texts."""
    from nearfar.commands.encode import encode_parts
    from nearfar.commands.encode.run import can_be_continued

    try:
        result = encode_parts(model, config)
    except KeyboardInterrupt:
        if not can_be_continued(config):
            raise
        return call.interrupted("; finished parts are kept", resumed=config.resume)
    size = ""
    if config.quantize is not None:
        from nearfar.quantization import bytes_per_vector

        size = f" ({config.quantize}, {bytes_per_vector(result.dim, config.quantize)} bytes each)"
    where = f"to {config.output}"
    if config.sharded:
        share = f" (--shard {config.shard})" if config.shard is not None else ""
        state = "All parts are there." if result.complete else "Other parts of the folder are not finished yet."
        where = f"in {result.parts:,} {'part' if result.parts == 1 else 'parts'}{share} {where}. {state}"
    call.say(f"Wrote {result.rows:,} embeddings with {result.dim} dimensions{size} {where}")
    return None


@verb()
def search(call: Call, config: "nearfar.SearchConfig", query: tuple[str, ...]) -> int | None:
    """Search and print or write the hits; without a query, ask for queries in a terminal."""
    config.check_queries(query)
    asks = sys.stdin is not None and sys.stdin.isatty()
    if not query and config.queries is None and (not asks or config.output is not None):
        raise NearfarError("no query given: name one, or a file with --queries FILE. In a terminal, nearfar asks.")

    from rich.console import Console

    from nearfar.commands.search import gather_queries, open_search, search_all, write_hits

    queries = gather_queries(query, config)
    notes = Console(stderr=True, soft_wrap=True, emoji=False, highlight=False)
    try:
        opened = open_search(config, queries=queries, progress=True)
    except KeyboardInterrupt:
        return call.interrupted("; finished blocks are kept", resumed=True, console=notes)
    notes.print(_describe(opened), markup=False)
    if queries is None:
        _ask(opened, call.console)
        return None
    results = search_all(opened, queries)
    if config.output is not None:
        write_hits(Path(config.output), queries, results, opened.columns)
        notes.print(f"Wrote the hits of {len(queries):,} queries to {config.output}", markup=False)
    elif not call.console.is_terminal:
        write_hits(call.console.file, queries, results, opened.columns)
    else:
        for text, hits in zip(queries, results, strict=True):
            call.console.print(_table(text, hits, opened), soft_wrap=False)
    return None


def _describe(opened: "Search") -> str:
    """What was done with the index, the recall of a search that is not exact, and what the threshold's file says."""
    index, encoded, rows = opened.index, opened.encoded, "passages" if opened.config.chunk else "rows"
    done = "up to date" if encoded is None else f"made, {encoded:,} texts encoded now"
    line = f"Index {index.folder}: {done}; {len(index.rows):,} {rows}, {len(index.vectors):,} distinct texts"
    return "\n".join(filter(None, [line, opened.recall, str(opened.calibration or "")]))


def _ask(opened: "Search", console: "Console") -> None:
    """Ask for queries until an empty line or the end of the input."""
    import importlib
    from contextlib import suppress

    from nearfar.data.cells import normalize_whitespace

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
        console.print(_table(query, opened.hits([query])[0], opened), soft_wrap=False)


def _table(query: str, hits: "Sequence[Hit]", opened: "Search") -> "Any":
    """The hits of a query as a table; the number of equal rows is shown if it is above 1 for any hit."""
    from rich.table import Table
    from rich.text import Text

    from nearfar.commands.search import show_value

    columns, counted = opened.columns, any(hit.count > 1 for hit in hits)
    table = Table(title=Text(query), title_justify="left")
    for name in ("", "score", "row", "text", *(["rows"] if counted else []), *map(show_value, columns)):
        numeric = name in ("", "score", "row", "rows") and name not in columns
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    table.caption = None if hits or opened.threshold is None else "No hit reaches the threshold."
    for hit in hits:
        cells = [str(hit.rank), f"{hit.score:.4f}", f"{hit.row:,}", hit.text, *([str(hit.count)] if counted else [])]
        table.add_row(*map(Text, cells), *(Text(show_value(hit.columns[name])) for name in columns))
    return table


@verb()
def predict(call: Call, config: "nearfar.PredictConfig", model: str) -> None:
    """Write predicted labels and probabilities, and print how they agree with those of the input."""
    from nearfar.evaluation.tables.evaluation import evaluation_tables

    result = nearfar.predict(model, config)
    if result.scores is not None:
        for table in evaluation_tables(result.scores, screen=True):
            call.show(table)
    call.say(f"Wrote predictions for {result.rows:,} rows to {config.output}")


@verb()
def export(call: Call, config: "nearfar.ExportConfig", model: str) -> None:
    """Export a model and print how it compares with the original."""
    from nearfar.commands.export.comparison import comparison_table

    with call.console.status("writing the graph, and comparing it with the original ..."):
        result = nearfar.export(model, config)
    call.say(f"{result.texts:,} texts; score: {result.metric} on {result.evaluated_on}")
    call.show(comparison_table(result.sides))
    size = sum(result.files.values()) / 2**20
    call.say(
        *(f"Kept by --force, although {problem}." for problem in result.problems),
        f"Wrote {size:,.1f} MiB and an example (README.md) to {config.output}",
    )


@verb()
def push(call: Call, config: "nearfar.PushConfig", model: str, name: str) -> None:
    """Upload a model, or list what would be uploaded (--dry-run)."""
    done = nearfar.push(model, name, config)
    call.say(
        *([done.card] if config.dry_run else []),
        f"{done.name}: {len(done.files)} files, {sum(done.files.values()) / 1e6:,.1f} MB",
        *(f"  {path}  {size:,} bytes" for path, size in done.files.items()),
        *([] if done.is_own_card else ["README.md was not written by nearfar, and is uploaded as it is."]),
        "Dry run: nothing was uploaded." if done.url is None else f"Uploaded to {done.url}",
    )


@verb()
def threshold(call: Call, config: "nearfar.ThresholdConfig") -> None:
    """Find a threshold and print what was seen at it."""
    found = nearfar.threshold(config)
    call.say(
        f"{found}.",
        f"Seen: {found.share:.1%} (truly {found.low:.1%} or more), {found.wrong:,} of {found.hits:,} hits; "
        f"{found.shown:,} of {found.tested:,} queries show any.",
        f"Wrote {config.output}; held-out calibration error of its probabilities: {found.calibration_error:.3f}",
    )


@verb()
def dedup(call: Call, config: "nearfar.DedupConfig") -> int | None:
    """Remove near-duplicates, or show a histogram to choose the threshold."""
    from nearfar.commands.encode.vectors import kept_vectors

    try:
        result = nearfar.dedup(config)
    except KeyboardInterrupt:
        return call.kept_vectors(config.output)
    call.say(
        f"{config.input}: {result.rows:,} rows, {result.texts:,} distinct texts.",
        "",
        *_histogram(result),
        "",
        *_outcome(result, config),
    )
    if config.threshold is None and config.output is not None:
        call.say(f"The embeddings are kept in {kept_vectors(config.output)}: run the same command with --threshold T.")
    return None


def _histogram(result: "DedupResult") -> Iterator[str]:
    if not result.histogram:
        yield "There is only one distinct text."
        return
    yield "Cosine of each text with its nearest other text, and the least similar pair of each bin:"
    most = max(one.texts for one in result.histogram)
    for one in result.histogram:
        bar = "█" * round(BAR * one.texts / most) or "▏"
        share = one.at_least / result.texts
        yield f"  {one.low:5.2f}  {one.texts:>9,}  {bar:<{BAR}}  {share:6.1%} at or above {one.low:.2f}".rstrip()
        yield f"         {one.similarity:.3f}  {short(one.first, 60)}  |  {short(one.second, 60)}"


def _outcome(result: "DedupResult", config: "nearfar.DedupConfig") -> Iterator[str]:
    if result.threshold is None or result.kept is None:
        yield "Choose --threshold T: texts with a cosine of at least T are merged into one group."
        return
    removed = result.rows - result.kept
    yield (
        f"Threshold {result.threshold:g}: {result.groups:,} groups of at least two rows, the largest of "
        f"{result.largest:,}; {removed:,} of {result.rows:,} rows ({removed / result.rows:.1%}) are near-duplicates."
    )
    if config.output is not None:
        yield f"Wrote {result.kept:,} rows to {config.output}"
    if config.groups is not None:
        yield f"Wrote the groups to {config.groups}"
