"""``nearfar soup``: one model from the average of the weights of several."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.soup import SoupConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.soup import SoupResult


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Average models, and print each one's share; returns the exit status."""
    extra = ExtraOption(
        "models",
        tuple[File, ...],
        "Two or more run folders, model folders, or names owner/name on the hub.",
        default=(),
        positional_name="MODEL ...",
    )
    config, extra_values = parse(SoupConfig, argv, prog="nearfar soup", extras=(extra,))
    models, console = extra_values["models"], make_console()
    if len(models) < 2:
        raise NearfarError("two models or more are needed: nearfar soup MODEL MODEL ... --output FOLDER")

    from nearfar.commands.soup import soup

    result = soup(*models, config=config)
    console.print("\n".join(_lines(result, config.output)), highlight=False, markup=False)
    return 0


def _lines(result: "SoupResult", output: str) -> list[str]:
    lines = []
    for one in result.models:
        score = "" if one.score is None else f"  {result.metric} {one.score:.2f}"
        lines.append(f"  {one.weight:7.2%}{score}  {one.model}{'' if one.weight else '  (left out)'}")
    used = len(result.used)
    what = f"the average of {used} models" if used > 1 else f"{result.used[0].model} alone"
    score = "" if result.score is None else f": {result.metric} {result.score:.2f} on {result.evaluate_on}"
    return [*lines, f"Wrote {what} to {output}{score}"]
