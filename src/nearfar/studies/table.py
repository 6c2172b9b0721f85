"""From the runs of a study to its table: the intervals of means and of differences between groups.

There is one interval for each mean and each difference, over test units (pairs, rows, queries) and training runs
together (:func:`nearfar.evaluation.statistics.crossed_difference`); all runs share the same resamples of the units.
Replicates of two rows belong together where both are trained by nearfar, or by the same script, with the same seeds.
p is corrected over all comparisons of the table, or of the columns that are its claims (Holm).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec import structs
from rich.console import Console
from rich.progress import track

from nearfar.evaluation.comparison import difference_fields, with_verdicts
from nearfar.evaluation.correlation import Floats, check_resampling
from nearfar.evaluation.results import (
    Provenance,
    StudyCell,
    StudyComparison,
    StudyCurve,
    StudyGroup,
    StudyProvenance,
    StudyTable,
    provenance,
)
from nearfar.evaluation.statistics import crossed_difference
from nearfar.studies.groups import (
    NOT_MEASURED,
    OF_RUNS,
    ColumnValue,
    Group,
    Run,
    data_of,
    group_runs,
    mean_value,
    rounded,
    runs_of,
    study_of,
)
from nearfar.studies.scores import AVERAGE_UNSEEN, UNSEEN_BY_ALL, UnseenByAll, available_columns, column_values
from nearfar.studies.spec import AVERAGE, NO_SCORES, Row, Study, agree, changes
from nearfar.studies.units import Resampler, place_of, read_units, write_units
from nearfar.types import NearfarError

_SPECTRUM_POINTS = 60


def build_table(
    study: Study,
    runs: Sequence[Run],
    *,
    command: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
    units: Path | None = None,
) -> StudyTable:
    """The table of a study from the results of its runs.

    Each group of replicates has the mean of each column, with a 95% interval. ``average`` is computed for each run
    before the mean over runs. With ``best`` in the study, means and comparisons are over the best replicates by
    validation alone. ``command`` runs the study again. The scores of single units that the compared columns rest on are
    written to the file ``units``.

    Raises:
        NearfarError: a column that no run has; no validation score where the study keeps the best replicates; fewer
            than one resample; ``units`` cannot be written.
    """
    check_resampling(resamples, seed, at_least=1)
    for run in runs if study.best else ():
        if run.missing is None and run.validation is None:
            raise NearfarError(
                f"row {run.name} has no validation score, by which the study keeps its best replicates. Remove [best], "
                "or train with a dev set."
            )
    finished = [run for run in runs if run.missing is None]
    unseen = UnseenByAll(finished)
    over_unseen = [column.removesuffix(UNSEEN_BY_ALL) for column in study.columns if column.endswith(UNSEEN_BY_ALL)]
    tasks = dict.fromkeys([*over_unseen, *(study.columns if AVERAGE_UNSEEN in study.columns else ())])
    columns = _fill_columns(study, finished, unseen, all_finished=len(finished) == len(runs))
    study = structs.replace(study, columns=columns)
    groups = group_runs(study, runs)
    compared = what_is_compared(study, groups)
    resampler = Resampler(data_of(groups), resamples=resamples, seed=seed)
    with_runs = [group for group in groups if group.kept]
    shown = track(with_runs, "resampling", console=Console(stderr=True), transient=True, disable=not progress)
    table = StudyTable(
        study=dict(study.content),
        columns=list(study.columns),
        scale=study.scale,
        changes=changes(study.base, study.content) if study.scale else [],
        command=command,
        resamples=resamples,
        seed=seed,
        provenance=replace(provenance(), command=None),  # the table has its own, without paths of this machine
        runs=_provenance(finished),
        unseen_pairs=unseen.counts(tasks),
        groups=[_summarise(study, group, resampler) for group in shown],
        comparisons=compare_groups(study, compared, resampler),
        cells=[_cell(run) for run in runs],
    )
    if units is not None:
        kept = {id(run) for group in groups for run in group.kept}
        tested = dict.fromkeys(one.column for one in compared)
        scores = {}
        for run in (run for run in finished if id(run) in kept):
            place = place_of(run.row, run.coordinates, run.replicate)
            scores[place] = {name: run.columns[name].data or () for name in tested}
        write_units(units, scores)
    return table


def _cell(run: Run) -> StudyCell:
    values = {name: value.value for name, value in run.columns.items()}
    measured = {"validation": rounded(run.validation), "seconds": rounded(run.seconds)}
    return StudyCell(
        row=run.row,
        coordinates=dict(run.coordinates),
        replicate=dict(run.replicate),
        key=run.key,
        values=values | {name: value for name, value in measured.items() if value is not None},
        reasons={name: value.reason for name, value in run.columns.items() if value.reason},
        missing=run.missing,
    )


def _fill_columns(study: Study, runs: Sequence[Run], unseen: UnseenByAll, *, all_finished: bool) -> tuple[str, ...]:
    """Give each finished run the value of each column; returns the columns that are shown.

    A column on unseen pairs is not shown where no pair was seen, because it repeats another, unless it is all there is.

    Raises:
        NearfarError: all runs are finished, and a column is in none of them.
    """
    names = [column for column in study.columns if column not in (AVERAGE, AVERAGE_UNSEEN)]
    every = [column_values(run, names, study.aggregate) for run in runs]
    for run, values in zip(runs, every, strict=True):
        values |= {name: unseen.column(name, run) for name in names if name.endswith(UNSEEN_BY_ALL)}
    tasks = [name for name in names if any((one := values[name]) and one.kind == "task" for values in every)]
    similarity = [name for name in tasks if name in unseen.tasks]
    if all_finished:  # an unfinished run may have a column that the others lack
        for name in names:
            if not any(values[name] for values in every):
                raise NearfarError(
                    f"column {name!r}: no run of the study has it; there are {', '.join(available_columns(runs))}, "
                    "and TASK.METRIC such as stsb.pearson or mrpc.f1."
                )
        for column, members, what in ((AVERAGE, tasks, "task"), (AVERAGE_UNSEEN, similarity, "similarity task")):
            if column in study.columns and not members:
                raise NearfarError(f"column {column!r}: the study has no column that is a {what}.")
    for run, values in zip(runs, every, strict=True):
        columns = {name: value or ColumnValue(None, NOT_MEASURED, kind="number") for name, value in values.items()}
        columns[AVERAGE] = mean_value({name: values[name] for name in tasks})
        if AVERAGE_UNSEEN in study.columns:
            columns[AVERAGE_UNSEEN] = mean_value({name: unseen.column(name, run) for name in similarity})
        run.columns = {name: replace(one := columns[name], value=rounded(one.value)) for name in study.columns}
        run.validation = rounded(run.validation)
    repeats = {
        column
        for column in study.columns
        if column.endswith(UNSEEN_BY_ALL)
        and not unseen.any_of(similarity if column == AVERAGE_UNSEEN else [column.removesuffix(UNSEEN_BY_ALL)])
    }
    return tuple(column for column in study.columns if runs and column not in repeats) or study.columns


def _summarise(study: Study, group: Group, resampler: Resampler) -> StudyGroup:
    shows_positions = any(plot.kind in ("pairs", "labels") for plot in study.plots or ())
    measured = [model for run in group.kept if (model := run.geometry) is not None]
    projections = [model.projection for model in measured if model.projection is not None]
    intervals = {column: _interval(group.values(column), resampler) for column in study.columns}
    return StudyGroup(
        row=group.row,
        coordinates=dict(group.coordinates),
        intervals={column: ends for column, ends in intervals.items() if ends is not None},
        spectrum=_spectrum([model.spectrum for model in measured]),
        layers=_layers([model.layers for model in measured if model.layers]),
        projection=next(iter(projections), None) if shows_positions else None,  # those of several have no mean
        curves=_curves([run.curves for run in group.kept]),
    )


def _interval(values: Sequence[ColumnValue], resampler: Resampler) -> list[float] | None:
    """The 95% interval of the mean of a column over runs; that of a single run is the evaluation's, if it has one."""
    if any(value.value is None for value in values):
        return None
    if len(values) == 1 and (low := values[0].low) is not None and (high := values[0].high) is not None:
        return [round(low, 4), round(high, 4)]
    is_resampled = _why_not_resampled(values) is None
    points, draws = _side(values, resampler if is_resampled else None)
    units = _units(values) if is_resampled else 1
    if not is_resampled and not np.ptp(points):
        return None
    found = crossed_difference((points, draws), (np.zeros(1), np.zeros_like(draws[:1])), units=units)
    return None if found is None else [round(100 * found.low, 4), round(100 * found.high, 4)]


def _why_not_resampled(values: Sequence[ColumnValue]) -> str | None:
    """Why the units of these values cannot be resampled together, or None where they can."""
    if not all(value.data for value in values):
        return "the scores of single units are not stored"
    tested = {frozenset(part.group for part in value.data or ()) for value in values}
    return None if len(tested) == 1 else "the runs were tested on different data"


def _units(values: Sequence[ColumnValue]) -> int:
    """The number of units that are resampled, over all tasks."""
    return sum(part.size for part in values[0].data or ())


def _bound(values: Sequence[ColumnValue]) -> float:
    """The bound of a unit's score, as in ``nearfar compare``: 1 where all tasks have means over units, else 0."""
    return float(all(part.statistic in ("accuracy", "mean") for part in values[0].data or ()))


def _side(values: Sequence[ColumnValue], resampler: Resampler | None) -> tuple[Floats, Floats]:
    """The scores x 1 of runs [runs], and on resamples of the units [runs, resamples] or as the only resample."""
    points = np.array([value.value for value in values], dtype=np.float64) / 100
    if resampler is None:
        return points, points[:, None]
    return points, np.array([resampler.of(value.data or ()) for value in values])


def _spectrum(spectra: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Mean singular values at indices with equal ratios."""
    if len({len(values) for values in spectra}) != 1 or not spectra[0]:
        return None
    mean = np.mean(spectra, axis=0)
    indices = np.unique(np.rint(np.geomspace(1, len(mean), _SPECTRUM_POINTS)).astype(int))
    return [[int(index), float(f"{mean[index - 1]:.4g}")] for index in indices]


def _layers(layers: Sequence[Mapping[str, Sequence[float | None]]]) -> dict[str, list[float | None]] | None:
    means: dict[str, list[float | None]] = {}
    for pooling in layers[0] if layers else ():
        columns = zip(*(one[pooling] for one in layers if pooling in one), strict=False)
        known = [[score for score in column if score is not None] for column in columns]
        means[pooling] = [round(sum(scores) / len(scores), 2) if scores else None for scores in known]
    return means or None


def _curves(curves: Sequence[Mapping[str, Sequence[tuple[float, float]]]]) -> dict[str, StudyCurve]:
    """Means of each curve at the steps that all runs have."""
    means = {}
    for name in dict.fromkeys(name for one in curves for name in one):
        own = pd.concat([pd.Series(dict(one[name])) for one in curves if name in one], axis=1, join="inner")
        mean = [round(one, 4) for one in own.mean(axis=1).tolist()]
        means[name] = StudyCurve(steps=own.index.tolist(), mean=mean, sd=[*map(rounded, own.std(axis=1).tolist())])
    return means


def _provenance(runs: Sequence[Run]) -> StudyProvenance:
    """The distinct provenances of all results."""
    given = [
        one.get("provenance") if isinstance(one, Mapping) else one.provenance for run in runs for one in run.results
    ]
    known = [one for one in given if isinstance(one, Provenance)]
    dates = sorted(one.date for one in known if one.date)
    versions = [(name, version) for one in known for name, version in (one.versions or {}).items() if version]
    machines = [[item for item in (one.hardware or {}).items() if item[1] is not None] for one in known]
    counted = Counter(repr(sorted(machine)) for machine in machines if machine)
    distinct = {repr(sorted(machine)): dict(machine) for machine in reversed(machines) if machine}
    return StudyProvenance(
        first_date=dates[0] if dates else None,
        last_date=dates[-1] if dates else None,
        commits=dict(Counter(one.commit for one in known if one.commit)),
        versions={
            package: dict(Counter(version for name, version in versions if name == package))
            for package in dict(versions)
        },
        hardware=[{**distinct[machine], "results": count} for machine, count in counted.items()],
    )


class Compared(NamedTuple):
    """A column of two groups: first minus second is tested."""

    first: Group
    second: Group
    column: str

    @property
    def sides(self) -> list[list[ColumnValue]]:
        """The values of the runs of both groups."""
        return [side.values(self.column) for side in self[:2]]


def what_is_compared(study: Study, groups: Sequence[Group]) -> list[Compared]:
    """The groups that the study compares, with each column that is tested.

    Two rows are compared wherever their coordinates agree on the axes that both have. An axis with ``compare_with``
    compares the groups of each row at its other labels with the group at that label. Without ``compare_columns``,
    columns that are numbers of the runs, such as their time, are not tested.
    """
    of_row = {row.id: [group for group in groups if group.row == row.id] for row in study.rows}
    pairs = [
        (first, second)
        for one, other in study.pairs
        for first, second in product(of_row[one], of_row[other])
        if agree(first.coordinates, second.coordinates)
    ]
    for axis in study.axes:
        for first in groups if axis.baseline is not None else ():
            if first.coordinates.get(axis.name) not in (None, axis.baseline, AVERAGE):
                wanted = {**first.coordinates, axis.name: axis.baseline}
                pairs += [(first, one) for one in of_row[first.row] if one.coordinates == wanted]
    runs = [run for pair in pairs for group in pair for run in group.kept]
    numbers = [name for name in study.columns if runs and all(run.columns[name].kind == "number" for run in runs)]
    chosen = study.compare_columns or [name for name in study.columns if name not in (*OF_RUNS, *numbers)]
    every = [Compared(*pair, column) for pair in pairs for column in chosen if column in study.columns]
    values = [list(chain(*one.sides)) for one in every]
    measured = [not both or any(value.reason != NOT_MEASURED for value in both) for both in values]
    return [one for one, is_measured in zip(every, measured, strict=True) if is_measured]


def compare_again(table: StudyTable, units: Path) -> list[StudyComparison]:
    """The comparisons of a table, from the values of its runs and its file units.parquet alone.

    They equal ``table.comparisons``, unless these were put together from older results.

    Raises:
        NearfarError: the file cannot be read.
    """
    study = study_of(table)
    groups = {group.place: group for group in group_runs(study, runs_of(table, read_units(units)))}
    compared = [
        Compared(
            groups[Group(one.first, one.first_coordinates).place],
            groups[Group(one.second, one.second_coordinates).place],
            one.column,
        )
        for one in table.comparisons
    ]
    resampler = Resampler(data_of(groups.values()), resamples=table.resamples, seed=table.seed)
    return compare_groups(study, compared, resampler)


def compare_groups(study: Study, compared: Iterable[Compared], resampler: Resampler) -> list[StudyComparison]:
    """All comparisons of the table."""
    return correct(study, [_compare(study, one, resampler) for one in compared])


def correct(study: Study, rows: Sequence[StudyComparison]) -> list[StudyComparison]:
    """The comparisons with p corrected over those of the claimed columns (Holm), and the verdicts of these."""
    claimed = [study.claims is None or row.column in study.claims for row in rows]
    told = iter(with_verdicts([row for row, is_claim in zip(rows, claimed, strict=True) if is_claim], study.margin))
    without: dict[str, Any] = {"verdict": None, "more_units": None}
    rows = [
        next(told) if is_claim else replace(row, p_holm=None, **without)
        for row, is_claim in zip(rows, claimed, strict=True)
    ]
    return [replace(row, **without) if row.column in NO_SCORES else row for row in rows]


def _compare(study: Study, compared: Compared, resampler: Resampler) -> StudyComparison:
    first, second, column = compared
    row = StudyComparison(
        first=first.row,
        second=second.row,
        first_coordinates=dict(first.coordinates),
        second_coordinates=dict(second.coordinates),
        column=column,
    )
    for group in (first, second):
        score = group.score(column)
        if score.mean is None:
            return replace(row, reason=f"{group.row}: {score.reason if score.n else 'no finished run'}")
    values = [*chain(*compared.sides)]
    why = _why_not_resampled(values)
    sides = [_side(side, None if why else resampler) for side in compared.sides]
    row = replace(row, difference=rounded(100 * float(sides[0][0].mean() - sides[1][0].mean())))
    units, bound = (1, 0.0) if why else (_units(values), _bound(values))
    order = order_of_runs(study, first, second)
    if why and not any(np.ptp(points) for points, _ in sides):
        return replace(row, reason=f"no interval: {why}")
    tested = difference_fields(*sides, units=units, order=order, margin=study.margin, bound=bound)
    if why:
        tested |= {"units": None, "more_units": None, "reason": f"interval over runs alone: {why}"}
    return replace(row, **tested)


def order_of_runs(study: Study, first: Group, second: Group) -> list[int] | None:
    """For each run of the first group, the place in the second of the run with the same seed; None if none belongs.

    Runs belong together where the same program trains both groups, and both have the same replicates.
    """
    if _scripts(study, study.row(first.row)) != _scripts(study, study.row(second.row)):
        return None
    ours, theirs = ([sorted(map(repr, run.replicate.items())) for run in side.kept] for side in (first, second))
    ranked = any("rank" in run.replicate for run in first.kept)  # not of one seed
    return None if ranked or sorted(ours) != sorted(theirs) else [theirs.index(one) for one in ours]


def _scripts(study: Study, row: Row) -> set[str]:
    """The scripts that train a row; none where nearfar does."""
    of_file, of_row = (one.settings.get("script", {}) for one in (study, row))
    return {
        str({**of_file, **of_row, **step.settings}.get("file")) for step in study.steps_of(row) if step.verb == "script"
    }
