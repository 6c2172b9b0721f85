"""From the runs of a study to its table: means, intervals, the paper's numbers, and tests."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nearfar.evaluation.correlation import check_resampling
from nearfar.evaluation.results import (
    GroupScore,
    MissingCell,
    Projection,
    Provenance,
    StudyCell,
    StudyCurve,
    StudyGroup,
    StudyProvenance,
    StudyTable,
    provenance,
)
from nearfar.evaluation.statistics import CONFIDENCE, percentile_interval
from nearfar.studies.columns import (
    AVERAGE_UNSEEN,
    NOT_MEASURED,
    UNSEEN_BY_ALL,
    ColumnValue,
    Group,
    Run,
    UnseenByAll,
    available_columns,
    column_value,
    mean_value,
)
from nearfar.studies.comparisons import compare_groups, data_of_comparisons, pairs_of_groups
from nearfar.studies.resampling import Resampler
from nearfar.studies.spec import AVERAGE, Study
from nearfar.types import NearfarError

_SPECTRUM_POINTS = 60
_ENTRIES = {"rows": ("id", "row"), "axes": ("name", "axis")}
_SHOWN_ELSEWHERE = (
    *("paper", "title", "notes", "caption", "source", "plot", "titles", "placeholders"),
    *("compare", "compare_with", "needs"),
)
_MAX_SHOWN = 200


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
    computed for each run before the mean over runs. Tests are in :mod:`nearfar.studies.comparisons`. With ``best`` in
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
    pairs = pairs_of_groups(study, groups)
    single = [group.kept[0] for group in groups if len(group.kept) == 1]
    averages = [value for run in single for value in run.columns.values() if value.low is None]
    data = [*data_of_comparisons(study, pairs), *(part for value in averages for part in value.data or ())]
    resampler = Resampler(data, resamples=resamples, seed=seed, progress=progress)
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
        unseen_pairs=_unseen_pairs(study, unseen),
        groups=[_summarise(study, group, resampler) for group in groups],
        comparisons=compare_groups(study, pairs, resampler),
        missing=[
            MissingCell(
                row=run.row, coordinates=dict(run.coordinates), replicate=dict(run.replicate), reason=run.missing
            )
            for run in runs
            if run.missing is not None
        ],
        cells=[_cell(run) for run in finished],
    )


def _fill_columns(study: Study, runs: Sequence[Run], unseen: UnseenByAll, *, all_finished: bool) -> None:
    """Give each finished run the value of each column.

    Raises:
        NearfarError: all runs are finished, and a column is in none of them.
    """
    names = [column for column in study.columns if column not in (AVERAGE, AVERAGE_UNSEEN)]
    every = [
        {
            name: unseen.column(name, run) if name.endswith(UNSEEN_BY_ALL) else column_value(name, run, study.aggregate)
            for name in names
        }
        for run in runs
    ]
    for name in names if all_finished else ():  # an unfinished run may have it
        if all(values[name] is None for values in every):
            raise NearfarError(
                f"column {name!r}: no run of the study has it; there are {', '.join(available_columns(runs))}, "
                "and TASK.METRIC such as stsb.pearson or mrpc.f1."
            )
    tasks = [
        name for name in names if any((one := values[name]) is not None and one.kind == "task" for values in every)
    ]
    similarity = [name for name in tasks if name in unseen.tasks]
    for column, members, what in ((AVERAGE, tasks, "task"), (AVERAGE_UNSEEN, similarity, "similarity task")):
        if column in study.columns and all_finished and not members:
            raise NearfarError(f"column {column!r}: the study has no column that is a {what}.")
    for run, values in zip(runs, every, strict=True):
        columns = {name: value or ColumnValue(None, NOT_MEASURED, kind="number") for name, value in values.items()}
        if AVERAGE in study.columns:
            columns[AVERAGE] = mean_value({name: values[name] for name in tasks})
        if AVERAGE_UNSEEN in study.columns:
            averaged = {name: unseen.column(f"{name}{UNSEEN_BY_ALL}", run) for name in similarity}
            columns[AVERAGE_UNSEEN] = mean_value(averaged)
        run.columns = {name: columns[name] for name in study.columns}


def group_runs(study: Study, runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of rows and labels, with those of averages over axes, and rows of the paper's numbers."""
    groups: dict[tuple[Any, ...], Group] = {}
    for run in runs:
        group = groups.setdefault(_place(run.row, run.coordinates), Group(run.row, dict(run.coordinates)))
        if run.missing is not None:
            group.missing.append(run)
        elif run.key and any(run.key == other.key for other in group.runs):
            group.fixed, run.chosen = True, False
        else:
            group.fixed = group.fixed or not run.replicate
            group.runs.append(run)
    for group in groups.values():
        group.fixed = group.fixed and len(group.runs) == 1
        kept = _ranked(group.runs)[: study.best]
        for run in group.runs:
            run.chosen = any(run is one for one in kept)
    for axis in study.axes:
        if axis.average:
            averages = list(_averages(study, axis.name, axis.average, groups.values()))
            groups |= {_place(one.row, one.coordinates): one for one in averages}
    labels = {axis.name: axis.shown_labels for axis in study.axes}
    for row in study.rows:
        if not any(group.row == row.id for group in groups.values()):
            places = [dict(number.coordinates) for number in row.paper] or [{}] * bool(row.steps)
            for place in places:
                if all(label in labels[name] for name, label in place.items()):
                    groups.setdefault(_place(row.id, place), Group(row.id, place))
    rows = [row.id for row in study.rows]

    def order(group: Group) -> list[int]:
        places = [labels[name].index(label) + 1 for name, label in group.coordinates.items() if name in labels]
        return [rows.index(group.row), *places]

    return sorted(groups.values(), key=order)


def _place(row: str, coordinates: Mapping[str, str]) -> tuple[Any, ...]:
    return row, *sorted(coordinates.items())


def _ranked(runs: Iterable[Run]) -> list[Run]:
    """The best by validation first; ties keep the order of the study."""
    return sorted(runs, key=lambda run: -(run.validation or 0.0))


def _averages(study: Study, axis: str, labels: Sequence[str], groups: Iterable[Group]) -> Iterator[Group]:
    """For each row, and the coordinates on the other axes, the average over the labels of one axis."""
    parts: dict[tuple[Any, ...], dict[str, Group]] = {}
    for group in groups:
        if axis in group.coordinates:
            others = {name: label for name, label in group.coordinates.items() if name != axis}
            parts.setdefault(_place(group.row, others), {})[group.coordinates[axis]] = group
    for by_label in parts.values():
        known = [by_label[label] for label in labels if label in by_label]
        if not known:
            continue
        coordinates = {**known[0].coordinates, axis: AVERAGE}
        group = Group(known[0].row, coordinates, missing=[run for one in known for run in one.missing])
        group.fixed = all(member.fixed for member in known)
        if len(known) == len(labels):
            group.runs = _average_runs(study, axis, known, coordinates)
        yield group


def _average_runs(study: Study, axis: str, members: Sequence[Group], coordinates: Mapping[str, str]) -> list[Run]:
    """Averages by replicate; where the best are kept, of the runs with the same rank by validation."""
    sets: list[tuple[dict[str, Any], list[Run]]] = []
    if study.best is not None:
        ranked = [_ranked(one.kept) for one in members]
        ranked = [runs if len(runs) > 1 else runs * max(map(len, ranked)) for runs in ranked]
        sets = [({"rank": number}, list(runs)) for number, runs in enumerate(zip(*ranked, strict=False), 1)]
    else:
        several = [one for one in members if not one.fixed]
        for replicate in [run.replicate for run in several[0].kept] if several else [{}]:
            matched = [
                next((run for run in one.kept if one.fixed or run.replicate == replicate), None) for one in members
            ]
            if all(run is not None for run in matched):
                sets.append((dict(replicate), [run for run in matched if run is not None]))
    return [
        Run(
            parts[0].row,
            coordinates,
            replicate,
            key="+".join(run.key for run in parts),
            columns={
                column: replace(
                    mean_value({run.coordinates[axis]: run.columns[column] for run in parts}),
                    kind=parts[0].columns[column].kind,
                )
                for column in study.columns
            },
        )
        for replicate, parts in sets
    ]


def _summarise(study: Study, group: Group, resampler: Resampler) -> StudyGroup:
    kept = group.kept
    scores = {}
    for column in study.columns:
        score = _score([run.columns[column].value for run in kept])
        if len(kept) == 1:
            score |= _interval_of_one(kept[0].columns[column], resampler)
        if score["mean"] is None:
            score["reason"] = next((why for run in kept if (why := run.columns[column].reason)), None)
            if not kept:
                score["reason"] = next((run.missing for run in group.missing), "no run of nearfar")
        paper = study.row(group.row).paper_number(group.coordinates, column)
        if paper is not None:
            score["paper"], score["paper_sd"] = paper.value, paper.sd
            score["difference"] = None if score["mean"] is None else round(score["mean"] - paper.value, 4)
        scores[column] = GroupScore(n=len(kept), **score)
    shows_positions = any(plot.kind in ("pairs", "labels") for plot in study.plots or ())
    measured = [model for run in kept if (model := run.geometry) is not None]
    projections = (model.projection for model in measured if model.projection is not None)
    first: Projection | None = next(projections, None)  # those of several runs have no mean
    return StudyGroup(
        row=group.row,
        coordinates=group.coordinates,
        runs=len(kept),
        missing=len(group.missing),
        scores=scores,
        spectrum=_spectrum([model.spectrum for model in measured]),
        layers=_layers([model.layers for model in measured if model.layers]),
        projection=first if shows_positions else None,
        curves=_curves([run.curves for run in kept]),
    )


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
        having = [dict(one[name]) for one in curves if name in one]
        steps = [step for step in having[0] if all(step in one for one in having)]
        scores = [_score([one[step] for one in having]) for step in steps]
        means[name] = StudyCurve(
            steps=steps, mean=[score["mean"] for score in scores], sd=[score.get("sd") for score in scores]
        )
    return means


def _cell(run: Run) -> StudyCell:
    return StudyCell(
        row=run.row,
        coordinates=dict(run.coordinates),
        replicate=dict(run.replicate),
        values={name: _rounded(value.value) for name, value in run.columns.items()},
        validation=_rounded(run.validation),
        seconds=None if run.seconds is None else round(run.seconds, 2),
        key=run.key,
        chosen=run.chosen,
        reasons={name: value.reason for name, value in run.columns.items() if value.reason},
    )


def _unseen_pairs(study: Study, unseen: UnseenByAll) -> dict[str, list[int]]:
    tasks = [column.removesuffix(UNSEEN_BY_ALL) for column in study.columns if column.endswith(UNSEEN_BY_ALL)]
    if AVERAGE_UNSEEN in study.columns:
        tasks += study.columns
    return unseen.counts(list(dict.fromkeys(tasks)))


def _provenance(runs: Sequence[Run]) -> StudyProvenance:
    """The distinct provenances of all results."""
    given = [
        one.get("provenance") if isinstance(one, Mapping) else one.provenance for run in runs for one in run.results
    ]
    known = [one for one in given if isinstance(one, Provenance)]
    dates = sorted(one.date for one in known if one.date)
    versions: dict[str, Counter[str]] = {}
    machines: dict[str, dict[str, Any]] = {}
    for one in known:
        for package, version in (one.versions or {}).items():
            if version:
                versions.setdefault(package, Counter())[version] += 1
        machine = {name: value for name, value in (one.hardware or {}).items() if value is not None}
        if machine:
            entry = machines.setdefault(repr(sorted(machine.items())), {**machine, "results": 0})
            entry["results"] += 1
    return StudyProvenance(
        first_date=dates[0] if dates else None,
        last_date=dates[-1] if dates else None,
        commits=dict(Counter(one.commit for one in known if one.commit)),
        versions={package: dict(counts) for package, counts in versions.items()},
        hardware=list(machines.values()),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def changes(base: Mapping[str, Any], study: Mapping[str, Any]) -> list[str]:
    """What a scale changes of a study file, a line for each setting, such as ``train.epochs: 1 (paper: 3)``.

    Placeholders such as ``{start}`` are filled from the table ``placeholders`` of the study.
    """
    lines = list(_changes(base, study, ""))
    for name, value in (study.get("placeholders") or {}).items():
        lines = [line.replace(f"{{{name}}}", str(value)) for line in lines]
    return lines


def _changes(base: Mapping[str, Any], study: Mapping[str, Any], where: str) -> Iterator[str]:
    for key in dict.fromkeys([*base, *study]):
        before, after = base.get(key), study.get(key)
        if key in _SHOWN_ELSEWHERE or before == after:
            continue
        if key in _ENTRIES and not where:
            id_key, what = _ENTRIES[key]
            old, new = ({str(entry.get(id_key)): entry for entry in side or []} for side in (before, after))
            if dropped := [name for name in old if name not in new]:
                yield f"without {key} {', '.join(dropped)}"
            for name, entry in new.items():
                if name in old:
                    yield from _changes(old[name], entry, f"{what} {name}: ")
                else:
                    yield f"{what} {name} is added"
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after, f"{where}{key}.")
        else:
            shown = [_shown(side[key]) if key in side else "not set" for side in (study, base)]
            yield f"{where}{key}: {shown[0]} (paper: {shown[1]})"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
