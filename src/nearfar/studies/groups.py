"""The scores of a study in groups of replicates.

A *group* holds all replicates of a row at the same labels of its axes (its coordinates). Its number is its place in the
table. Averages over the labels of an axis are groups of their own, whose runs are averages of one replicate each.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import structs

from nearfar.evaluation.results import StudyCell, StudyTable
from nearfar.studies.scores import Columns, Value, mean_value
from nearfar.studies.spec import AVERAGE, Axis, Coordinates, Study, read_recorded
from nearfar.studies.units import Place, TestData, place_of

RANK = "rank "
"""Begins what an average of the best replicates has in place of a replicate."""
Group: TypeAlias = tuple[str, Coordinates]
"""A row and its coordinates."""


class Member(NamedTuple):
    """A run of a group, or an average of one run of each of several groups."""

    run: int
    """The number of its cell; -1 of an average."""
    replicate: str
    match: str
    """What members have in common whose average is taken: the replicate, or the rank where the best are kept."""
    values: Columns


class Scores:
    """The runs of a study that enter means and tests, and the values of their columns.

    Attributes:
        groups: row and coordinates, in the order of rows and labels; rows with numbers of the paper alone too.
        members: group -> its runs. Replicates with the same key are one run, which counts once.
        missing: group -> why its runs without results have none.
    """

    def __init__(self, study: Study, cells: Sequence[StudyCell], values: Sequence[Columns]) -> None:
        self.study = study
        self.groups = _groups(study, cells)
        self._numbers = {_key(*group): number for number, group in enumerate(self.groups)}
        self.members: dict[int, list[Member]] = {number: [] for number in range(len(self.groups))}
        self.missing: dict[int, list[str]] = defaultdict(list)
        runs: dict[int, dict[str, int]] = defaultdict(dict)
        for run, cell in enumerate(cells):
            group = self.number(cell.row, cell.coordinates)
            if cell.missing is None:
                runs[group].setdefault(cell.key or f"run {run}", run)
            else:
                self.missing[group].append(cell.missing)
        for group, own in runs.items():
            names = matches = {run: place_of(cells[run])[2] for run in own.values()}
            if study.kept is not None:
                best = sorted(names, key=lambda run: -(cells[run].values.get("validation") or 0.0))[: study.kept]
                matches = {run: f"{RANK}{best.index(run) + 1}" for run in names if run in best}
            self.members[group] = [Member(run, names[run], match, values[run]) for run, match in matches.items()]
        averages = [
            ([axis for axis in study.axes if coordinates.get(axis.name) == AVERAGE], group)
            for group, (_, coordinates) in enumerate(self.groups)
        ]
        for axes, group in sorted(averages, key=lambda one: len(one[0])):  # those over several axes last
            if axes:
                self._average(group, axes[-1])

    def number(self, row: str, coordinates: Coordinates) -> int:
        """The number of a group."""
        return self._numbers[_key(row, coordinates)]

    def values(self, group: int, column: str) -> list[Value]:
        """The values of a column in the runs of a group."""
        return [one.values[column] for one in self.members[group]]

    def data(self) -> Iterator[TestData]:
        """The test data of all runs."""
        for column in self.study.columns:
            for group in self.members:
                for one in self.values(group, column):
                    yield from one.data

    def _average(self, number: int, axis: Axis) -> None:
        """Add the runs of an average: those of the same replicate, or of the same rank where the best are kept.

        The run of a group with only one takes part in each.
        """
        row, coordinates = self.groups[number]
        at = {label: self._numbers.get(_key(row, {**coordinates, axis.name: label})) for label in axis.averaged}
        groups = {label: group for label, group in at.items() if group is not None}
        self.missing[number] = [why for group in groups.values() for why in self.missing.get(group, ())]
        parts = {label: {one.match: one for one in self.members[group]} for label, group in groups.items()}
        fixed = {label: one for label, own in parts.items() for one in own.values() if len(own) == 1}
        matches = dict.fromkeys(match for label, own in parts.items() if label not in fixed for match in own)
        for match in matches or ["{}" if self.study.kept is None else f"{RANK}1"]:
            members = {label: fixed.get(label) or own.get(match) for label, own in parts.items()}
            known = {label: one.values for label, one in members.items() if one is not None}
            if len(known) == len(axis.averaged):
                means = {
                    column: mean_value({label: values[column] for label, values in known.items()})
                    for column in self.study.columns
                }
                self.members[number].append(Member(-1, match, match, means))


def _key(row: str, coordinates: Coordinates) -> tuple[str, frozenset[tuple[str, str]]]:
    return row, frozenset(coordinates.items())


def _groups(study: Study, cells: Sequence[StudyCell]) -> list[Group]:
    """The groups of all runs, of averages over axes, and of rows without runs: those with the paper's numbers."""
    groups: dict[Any, Group] = {_key(cell.row, cell.coordinates): (cell.row, cell.coordinates) for cell in cells}
    labels = {axis.name: axis.shown_labels for axis in study.axes}
    for axis in study.axes:
        averages = [
            (row, {**coordinates, axis.name: AVERAGE})
            for row, coordinates in groups.values()
            if coordinates.get(axis.name) in axis.averaged
        ]
        groups |= {_key(*group): group for group in averages}
    with_runs = {row for row, _ in groups.values()}
    for row in study.rows:
        for place in [number.coordinates for number in study.paper[row.id]] or [{}] * bool(study.steps_of(row)):
            if row.id not in with_runs and all(label in labels[name] for name, label in place.items()):
                groups.setdefault(_key(row.id, place), (row.id, place))
    rows = [row.id for row in study.rows]

    def order(group: Group) -> list[int]:
        places = [labels[name].index(label) + 1 for name, label in group[1].items() if name in labels]
        return [rows.index(group[0]), *places]

    return sorted(groups.values(), key=order)


def scores_of(table: StudyTable, units: Mapping[Place, Mapping[str, tuple[TestData, ...]]] | None = None) -> Scores:
    """The scores of the record of a table, with those of their ``units``, as of units.parquet."""
    study = structs.replace(read_recorded(table.study), columns=tuple(table.columns))
    values = []
    for cell in table.cells:
        data = (units or {}).get(place_of(cell), {})
        values.append(
            {
                column: Value(cell.values.get(column), cell.reasons.get(column), data=data.get(column, ()))
                for column in table.columns
            }
        )
    return Scores(study, table.cells, values)
