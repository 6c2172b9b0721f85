"""``nearfar env``: the environment, for a bug report."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import EnvConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Print versions, processor, threads, GPU, kernels, folders, data and hub; returns the exit status."""
    config, _ = parse(EnvConfig, argv, prog="nearfar env")

    from nearfar.commands.env import env, format_lines

    report = env(config)
    text = json.dumps(report, indent=1, ensure_ascii=False) if config.json else "\n".join(format_lines(report))
    make_console().print(text, markup=False, highlight=False)
    return 0
