"""``nearfar env``: what a bug report needs to know of this machine."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import EnvConfig

if TYPE_CHECKING:
    from rich.console import Console


def env_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Print versions, processor, threads, GPU, kernels, folders, data and hub."""
    config, _ = parse(EnvConfig, argv, prog="nearfar env")

    from nearfar.commands.env import describe, format_lines

    found = describe(offline=config.offline)
    text = json.dumps(found, indent=1, ensure_ascii=False) if config.json else "\n".join(format_lines(found))
    make_console().print(text, markup=False, highlight=False)
    return 0
