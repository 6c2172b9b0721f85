"""From the runs of a study to its table: means, intervals, the paper's numbers, and paired tests between groups.

Tests over test data (*pairs*): correlations, F1, Matthews correlation and averages by the paired bootstrap with the
same resamples for all runs; accuracies by McNemar's exact test, or a permutation test where a side has several runs;
means over queries by a randomization test. Over replicates (*seeds*): a t-test, paired where both sides have the same
replicates, else Welch's; against a side that is one fixed run, such as a baseline without training, a one-sample
t-test. The tests are those of :func:`nearfar.evaluation.comparison.compare_runs`. p is corrected over all tests of the
table (Holm), separately for the two sorts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nearfar.evaluation.correlation import check_resampling
from nearfar.evaluation.results import (
    GroupScore,
    MissingCell,
    Provenance,
    StudyCell,
    StudyComparison,
    StudyCurve,
    StudyGroup,
    StudyProvenance,
    StudyTable,
    StudyTest,
    provenance,
)
from nearfar.evaluation.statistics import (
    CONFIDENCE,
    Difference,
    bootstrap_test,
    holm,
    mcnemar,
    percentile_interval,
    permutation_test,
    t_test_over_seeds,
)
from nearfar.studies.scores import (
    AVERAGE_UNSEEN,
    NOT_MEASURED,
    OF_RUNS,
    UNSEEN_BY_ALL,
    ColumnValue,
    Group,
    Resampler,
    Run,
    TestData,
    UnseenByAll,
    available_columns,
    column_values,
    mean_value,
)
from nearfar.studies.spec import AVERAGE, Axis, Study, agree, changes
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
) -> StudyTable:
    """The table of a study from the results of its runs.

    Each group of replicates has mean, standard deviation and a 95% interval: by Student's t over two or more
    replicates, for a single run by the bootstrap over the pairs, rows or queries of the test data. ``average`` is
    computed for each run before the mean over runs. With ``best`` in
    the study, means and tests are over the best replicates by validation alone. ``command`` runs the study again.

    Raises:
        NearfarError: a column that no run has; no validation score where the study keeps the best replicates; fewer
            than one resample.
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
    _fill_columns(study, finished, unseen, all_finished=len(finished) == len(runs))
    groups = group_runs(study, runs)
    compared = what_is_compared(study, groups)
    single = [value for group in groups if len(group.kept) == 1 for value in group.kept[0].columns.values()]
    data = [*data_of(compared), *(part for value in single if value.low is None for part in value.data or ())]
    resampler = Resampler(data, resamples=resamples, seed=seed, progress=progress)
    over_unseen = [column.removesuffix(UNSEEN_BY_ALL) for column in study.columns if column.endswith(UNSEEN_BY_ALL)]
    return StudyTable(
        title=study.title,
        source=study.source,
        notes=(study.notes or "").strip(),
        caption=study.caption or "",
        columns=list(study.columns),
        study=dict(study.content),
        scale=study.scale,
        changes=changes(study.base, study.content) if study.scale else [],
        command=command,
        resamples=resamples,
        seed=seed,
        provenance=replace(provenance(), command=None),  # the table has its own, without paths of this machine
        runs=_provenance(finished),
        unseen_pairs=unseen.counts(
            dict.fromkeys([*over_unseen, *(study.columns if AVERAGE_UNSEEN in study.columns else ())])
        ),
        groups=[_summarise(study, group, resampler) for group in groups],
        comparisons=compare_groups(study, compared, resampler),
        missing=[MissingCell(**_place(run), reason=run.missing) for run in runs if run.missing is not None],
        cells=[
            StudyCell(
                **_place(run),
                values={name: _rounded(value.value) for name, value in run.columns.items()},
                validation=_rounded(run.validation),
                seconds=None if run.seconds is None else round(run.seconds, 2),
                key=run.key,
                chosen=run.chosen,
                reasons={name: value.reason for name, value in run.columns.items() if value.reason},
            )
            for run in finished
        ],
    )


def _place(run: Run) -> dict[str, Any]:
    return {"row": run.row, "coordinates": dict(run.coordinates), "replicate": dict(run.replicate)}


def _fill_columns(study: Study, runs: Sequence[Run], unseen: UnseenByAll, *, all_finished: bool) -> None:
    """Give each finished run the value of each column.

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
        run.columns = {name: columns[name] for name in study.columns}


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
            group.fixed, run.chosen = True, False
        else:
            group.fixed |= not run.replicate
            group.kept.append(run)
    for group in groups.values():
        group.fixed &= len(group.kept) == 1
        best = _ranked(group.kept)[: study.kept]
        for run in group.kept:
            run.chosen = any(run is one for one in best)
        group.kept = [run for run in group.kept if run.chosen]
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


def _summarise(study: Study, group: Group, resampler: Resampler) -> StudyGroup:
    scores = {column: _group_score(study, group, column, resampler) for column in study.columns}
    shows_positions = any(plot.kind in ("pairs", "labels") for plot in study.plots or ())
    measured = [model for run in group.kept if (model := run.geometry) is not None]
    projections = [model.projection for model in measured if model.projection is not None]
    return StudyGroup(
        row=group.row,
        coordinates=dict(group.coordinates),
        runs=len(group.kept),
        missing=len(group.missing),
        scores=scores,
        spectrum=_spectrum([model.spectrum for model in measured]),
        layers=_layers([model.layers for model in measured if model.layers]),
        projection=next(iter(projections), None) if shows_positions else None,  # those of several have no mean
        curves=_curves([run.curves for run in group.kept]),
    )


def _group_score(study: Study, group: Group, column: str, resampler: Resampler) -> GroupScore:
    values = [run.columns[column] for run in group.kept]
    score = _score([value.value for value in values])
    if len(values) == 1:
        score |= _interval_of_one(values[0], resampler)
    if score["mean"] is None:
        score["reason"] = next((value.reason for value in values if value.reason), None)
        if not values:
            score["reason"] = next((run.missing for run in group.missing), "no run of nearfar")
    paper = study.paper_number(group.row, group.coordinates, column)
    if paper is not None:
        score["paper"], score["paper_sd"] = paper.value, paper.sd
        score["difference"] = None if score["mean"] is None else round(score["mean"] - paper.value, 4)
    return GroupScore(n=len(values), **score)


def _score(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean and, over two or more runs, standard deviation and the interval mean -+ t sd / sqrt(n)."""
    known = [value for value in values if value is not None]
    if not values or len(known) < len(values):
        return {"mean": None}
    mean = float(np.mean(known))
    if len(known) < 2:
        return {"mean": _rounded(mean)}
    from scipy import stats  # imported here: the import is slow

    sd = float(np.std(known, ddof=1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1)) * sd / np.sqrt(len(known))
    bounds = {"low": _rounded(mean - half), "high": _rounded(mean + half)}
    return {"mean": _rounded(mean), "sd": _rounded(sd), **bounds, "interval": "t over replicates"}


def _interval_of_one(value: ColumnValue, resampler: Resampler) -> dict[str, Any]:
    low, high = value.low, value.high
    if low is None or high is None:
        bounds = percentile_interval(resampler.of(value.data)) if value.data else None
        if bounds is None:
            return {}
        low, high = 100 * bounds[0], 100 * bounds[1]
    return {"low": _rounded(low), "high": _rounded(high), "interval": "bootstrap over pairs"}


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
        means[name] = StudyCurve(steps=own.index.tolist(), mean=mean, sd=[*map(_rounded, own.std(axis=1).tolist())])
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


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


class Compared(NamedTuple):
    """A column of two groups: first minus second is tested."""

    first: Group
    second: Group
    column: str

    @property
    def sides(self) -> list[list[ColumnValue]]:
        """The values of the runs of both groups."""
        return [[run.columns[self.column] for run in side.kept] for side in self[:2]]

    @property
    def not_paired(self) -> str | None:
        """Why there is no test over the test data, or None where there is one."""
        sides = self.sides
        values = list(chain(*sides))
        if not all(sides) or not all(value.data for value in values):
            return "no test over pairs: the scores of single pairs are not stored"
        shapes = {frozenset(part.group for part in value.data or ()) for value in values}
        return None if len(shapes) == 1 else "no test over pairs: the runs were tested on different data"


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
    columns = study.compare_columns or [name for name in study.columns if name not in (*OF_RUNS, *numbers)]
    every = [Compared(*pair, column) for pair in pairs for column in columns]
    values = [list(chain(*one.sides)) for one in every]
    measured = [not both or any(value.reason != NOT_MEASURED for value in both) for both in values]
    return [one for one, is_measured in zip(every, measured, strict=True) if is_measured]


def data_of(compared: Iterable[Compared]) -> list[TestData]:
    """The data that the tests draw resamples of."""
    tested = [value for one in compared if one.not_paired is None for value in chain(*one.sides)]
    return [part for value in tested for part in value.data or ()]


def compare_groups(study: Study, compared: Iterable[Compared], resampler: Resampler) -> list[StudyComparison]:
    """All comparisons of the table; both sorts of p are corrected over all of them (Holm)."""
    rows = [_compare(study, one, resampler) for one in compared]
    for sort in ("pairs", "seeds"):
        tests = [getattr(row, sort) for row in rows]
        corrected = iter(holm([test.p for test in tests if test]))
        rows = [
            replace(row, **{sort: replace(test, p_holm=round(next(corrected), 6))}) if test else row
            for row, test in zip(rows, tests, strict=True)
        ]
    return rows


def _compare(study: Study, compared: Compared, resampler: Resampler) -> StudyComparison:
    first, second, column = compared
    papers = [study.paper_number(side.row, side.coordinates, column) for side in (first, second)]
    row = StudyComparison(
        first=first.row,
        second=second.row,
        first_coordinates=dict(first.coordinates),
        second_coordinates=dict(second.coordinates),
        column=column,
        difference=None,
        paper=None if papers[0] is None or papers[1] is None else round(papers[0].value - papers[1].value, 4),
    )
    means = []
    for group, values in zip((first, second), compared.sides, strict=True):
        known = [value.value for value in values if value.value is not None]
        if not values:
            return replace(row, reason=f"{group.row}: no finished run")
        if len(known) < len(values):
            why = next((value.reason for value in values if value.reason), "undefined")
            return replace(row, reason=f"{group.row}: {why}")
        means.append(np.mean(known))
    difference = float(means[0] - means[1])
    return replace(
        row,
        difference=round(difference, 4),
        pairs=None if compared.not_paired else _over_pairs(compared, difference, resampler),
        seeds=_over_seeds(compared),
        reason=compared.not_paired,
    )


def _over_pairs(compared: Compared, difference: float, resampler: Resampler) -> StudyTest | None:
    sides = compared.sides
    draws = [np.mean([resampler.of(value.data or ()) for value in side], axis=0) for side in sides]
    tested = bootstrap_test(difference / 100, draws[0] - draws[1])
    if tested is None:
        return None
    p, name = _by_rows(sides, resampler) or (tested.p, tested.test)
    return _study_test(tested._replace(p=p, test=name), 100)


def _by_rows(sides: Sequence[Sequence[ColumnValue]], resampler: Resampler) -> tuple[float, str] | None:
    """The test of accuracies or of means over queries on a single task; None for other columns."""
    values = list(chain(*sides))
    parts = [value.data[0] for value in values if value.data and len(value.data) == 1]
    if len(parts) < len(values) or parts[0].statistic not in ("accuracy", "mean"):
        return None
    predicted = np.array([part.predicted[0] for part in parts], dtype=np.float64)
    scored = predicted
    if parts[0].statistic == "accuracy":
        scored = (predicted == np.array(parts[0].gold[0], dtype=np.float64)).astype(np.float64)
        if len(scored) == 2:
            return mcnemar(*scored), "McNemar's exact test over rows"
    differences = scored[: len(sides[0])].mean(axis=0) - scored[len(sides[0]) :].mean(axis=0)
    seeds = [resampler.seed, *parts[0].task.encode()]
    p = permutation_test(differences, resamples=resampler.resamples, seed=seeds)
    return p, "permutation test over rows" if parts[0].statistic == "accuracy" else "randomization test over queries"


def _over_seeds(compared: Compared) -> StudyTest | None:
    """The test over replicates of two groups whose values are all defined."""
    first, second, column = compared
    sides = [{_named(run.replicate): run.columns[column].value or 0.0 for run in side.kept} for side in (first, second)]
    a, b = ([*side.values()] for side in sides)
    longest = max(len(a), len(b))
    if first.fixed != second.fixed and min(len(a), len(b)) == 1:
        tested = t_test_over_seeds(a * (longest // len(a)), b * (longest // len(b)), paired=True)
        return tested and _study_test(tested._replace(test="one-sample t-test over seeds"), 1)
    paired = sides[0].keys() == sides[1].keys()
    tested = t_test_over_seeds(a, [sides[1][name] for name in sides[0]] if paired else b, paired=paired)
    return tested and _study_test(tested, 1)


def _named(replicate: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in replicate.items()))


def _study_test(tested: Difference, scale: float) -> StudyTest:
    p, low, high = round(tested.p, 6), round(scale * tested.low, 4), round(scale * tested.high, 4)
    return StudyTest(p=p, p_holm=p, test=tested.test, low=low, high=high)
