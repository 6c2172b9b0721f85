"""``nearfar demo``: the whole workflow on generated pairs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import DemoConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Generate pairs, train, test, search and explore; returns the exit status."""
    config, _ = parse(DemoConfig, argv, prog="nearfar demo")

    from nearfar.commands.demo import demo
    from nearfar.training.trainer import Interrupted

    try:
        demo(config, console=make_console())
    except Interrupted:  # the demo starts anew, so the checkpoint of its run is of no use
        raise KeyboardInterrupt from None
    return 0
