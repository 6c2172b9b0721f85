"""From the arguments of ``nearfar.train`` to a config: a method, a TOML file or a config, and settings.

Without a method, it is the recommended one for what the columns of the rows say they are, and for what it starts from.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.commands.train.recipes import (
    COLUMN_SETTINGS,
    FROM_RAW,
    FROM_SIMILAR,
    KINDS,
    NEGATIVE_COLUMNS,
    PAIR_COLUMNS,
    PAIRS,
    RECIPE_LEARNING_RATE,
    RECIPE_WIDTH,
    SCORED,
    SENTENCES,
    RowKind,
)
from nearfar.config.training import TrainConfig
from nearfar.config.values import Settings, field_types
from nearfar.data.catalog import find
from nearfar.data.files import is_plain_text, printable_name
from nearfar.data.named_sets import CATALOG
from nearfar.data.sources import column_names
from nearfar.registry import METHODS
from nearfar.settings import build, check_keys, check_values, load_method
from nearfar.types import NearfarError

SOURCE = "train()"
"""Where values come from, in messages."""
CHANGES_RECIPE = ("second", "sentences", "learning_rate", "lora_rank")
"""Settings of the user's that change a recipe by more than their own value."""
SECOND_OBJECTIVE = ("sentences", "second_weight", "dropout")
"""Settings of a recipe that give way to a second objective of the user's own, which may need dropout."""
AVERAGE = ("learning_rate", "start_weight")
"""Settings of recipes that belong together: a share of the start fits one learning rate."""


@dataclass(frozen=True)
class Choice:
    """A method, and the settings with which it reads the rows."""

    kind: RowKind
    values: dict[str, Any] = field(default_factory=dict)
    """Settings that are not the method's defaults."""
    columns: tuple[str, ...] = ()
    """The columns that are read; empty for text files and named sets with columns of their own."""

    @property
    def method(self) -> str:
        """The method's name."""
        return self.kind.method

    @property
    def rows(self) -> str:
        """What the rows are called."""
        return "triplets" if "negative_column" in self.values else self.kind.name

    def explain(self) -> str:
        """Which rows were found, which method was chosen, why, and how to choose another one."""
        columns = f" (columns {', '.join(self.columns)})" if self.columns else ""
        return (
            f"{self.rows}{columns}: training by {self.method}, the recommended method ({self.kind.why}). "
            "Another one: nearfar train METHOD --data ..."
        )


def choose_method(
    specs: Sequence[str], settings: Mapping[str, Any] | None = None, *, model: str = TrainConfig.model
) -> Choice:
    """The recommended method for the rows of ``specs``, by their columns.

    Args:
        specs: files or named data sets, all of one kind.
        settings: settings that the user gave; those that name columns say what the rows are. ``second`` takes the
            place of a recipe's second objective; ``sentences`` may bring a weight of their own. With a
            ``learning_rate`` or ``lora_rank``, weights are not averaged with those of the start.
        model: the encoder that training starts from. The choice depends on whether it is a sentence-transformers folder
            or a plain transformers model. One that cannot be found changes nothing: training says so, after it has read
            the rows.

    Raises:
        NearfarError: no data, data that cannot be opened, columns that say nothing or several things, or data of
            several kinds.
    """
    if not specs:
        raise NearfarError("name your rows by --data FILE, or a method first: nearfar train METHOD --output RUN")
    given = {name: value for name, value in (settings or {}).items() if name in COLUMN_SETTINGS and value is not None}
    choices = [_choose(spec, given) for spec in specs]
    for spec, choice in zip(specs, choices, strict=True):
        if choice != choices[0]:
            raise NearfarError(
                f"--data: {specs[0]} has {_describe(choices[0])}, but {spec} has {_describe(choice)}. Files that are "
                "trained on together must be of one kind; name the method for another reading."
            )
    changes = {name for name in CHANGES_RECIPE if (settings or {}).get(name) is not None}
    found = _choose_by_start(choices[0], model, own_rate=bool(changes & {"learning_rate", "lora_rank"}))
    if "sentences" in changes:
        found = replace(found, values={**found.kind.with_sentences, **found.values})
    if "second" not in changes:
        return found
    return replace(found, values={name: value for name, value in found.values.items() if name not in SECOND_OBJECTIVE})


def _choose_by_start(choice: Choice, model: str, *, own_rate: bool) -> Choice:
    """The choice, with the recipe of its rows for the kind of start that ``model`` is.

    The average with the start belongs to the recipe's learning rate, so with an ``own_rate`` of the user's or adapters
    there is none, and none for wider starts, which train with the method's default rate.
    """
    start = _Start(True, RECIPE_WIDTH) if model == TrainConfig.model else _read_start(model)
    if start is None:
        return choice
    small = start.width is not None and start.width <= RECIPE_WIDTH
    kind = (FROM_SIMILAR if start.similar else FROM_RAW).get(choice.rows)
    if kind is None or (start.similar and not small):
        return choice
    columns = {name: value for name, value in choice.values.items() if name in COLUMN_SETTINGS}
    values = {**kind.values, **columns}
    if own_rate or not small:
        values = {name: value for name, value in values.items() if name not in AVERAGE}
        kind = choice.kind if start.similar else kind
    if small and not start.similar:
        values.setdefault("learning_rate", RECIPE_LEARNING_RATE)
    return replace(choice, kind=kind, values=values)


class _Start(NamedTuple):
    """The encoder that training starts from."""

    similar: bool
    """Whether it was trained on similarity: whether it is a sentence-transformers folder."""
    width: int | None
    """Its hidden size, if its config says so."""


def _read_start(model: str) -> _Start | None:
    """What the files of ``model`` say; None if it cannot be found."""
    from nearfar.encoder.folder_checks import read_object
    from nearfar.encoder.weights import locate

    try:
        folder = locate(model)
    except NearfarError:
        return None
    file = folder / "config.json"
    width = read_object(file).get("hidden_size") if file.exists() else None  # a folder without it is refused later
    return _Start((folder / "modules.json").exists(), width if isinstance(width, int) else None)


def _choose(spec: str, given: Mapping[str, Any]) -> Choice:
    name = spec.partition(":")[0]
    named = CATALOG.get(name)
    if named is not None and named.captions_by:
        return Choice(PAIRS)
    if name == "stsb-text":
        return Choice(SENTENCES)
    if named is not None and named.scale is not None:
        return Choice(SCORED, columns=SCORED.columns)
    table = find(spec)[0].table
    if isinstance(table.data, Path) and is_plain_text(table.data):
        return Choice(SENTENCES)
    columns = column_names(table)
    found = [choice for kind in KINDS if (choice := _match(kind, columns, given)) is not None]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(printable_name(column) for column in columns[:20]) + (", ..." if len(columns) > 20 else "")
    if found:
        several = " or ".join(_describe(choice) for choice in found)
        raise NearfarError(f"{spec}: its columns ({shown}) can be {several}. {_advice()}")
    raise NearfarError(f"{spec}: its columns ({shown}) do not say what the rows are. {_advice()}")


def _match(kind: RowKind, columns: Sequence[str], given: Mapping[str, Any]) -> Choice | None:
    """The choice for a kind of rows, if the columns are there; None if not, or if ``given`` names columns of others."""
    if not given.keys() <= set(kind.settings):
        return None
    values = {**kind.values, **given}
    if kind is SENTENCES:
        column = given.get("text_column", columns[0] if len(columns) == 1 else None)
        return Choice(kind, {**values, "text_column": column}, (column,)) if column in columns else None
    if kind is not PAIRS:
        names = tuple(given.get(setting, name) for setting, name in zip(kind.settings, kind.columns, strict=True))
        return Choice(kind, values, names) if set(names) <= set(columns) else None
    pairs = {
        (given.get("anchor_column", anchor), given.get("positive_column", positive))
        for anchor, positive in PAIR_COLUMNS
    }
    pairs = {pair for pair in pairs if set(pair) <= set(columns) and len(set(pair)) == 2}
    if len(pairs) != 1:
        return None
    anchor, positive = pairs.pop()
    names = (anchor, positive)
    values |= {"anchor_column": anchor, "positive_column": positive}
    negative = given.get("negative_column", next((name for name in NEGATIVE_COLUMNS if name in columns), None))
    if negative is not None:
        values["negative_column"], names = negative, (*names, negative)
    return Choice(kind, values, names) if set(names) <= set(columns) else None


def _describe(choice: Choice) -> str:
    return f"{choice.rows} ({', '.join(choice.columns)})" if choice.columns else choice.rows


def _advice() -> str:
    """How to say what the rows are."""
    ways = [f"{_flags(kind)} ({kind.name}, {kind.method})" for kind in KINDS]
    return f"Name the method, as in nearfar train {PAIRS.method} ..., or the columns: {'; or '.join(ways)}."


def _flags(kind: RowKind) -> str:
    names = [f"--{name.replace('_', '-')}" for name in kind.settings if name != "negative_column"]
    return " ".join(names)


def resolve_config(method: TrainConfig | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> TrainConfig:
    """The config of the run that ``nearfar.train(method, **settings)`` asks for.

    ``settings`` override the values of a file or config. A single text or path may stand for a tuple of one. Without a
    method, the columns of ``data`` choose one.

    Raises:
        NearfarError: no such method or file; a setting that the method does not have, with the nearest one; a value of
            the wrong type or out of bounds; a setting that is required and missing.
    """
    if isinstance(method, TrainConfig):
        given = _sequences(type(method), settings)
        return replace(method, **check_values(type(method), given, source=SOURCE)) if given else method
    if method is None:
        data = check_values(TrainConfig, _sequences(TrainConfig, {"data": settings.get("data", ())}), source=SOURCE)
        choice = choose_method(data["data"], settings, model=os.fspath(settings.get("model", TrainConfig.model)))
        kind = METHODS[choice.method]
        return build(kind, {**choice.values, **_sequences(kind, settings)}, source=SOURCE)
    name = os.fspath(method)
    kind, values = load_method(name)
    check_keys(kind, settings, source=SOURCE)
    if not values:
        return build(kind, _sequences(kind, settings), source=SOURCE)
    own = check_values(kind, _sequences(kind, settings), source=SOURCE)
    return build(kind, {**values, **own}, source=name)


def _sequences(kind: type[Settings], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with a single text or path made a tuple where the setting is a tuple."""
    types = field_types(kind)
    return {
        name: (value,) if isinstance(value, str | os.PathLike) and name in types and types[name].is_sequence else value
        for name, value in settings.items()
    }
