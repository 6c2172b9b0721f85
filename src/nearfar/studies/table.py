"""From the runs of a study to its table: the intervals of means and of differences between groups.

There is one interval for each mean and each difference, over test units (pairs, rows, queries) and training runs
together (:func:`nearfar.evaluation.statistics.crossed_difference`); all runs share the same resamples of the units.
Replicates of two rows belong together where both are trained by nearfar, or by the same script, with the same seeds.
p is corrected over all comparisons of the table, or of the columns that are its claims (Holm).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from msgspec import structs

from nearfar.evaluation import results
from nearfar.evaluation.comparison import difference_fields, with_verdicts
from nearfar.evaluation.correlation import Floats
from nearfar.evaluation.results import StudyComparison, StudyTable
from nearfar.evaluation.statistics import crossed_difference
from nearfar.studies.groups import RANK, Scores, scores_of
from nearfar.studies.scores import NOT_MEASURED, OF_RUNS, Run, Value, measure, rounded
from nearfar.studies.spec import AVERAGE, NO_SCORES, Row, Study, agree, changes
from nearfar.studies.units import Resampler, place_of, read_units, write_units
from nearfar.types import NearfarError

_SPECTRUM_POINTS = 60
Compared: TypeAlias = tuple[int, int, str]
"""Two groups, by their numbers, and a column: first minus second is tested."""


def build_table(
    study: Study,
    runs: Sequence[Run],
    *,
    command: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    units: Path | None = None,
) -> StudyTable:
    """The table of a study from the results of its runs.

    Each group of replicates has the mean of each column, with a 95% interval. ``average`` is computed for each run
    before the mean over runs. With ``best`` in the study, means and comparisons are over the best replicates by
    validation alone. ``command`` runs the study again. The scores of single units that the compared columns rest on are
    written to the file ``units``.

    Raises:
        NearfarError: a column that no run has; no validation score where the study keeps the best replicates;
            ``units`` cannot be written.
    """
    for cell in [run.cell for run in runs] if study.best else ():
        if cell.missing is None and "validation" not in cell.values:
            raise NearfarError(
                f"row {cell.row}: a run has no validation score, by which the study keeps its best replicates. Remove "
                "[best], or train with a dev set."
            )
    columns, measured, unseen_pairs = measure(study, runs)
    cells = [
        replace(
            run.cell,
            values={name: one.value for name, one in values.items()} | run.cell.values,
            reasons={name: one.reason for name, one in values.items() if one.reason},
        )
        for run, values in zip(runs, measured, strict=True)
    ]
    study = structs.replace(study, columns=columns)
    scores = Scores(study, cells, measured)
    compared = what_is_compared(scores)
    resampler = Resampler(scores.data(), resamples=resamples, seed=seed)
    of_groups = {group: [one.run for one in members if one.run >= 0] for group, members in scores.members.items()}
    table = StudyTable(
        study=dict(study.content),
        columns=list(study.columns),
        scale=study.scale,
        changes=changes(study.base, study.content) if study.scale else [],
        command=command,
        resamples=resamples,
        seed=seed,
        provenance=replace(results.provenance(), command=None),  # the table has its own, without paths of this machine
        runs=_provenance(runs),
        unseen_pairs=unseen_pairs,
        groups=[
            _summarise(scores, group, [runs[run] for run in own], resampler)
            for group, own in of_groups.items()
            if scores.members[group]
        ],
        comparisons=compare_groups(scores, compared, resampler),
        cells=cells,
    )
    if units is not None:
        tested = dict.fromkeys(column for *_, column in compared)
        kept = sorted(run for own in of_groups.values() for run in own)
        data = {place_of(cells[run]): {name: measured[run][name].data for name in tested} for run in kept}
        write_units(units, data)
    return table


def _summarise(scores: Scores, group: int, runs: Sequence[Run], resampler: Resampler) -> results.StudyGroup:
    """What is known of the runs of a group together; an average has no runs of its own."""
    row, coordinates = scores.groups[group]
    last = [[one for one in run.measured if isinstance(one, results.GeometryResult)][-1:] for run in runs]
    measured = [list(one.models.values())[-1] for some in last for one in some]
    projections = [model.projection for model in measured if model.projection is not None]
    shows_positions = any(plot.kind in ("pairs", "labels") for plot in scores.study.plots or ())
    intervals = {column: _interval(scores.values(group, column), resampler) for column in scores.study.columns}
    return results.StudyGroup(
        row=row,
        coordinates=dict(coordinates),
        intervals={column: ends for column, ends in intervals.items() if ends is not None},
        spectrum=_spectrum([model.spectrum for model in measured]),
        layers=_layers([model.layers for model in measured if model.layers]),
        projection=next(iter(projections), None) if shows_positions else None,  # those of several have no mean
        curves=_curves([run.curves for run in runs]),
    )


def _interval(values: Sequence[Value], resampler: Resampler) -> list[float] | None:
    """The 95% interval of the mean of a column over runs; that of a single run is the evaluation's, if it has one."""
    if any(value.value is None for value in values):
        return None
    if len(values) == 1 and (low := values[0].low) is not None and (high := values[0].high) is not None:
        return [round(low, 4), round(high, 4)]
    why, units, ((points, draws),) = _sides([values], resampler)
    if why and not np.ptp(points):
        return None
    tested = crossed_difference((points, draws), (np.zeros(1), np.zeros_like(draws[:1])), units=units)
    return None if tested is None else [round(100 * tested.low, 4), round(100 * tested.high, 4)]


def _sides(
    groups: Sequence[Sequence[Value]], resampler: Resampler
) -> tuple[str | None, int, list[tuple[Floats, Floats]]]:
    """Why units cannot be resampled for all runs together, or None; their number; and the scores x 1 of each group.

    These are the scores of its runs [runs], and on resamples of the units [runs, resamples] or as the only resample.
    """
    values = [one for group in groups for one in group]
    why = None
    if not all(one.data for one in values):
        why = "the scores of single units are not stored"
    elif len({frozenset(part.group for part in one.data) for one in values}) > 1:
        why = "the runs were tested on different data"
    sides = []
    for group in groups:
        points = np.array([one.value for one in group], dtype=np.float64) / 100
        draws = points[:, None] if why else np.array([resampler.of(one.data) for one in group])
        sides.append((points, draws))
    return why, 1 if why else sum(part.size for part in values[0].data), sides


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
        mean = pd.DataFrame([one[pooling] for one in layers if pooling in one], dtype=float).mean()
        means[pooling] = [None if np.isnan(one) else round(one, 2) for one in mean.tolist()]
    return means or None


def _curves(curves: Sequence[Mapping[str, Mapping[float, float]]]) -> dict[str, results.StudyCurve]:
    """Means of each curve at the steps that all runs have."""
    means = {}
    for name in dict.fromkeys(name for one in curves for name in one):
        own = pd.concat([pd.Series(one[name]) for one in curves if name in one], axis=1, join="inner")
        mean = [round(one, 4) for one in own.mean(axis=1).tolist()]
        means[name] = results.StudyCurve(
            steps=own.index.tolist(), mean=mean, sd=[*map(rounded, own.std(axis=1).tolist())]
        )
    return means


def _provenance(runs: Sequence[Run]) -> results.StudyProvenance:
    """The distinct provenances of all results."""
    given = [
        one.get("provenance") if isinstance(one, Mapping) else one.provenance for run in runs for one in run.measured
    ]
    known = [one for one in given if isinstance(one, results.Provenance)]
    dates = sorted(one.date for one in known if one.date)
    versions = pd.DataFrame([one.versions or {} for one in known], dtype=object)
    counts = {package: used.value_counts(sort=False).to_dict() for package, used in versions.items()}
    machines = [{name: value for name, value in (one.hardware or {}).items() if value is not None} for one in known]
    distinct = Counter(json.dumps(machine) for machine in machines if machine)
    return results.StudyProvenance(
        first_date=dates[0] if dates else None,
        last_date=dates[-1] if dates else None,
        commits=dict(Counter(one.commit for one in known if one.commit)),
        versions={str(package): of_package for package, of_package in counts.items() if of_package},
        hardware=[{**json.loads(machine), "results": count} for machine, count in distinct.items()],
    )


def what_is_compared(scores: Scores) -> list[Compared]:
    """The groups that the study compares, with each column that is tested.

    Two rows are compared wherever their coordinates agree on the axes that both have. An axis with ``compare_with``
    compares the groups of each row at its other labels with the group at that label. Without ``compare_columns``,
    columns that are numbers of the runs, such as their time, are not tested.
    """
    study, every = scores.study, list(enumerate(scores.groups))
    pairs = [
        (first, second)
        for rows in study.pairs
        for (first, (row, one)), (second, (other, two)) in product(every, every)
        if (row, other) == rows and agree(one, two)
    ]
    for axis in study.axes:
        for first, (row, own) in every if axis.baseline is not None else ():
            if own.get(axis.name) not in (None, axis.baseline, AVERAGE):
                wanted = (row, {**own, axis.name: axis.baseline})
                pairs += [(first, second) for second, group in every if group == wanted]
    runs = [one for members in scores.members.values() for one in members if one.run >= 0]
    is_score = {name: not runs or any(one.values[name].kind != "number" for one in runs) for name in study.columns}
    tested = study.compare_columns or [name for name in study.columns if is_score[name] and name not in OF_RUNS]
    compared = [(*pair, column) for pair in pairs for column in tested if column in study.columns]
    reasons = [[one.reason for side in pair for one in scores.values(side, column)] for *pair, column in compared]
    return [
        one
        for one, known in zip(compared, reasons, strict=True)
        if not known or any(why != NOT_MEASURED for why in known)
    ]


def compare_again(table: StudyTable, units: Path) -> list[StudyComparison]:
    """The comparisons of a table, from the values of its runs and its file units.parquet alone.

    They equal ``table.comparisons``, unless these were put together from older results.

    Raises:
        NearfarError: the file cannot be read.
    """
    scores = scores_of(table, read_units(units))
    compared = [
        (scores.number(one.first, one.first_coordinates), scores.number(one.second, one.second_coordinates), one.column)
        for one in table.comparisons
    ]
    return compare_groups(scores, compared, Resampler(scores.data(), resamples=table.resamples, seed=table.seed))


def compare_groups(scores: Scores, compared: Iterable[Compared], resampler: Resampler) -> list[StudyComparison]:
    """All comparisons of the table."""
    return correct(scores.study, [_compare(scores, *one, resampler) for one in compared])


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


def _compare(scores: Scores, first: int, second: int, column: str, resampler: Resampler) -> StudyComparison:
    (row, coordinates), (other, other_coordinates) = (scores.groups[group] for group in (first, second))
    compared = StudyComparison(
        first=row,
        second=other,
        first_coordinates=dict(coordinates),
        second_coordinates=dict(other_coordinates),
        column=column,
    )
    both = [scores.values(group, column) for group in (first, second)]
    for name, values in zip((row, other), both, strict=True):
        if not values:
            return replace(compared, reason=f"{name}: no finished run")
        if any(one.value is None for one in values):
            why = next((one.reason for one in values if one.reason), None)
            return replace(compared, reason=f"{name}: {why}")
    why, units, sides = _sides(both, resampler)
    compared = replace(compared, difference=rounded(100 * float(sides[0][0].mean() - sides[1][0].mean())))
    if why and not any(np.ptp(points) for points, _ in sides):
        return replace(compared, reason=f"no interval: {why}")
    # As in nearfar compare: a unit's score has the bound 1 where all tasks have means over units.
    bound = float(not why and all(part.statistic in ("accuracy", "mean") for part in both[0][0].data))
    order, margin = order_of_runs(scores, first, second), scores.study.margin
    tested = difference_fields(*sides, units=units, order=order, margin=margin, bound=bound)
    if why:
        tested |= {"units": None, "more_units": None, "reason": f"interval over runs alone: {why}"}
    return replace(compared, **tested)


def order_of_runs(scores: Scores, first: int, second: int) -> list[int] | None:
    """For each run of the first group, the place in the second of the run with the same seed; None if none belongs.

    Runs belong together where the same program trains both groups, and both have the same replicates.
    """
    study = scores.study
    scripts = [_scripts(study, study.row(scores.groups[group][0])) for group in (first, second)]
    ours, theirs = ([one.replicate for one in scores.members[group]] for group in (first, second))
    ranked = any(one.startswith(RANK) for one in ours)  # not of one seed
    if scripts[0] != scripts[1] or ranked or sorted(ours) != sorted(theirs):
        return None
    return [theirs.index(one) for one in ours]


def _scripts(study: Study, row: Row) -> set[str]:
    """The scripts that train a row; none where nearfar does."""
    of_file, of_row = (one.settings.get("script", {}) for one in (study, row))
    return {
        str({**of_file, **of_row, **step.settings}.get("file")) for step in study.steps_of(row) if step.verb == "script"
    }
