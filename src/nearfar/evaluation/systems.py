"""The referee: any number of systems, scored by any tool on the same units, tested pair by pair and ranked.

The tests are those of :mod:`nearfar.evaluation.comparison`; runs of two systems are independent, also where their seeds
have the same names. The ranks that a system may have follow from the tests: as many systems rank above it as are
better, as many below it as are worse, and those that it is not told apart from stand on either side. Holm's method
controls the family of all pairs, so that all ranges of a family hold together with a confidence of 95%.

Source: Al Mohamad, Goeman & van Zwet 2022, Simultaneous confidence intervals for ranks, Biometrics 78.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.data.files import stem
from nearfar.data.unit_scores import Systems, UnitScores, read_qrels, read_run
from nearfar.evaluation import comparison, results
from nearfar.evaluation.render import short_names
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
) -> results.PairwiseResult:
    """Test each pair of systems on each task, and on the mean over tasks, and rank the systems.

    ``tasks`` are those to compare on, by default all; ``margin`` is the largest difference, in points, that counts as
    level, by default 0.5% of the range of scores. The sides of the result are in the order of their scores.

    Raises:
        NearfarError: there is only one system, no such task, or all units of a task are in one cluster.
    """
    margin = given.points * MARGIN / 100 if margin is None else margin
    if unknown := [task for task in tasks or () if task not in given.tasks]:
        raise NearfarError(f"--tasks: there is no task {unknown[0]}, only {', '.join(given.tasks)}.")
    chosen = {task: given.tasks[task] for task in tasks or given.tasks}
    runs = list(dict.fromkeys(run for one in chosen.values() for run in one.runs))
    bar = track(chosen.items(), "comparing", console=Console(stderr=True), transient=True, disable=not progress)
    how: dict[str, Any] = {"resamples": resamples, "seed": seed}
    scored = {task: _scores(task, one, runs, **how, bound=given.points / 100) for task, one in bar}
    places = {system: [place for place, run in enumerate(runs) if run[0] == system] for system, _ in runs}
    if len(places) < 2:
        raise NearfarError(f"{given.sources[runs[0][0]]}: has scores of one system only, {runs[0][0]}; compare more.")
    points = {system: [one.points[own].mean() for one in scored.values()] for system, own in places.items()}
    names = sorted(places, key=lambda system: (np.isnan(points[system]).sum(), -np.nanmean(points[system])))
    sides = [places[system] for system in names]
    facts = {task: one.facts for task, one in chosen.items()}
    averages = {"overall": list(chosen)} if len(chosen) > 1 else {}
    tests = comparison.compare_pairs(scored, sides, facts=facts, averages=averages, margin=margin)
    ranks = {task: _ranked(one, sides, [of_pair.tasks[task] for of_pair in tests]) for task, one in scored.items()}
    overall = [of_pair.overall for of_pair in tests if of_pair.overall is not None]
    mean = _ranked(comparison.average_of(scored), sides, overall) if overall else [None] * len(sides)
    described = [
        results.ComparedSide(
            name=system,
            models=[system] * len(side),
            sources=[given.sources[system]] * len(side),
            overall_rank=of_mean,
            ranks={task: of_task[number] for task, of_task in ranks.items()},
            counts=given.counts.get(system),
        )
        for number, (system, side, of_mean) in enumerate(zip(names, sides, mean, strict=True))
    ]
    how |= {"metric": "score", "aggregate": "mean", "measure": measure, "margin": margin}
    return comparison.pairwise_result(described, tests, not_compared=[], **how)


def _scores(
    task: str, given: UnitScores, runs: Sequence[tuple[str, str]], *, resamples: int, seed: int, bound: float
) -> comparison.RunScores:
    """The scores of all ``runs`` on a task, undefined for those that it lacks, and on resamples of its units."""
    units = int(given.clusters.max()) + 1
    if units < 2:
        raise NearfarError(f"task {task} has a single unit, or cluster of units; an interval needs two or more.")
    rows = [runs.index(run) for run in given.runs]
    points, draws = np.full(len(runs), np.nan), np.full((len(runs), resamples), np.nan)
    points[rows] = given.values.mean(axis=1)
    seeds = [seed, *task.encode()]
    draws[rows] = bootstrap_means(given.values, resamples=resamples, seed=seeds, units=given.clusters)
    names = [f"{system}, seed {seed}," if seed else system for system, seed in runs]
    reasons = [None if row in rows else f"{name} has no scores on {task}" for row, name in enumerate(names)]
    return comparison.RunScores(points, draws, tuple(reasons), units, bound)


def _ranked(
    scored: comparison.RunScores, sides: Sequence[Sequence[int]], tests: Sequence[results.PairedTest]
) -> list[results.RankedScore]:
    """The score of each side on a task or average, with its interval and the ranks that follow from tests of pairs."""
    signs = [{"better": 1, "worse": -1}.get(test.verdict or "", 0) for test in tests]
    pairs = [pair[::sign] for pair, sign in zip(combinations(range(len(sides)), 2), signs, strict=True) if sign]
    above, below = Counter(worse for _, worse in pairs), Counter(better for better, _ in pairs)
    each = [scored.of(side) for side in sides]
    ranked, most = [], sum(reason is None for _, reason in each)
    zero = np.zeros(1), np.zeros((1, scored.draws.shape[1]))
    how: dict[str, Any] = {"units": scored.units, "bound": scored.bound, "order": None, "margin": 0.0}
    for side, (own, reason) in enumerate(each):
        tested = comparison.difference_fields(own, zero, **how, reason=reason)
        interval = [tested.get(key) for key in ("difference", "low", "high", "reason")]
        ranks = (None, None) if reason else (1 + above[side], most - below[side])
        ranked.append(results.RankedScore(*interval, *ranks))
    return ranked
