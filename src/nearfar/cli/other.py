"""The verbs beside models: get-data, demo, env."""

import json

import nearfar
from nearfar.cli.verbs import Call, outcome, verb


@verb()
def get_data(call: Call, config: "nearfar.GetDataConfig", names: tuple[str, ...]) -> int | None:
    """Download, convert or list data sets."""
    try:
        result = nearfar.get_data(names, config)
    except KeyboardInterrupt:
        return call.stopped("; finished files are kept. Resume with")
    if not result.listed:
        call.say(outcome("data", result))
        return None
    from nearfar.data.named_sets import CATALOG, how_to_get

    call.say(outcome("data_sets", result, CATALOG, _rows, how_to_get))
    return None


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
