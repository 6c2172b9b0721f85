"""``nearfar env``: what a bug report needs to know of this machine."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import EnvConfig

if TYPE_CHECKING:
    from rich.console import Console


def env_verb(given: list[str], screen: "Callable[[], Console]") -> int:
    """Print versions, processor, threads, GPU, kernels, folders, data and hub."""
    config, _ = parse(EnvConfig, given, prog="nearfar env")

    from nearfar.commands.env import describe, lines

    found = describe(offline=config.offline)
    text = json.dumps(found, indent=1, ensure_ascii=False) if config.json else "\n".join(lines(found))
    screen().print(text, markup=False, highlight=False)
    return 0
