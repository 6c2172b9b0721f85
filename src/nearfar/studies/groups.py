"""The scores of a study as one frame: a line for each run and column, in groups of replicates.

A *group* holds all replicates of a row at the same labels of its axes (its coordinates). Its number is its place in the
table. Averages over the labels of an axis are groups of their own, whose runs are averages of one replicate each.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from msgspec import structs

from nearfar.evaluation.results import StudyCell, StudyTable
from nearfar.studies.scores import Columns, Value, mean_value
from nearfar.studies.spec import AVERAGE, Axis, Coordinates, Study, read_recorded
from nearfar.studies.units import Place, TestData, place_of

NO_RUN = "no run of nearfar"
RANK = "rank "
"""Begins what an average of the best replicates has in place of a replicate."""
Group: TypeAlias = tuple[str, Coordinates]
"""A row and its coordinates."""


class Scores:
    """The runs of a study that enter means and tests, and the values of their columns.

    Attributes:
        groups: row and coordinates, in the order of rows and labels; rows with numbers of the paper alone too.
        frame: ``group``, a number in ``groups``; ``run``, a number in the cells, or -1 of an average; ``replicate``, a
            text; ``column``; its ``score``, a :class:`~nearfar.studies.scores.Value`, and the ``value`` and ``reason``
            of it. Replicates with the same key are one run, which counts once.
        missing: group -> why its runs without results have none.
    """

    def __init__(self, study: Study, cells: Sequence[StudyCell], values: Sequence[Columns]) -> None:
        self.study = study
        self.groups = _groups(study, cells)
        self._numbers = {_key(*group): number for number, group in enumerate(self.groups)}
        self.missing: dict[int, list[str]] = defaultdict(list)
        runs = pd.DataFrame(
            [
                (self.number(cell.row, cell.coordinates), number, cell.key or f"run {number}", place_of(cell)[2])
                for number, cell in enumerate(cells)
                if cell.missing is None
            ],
            columns=["group", "run", "key", "replicate"],
        )
        for cell in cells:
            if cell.missing is not None:
                self.missing[self.number(cell.row, cell.coordinates)].append(cell.missing)
        replicates = runs.groupby("group")["run"].transform("size")
        runs = runs.assign(replicates=replicates).drop_duplicates(["group", "key"])
        alone = runs.groupby("group")["run"].transform("size") == 1
        fixed = alone & ((runs["replicates"] > 1) | (runs["replicate"] == "{}"))
        runs = runs.assign(fixed=fixed, match=runs["replicate"])
        if study.kept is not None:
            validation = runs["run"].map([cell.values.get("validation") or 0.0 for cell in cells].__getitem__)
            rank = validation.groupby(runs["group"]).rank(method="first", ascending=False)
            best = rank <= study.kept
            runs = runs.assign(match=[f"{RANK}{one:.0f}" for one in rank])[best]
            runs["fixed"] |= runs.groupby("group")["run"].transform("size") == 1  # the same for all ranks
        shown = set(study.columns)
        scores = [(run, column, one) for run in runs["run"] for column, one in values[run].items() if column in shown]
        frame = pd.DataFrame(scores, columns=["run", "column", "score"]).merge(runs, on="run", how="left")
        parts = [frame]
        for number, axis in self._averages():
            parts.append(self._average(pd.concat(parts), number, axis))
        frame = pd.concat(parts, ignore_index=True)
        frame["value"] = pd.Series([one.value for one in frame["score"]], dtype=float)
        frame["reason"] = pd.Series([one.reason for one in frame["score"]], dtype=object)
        self.frame = frame[["group", "run", "replicate", "column", "score", "value", "reason"]]
        self._values = dict(iter(self.frame.groupby(["group", "column"], sort=False)))

    def number(self, row: str, coordinates: Coordinates) -> int:
        """The number of a group."""
        return self._numbers[_key(row, coordinates)]

    def runs(self, group: int, column: str) -> pd.DataFrame:
        """The lines of a group and a column."""
        known: Any = self._values.get((group, column))
        return self.frame.iloc[:0] if known is None else known

    def values(self, group: int, column: str) -> list[Value]:
        """The values of a column in the runs of a group."""
        return self.runs(group, column)["score"].tolist()

    def data(self) -> Iterator[TestData]:
        """The test data of all runs."""
        for one in self.frame["score"]:
            yield from one.data or ()

    def summary(self) -> pd.DataFrame:
        """For each group and column: n (different runs), missing, mean, sd and why the mean is undefined.

        A mean is undefined without a run, or where the value of a run is; the standard deviation is that of a sample.
        """
        by = self.frame.groupby(["group", "column"], sort=False)
        known = by.agg(
            n=("value", "size"),
            mean=("value", lambda values: np.mean(values.to_numpy())),  # of pandas' own, the last digit differs
            sd=("value", lambda values: np.std(values.to_numpy(), ddof=1) if len(values) > 1 else None),
            reason=("reason", "first"),
        )
        every = pd.MultiIndex.from_product([range(len(self.groups)), self.study.columns], names=["group", "column"])
        summary = known.reindex(every).reset_index()
        missing = summary["group"].map(lambda group: self.missing.get(group, []))
        empty = summary["n"].isna()
        summary.loc[empty, "reason"] = [(why or [NO_RUN])[0] for why in missing[empty]]
        summary.insert(3, "missing", missing.map(len))
        return summary.assign(n=summary["n"].fillna(0).astype(int))

    def _averages(self) -> list[tuple[int, Axis]]:
        """The groups that are averages, and the axis over whose labels; those over several axes last."""
        averages = []
        for number, (_, coordinates) in enumerate(self.groups):
            over = [axis for axis in self.study.axes if coordinates.get(axis.name) == AVERAGE]
            averages += [(len(over), number, over[-1])] if over else []
        return [(number, axis) for _, number, axis in sorted(averages, key=lambda one: one[0])]

    def _average(self, frame: pd.DataFrame, number: int, axis: Axis) -> pd.DataFrame:
        """The runs of an average: those of the same replicate, or of the same rank where the best are kept.

        A group with one run for all replicates takes part in each.
        """
        row, coordinates = self.groups[number]
        at = {label: self._numbers.get(_key(row, {**coordinates, axis.name: label})) for label in axis.averaged}
        label_of = {group: label for label, group in at.items() if group is not None}
        for group in label_of:
            self.missing[number] += self.missing.get(group, [])
        members = frame[frame["group"].isin(label_of)]
        own = members[~members["fixed"].astype(bool)]
        matches = list(dict.fromkeys(own["match"])) or ["{}" if self.study.kept is None else f"{RANK}1"]
        fixed = [members[members["fixed"].astype(bool)].assign(match=match) for match in matches]
        lines = []
        for (match, column), some in pd.concat([own, *fixed]).groupby(["match", "column"], sort=False):
            by_label = dict(zip(some["group"].map(label_of), some["score"], strict=True))
            if len(by_label) == len(axis.averaged):
                mean = mean_value({label: by_label[label] for label in axis.averaged})
                lines.append((number, -1, match, match, own.empty, column, mean))
        return pd.DataFrame(lines, columns=["group", "run", "replicate", "match", "fixed", "column", "score"])


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
                column: Value(cell.values.get(column), cell.reasons.get(column), data=data.get(column))
                for column in table.columns
            }
        )
    return Scores(study, table.cells, values)
