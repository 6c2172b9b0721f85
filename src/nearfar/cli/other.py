"""The verbs beside models: get-data, demo, env."""

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import nearfar
from nearfar.cli.verbs import Call, verb

if TYPE_CHECKING:
    from nearfar.commands.get_data import GetDataResult

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
    yield from (f"warning: {warning}" for warning in result.warnings)
    yield f"Data folder: {result.folder} (set NEARFAR_DATA to it). Sources and checksums: sources.json."


def _list(result: "GetDataResult") -> Iterator[str]:
    from nearfar.data.named_sets import CATALOG, how_to_get

    yield f"Data folder: {result.folder or 'none; set NEARFAR_DATA'}"
    for one in result.listed:
        yield f"\n{one.name}: {one.place}"
        details = {
            "rows": ", ".join(_rows(file, rows) for file, rows in one.rows.items()),
            "hub": CATALOG[one.name].hub,
            "licence": one.licence,
            "cite": one.cite,
            "needed for": "; ".join(CATALOG[one.name].used_in),
            "get it": how_to_get(one.name) if one.place != "local" else "",
        }
        for name, text in details.items():
            if text:
                yield from wrap(f"{name}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def _rows(file: str, rows: int | None) -> str:
    from nearfar.data.named_sets import PUBLISHED_ROWS

    name, published = file.rpartition("/")[2].removesuffix(".tsv"), PUBLISHED_ROWS.get(file)
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
    from nearfar.commands.env import format_report

    report = nearfar.env(config)
    call.say(json.dumps(report, indent=1, ensure_ascii=False) if config.json else format_report(report))
