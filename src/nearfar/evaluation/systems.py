"""The referee: any number of systems, scored by any tool on the same units, tested pair by pair and ranked.

The tests are those of :mod:`nearfar.evaluation.comparison`; runs of two systems are independent, also where their seeds
have the same names. The ranks that a system may have follow from the tests: as many systems rank above it as are
better, as many below it as are worse, and those that it is not told apart from stand on either side. Holm's method
controls the family of all pairs, so that all ranges of a family hold together with a confidence of 95%.

Source: Al Mohamad, Goeman & van Zwet 2022, Simultaneous confidence intervals for ranks, Biometrics 78.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.data.files import stem
from nearfar.data.retrieval import MEASURES
from nearfar.data.unit_scores import Systems, UnitScores, read_qrels, read_run
from nearfar.evaluation.comparison import (
    SIGNIFICANCE_LEVEL,
    RunScores,
    average_of,
    correct_pairs,
    difference_fields,
    tested_fields,
)
from nearfar.evaluation.correlation import check_resampling
from nearfar.evaluation.render import short_names
from nearfar.evaluation.results import (
    AverageTest,
    ComparedSide,
    ComparisonSettings,
    PairTests,
    PairwiseResult,
    RankedScore,
    TaskTest,
    provenance,
)
from nearfar.evaluation.retrieval import measure_rankings
from nearfar.evaluation.statistics import MARGIN, bootstrap_means
from nearfar.types import NearfarError, RetrievalMeasure

NO_DOCUMENTS = "judged queries without documents, whose score is 0"
NOT_JUDGED = "queries without relevant documents, left out"


def score_runs(files: Sequence[Path], qrels: Path, measure: RetrievalMeasure) -> Systems:
    """The measure of run files on each query that has a relevant document.

    The name of a system is the tag of its file, or the file's name where files share a tag. A query that a run has no
    documents for scores 0, as by trec_eval's option -c.

    Raises:
        NearfarError: a file cannot be read or is given twice, no query has a relevant document, or a run has none of
            those that have.
    """
    if len(set(files)) < len(files):
        raise NearfarError(f"{next(file for file in files if files.count(file) > 1)}: is given twice; give it once.")
    grades = read_qrels(qrels)
    queries = sorted(query for query, of_query in grades.items() if any(grade > 0 for grade in of_query.values()))
    if not queries:
        raise NearfarError(f"{qrels}: no query has a relevant document, one with a grade above 0.")
    number: defaultdict[str, int] = defaultdict(count().__next__)
    relevant = [{number[document]: grade for document, grade in grades[query].items()} for query in queries]
    tags, values, counts = [], [], []
    for file in files:
        tag, documents = read_run(file)
        unknown = len(documents.keys() - set(queries))
        if unknown == len(documents):
            raise NearfarError(
                f"{file}: {qrels} has relevant documents for none of its queries, such as {next(iter(documents))!r}; "
                f"it has them for queries such as {queries[0]!r}. Name the judgements of the same queries."
            )
        ranked = [[number[document] for document in documents.get(query, ())] for query in queries]
        values.append(measure_rankings(ranked, relevant)[measure])
        lacking = sum(query not in documents for query in queries)
        counts.append({what: size for what, size in ((NO_DOCUMENTS, lacking), (NOT_JUDGED, unknown)) if size})
        tags.append(tag)
    shown = short_names([str(file) for file in files])
    names = [tag or "" for tag in tags] if len(set(tags) - {None}) == len(files) else list(shown.values())
    scores = UnitScores([(name, "") for name in names], np.array(values), np.arange(len(queries)), measure)
    sources = dict(zip(names, map(str, files), strict=True))
    return Systems({stem(qrels): scores}, sources, dict(zip(names, counts, strict=True)), 100.0)


def compare_systems(
    given: Systems,
    *,
    tasks: Sequence[str] | None = None,
    measure: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    margin: float | None = None,
    progress: bool = False,
) -> PairwiseResult:
    """Test each pair of systems on each task, and on the mean over tasks, and rank the systems.

    ``tasks`` are those to compare on, by default all; ``margin`` is the largest difference, in points, that counts as
    level, by default 0.5% of the range of scores. The sides of the result are in the order of their scores.

    Raises:
        NearfarError: there is only one system, no such task, or all units of a task are in one cluster; fewer than two
            ``resamples``, or a negative ``seed``.
    """
    check_resampling(resamples, seed, at_least=2)
    margin = given.points * MARGIN / 100 if margin is None else margin
    if unknown := [task for task in tasks or () if task not in given.tasks]:
        raise NearfarError(f"--tasks: there is no task {unknown[0]}, only {', '.join(given.tasks)}.")
    chosen = {task: given.tasks[task] for task in tasks or given.tasks}
    runs = list(dict.fromkeys(run for one in chosen.values() for run in one.runs))
    scored = {task: _scores(task, one, runs, resamples=resamples, seed=seed) for task, one in chosen.items()}
    families = {**scored, **({"": average_of(scored)} if len(scored) > 1 else {})}  # "" is the mean over tasks
    places = {system: [place for place, run in enumerate(runs) if run[0] == system] for system, _ in runs}
    names = _best_first(scored.values(), places)
    if len(names) < 2:
        raise NearfarError(
            f"{given.sources[names[0]]}: has scores of one system only, {names[0]}; compare two or more."
        )
    bar = track(range(len(names)), "comparing", console=Console(stderr=True), transient=True, disable=not progress)
    tests = []
    for i in bar:
        for j in range(i + 1, len(names)):
            first, both = len(places[names[i]]), [*places[names[i]], *places[names[j]]]
            fields = {name: tested_fields(one.select(both), first, None, margin) for name, one in families.items()}
            overall = AverageTest(tasks=list(chosen), **fields.pop("")) if "" in fields else None
            rows = {task: TaskTest(**_facts(chosen[task]), **of_task) for task, of_task in fields.items()}
            tests.append(PairTests(pair=[i, j], tasks=rows, overall=overall))
    comparisons = correct_pairs(tests, margin)
    ranked = {
        name: _ranked([one.select(places[system]) for system in names], name, comparisons)
        for name, one in families.items()
    }
    mean = ranked.pop("", None)
    return PairwiseResult(
        sides=[
            ComparedSide(
                name=system,
                models=[system] * len(places[system]),
                sources=[given.sources[system]] * len(places[system]),
                overall_rank=mean and mean[number],
                ranks={task: of_task[number] for task, of_task in ranked.items()},
                counts=given.counts.get(system),
            )
            for number, system in enumerate(names)
        ],
        config=ComparisonSettings(
            metric="score",
            aggregate="mean",
            measure=measure,
            resamples=resamples,
            seed=seed,
            level=SIGNIFICANCE_LEVEL,
            margin=margin,
        ),
        provenance=provenance(),
        not_compared=[],
        comparisons=comparisons,
    )


def _facts(task: UnitScores) -> dict[str, Any]:
    kind = "retrieval" if task.measure in MEASURES else "scores"
    return {"kind": kind, "pairs": task.values.shape[1], "measure": task.measure}


def _scores(task: str, given: UnitScores, runs: Sequence[tuple[str, str]], *, resamples: int, seed: int) -> RunScores:
    """The scores of all ``runs`` on a task, undefined for those that it lacks, and on resamples of its units."""
    units = int(given.clusters.max()) + 1
    if units < 2:
        raise NearfarError(f"task {task} has a single unit, or cluster of units; an interval needs two or more.")
    rows = [runs.index(run) for run in given.runs]
    points, draws = np.full(len(runs), np.nan), np.full((len(runs), resamples), np.nan)
    points[rows] = given.values.mean(axis=1)
    seeds = [seed, *task.encode()]
    draws[rows] = bootstrap_means(given.values, resamples=resamples, seed=seeds, units=given.clusters)
    reasons = [None if row in rows else f"{system} has no scores on {task}" for row, (system, _) in enumerate(runs)]
    return RunScores(points, draws, tuple(reasons), units)


def _best_first(scored: Iterable[RunScores], places: Mapping[str, Sequence[int]]) -> list[str]:
    """The systems by their mean over tasks; those with more tasks come first."""
    means = {system: [one.points[list(runs)].mean() for one in scored] for system, runs in places.items()}
    return sorted(places, key=lambda system: (np.isnan(means[system]).sum(), -np.nanmean(means[system])))


def _ranked(own: Sequence[RunScores], task: str, comparisons: Sequence[PairTests]) -> list[RankedScore]:
    """The score of each side on a task, or on the mean over tasks, with its interval and the ranks that it may have."""
    above, below = np.zeros(len(own), dtype=int), np.zeros(len(own), dtype=int)
    for one in comparisons:
        row = one.tasks[task] if task else one.overall
        if row is not None and row.verdict in ("better", "worse"):
            better, worse = one.pair if row.verdict == "better" else reversed(one.pair)
            above[worse] += 1
            below[better] += 1
    ranked, number = [], sum(one.reason is None for one in own)
    for place, one in enumerate(own):
        zero = np.zeros(1), np.zeros((1, one.draws.shape[1]))
        how: dict[str, Any] = {"units": one.units, "order": None, "margin": 0.0, "reason": one.reason}
        tested = difference_fields((one.points, one.draws), zero, **how)
        score, low, high = (tested.get(key) for key in ("difference", "low", "high"))
        ranks = (None, None) if one.reason else (1 + int(above[place]), number - int(below[place]))
        ranked.append(RankedScore(score, low, high, one.reason, *ranks))
    return ranked
