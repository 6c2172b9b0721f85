"""From the finished runs of a study to its table: means, intervals, the paper's numbers, and tests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

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
from nearfar.evaluation.study_table.cells import FinishedCell
from nearfar.evaluation.study_table.changes import changes
from nearfar.evaluation.study_table.comparisons import compare_groups, data_of_comparisons, pairs_of_groups
from nearfar.evaluation.study_table.plan import Plan, check_validation, read_plan
from nearfar.evaluation.study_table.resampling import Resampler
from nearfar.evaluation.study_table.runs import Group, Run, geometry_of, group_runs, runs_of
from nearfar.evaluation.study_table.unseen import AVERAGE_UNSEEN, SUFFIX, UnseenByAll

_SPECTRUM_POINTS = 60


def build_table(
    study: Mapping[str, Any],
    cells: Sequence[FinishedCell],
    *,
    scale: str | None = None,
    base: Mapping[str, Any] | None = None,
    command: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
) -> StudyTable:
    """The table of a study from the results of its runs.

    Each group of replicates has mean, standard deviation and a 95% interval: by Student's t over two or more
    replicates, for a single run by the bootstrap over the pairs, rows or queries of the test data. ``average`` is
    computed for each run before the mean over runs. Tests are in :mod:`nearfar.evaluation.study_table.comparisons`.
    With ``best`` in the study, means and tests are over the best replicates by validation alone.

    Args:
        study: the study file, after the overlay of its scale.
        cells: all runs of the study in its order; those without results have ``missing``.
        scale: the name of the scale.
        base: the study file before the overlay; the table says in words what the scale changes.
        command: the command that runs the study again.
        resamples: bootstrap resamples of intervals and tests.
        seed: seed of the bootstrap.
        progress: show a progress bar.

    Raises:
        NearfarError: a column that no run has; a comparison with an unknown row; no validation score where the study
            keeps the best replicates; fewer than one resample.
    """
    check_resampling(resamples, seed, at_least=1)
    plan = read_plan(study, cells)
    check_validation(plan, cells)
    unseen = UnseenByAll([cell for cell in cells if cell.missing is None])
    runs = runs_of(plan, cells, unseen)
    groups = group_runs(plan, cells, runs)
    pairs = pairs_of_groups(plan, groups)
    resampler = Resampler(resamples, seed)
    resampler.register(data_of_comparisons(plan, pairs))
    resampler.register(_data_of_single_runs(groups))
    console = Console(stderr=True)
    for drawn in track(resampler.groups(), "resampling", console=console, transient=True, disable=not progress):
        resampler.draw(drawn)
    return StudyTable(
        title=str(study.get("title", "")),
        source=study.get("source"),
        notes=str(study.get("notes", "")).strip(),
        caption=str(study.get("caption", "")),
        columns=list(plan.columns),
        study=_plain(study),
        scale=scale,
        changes=[] if base is None else changes(base, study),
        command=command,
        resamples=resamples,
        seed=seed,
        provenance=replace(provenance(), command=None),  # the table has its own, without paths of this machine
        runs=_provenance(cells),
        unseen_pairs=_unseen_pairs(plan, unseen),
        groups=[_summarise(plan, group, resampler) for group in groups],
        comparisons=compare_groups(plan, pairs, resampler),
        missing=[
            MissingCell(
                row=cell.row,
                coordinates=dict(cell.coordinates),
                replicate=dict(cell.replicate),
                reason=cell.missing,
            )
            for cell in cells
            if cell.missing is not None
        ],
        cells=[_cell(run) for run in runs],
    )


def _unseen_pairs(plan: Plan, unseen: UnseenByAll) -> dict[str, list[int]]:
    tasks = [column.removesuffix(SUFFIX) for column in plan.columns if column.endswith(SUFFIX)]
    if AVERAGE_UNSEEN in plan.columns:
        tasks += plan.columns
    return unseen.counts(list(dict.fromkeys(tasks)))


def _cell(run: Run) -> StudyCell:
    return StudyCell(
        row=run.row,
        coordinates=dict(run.coordinates),
        replicate=dict(run.replicate),
        values={name: _rounded(value.value) for name, value in run.columns.items()},
        validation=_rounded(run.validation),
        seconds=None if run.cell is None or run.cell.seconds is None else round(run.cell.seconds, 2),
        key=run.key,
        chosen=run.chosen,
        reasons={name: value.reason for name, value in run.columns.items() if value.reason},
    )


def _data_of_single_runs(groups: Sequence[Group]) -> list[Any]:
    """Data of columns whose interval is not in the result: averages of single runs."""
    single = [group.kept[0] for group in groups if len(group.kept) == 1]
    values = [value for run in single for value in run.columns.values() if value.low is None]
    return [part for value in values for part in value.data or ()]


def _summarise(plan: Plan, group: Group, resampler: Resampler) -> StudyGroup:
    kept = group.kept
    scores = {}
    for column in plan.columns:
        score = _score([run.columns[column].value for run in kept])
        if len(kept) == 1:
            score |= _interval_of_one(kept[0], column, resampler)
        if score["mean"] is None:
            score["reason"] = next((why for run in kept if (why := run.columns[column].reason)), None)
            if not kept:
                score["reason"] = next((cell.missing for cell in group.missing), "no run of nearfar")
        paper = plan.paper(group.row, group.coordinates, column)
        if paper is not None:
            score["paper"], score["paper_sd"] = paper
            score["difference"] = None if score["mean"] is None else round(score["mean"] - paper[0], 4)
        scores[column] = GroupScore(n=len(kept), **score)
    return StudyGroup(
        row=group.row,
        coordinates=group.coordinates,
        runs=len(kept),
        missing=len(group.missing),
        scores=scores,
        spectrum=_spectrum(kept),
        layers=_layers(kept),
        projection=_projection(kept) if plan.shows_positions else None,
        curves=_curves(kept),
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
    return {
        "mean": _rounded(mean),
        "sd": _rounded(sd),
        "low": _rounded(mean - half),
        "high": _rounded(mean + half),
        "interval": "t over replicates",
    }


def _interval_of_one(run: Run, column: str, resampler: Resampler) -> dict[str, Any]:
    value = run.columns[column]
    if value.low is not None and value.high is not None:
        return {"low": _rounded(value.low), "high": _rounded(value.high), "interval": "bootstrap over pairs"}
    bounds = percentile_interval(resampler.of(value.data)) if value.data else None
    if bounds is None:
        return {}
    low, high = bounds
    return {"low": _rounded(100 * low), "high": _rounded(100 * high), "interval": "bootstrap over pairs"}


def _spectrum(runs: Sequence[Run]) -> list[list[float]] | None:
    """Mean singular values at indices with equal ratios."""
    found = [list(found.models.values())[-1].spectrum for run in runs if (found := geometry_of(run))]
    if not found or len({len(values) for values in found}) > 1 or not found[0]:
        return None
    mean = np.mean(found, axis=0)
    indices = np.unique(np.rint(np.geomspace(1, len(mean), _SPECTRUM_POINTS)).astype(int))
    return [[int(index), float(f"{mean[index - 1]:.4g}")] for index in indices]


def _projection(runs: Sequence[Run]) -> Projection | None:
    """The positions of the first run; those of several runs have no mean."""
    found = [list(found.models.values())[-1].projection for run in runs if (found := geometry_of(run))]
    return next((one for one in found if one), None)


def _layers(runs: Sequence[Run]) -> dict[str, list[float | None]] | None:
    layers = [list(found.models.values())[-1].layers for run in runs if (found := geometry_of(run))]
    known = [one for one in layers if one]
    if not known:
        return None
    means: dict[str, list[float | None]] = {}
    for pooling in known[0]:
        columns = zip(*(one[pooling] for one in known if pooling in one), strict=False)
        means[pooling] = [
            round(sum(scores) / len(scores), 2) if (scores := [s for s in column if s is not None]) else None
            for column in columns
        ]
    return means


def _curves(runs: Sequence[Run]) -> dict[str, StudyCurve]:
    """Means of each curve at the steps that all runs have."""
    curves = [{name: dict(points) for name, points in run.cell.curves.items()} for run in runs if run.cell]
    found = {}
    for name in dict.fromkeys(name for one in curves for name in one):
        having = [one[name] for one in curves if name in one]
        steps = [step for step in having[0] if all(step in one for one in having)]
        summaries = [_score([one[step] for one in having]) for step in steps]
        found[name] = StudyCurve(
            steps=list(steps),
            mean=[summary["mean"] for summary in summaries],
            sd=[summary.get("sd") for summary in summaries],
        )
    return found


def _provenance(cells: Sequence[FinishedCell]) -> StudyProvenance:
    """The distinct provenances of all results."""
    found = [
        one.get("provenance") if isinstance(one, Mapping) else one.provenance for cell in cells for one in cell.results
    ]
    known = [one for one in found if isinstance(one, Provenance)]
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


def _plain(value: Any) -> Any:
    """Mappings and sequences of any sort as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
