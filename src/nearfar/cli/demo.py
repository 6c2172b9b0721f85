"""``nearfar demo``: the whole workflow on generated data."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import DemoConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Train, evaluate, compare, plot and search on generated data; returns the exit status."""
    config, _ = parse(DemoConfig, argv, prog="nearfar demo")

    from nearfar.commands.demo import demo

    demo(config, console=make_console())
    return 0
