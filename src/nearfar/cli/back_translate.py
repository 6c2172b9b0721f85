"""``nearfar back-translate``: paraphrases of a file of sentences, by way of another language."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nearfar.cli.parsing import parse
from nearfar.config.files import read_toml
from nearfar.config.verbs import BackTranslateConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write sentences and their back-translations; returns the exit status."""
    file = argv[0] if argv and not argv[0].startswith("-") else None
    values: dict[str, Any] = {} if file is None else _read(file)
    flags = argv if file is None else argv[1:]
    prog = "nearfar back-translate [FILE.toml]"
    config, _ = parse(BackTranslateConfig, flags, prog=prog, values=values, source=file)

    from nearfar.commands.back_translate.command import back_translate

    written = back_translate(config)
    make_console().print(f"Wrote sentences and their back-translations to {written}", highlight=False, markup=False)
    return 0


def _read(file: str) -> dict[str, Any]:
    """The settings in a config file; flags override them."""
    if not file.endswith(".toml"):
        raise NearfarError(f"{file}: a file of settings ends in .toml; name the sentences by --input {file}")
    values = read_toml(file)
    if "method" in values:
        raise NearfarError(f"{file}: is a config for training; back-translate needs one without the key 'method'.")
    return values
