"""Reads the parts of a study file: axes, replicates, rows, paper numbers, plots."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from nearfar.config.study.types import VERBS, Axis, AxisUse, PaperNumber, Plot, PlotKind, Row, Step
from nearfar.config.study.values import Table, flatten
from nearfar.validation import format_value, unknown_name_message

ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
AVERAGE = "average"
"""The label of the mean over the labels of an axis."""
_AXIS_KEYS = ("name", "setting", "settings", "values", "labels", "as", "average", "compare_with")
_ROW_KEYS = ("id", "name", "steps", "model", *VERBS, "axes", "replicates", "needs", "paper", "note")


@dataclass(frozen=True)
class NamesOfBase:
    """The columns, labels and rows of a file before a scale's changes: paper numbers and pairs may name them."""

    columns: frozenset[str]
    labels: Mapping[str, frozenset[str]]
    """Axis -> its labels."""
    rows: frozenset[str]

    @classmethod
    def read(cls, base: Mapping[str, Any], *, columns: Sequence[str], axes: Sequence[Axis]) -> "NamesOfBase":
        """The names in the tables ``base``, which are not checked, and those in use."""
        labels = {axis.name: set(axis.labels) for axis in axes}
        for one in _tables(base.get("axes")):
            found = one.get("labels", _first_values(one))
            labels.setdefault(str(one.get("name")), set()).update(
                map(label_of, found if isinstance(found, list) else ())
            )
        listed = base.get("columns")
        return cls(
            frozenset([*columns, *(str(one) for one in (listed if isinstance(listed, list) else ()))]),
            {name: frozenset(found) for name, found in labels.items()},
            frozenset(str(one.get("id")) for one in _tables(base.get("rows"))),
        )


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _first_values(axis: Mapping[str, Any]) -> Any:
    values = axis.get("values")
    if "settings" in axis and isinstance(values, list):
        return [one[0] for one in values if isinstance(one, list) and one]
    return values


def label_of(value: Any) -> str:
    """A value as a label.

    >>> [label_of(value) for value in (0.3, 1.0, True, "a", ["a", "b"])]
    ['0.3', '1', 'true', 'a', 'a, b']
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(label_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_axis(content: Mapping[str, Any], source: str, number: int) -> Axis:
    """An axis from its table."""
    table = Table(content, f"{source}: [[axes]] number {number}")
    table.check_keys(_AXIS_KEYS)
    name = table.text("name", required=True)
    table = Table(content, f"{source}: axis {name!r}")
    if ("setting" in content) == ("settings" in content):
        raise table.error('needs setting = "train.seed", or settings = [...] for several that change together.')
    values = table.list("values", required=True)
    if "setting" in content:
        settings, entries = (table.text("setting"),), [[value] for value in values]
    else:
        settings, entries = table.texts("settings"), values
        if not all(isinstance(one, list) and len(one) == len(settings) for one in values):
            raise table.error(
                f"values: must be a list of lists, each with {len(settings)} values: one for each of its settings."
            )
    if not settings or not entries:
        raise table.error("values: is empty; give at least one value.")
    labels = tuple(label_of(value) for value in table.list("labels", [entry[0] for entry in entries]))
    if len(labels) != len(entries):
        raise table.error(f"labels: there are {len(labels)} labels for {len(entries)} values.")
    if len(set(labels)) < len(labels):
        raise table.error(f"labels: {', '.join(labels)}: one occurs twice.")
    return Axis(
        name,
        tuple(settings),
        tuple(map(tuple, entries)),
        labels,
        table.choice("as", get_args(AxisUse), "rows"),
        _average(table, labels),
        _baseline(table, labels),
    )


def _baseline(table: Table, labels: Sequence[str]) -> str | None:
    if "compare_with" not in table.content:
        return None
    label = label_of(table.content["compare_with"])
    if label not in labels:
        raise table.error(f"compare_with: {unknown_name_message(label, labels, what='label')}")
    return label


def _average(table: Table, labels: Sequence[str]) -> tuple[str, ...]:
    value = table.content.get("average", False)
    if isinstance(value, bool):
        return tuple(labels) if value else ()
    chosen = tuple(label_of(one) for one in table.list("average"))
    for label in chosen:
        if label not in labels:
            raise table.error(f"average: {unknown_name_message(label, labels, what='label')}")
    return chosen


def read_replicates(table: Table, axes: Sequence[Axis]) -> tuple[Mapping[str, Any], ...]:
    """The replicates of a study or row: for each, dotted setting -> value; one without settings by default."""
    lists = flatten(table.table("replicates"))
    if not lists:
        return ({},)
    for setting, values in lists.items():
        if not isinstance(values, list) or not values:
            raise table.error(f"replicates: {setting} = {format_value(values)}: must be a list, as in [1, 2, 3].")
        if any(setting in axis.settings for axis in axes):
            raise table.error(f"replicates: {setting} is a setting of an axis too; leave one of them out.")
    if len({len(values) for values in lists.values()}) > 1:
        raise table.error(f"replicates: the lists of {', '.join(lists)} must have the same length.")
    found = tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))
    if any(one in found[:place] for place, one in enumerate(found)):
        raise table.error("replicates: a replicate occurs twice.")
    return found


def read_row(
    content: Mapping[str, Any],
    study: Table,
    *,
    number: int,
    axes: Sequence[Axis],
    columns: Sequence[str],
    names: NamesOfBase,
    replicates: tuple[Mapping[str, Any], ...],
) -> Row:
    """A row from its table."""
    table = Table(content, f"{study.where}: [[rows]] number {number}")
    row_id = table.text("id", required=True)
    if not ID.fullmatch(row_id):
        raise table.error(f"id = {row_id!r}: must be lower-case letters, digits and the signs '.', '+', '-'.")
    table = Table(content, f"{study.where}: row {row_id!r}")
    table.check_keys(_ROW_KEYS)
    known = [axis.name for axis in axes]
    own_axes = table.texts("axes", tuple(known))
    for name in own_axes:
        if name not in {*known, *names.labels}:
            raise table.error(f"axes: {unknown_name_message(name, known, what='axis')}")
    own = read_replicates(table, axes) if "replicates" in content else replicates
    crossed = tuple(name for name in known if name in own_axes)
    return Row(
        id=row_id,
        name=table.text("name", row_id),
        steps=_steps(table, study),
        model=table.text("model"),
        settings={verb: table.table(verb) for verb in VERBS if verb in content},
        axes=crossed,
        replicates=own,
        needs=table.texts("needs"),
        paper=_paper(table, columns, crossed, axes, names),
        note=table.text("note"),
    )


def _steps(table: Table, study: Table) -> tuple[Step, ...]:
    """The steps of a row. By default those that the row or file has settings of, in the order of :data:`VERBS`."""
    named = [verb for verb in VERBS if verb in table.content or verb in study.content]
    default = named if set(named) - {"train", "script"} else [*named, "evaluate"]
    entries = table.list("steps", default)
    steps: list[Step] = []
    for given in entries:
        entry = {given: {}} if isinstance(given, str) else given
        if not isinstance(entry, Mapping):
            raise table.error(
                f'steps: {format_value(entry)}: must be a verb, or a table as {{ finetune = {{ task = "rte" }} }}.'
            )
        verbs = [key for key in entry if key != "name"]
        if len(verbs) != 1:
            raise table.error(f"steps: {format_value(dict(entry))}: must have one verb of {', '.join(VERBS)}.")
        verb = next((one for one in VERBS if one == verbs[0]), None)
        if verb is None:
            raise table.error(f"steps: {unknown_name_message(verbs[0], VERBS, what='step')}")
        settings = Table(entry, f"{table.where}: steps").table(verb)
        steps.append(Step(verb, Table(entry, f"{table.where}: steps").text("name", verb), settings))
    for step in steps:
        if step.name != step.verb and (step.name in VERBS or sum(one.name == step.name for one in steps) > 1):
            raise table.error(f"steps: the name {step.name!r} occurs twice or is a verb.")
    return tuple(steps)


def _paper(
    table: Table, columns: Sequence[str], crossed: Sequence[str], axes: Sequence[Axis], names: NamesOfBase
) -> tuple[PaperNumber, ...]:
    """The paper's numbers of a row, without those of columns, axes and labels that the scale leaves out."""
    value = table.content.get("paper", [])
    entries = [value] if isinstance(value, Mapping) else value
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise table.error("paper: must be a table { COLUMN = NUMBER }, or a list of such tables with labels of axes.")
    labels = {axis.name: {*axis.labels, AVERAGE} for axis in axes if axis.name in crossed}
    numbers: list[PaperNumber] = []
    for entry in entries:
        coordinates: dict[str, str] = {}
        used = True
        for key, value in entry.items():
            if key in columns or key not in names.labels:
                continue
            label = label_of(value)
            if label not in {*names.labels[key], AVERAGE}:
                raise table.error(
                    f"paper: {key}: {unknown_name_message(label, sorted(names.labels[key]), what='label')}"
                )
            coordinates[key] = label
            used = used and label in labels.get(key, ())
        for key, value in entry.items():
            if key in coordinates:
                continue
            if key not in names.columns:
                raise table.error(f"paper: {unknown_name_message(key, columns, what='column')}")
            number, sd = _number(table, key, value)
            if used and key in columns:
                numbers.append(PaperNumber(coordinates, key, number, sd))
    return tuple(numbers)


def _number(table: Table, column: str, value: Any) -> tuple[float, float | None]:
    """A number, or a number and its standard deviation."""
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    if any(isinstance(part, bool) or not isinstance(part, int | float) for part in parts):
        raise table.error(f"paper: {column} = {format_value(value)}: must be a number, or [mean, standard deviation].")
    return float(parts[0]), float(parts[1]) if len(parts) == 2 else None


def read_plots(table: Table, axes: Sequence[Axis], rows: Collection[str]) -> tuple[Plot, ...]:
    """The plots of a study: the table ``[plot]``, or several under ``[[plot]]``."""
    value = table.content.get("plot", [])
    plots = []
    for content in [value] if isinstance(value, Mapping) else table.tables("plot"):
        plot = Table(content, f"{table.where}: plot")
        plot.check_keys(("kind", "x", "y", "value", "row", "title"))
        kind = plot.choice("kind", get_args(PlotKind), required=True)
        x, y = plot.text("x"), plot.text("y")
        known = [axis.name for axis in axes]
        for key, name in (("x", x), ("y", y)):
            if name is not None and kind in ("heat map", "lines") and name not in {*known, "row"}:
                raise plot.error(f"{key}: {unknown_name_message(name, [*known, 'row'], what='axis')}")
        if (row := plot.text("row")) is not None and row not in rows:
            raise plot.error(f"row: {unknown_name_message(row, rows, what='row')}")
        plots.append(Plot(kind, x, y, plot.text("value"), row, plot.text("title")))
    return tuple(plots)
