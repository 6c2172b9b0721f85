"""Fill the table of recommended settings in docs/guides/train.md: ``python docs/recommended.py``.

The settings are those that ``nearfar train --data`` takes.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nearfar.commands.train.recipes import FROM_RAW, FROM_SIMILAR, RECIPE_LEARNING_RATE, Recipe
from nearfar.config.values import flag

DOCS = Path(__file__).resolve().parent
GUIDE = DOCS / "guides" / "train.md"
BLOCK = re.compile("<!-- recommended -->.*?<!-- end of recommended -->", re.DOTALL)


def main() -> int:
    """Write the guide."""
    GUIDE.write_text(fill(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def fill(text: str) -> str:
    """Replace what is between ``<!-- recommended -->`` and ``<!-- end of recommended -->`` by the table.

    Raises:
        ValueError: there is no such place, or several.
    """
    block = "\n".join(["<!-- recommended -->", *table(), "<!-- end of recommended -->"])
    text, found = BLOCK.subn(lambda _: block, text)
    if found != 1:
        raise ValueError("the guide must have one block <!-- recommended --> ... <!-- end of recommended -->")
    return text


def table() -> Iterator[str]:
    """The lines of the table."""
    yield "| rows | start | method | settings |"
    yield "| --- | --- | --- | --- |"
    names = [*FROM_RAW, *(name for name in FROM_SIMILAR if name not in FROM_RAW)]
    for name in names:
        for start, kinds in (("plain transformers", FROM_RAW), ("sentence-transformers", FROM_SIMILAR)):
            if name in kinds:
                yield _row(name, start, kinds[name])


def _row(name: str, start: str, recipe: Recipe) -> str:
    values = dict(recipe.values)
    if start == "plain transformers":
        values.setdefault("learning_rate", RECIPE_LEARNING_RATE)
    cells = (name, start, f"`{recipe.method}`", f"`{flags(values)}`")
    return f"| {' | '.join(cells)} |"


def flags(values: Mapping[str, Any]) -> str:
    """The settings as on the command line, such as ``--distinct-texts --dropout 0 --learning-rate 2e-4``."""
    sets = [f"--data {' '.join(table['data'])}={table['weight']:g}" for table in values.get("sets", ())]
    others = ((name, value) for name, value in values.items() if name != "sets")
    words = [flag(name) if value is True else f"{flag(name)} {_shown(value)}" for name, value in others]
    return " ".join([*words, *sets])


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 0.001 else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
