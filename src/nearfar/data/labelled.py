"""Labelled or scored rows of one or two texts: one reader for all parts of a task, so that all have its labels."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from nearfar.data.catalog import NamedTable, find
from nearfar.data.files import Location, MissingColumnError
from nearfar.data.paths import nearest, shown
from nearfar.data.sources import Table, as_number, in_label_order, label_field, text_field
from nearfar.types import NearfarError


class Split(NamedTuple):
    """Rows: each one's one or two texts, and its label's number or its score."""

    texts: list[tuple[str, ...]]
    targets: list[int] | list[float]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Which columns to read, and what is written in that of the labels."""

    columns: tuple[str, ...]
    """One or two columns of text."""
    label_column: str
    label_names: tuple[str, ...]
    """The name of each label's number; empty where targets are scores."""
    labels: Mapping[str, int | None]
    """Label as it is written -> its number; None: the row is left out."""
    label_source: str
    """Says in messages whose labels these are."""

    def read(self, spec: str) -> tuple[Split, str]:
        """Return the rows of the tables that ``spec`` names (:func:`resolve_tables`), and where they are, in words.

        Raises:
            NearfarError: tables that cannot be found or read, an empty or non-string text, an unknown label, a score
                that is no number or off the scale of a named set (each with file and line), no rows.
        """
        texts: list[tuple[str, ...]] = []
        targets: list[float] = []
        tables = resolve_tables(spec)
        left_out: Counter[str] = Counter()
        for found in tables:
            for where, (*values, value) in found.table.rows((*self.columns, self.label_column)):
                target = self._number(value, where) if self.label_names else self._score(value, where, found.scale)
                if target is None:
                    left_out[str(value)] += 1
                    continue
                texts.append(tuple(map(text_field, values, self.columns, [where] * len(values))))
                targets.append(target)
        title = _title(tables)
        if not texts:
            raise NearfarError(f"{title}: no labelled rows.")
        without = "; ".join(f"{count:,} labelled {label} left out" for label, count in left_out.items())
        return Split(texts, targets), f"{title} ({without})" if without else title

    def _number(self, value: object, where: Location) -> int | None:
        label = label_field(value, self.label_column, where)
        if label not in self.labels:
            known = ", ".join(list(self.labels)[:20]) + (", ..." if len(self.labels) > 20 else "")
            hint = nearest(label, list(self.labels))
            raise NearfarError(f"{where}: the label {shown(label)} is none of {self.label_source}: {known}.{hint}")
        return self.labels[label]

    def _score(self, value: object, where: Location, scale: tuple[float, float] | None) -> float:
        score = as_number(value)
        if math.isnan(score):
            raise NearfarError(
                f"{where}: column {self.label_column!r} holds {shown(value)}, not a number as the other scores are. "
                "Correct it, or remove the row."
            )
        if scale is not None and not scale[0] <= score <= scale[1]:
            raise NearfarError(f"{where}: score {score:g} is outside {scale[0]:g} to {scale[1]:g}.")
        return score


def infer_reader(spec: str, text_columns: Sequence[str] | None, label_column: str) -> Reader:
    """Return the reader of one's own data, its labels being those of the training data ``spec``.

    ``text_columns``, where not given, are ``text`` or, without that, ``sentence1`` and ``sentence2``. One label that is
    a number with a fraction makes all of them scores.

    Raises:
        NearfarError: not one or two text columns, columns that are not there, labels of which some have fractions and
            some are no numbers, a label that is empty or neither string nor number (with file and line), no rows.
    """
    tables = resolve_tables(spec)
    columns = _default_columns(tables, label_column) if text_columns is None else tuple(text_columns)
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise NearfarError(f"Name one or two columns of text, not {len(columns)}: {', '.join(columns) or 'none'}.")
    read = [(where, value) for found in tables for where, (value,) in found.table.rows((label_column,))]
    title = _title(tables)
    if not read:
        raise NearfarError(f"{title}: no rows, only the names of the columns.")
    fractions = ((where, value) for where, value in read if not as_number(value).is_integer())
    fraction = next(((where, value) for where, value in fractions if not math.isnan(as_number(value))), None)
    if fraction is not None:
        for where, value in read:
            if math.isnan(as_number(value)):
                raise NearfarError(
                    f"{where}: column {label_column!r} holds {shown(value)}, not a number. Labels of which one has a "
                    f"fraction, as {fraction[1]} ({fraction[0]}), are scores, and all must be numbers."
                )
        return Reader(columns=columns, label_column=label_column, label_names=(), labels={}, label_source="")
    names = in_label_order({label_field(value, label_column, where) for where, value in read})
    if len(names) < 2:
        raise NearfarError(f"{title}: every row has the label {names[0]!r}; there must be at least two labels.")
    return Reader(
        columns=columns,
        label_column=label_column,
        label_names=tuple(names),
        labels={name: number for number, name in enumerate(names)},
        label_source=f"the labels of {title}",
    )


def resolve_tables(spec: str) -> list[NamedTable]:
    """Return the tables that ``spec`` names; ``microworld`` is its generated sentences by kind of activity."""
    return [_microworld()] if spec == "microworld" else find(spec)


@cache
def _microworld() -> NamedTable:
    from datasets import Dataset

    from nearfar.data.microworld import generate

    texts, labels = zip(*generate(seed=0).labelled, strict=True)
    return NamedTable("microworld", Table("microworld, generated", Dataset.from_dict({"text": texts, "label": labels})))


def _title(tables: Sequence[NamedTable]) -> str:
    return "+".join(found.table.title for found in tables)


def _default_columns(tables: Sequence[NamedTable], label_column: str) -> tuple[str, ...]:
    try:
        next(tables[0].table.rows(("text",)), None)
    except MissingColumnError as error:
        try:
            next(tables[0].table.rows(("sentence1", "sentence2")), None)
        except MissingColumnError:
            raise NearfarError(
                f"{error} Labelled data has the columns text and {label_column}, or sentence1, sentence2 and "
                f"{label_column}."
            ) from None
        return ("sentence1", "sentence2")
    return ("text",)
