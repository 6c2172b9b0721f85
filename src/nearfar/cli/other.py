"""The verbs beside models: get-data, demo, env."""

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import nearfar
from nearfar.cli.verbs import Call, verb

if TYPE_CHECKING:
    from nearfar.commands.get_data import GetDataResult, SetStatus

WIDTH = 110


@verb()
def get_data(call: Call, config: "nearfar.GetDataConfig", names: tuple[str, ...]) -> int | None:
    """Download, convert or list data sets."""
    try:
        result = nearfar.get_data(names, config)
    except KeyboardInterrupt:
        return call.stopped("; finished files are kept. Resume with")
    call.say(*(_list(result) if result.listed else _summary(result)))
    return None


def _summary(result: "GetDataResult") -> Iterator[str]:
    for file in result.converted:
        dropped = "".join(f"; {count:,} rows {why} dropped" for why, count in file.dropped.items())
        yield f"{file.file}: {file.rows:,} rows{dropped}"
    if result.existing:
        yield f"{len(result.existing):,} files exist already; --overwrite makes them again."
    if result.missing:
        yield f"Not in the source: {', '.join(result.missing)}"
    yield from (f"warning: {warning}" for warning in result.warnings)
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


@verb()
def demo(call: Call, config: "nearfar.DemoConfig") -> None:
    """Generate pairs, train, test, search and explore."""
    from nearfar.training import Interrupted

    try:
        nearfar.demo(config, console=call.console)
    except Interrupted:  # the demo starts anew, so the checkpoint of its run is of no use
        raise KeyboardInterrupt from None


@verb()
def env(call: Call, config: "nearfar.EnvConfig") -> None:
    """Print versions, processor, threads, GPU, kernels, folders, data and hub."""
    from nearfar.commands.env import format_lines

    report = nearfar.env(config)
    call.say(*([json.dumps(report, indent=1, ensure_ascii=False)] if config.json else format_lines(report)))
