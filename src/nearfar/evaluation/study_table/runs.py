"""The runs of a table by group: values of all columns, averages over axes, and the replicates that are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nearfar.evaluation.results import GeometryResult
from nearfar.evaluation.study_table.cells import FinishedCell
from nearfar.evaluation.study_table.columns import ColumnValue, available_columns, column_value, mean_value
from nearfar.evaluation.study_table.plan import AVERAGE, NOT_MEASURED, Plan
from nearfar.evaluation.study_table.unseen import AVERAGE_UNSEEN, SUFFIX, UnseenByAll
from nearfar.types import NearfarError


@dataclass
class Run:
    """One finished run, or the average of the runs of one replicate over the labels of an axis."""

    row: str
    coordinates: Mapping[str, str]
    replicate: Mapping[str, Any]
    columns: Mapping[str, ColumnValue]
    cell: FinishedCell | None
    """None for an average."""
    validation: float | None
    key: str
    chosen: bool = True


@dataclass
class Group:
    """All replicates of a row at the same coordinates."""

    row: str
    coordinates: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    """Different runs; replicates with the same key are one run."""
    missing: list[FinishedCell] = field(default_factory=list)
    fixed: bool = False
    """Whether all replicates are the same run, such as a baseline without training."""

    @property
    def kept(self) -> list[Run]:
        """The runs that enter means and tests."""
        return [run for run in self.runs if run.chosen]


def runs_of(plan: Plan, cells: Sequence[FinishedCell], unseen: UnseenByAll) -> list[Run]:
    """The finished runs with the value of each column.

    Raises:
        NearfarError: all runs are finished, and a column is in none of them.
    """
    finished = [cell for cell in cells if cell.missing is None]
    names = [column for column in plan.columns if column not in (AVERAGE, AVERAGE_UNSEEN)]

    def value(name: str, cell: FinishedCell) -> ColumnValue | None:
        return unseen.column(name, cell) if name.endswith(SUFFIX) else column_value(name, cell, plan.aggregate)

    found = [{name: value(name, cell) for name in names} for cell in finished]
    for name in names if len(finished) == len(cells) else ():  # an unfinished run may have it
        if all(values[name] is None for values in found):
            raise NearfarError(
                f"column {name!r}: no run of the study has it; there are {', '.join(available_columns(finished))}, "
                "and TASK.METRIC such as stsb.pearson or mrpc.f1."
            )
    tasks = [
        name for name in names if any((one := values[name]) is not None and one.kind == "task" for values in found)
    ]
    if AVERAGE in plan.columns and len(finished) == len(cells) and not tasks:
        raise NearfarError("column 'average': the study has no column that is a task.")
    similarity = [name for name in tasks if name in unseen.tasks]
    if AVERAGE_UNSEEN in plan.columns and len(finished) == len(cells) and not similarity:
        raise NearfarError(f"column {AVERAGE_UNSEEN!r}: the study has no column that is a similarity task.")
    runs = []
    for cell, values in zip(finished, found, strict=True):
        columns = {name: value or ColumnValue(None, NOT_MEASURED, kind="number") for name, value in values.items()}
        if AVERAGE in plan.columns:
            columns[AVERAGE] = mean_value({name: values[name] for name in tasks})
        if AVERAGE_UNSEEN in plan.columns:
            columns[AVERAGE_UNSEEN] = mean_value({name: unseen.column(f"{name}{SUFFIX}", cell) for name in similarity})
        columns = {name: columns[name] for name in plan.columns}
        runs.append(Run(cell.row, cell.coordinates, cell.replicate, columns, cell, cell.validation, cell.key))
    return runs


def group_runs(plan: Plan, cells: Sequence[FinishedCell], runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of rows and labels, with those of averages over axes."""
    groups: dict[tuple[Any, ...], Group] = {}
    finished = iter(runs)
    for cell in cells:
        group = groups.setdefault(_place(cell.row, cell.coordinates), Group(cell.row, dict(cell.coordinates)))
        if cell.missing is not None:
            group.missing.append(cell)
            continue
        run = next(finished)
        if run.key and any(run.key == other.key for other in group.runs):
            group.fixed = True
            run.chosen = False
            continue
        group.fixed = group.fixed or not run.replicate
        group.runs.append(run)
    for group in groups.values():
        group.fixed = group.fixed and len(group.runs) == 1
        _choose(plan, group)
    for axis in plan.axes.values():
        if axis.averaged:
            groups |= {_place(one.row, one.coordinates): one for one in _averages(plan, axis.name, groups.values())}
    for row in plan.rows.keys() - {group.row for group in groups.values()}:  # rows with the paper's numbers alone
        for coordinates in plan.paper_coordinates(row) or [{}]:
            if all(label in plan.axes[name].labels for name, label in coordinates.items()):
                groups[_place(row, coordinates)] = Group(row, coordinates)
    rows, labels = list(plan.rows), {name: list(axis.labels) for name, axis in plan.axes.items()}

    def order(group: Group) -> list[int]:
        places = [labels[name].index(label) + 1 for name, label in group.coordinates.items() if name in labels]
        return [rows.index(group.row), *places]

    return sorted(groups.values(), key=order)


def _place(row: str, coordinates: Mapping[str, str]) -> tuple[Any, ...]:
    return row, *sorted(coordinates.items())


def _choose(plan: Plan, group: Group) -> None:
    """Keep the best replicates by validation; ties keep the order of the study."""
    if plan.best is None:
        return
    best = sorted(group.runs, key=lambda run: -(run.validation or 0.0))[: plan.best]
    for run in group.runs:
        run.chosen = run in best


def _averages(plan: Plan, axis: str, groups: Any) -> list[Group]:
    """For each row, and the coordinates on the other axes, the average over the labels of one axis."""
    parts: dict[tuple[Any, ...], dict[str, Group]] = {}
    for group in groups:
        if axis in group.coordinates:
            others = {name: label for name, label in group.coordinates.items() if name != axis}
            parts.setdefault(_place(group.row, others), {})[group.coordinates[axis]] = group
    found = []
    for by_label in parts.values():
        members = [by_label.get(label) for label in plan.axes[axis].averaged]
        known = [member for member in members if member is not None]
        if not known:
            continue
        coordinates = {**known[0].coordinates, axis: AVERAGE}
        group = Group(known[0].row, coordinates, missing=[cell for one in known for cell in one.missing])
        group.fixed = all(member.fixed for member in known)
        if len(known) == len(members):
            group.runs = _average_runs(plan, axis, known, coordinates)
        found.append(group)
    return found


def _average_runs(plan: Plan, axis: str, members: Sequence[Group], coordinates: Mapping[str, str]) -> list[Run]:
    """Averages by replicate; where the best are kept, of the runs with the same rank by validation."""
    if plan.best is not None:
        ranked = [sorted(one.kept, key=lambda run: -(run.validation or 0.0)) for one in members]
        ranked = [runs if len(runs) > 1 else runs * max(map(len, ranked)) for runs in ranked]
        sets = [({"rank": number}, list(runs)) for number, runs in enumerate(zip(*ranked, strict=False), 1)]
    else:
        several = [one for one in members if not one.fixed]
        replicates = [run.replicate for run in several[0].kept] if several else [{}]
        sets = []
        for replicate in replicates:
            matched = [
                next((run for run in one.kept if one.fixed or run.replicate == replicate), None) for one in members
            ]
            complete = [run for run in matched if run is not None]
            if len(complete) == len(members):
                sets.append((dict(replicate), complete))
    runs = []
    for replicate, parts in sets:
        columns = {
            column: replace(
                mean_value({run.coordinates[axis]: run.columns[column] for run in parts}),
                kind=parts[0].columns[column].kind,
            )
            for column in plan.columns
        }
        keys = "+".join(run.key for run in parts)
        runs.append(Run(parts[0].row, coordinates, replicate, columns, None, None, keys))
    return runs


def geometry_of(run: Run) -> GeometryResult | None:
    """The last geometry of a run."""
    results = run.cell.results if run.cell else ()
    return next((one for one in reversed(results) if isinstance(one, GeometryResult)), None)
