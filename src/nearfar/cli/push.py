"""``nearfar push``: uploads a model to the Hugging Face Hub."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.push import PushConfig

if TYPE_CHECKING:
    from rich.console import Console

EXTRAS = (
    ExtraOption("model", File, "A finished run folder, or a model folder.", positional_name="FOLDER"),
    ExtraOption("name", str, "The repository on the hub, owner/name.", positional_name="OWNER/NAME"),
)


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Upload a model, or list what would be uploaded (--dry-run); returns the exit status."""
    config, extra_values = parse(PushConfig, argv, prog="nearfar push", extras=EXTRAS)

    from nearfar.commands.push import push

    done = push(extra_values["model"], extra_values["name"], config)
    console = make_console()

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    if config.dry_run:
        show(done.card)
    show(f"{done.name}: {len(done.files)} files, {sum(done.files.values()) / 1e6:,.1f} MB")
    for path, size in done.files.items():
        show(f"  {path}  {size:,} bytes")
    if not done.is_own_card:
        show("README.md was not written by nearfar, and is uploaded as it is.")
    show("Dry run: nothing was uploaded." if done.url is None else f"Uploaded to {done.url}")
    return 0
