"""``nearfar back-translate``: paraphrases of a file of sentences, by way of another language."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse
from nearfar.config.verbs import BackTranslateConfig

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write sentences and their back-translations; returns the exit status."""
    config, _ = parse(BackTranslateConfig, argv, prog="nearfar back-translate")

    from nearfar.commands.back_translate.command import back_translate

    file = back_translate(config)
    make_console().print(f"Wrote sentences and their back-translations to {file}", highlight=False, markup=False)
    return 0
