"""From the arguments of ``nearfar.train`` to a config: a method, a TOML file or a config, and settings.

Without a method, it is the recommended one for what the columns of the rows say they are, and for the start: a plain
transformers model, or a sentence-transformers folder, which was trained on similarity. Each recipe names the page with
its results.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from nearfar.commands.train import recipes
from nearfar.config.training import SETTINGS_OF_SETS, TrainConfig
from nearfar.config.values import as_lists, field_types, flag
from nearfar.data.catalog import find
from nearfar.data.cells import find_columns, printable_name
from nearfar.data.documents import is_text_folder
from nearfar.data.named_sets import CATALOG, OWN, VOCABULARY
from nearfar.data.sources import column_names
from nearfar.data.triplets import negative_columns, pair_columns, score_columns
from nearfar.registry import METHODS
from nearfar.settings import build, check_keys, check_values, load_method
from nearfar.types import NearfarError

SOURCE = "train()"
"""Where values come from, in messages."""
CHANGES_RECIPE = ("learning_rate", "lora_rank", "limit", "freeze")
"""Settings of the user's that change a recipe by more than their own value; further sets do so too."""
AVERAGE = ("learning_rate", "start_weight")
"""Settings of recipes that belong together: a share of the start fits one learning rate."""


@dataclass(frozen=True)
class Choice:
    """A method, and the settings with which it reads the rows."""

    method: str
    """The method's name."""
    rows: str
    """What the rows are called."""
    why: str
    values: dict[str, Any]
    """Settings that are not the method's defaults."""
    columns: tuple[str, ...]
    """The columns that are read; empty for text files and named sets with columns of their own."""

    def explain(self) -> str:
        """Which rows were found, which method was chosen, why, and how to choose another one."""
        return (
            f"{self.describe('columns ')}: training by {self.method}, the recommended method ({self.why}). "
            "Another one: nearfar train METHOD --data ..."
        )

    def describe(self, what: str = "") -> str:
        """The rows and their columns."""
        return f"{self.rows} ({what}{', '.join(self.columns)})" if self.columns else self.rows


def choose_method(
    specs: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    model: str = TrainConfig.model,
    documents: bool = False,
) -> Choice:
    """The recommended method for the rows of ``specs``, by their columns; with ``documents``, that for documents.

    Args:
        specs: files or named data sets, all of one kind.
        settings: settings that the user gave; those that name columns say what the rows are. ``sets`` take the place
            of a recipe's own; one with a method of the user's may need the dropout that a recipe turns off. With a
            ``learning_rate`` or ``lora_rank``, weights are not averaged with those of the start; with ``freeze``, there
            are no sets of a recipe, and the pooling is the model's.
        model: the encoder that training starts from. The choice depends on whether it is a sentence-transformers folder
            or a plain transformers model. One that cannot be found changes nothing: training says so, after it has read
            the rows.

    Raises:
        NearfarError: no data, data that cannot be opened, columns that say nothing or several things, or data of
            several kinds.
    """
    if not specs:
        raise NearfarError("name your rows by --data FILE, or a method first: nearfar train METHOD --output RUN")
    own = {name: value for name, value in (settings or {}).items() if value is not None}
    given = {name: own[name] for name in recipes.COLUMN_SETTINGS if name in own}
    choice = _choice("documents", given) if documents else _choose_all(specs, given)
    further: dict[str, Any] = {}
    if few := recipes.FEW.get(choice.rows):
        limit = str(own.get("limit"))
        at_most = min(recipes.LABELLED_TEXTS, int(limit) if limit.isdecimal() else recipes.LABELLED_TEXTS)
        count = count_rows(specs, ("", *choice.columns)[-1], at_most)
        more = min(recipes.MOST_EPOCHS, recipes.LABELLED_TEXTS // count) if choice.rows == recipes.LABELLED else 0
        further = {"epochs": more} if more > recipes.FEWEST_EPOCHS else {}
        choice = replace(choice, rows=f"few {choice.rows}") if count < few else choice
    choice = _choose_by_start(choice, model, own)
    without: tuple[str, ...] = ("sets", "dropout") if any("method" in table for table in own.get("sets", ())) else ()
    if "freeze" in own:  # vectors of documents have their own pooling, and sentences have none
        without, further = ("sets",), {**further, "pooling": "own"}
    return replace(choice, values=_without(choice.values | further, without))


def choose_of_set(specs: Sequence[str], given: Mapping[str, Any], *, model: str) -> tuple[str, dict[str, Any]]:
    """The recommended method for the rows of a further set, and the settings of it that are not the run's.

    ``given`` are the settings of the set. Sentences beside other rows have a weight below 1.

    Raises:
        NearfarError: as :func:`choose_method`.
    """
    if not specs:
        raise NearfarError("names neither data nor a method.")
    columns = {name: given[name] for name in recipes.COLUMN_SETTINGS if name in given}
    generated = set(specs) <= {OWN, VOCABULARY}
    choice = _choice("sentences") if generated else _choose_all(specs, columns)
    recipe = (recipes.FROM_RAW if read_start(model)[0] is False else recipes.FROM_SIMILAR)[choice.rows]
    values = {"weight": recipes.SENTENCES_WEIGHT} if choice.rows == "sentences" else {}
    run = field_types(TrainConfig).keys() - SETTINGS_OF_SETS
    values |= _without(recipe.values, run)
    names = field_types(METHODS[recipe.method])
    return recipe.method, values | {
        name: value for name, value in choice.values.items() if name in names and name not in run
    }


def _choose_all(specs: Sequence[str], given: Mapping[str, Any]) -> Choice:
    """The method of the rows of all ``specs``, which must be of one kind."""
    choice, *others = [_choice("documents", given) if is_text_folder(spec) else _choose(spec, given) for spec in specs]
    for spec, other in zip(specs[1:], others, strict=True):
        if other != choice:
            raise NearfarError(
                f"--data: {specs[0]} has {choice.describe()}, but {spec} has {other.describe()}. Files of one set must "
                "be of one kind: give --data again for another set, or name the method for another reading."
            )
    return choice


def count_rows(specs: Sequence[str], column: str, at_most: int) -> int:
    """The number of rows of data with a ``column``; ``at_most`` if there are more, too few to train on, or no rows."""
    try:
        rows = (row for spec in specs for found in find(spec, "labelled") for row in found.rows((column,)))
        count = sum(1 for _ in islice(rows, at_most))
    except NearfarError:  # training reads them again, and says what is wrong
        return at_most
    return count if count >= recipes.FEWEST_ROWS else at_most


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _choose_by_start(choice: Choice, model: str, own: Mapping[str, Any]) -> Choice:
    """The choice, with the recipe of its rows for the kind of start that ``model`` is.

    The average with the start belongs to the recipe's learning rate, so with ``own`` rates of the user's or adapters
    there is none, and none for wider starts, which train with the method's default rate.
    """
    similar, width, decoder = read_start(model)
    if similar is None:
        return choice
    of_start = recipes.FROM_SIMILAR if similar else recipes.FROM_RAW
    recipe = of_start.get(choice.rows) or of_start[choice.rows.removeprefix("few ")]
    own_rate = "learning_rate" in own or "lora_rank" in own
    small = width is not None and width <= recipes.RECIPE_WIDTH
    if similar and not small and choice.rows != recipes.FEW_LABELLED_TEXTS:
        return choice
    values = dict(recipe.values) if small and not own_rate else _without(recipe.values, AVERAGE)
    values |= {name: value for name, value in choice.values.items() if name in recipes.COLUMN_SETTINGS}
    if small and not similar:
        values.setdefault("learning_rate", recipes.RECIPE_LEARNING_RATE)
    if decoder and values.get("pooling") == "cls":
        values["pooling"] = "lasttoken"  # the first token of a causal model reads no other
    if similar and own_rate:
        return replace(choice, values=values)
    why = f"{recipe.why}; with the settings of docs/{recipe.page}.md, for a start that was "
    why += "trained on similarity" if similar else "not yet trained on similarity"
    return Choice(recipe.method, choice.rows, why, values, choice.columns)


def read_start(model: str) -> tuple[bool | None, int | None, bool]:
    """Whether an encoder was trained on similarity, as sentence-transformers folders are; hidden size; is it a decoder.

    The first is None if it cannot be found, the second if its config does not say it.
    """
    if model == TrainConfig.model:
        return True, recipes.RECIPE_WIDTH, False
    from nearfar.encoder.folder_checks import has_roles, read_object
    from nearfar.encoder.prompts import QUERY
    from nearfar.encoder.weights import locate

    try:
        folder = locate(model)
        folder = folder / QUERY if has_roles(folder) else folder
    except NearfarError:
        return None, None, False
    file = folder / "config.json"
    settings = read_object(file) if file.exists() else {}  # a folder without it is refused later
    width, kinds = settings.get("hidden_size"), settings.get("architectures")
    decoder = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    return (folder / "modules.json").exists(), width if isinstance(width, int) else None, decoder


def _choose(spec: str, given: Mapping[str, Any]) -> Choice:
    name = spec.partition(":")[0]
    named = CATALOG.get(name)
    if named is not None and named.captions_by:
        return _choice("pairs")
    if named is not None and named.scale is not None and name != "stsb-text":
        return _choice("scored pairs", columns=recipes.KINDS["scored pairs"].columns)
    if name == "stsb-text" or (table := find(spec)[0]).is_plain_text:
        return _choice("sentences")
    columns = column_names(table)
    matches = [choice for kind in recipes.KINDS if (choice := _match(kind, columns, given)) is not None]
    if len(matches) == 2:  # texts with titles may have labels or scores, which say more
        matches = [choice for choice in matches if choice.rows != "documents"]
    if len(matches) == 1:
        return matches[0]
    shown = ", ".join(printable_name(column) for column in columns[:20]) + (", ..." if len(columns) > 20 else "")
    several = " or ".join(choice.describe() for choice in matches)
    problem = f"can be {several}" if matches else "do not say what the rows are"
    ways = "; or ".join(
        " ".join(f"{flag(name)} NAME" for name in kind.settings if name != "negative_column")
        + f" ({rows}, {kind.method})"
        for rows, kind in recipes.KINDS.items()
    )
    advice = f"Name the method, as in nearfar train {recipes.KINDS['pairs'].method} ..., or the columns: {ways}."
    if any(len(column.split()) > 3 for column in columns):  # a text, in a file without a line of names
        advice = f"If its first line is a row already, write a line with the names of the columns above it. {advice}"
    raise NearfarError(f"{spec}: its columns ({shown}) {problem}. {advice}")


def _choice(rows: str, given: Mapping[str, Any] | None = None, columns: tuple[str, ...] = ()) -> Choice:
    """The method of a kind of rows, with the settings ``given`` that name columns."""
    kind = recipes.KINDS[rows]
    values = {**kind.values, **(given or {})}
    return Choice(kind.method, "triplets" if "negative_column" in values else rows, kind.why, values, columns)


def _match(rows: str, columns: Sequence[str], given: Mapping[str, Any]) -> Choice | None:
    """The choice for a kind of rows, if the columns are there; None if not, or if ``given`` names columns of others."""
    kind = recipes.KINDS[rows]
    if not given.keys() <= set(kind.settings):
        return None
    names = tuple(given.get(setting, name) for setting, name in zip(kind.settings, kind.columns, strict=False))
    if rows == "pairs":
        pair, negatives = pair_columns(columns, names), negative_columns(columns, given.get("negative_column"))
        if pair is None or ("negative_column" in given and not negatives):
            return None
        values = {**dict(zip(kind.settings, pair, strict=False)), **given}
        if negatives:
            values.setdefault("negative_column", re.sub(r"\W*_*\d*$", "", negatives[0]) or negatives[0])
        choice = _choice(rows, values, (*pair, *negatives))
        if not negatives or not (scores := score_columns(columns, pair[1], negatives, "--data")):
            return choice
        method, why = "teacher-scores", recipes.FROM_SIMILAR[recipes.SCORED_TRIPLETS].why
        return Choice(method, recipes.SCORED_TRIPLETS, why, choice.values, (*choice.columns, *scores))
    if rows == "sentences" and not given:  # a table of one column, whatever it is called
        return _choice(rows, {"text_column": columns[0]}, tuple(columns)) if len(columns) == 1 else None
    available = find_columns(columns, names)
    return None if available is None else _choice(rows, given, available)


def resolve_config(
    method: TrainConfig | str | os.PathLike[str] | None, settings: Mapping[str, Any], *, documents: bool = False
) -> TrainConfig:
    """The config of the run that ``nearfar.train(method, **settings)`` asks for, or ``nearfar.adapt`` of ``documents``.

    ``settings`` override the values of a file or config. A single text or path may stand for a tuple of one. Without a
    method, the columns of ``data`` choose one.

    Raises:
        NearfarError: no such method or file; a setting that the method does not have, with the nearest one; a value of
            the wrong type or out of bounds; a setting that is required and missing.
    """
    if isinstance(method, TrainConfig):
        given = as_lists(type(method), settings)
        return replace(method, **check_values(type(method), given, source=SOURCE)) if given else method
    if method is None:
        named = {"data": (), "model": TrainConfig.model}
        named |= {key: settings[key] for key in settings.keys() & named.keys()}
        start = check_values(TrainConfig, as_lists(TrainConfig, named), source=SOURCE)
        choice = choose_method(start["data"], settings, model=start["model"], documents=documents)
        kind = METHODS[choice.method]
        return build(kind, {**choice.values, **as_lists(kind, settings)}, source=SOURCE)
    if not isinstance(method, str | os.PathLike):
        raise NearfarError(
            f"{SOURCE}: the first argument is a method's name, a TOML file or a config, not a {type(method).__name__}. "
            "Give rows by name, as in data=..."
        )
    name = os.fspath(method)
    kind, values = load_method(name)
    check_keys(kind, settings, source=SOURCE)
    own = check_values(kind, as_lists(kind, settings), source=SOURCE)
    return build(kind, {**values, **own}, source=name if values else SOURCE)
