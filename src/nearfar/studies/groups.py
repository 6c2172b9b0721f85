"""Runs of a study with the numbers of their columns, and the groups of replicates that a table shows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import structs

from nearfar.evaluation.results import EvaluationResult, GeometryResult, ModelGeometry, StudyTable
from nearfar.studies.spec import AVERAGE, Axis, Coordinates, Study, read_recorded
from nearfar.studies.units import Place, TestData, place_of

NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
OF_RUNS = ("validation", "seconds")
"""Columns that any run may have or lack."""


@dataclass(frozen=True)
class ColumnValue:
    """A column of one run."""

    value: float | None
    reason: str | None = None
    """Why there is no value."""
    low: float | None = None
    high: float | None = None
    data: tuple[TestData, ...] | None = None
    """What is resampled; the mean over several. None where only replicates can be tested."""
    kind: Literal["task", "score", "number"] = "score"
    """``number`` is a measure of the run that is not compared unless the study asks for it, such as its time."""


@dataclass
class Run:
    """One run of a study and its results; a run without results says in ``missing`` why.

    ``results`` are the results of its last steps: evaluations (fine-tuning writes one too), geometry, or a mapping of
    names to numbers, each of which is a column (``updates_per_second``). A run from the record of a table, and an
    average over the labels of an axis, have columns alone.
    """

    row: str
    coordinates: Coordinates = field(default_factory=dict)
    replicate: Mapping[str, Any] = field(default_factory=dict)
    """Setting -> its value."""
    results: Sequence[EvaluationResult | GeometryResult | Mapping[str, Any]] = ()
    validation: float | None = None
    """The score that chooses among replicates, x 100."""
    seconds: float | None = None
    key: str = ""
    """Runs with equal keys are the same run."""
    missing: str | None = None
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Measure over training -> points (step, value)."""
    columns: Mapping[str, ColumnValue] = field(default_factory=dict)
    """The columns of the study."""

    @property
    def name(self) -> str:
        """The run in words, for messages: ``scl (lambda = 0.3; seed = 1)``."""
        parts = [f"{name} = {value}" for name, value in {**self.coordinates, **self.replicate}.items()]
        return f"{self.row} ({'; '.join(parts)})" if parts else self.row

    @property
    def evaluations(self) -> list[EvaluationResult]:
        """Its evaluations."""
        return [one for one in self.results if isinstance(one, EvaluationResult)]

    @property
    def geometry(self) -> ModelGeometry | None:
        """The last geometry."""
        last = next((one for one in reversed(self.results) if isinstance(one, GeometryResult)), None)
        return None if last is None else list(last.models.values())[-1]


class Score(NamedTuple):
    """One column of one group: the mean over its runs, beside the paper's number."""

    n: int
    """Number of different runs."""
    mean: float | None
    """None without a finished run, or where the value of a run is undefined."""
    sd: float | None
    """The sample standard deviation (n - 1); None for fewer than two runs."""
    reason: str | None
    """Why the mean is undefined."""


@dataclass
class Group:
    """All replicates of a row at the same coordinates."""

    row: str
    coordinates: Coordinates
    kept: list[Run] = field(default_factory=list)
    """The different runs that enter means and tests; replicates with the same key are one run."""
    missing: list[Run] = field(default_factory=list)
    fixed: bool = False
    """Whether all replicates are the same run, such as a baseline without training."""

    @property
    def place(self) -> tuple[str, frozenset[tuple[str, str]]]:
        """What no other group has."""
        return self.row, frozenset(self.coordinates.items())

    def values(self, column: str) -> list[ColumnValue]:
        """The values of its runs."""
        return [run.columns[column] for run in self.kept]

    def score(self, column: str) -> Score:
        """Mean and standard deviation of a column over its runs."""
        values = self.values(column)
        known = [value.value for value in values if value.value is not None]
        if not values:
            return Score(0, None, None, next((run.missing for run in self.missing), "no run of nearfar"))
        if len(known) < len(values):
            return Score(len(values), None, None, next((value.reason for value in values if value.reason), None))
        sd = float(np.std(known, ddof=1)) if len(known) > 1 else None
        return Score(len(known), float(np.mean(known)), sd, None)


def rounded(value: float | None) -> float | None:
    """A number as it is stored; None where it is undefined."""
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def mean_value(members: Mapping[str, ColumnValue | None]) -> ColumnValue:
    """The mean of several columns or runs, by name; undefined where one of them is."""
    known = [one for one in members.values() if one is not None and one.value is not None]
    if not members:
        return ColumnValue(None, NOT_MEASURED)
    if len(known) < len(members):
        name, one = next((name, one) for name, one in members.items() if one is None or one.value is None)
        return ColumnValue(None, f"{name}: {one.reason if one and one.reason else NOT_MEASURED}")
    data = sum((one.data or () for one in known), ()) if all(one.data for one in known) else None
    return ColumnValue(rounded(sum(one.value for one in known if one.value is not None) / len(known)), data=data)


def study_of(table: StudyTable) -> Study:
    """The study of the record of a table, with the columns that are shown."""
    return structs.replace(read_recorded(table.study), columns=tuple(table.columns))


def data_of(groups: Iterable[Group]) -> Iterator[TestData]:
    """The test data of all runs that enter means and comparisons."""
    for run in (run for group in groups for run in group.kept):
        for value in run.columns.values():
            yield from value.data or ()


def runs_of(table: StudyTable, units: Mapping[Place, Mapping[str, tuple[TestData, ...]]] | None = None) -> list[Run]:
    """The runs of the record of a table, with the scores of their ``units``, as of units.parquet."""
    runs = []
    for cell in table.cells:
        run = Run(cell.row, cell.coordinates, cell.replicate, key=cell.key, missing=cell.missing)
        run.validation = cell.values.get("validation")
        data = (units or {}).get(place_of(cell.row, cell.coordinates, cell.replicate), {})
        run.columns = {
            column: ColumnValue(cell.values.get(column), cell.reasons.get(column), data=data.get(column))
            for column in table.columns
        }
        runs.append(run)
    return runs


def group_runs(study: Study, runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of rows and labels, with those of averages over axes, and rows of the paper's numbers."""
    groups: dict[tuple[Any, ...], Group] = {}

    def group_of(row: str, coordinates: Mapping[str, str]) -> Group:
        group = Group(row, dict(coordinates))
        return groups.setdefault(group.place, group)

    for run in runs:
        group = group_of(run.row, run.coordinates)
        if run.missing is not None:
            group.missing.append(run)
        elif run.key and any(run.key == other.key for other in group.kept):
            group.fixed = True
        else:
            group.fixed |= not run.replicate
            group.kept.append(run)
    for group in groups.values():
        group.fixed &= len(group.kept) == 1
        best = _ranked(group.kept)[: study.kept]
        group.kept = [run for run in group.kept if any(run is one for one in best)]
    for axis in study.axes:
        if axis.averaged:
            groups |= {one.place: one for one in list(_averages(study, axis, groups.values()))}
    labels = {axis.name: axis.shown_labels for axis in study.axes}
    with_runs = {group.row for group in groups.values()}
    for row in study.rows:
        for place in [number.coordinates for number in study.paper[row.id]] or [{}] * bool(study.steps_of(row)):
            if row.id not in with_runs and all(label in labels[name] for name, label in place.items()):
                group_of(row.id, place)
    rows = [row.id for row in study.rows]

    def order(group: Group) -> list[int]:
        places = [labels[name].index(label) + 1 for name, label in group.coordinates.items() if name in labels]
        return [rows.index(group.row), *places]

    return sorted(groups.values(), key=order)


def _ranked(runs: Iterable[Run]) -> list[Run]:
    """The best by validation first; ties keep the order of the study."""
    return sorted(runs, key=lambda run: -(run.validation or 0.0))


def _averages(study: Study, axis: Axis, groups: Iterable[Group]) -> Iterator[Group]:
    """For each row, and the coordinates on the other axes, the average over the labels of one axis."""
    parts: dict[tuple[Any, ...], dict[str, Group]] = {}
    for group in groups:
        if axis.name in group.coordinates:
            others = {name: label for name, label in group.coordinates.items() if name != axis.name}
            parts.setdefault(Group(group.row, others).place, {})[group.coordinates[axis.name]] = group
    for by_label in parts.values():
        members = [by_label[label] for label in axis.averaged if label in by_label]
        if members:
            average = Group(members[0].row, {**members[0].coordinates, axis.name: AVERAGE})
            average.missing = [run for one in members for run in one.missing]
            average.fixed = all(member.fixed for member in members)
            for replicate, runs in _matched(study, members) if len(members) == len(axis.averaged) else ():
                run = Run(average.row, average.coordinates, replicate, key="+".join(run.key for run in runs))
                run.columns = {
                    column: replace(
                        mean_value({run.coordinates[axis.name]: run.columns[column] for run in runs}),
                        kind=runs[0].columns[column].kind,
                    )
                    for column in study.columns
                }
                average.kept.append(run)
            yield average


def _matched(study: Study, members: Sequence[Group]) -> Iterator[tuple[Mapping[str, Any], Sequence[Run]]]:
    """Runs of several groups that belong together: of a replicate, or of a rank where the best are kept."""
    if study.kept is not None:
        ranked = [_ranked(one.kept) for one in members]
        most = max(map(len, ranked))
        ranked = [runs * most if len(runs) == 1 else runs for runs in ranked]
        for number, runs in enumerate(zip(*ranked, strict=False), 1):
            yield {"rank": number}, runs
        return
    several = [one for one in members if not one.fixed]
    for replicate in [run.replicate for run in several[0].kept] if several else [{}]:
        matched = [[run for run in one.kept if one.fixed or run.replicate == replicate][:1] for one in members]
        if all(matched):
            yield dict(replicate), [run for (run,) in matched]
