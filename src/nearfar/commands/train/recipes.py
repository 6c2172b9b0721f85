"""The kinds of rows, and the measured settings for each of them by start; each names the page with its results.

``recipes.toml`` is the table; the classes here say what its keys mean.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearfar.validation import convert


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is recommended for a kind of rows, and what was measured for it and a kind of start."""

    method: str
    why: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method that are not its defaults."""
    page: str = ""
    """The page with the results of a start, below docs."""
    columns: tuple[str, ...] = ()
    """Of a kind of rows, the names of its columns, of pairs the first ones."""
    settings: tuple[str, ...] = ()
    """Of a kind of rows, the settings that name other columns."""


_FILE = Path(__file__).with_suffix(".toml")
_TABLES = convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), dict[str, dict[str, Recipe]], source=_FILE)
KINDS = _TABLES["kinds"]
"""Name of the rows -> what they are called by their columns, and the method for a start of which nothing is known."""
FROM_RAW = _TABLES["from_raw"]
"""Name of the rows -> what is recommended for them and a plain transformers model, such as a masked language model."""
FROM_SIMILAR = _TABLES["from_similar"]
"""Name of the rows -> what is recommended for them and a sentence-transformers folder."""

COLUMN_SETTINGS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.settings))
"""Settings that name columns."""
RECIPE_LEARNING_RATE, RECIPE_WIDTH = 2e-4, 384
"""The learning rate of all recipes (docs/measured) for a plain transformers model, and the hidden size that
recipes were found for. Wider encoders, for which they are not measured, train with the method's default rate;
wider sentence-transformers folders have all defaults."""
SENTENCES_WEIGHT = 0.3
"""Weight of sentences that train beside other rows (docs/measured/pairs.md, docs/measured/nli.md)."""
LABELLED, FEW_LABELLED_TEXTS, SCORED_TRIPLETS = "labelled texts", "few labelled texts", "triplets with scores"
FEW = {"pairs": 2000, LABELLED: 1000}
"""Kind of rows -> the number below which they are few, and may have a recipe of their own. Few labelled texts are not
held out: they are tested fold by fold (``commands/train/after.py``)."""
FEWEST_ROWS = 4
"""Two texts of two labels, the fewest rows that can be contrasted."""
LABELLED_TEXTS, FEWEST_EPOCHS, MOST_EPOCHS = 8000, 3, 20
"""Number of labelled texts to train on, in more epochs than a recipe has if they are few, but at most 20."""
