"""``nearfar env``: what a bug report needs to know of this machine."""

import json
from typing import Annotated

import tyro
from rich.console import Console

from nearfar.cli.parsing import parse
from nearfar.config import EnvConfig


def env_verb(given: list[str], console: Console) -> int:
    """Print versions, processor, threads, GPU, kernels, folders, data and hub."""

    def command(config: Annotated[EnvConfig, tyro.conf.arg(name="")]) -> EnvConfig:
        """Parse.

        Args:
            config: How it is told.
        """
        return config

    config = parse(command, given, prog="nearfar env", description=EnvConfig.__doc__ or "")

    from nearfar.env import describe, lines

    found = describe(offline=config.offline)
    text = json.dumps(found, indent=1, ensure_ascii=False) if config.json else "\n".join(lines(found))
    console.print(text, markup=False, highlight=False)
    return 0
