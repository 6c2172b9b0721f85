"""What a study file says about its table: rows, axes, columns, the paper's numbers, and what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.study_table.cells import FinishedCell, describe
from nearfar.types import NearfarError

AVERAGE = "average"
"""The label of the mean over the labels of an axis."""
POSITIONS = ("pairs", "labels")
"""Kinds of plots that show where texts lie by t-SNE."""
NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
_TESTED = (".task", ".tasks", ".pairs", ".labelled", ".mteb")
"""Ends of the settings that say what is tested."""


class Placed(Protocol):
    """A run or a group of a study."""

    @property
    def row(self) -> str:
        """The id of the row."""

    @property
    def coordinates(self) -> Mapping[str, str]:
        """Axis -> label."""


@dataclass(frozen=True)
class Axis:
    """One axis of a study."""

    name: str
    labels: tuple[str, ...]
    """In the order of the file, the average last."""
    display: str
    """``rows``, ``columns`` or ``x``."""
    positions: tuple[float, ...] | None
    """The numbers of the labels on a plot, without the average; None for labels that are not numbers."""
    baseline: str | None
    """The label that all others are compared with."""
    other_test: bool
    """Whether its labels are tested on different tasks, so that their scores have no order."""
    averaged: tuple[str, ...]
    """The labels that the average is over; empty where there is none."""


@dataclass(frozen=True)
class Row:
    """One row of a study."""

    id: str
    name: str
    note: str
    paper: tuple[Mapping[str, Any], ...]
    """Entries with coordinates and the numbers of columns."""


@dataclass(frozen=True)
class Plan:
    """The parts of a study file that its table depends on."""

    columns: tuple[str, ...]
    headings: Mapping[str, str]
    aggregate: Aggregate
    rows: Mapping[str, Row]
    axes: Mapping[str, Axis]
    compare: tuple[tuple[str, str], ...]
    compared_columns: tuple[str, ...] | None
    best: int | None
    """Number of replicates that enter means and tests, the best ones by validation; None for all."""
    shows_positions: bool
    """Whether a plot shows texts by t-SNE."""

    def heading(self, column: str) -> str:
        """The heading of a column."""
        return self.headings.get(column, column.removeprefix("average:"))

    def paper_coordinates(self, row: str) -> list[dict[str, str]]:
        """The coordinates of the paper's numbers of a row."""
        entries = [{name: str(entry[name]) for name in self.axes if name in entry} for entry in self.rows[row].paper]
        return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]

    def paper(self, row: str, coordinates: Mapping[str, str], column: str) -> tuple[float, float | None] | None:
        """The paper's number and its standard deviation, where the file has them.

        An entry without the label of an axis is for all of its labels; an entry with more labels is preferred.
        """
        found = None
        for entry in self.rows[row].paper if row in self.rows else ():
            axes = [name for name in self.axes if name in entry]
            if column not in entry or not all(same_label(entry[name], coordinates.get(name)) for name in axes):
                continue
            if any(label == AVERAGE and name not in axes for name, label in coordinates.items()):
                continue  # a number for all labels of an axis is not their average
            if found is None or len(axes) > found[0]:
                found = len(axes), entry[column]
        if found is None or found[1] is None:
            return None
        numbers = found[1] if isinstance(found[1], Sequence) else [found[1]]
        return float(numbers[0]), float(numbers[1]) if len(numbers) > 1 else None


def read_plan(study: Mapping[str, Any], cells: Sequence[Placed]) -> Plan:
    """The plan of a study file after its overlay; labels of axes are taken from the cells where the file has none.

    Raises:
        NearfarError: no title or columns, a row without id, an unknown aggregate, or a comparison with an unknown row.
    """
    aggregate = study.get("aggregate", "all")
    if aggregate not in AGGREGATES:
        raise NearfarError(f"aggregate {aggregate!r}: take one of {', '.join(AGGREGATES)}.")
    if not study.get("columns"):
        raise NearfarError("the study has no columns; name at least one, such as columns = ['stsb'].")
    rows = {}
    for number, row in enumerate(study.get("rows") or [], 1):
        if "id" not in row:
            raise NearfarError(f"row {number} of the study has no id.")
        paper = row.get("paper") or []
        entries = (paper,) if isinstance(paper, Mapping) else tuple(paper)
        rows[str(row["id"])] = Row(str(row["id"]), str(row.get("name") or row["id"]), str(row.get("note", "")), entries)
    for cell in cells:
        if cell.row not in rows:
            raise NearfarError(f"the study has no row {cell.row!r}, only {', '.join(rows)}.")
    best = study.get("best")
    compared = study.get("compare_columns")
    for column in compared or ():
        if column not in study["columns"]:
            raise NearfarError(f"compare_columns: the study has no column {column!r}.")
    return Plan(
        columns=tuple(study["columns"]),
        headings=dict(study.get("titles") or {}),
        aggregate=aggregate,
        rows=rows,
        axes={axis["name"]: _axis(axis, cells) for axis in study.get("axes") or []},
        compare=tuple(_pairs(study, rows)),
        compared_columns=None if compared is None else tuple(compared),
        best=None if best is None else int(best["count"]),
        shows_positions=any(plot.get("kind") in POSITIONS for plot in plots_of(study)),
    )


def plots_of(study: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The plots that a study file asks for."""
    given = study.get("plot") or []
    return [given] if isinstance(given, Mapping) else list(given)


def same_label(first: object, second: object) -> bool:
    """Whether two labels are the same text or the same number."""
    if str(first) == str(second):
        return True
    numbers = _number(first), _number(second)
    return None not in numbers and numbers[0] == numbers[1]


def agree(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether two sets of coordinates agree on the axes that both have."""
    return all(second[name] == label for name, label in first.items() if name in second)


def check_validation(plan: Plan, cells: Sequence[FinishedCell]) -> None:
    """Refuse to choose replicates by a validation score that they do not have.

    Raises:
        NearfarError: it names the first run without one.
    """
    for cell in cells if plan.best else ():
        if cell.missing is None and cell.validation is None:
            raise NearfarError(
                f"row {cell.row}{describe({**cell.coordinates, **cell.replicate})} has no validation score, by which "
                "the study keeps its best replicates. Remove [best], or train with a dev set."
            )


def _axis(axis: Mapping[str, Any], cells: Sequence[Placed]) -> Axis:
    name = str(axis["name"])
    given = [str(label) for label in axis.get("labels") or []]
    found = [cell.coordinates[name] for cell in cells if name in cell.coordinates]
    labels = [label for label in dict.fromkeys([*given, *found]) if label != AVERAGE]
    average = axis.get("average")
    averaged = tuple(labels if average is True else map(str, average or []))
    values = axis.get("values") or []
    if len(values) != len(labels) or any(_number(value) is None for value in values):
        values = labels
    positions = [number for value in values if (number := _number(value)) is not None]
    baseline = axis.get("compare_with")
    for label in [*averaged, *([] if baseline is None else [str(baseline)])]:
        if labels and not any(same_label(label, other) for other in labels):
            raise NearfarError(f"axis {name}: has no label {label!r}, only {', '.join(labels)}.")
    return Axis(
        name=name,
        labels=(*labels, AVERAGE) if averaged else tuple(labels),
        display=str(axis.get("as", "rows")),
        positions=tuple(positions) if len(positions) == len(labels) else None,
        baseline=None if baseline is None else _canonical(baseline, labels),
        other_test=any(
            str(setting).endswith(_TESTED) for setting in [axis.get("setting"), *(axis.get("settings") or [])]
        ),
        averaged=tuple(_canonical(label, labels) for label in averaged),
    )


def _canonical(label: object, labels: Sequence[str]) -> str:
    return next((other for other in labels if same_label(label, other)), str(label))


def _pairs(study: Mapping[str, Any], rows: Mapping[str, Row]) -> list[tuple[str, str]]:
    pairs = [(str(pair[0]), str(pair[1])) for pair in study.get("compare") or []]
    reference = study.get("compare_with")
    references = [reference] if isinstance(reference, str) else list(reference or [])
    pairs += [(row, other) for other in references for row in rows if row != other]
    for row in [row for pair in pairs for row in pair] + references:
        if row not in rows:
            raise NearfarError(f"compare: the study has no row {row!r}, only {', '.join(rows)}.")
    return list(dict.fromkeys(pairs))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(str(value))
    except ValueError:
        return None
