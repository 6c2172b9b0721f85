"""Paired tests between sides: evaluations of two or more sides in, tests per task and on averages out.

The results are :class:`~nearfar.evaluation.results.ComparisonResult` for two sides and
:class:`~nearfar.evaluation.results.PairwiseResult` for more.

There are four kinds of tasks, each with one score: similarity (Spearman of cosines with gold scores), relatedness
(Spearman of learned predictions with gold scores), classification (accuracy) and retrieval (a mean over queries). The
scores of a task's runs are those on the data, and on bootstrap resamples of its units that all runs share
(:class:`RunScores`). Every task and average has the one test of
:func:`~nearfar.evaluation.statistics.crossed_difference`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.evaluation import correlation, results, statistics
from nearfar.evaluation.correlation import Aggregate, Floats, Units, weighted_spearman
from nearfar.evaluation.statistics import MARGIN, SideScores
from nearfar.evaluation.tables.evaluation import seen_of
from nearfar.evaluation.tasks import SIMILARITY_AVERAGES, TRANSFER_AVERAGES
from nearfar.types import NearfarError

SIGNIFICANCE_LEVEL = 0.05
AVERAGES = {"overall": "similarity", "overall_transfer": "classification", "overall_retrieval": "retrieval"}
"""Averages of a comparison -> the kind of tasks that each is over."""
NAMED_AVERAGES = {**SIMILARITY_AVERAGES, **TRANSFER_AVERAGES}
"""Averages that papers report, which a comparison has too where all their tasks are compared."""
_Test = TypeVar("_Test", bound=results.TestedDifference)
TaskScores: TypeAlias = (
    results.SimilarityScores | results.ClassificationScores | results.RelatednessScores | results.RetrievalScores
)


class EvaluationRun(NamedTuple):
    """One evaluation, and the file or model that it came from, for messages."""

    source: str
    result: results.EvaluationResult


class RunScores(NamedTuple):
    """Scores of each run [runs] and on each resample [runs, resamples]; NaN where a run has none."""

    points: Floats
    draws: Floats
    reasons: tuple[str | None, ...]
    """Why a run has no score."""
    units: int
    """The number of independent units that were resampled."""
    bound: float = 0.0
    """Of means over units, the largest difference of a unit, as ``crossed_difference`` takes it."""

    def of(self, runs: Sequence[int]) -> tuple[SideScores, str | None]:
        """The scores of some of the runs, by their positions, and why they have none, if they have none."""
        positions = list(runs)
        reason = next((self.reasons[run] for run in positions if self.reasons[run]), None)
        return (self.points[positions], self.draws[positions]), reason


def shared_tasks(runs: Sequence[EvaluationRun]) -> list[str]:
    """The tasks that all ``runs`` have, in the order of the first run.

    Raises:
        NearfarError: there are none.
    """
    shared = [task for task in runs[0].result.all_tasks if all(task in run.result.all_tasks for run in runs)]
    if not shared:
        each = "; ".join(f"{run.source}: {', '.join(run.result.all_tasks)}" for run in runs)
        raise NearfarError(f"the sides have no task in common ({each}).")
    return shared


def _pairing(first: Sequence[EvaluationRun], second: Sequence[EvaluationRun]) -> list[int] | None:
    """For each run of ``first``, the run of ``second`` with the same training seed; None where they do not pair."""
    a, b = ([run.result.training_seed for run in side] for side in (first, second))
    if None in a or len(set(a)) < len(a) or len(a) != len(b) or set(a) != set(b):
        return None
    return [b.index(seed) for seed in a]


def _describe_task(task: str, runs: Sequence[EvaluationRun], measure: str | None) -> dict[str, Any]:
    """The fields of a :class:`TaskTest` that describe a task: kind, size, and of retrieval the measure.

    Raises:
        NearfarError: the runs do not all have the task or the measure, were scored on different data, or probed in
            different ways.
    """
    for run in runs:
        scored = run.result.all_tasks.get(task)
        if scored is None:
            raise NearfarError(f"{run.source}: has no task {task}, only {', '.join(run.result.all_tasks)}.")
        first, own = fingerprints(runs[0], task), fingerprints(run, task)
        if differ := [name for name in {**first, **own} if own.get(name) != first.get(name)]:
            what = f"{differ[0]}: {first.get(differ[0])}; {own.get(differ[0])}"
            raise NearfarError(
                f"{runs[0].source} and {run.source} were scored on different data or in different ways (task {task}, "
                f"{what}), so their pairs cannot be compared. Evaluate both in the same way."
            )
        if isinstance(scored, results.RetrievalScores):
            measure = measure or scored.main
            if scored.metric(measure) is None:
                has = ", ".join(scored.measures)
                raise NearfarError(f"{run.source}: task {task} has no measure {measure}, only {has}.")
    known = runs[0].result.all_tasks[task]
    of_retrieval = isinstance(known, results.RetrievalScores)
    return {"kind": known.kind, "pairs": known.size, "measure": measure if of_retrieval else None}


def fingerprints(run: EvaluationRun, task: str) -> dict[str, str | None]:
    """Fingerprints of the data by subset; of a transfer task, of its rows, and how it was probed, without seeds.

    Runs that differ in the seed of their probes are comparable; learned relatedness is always probed the same way.
    """
    scored = run.result.all_tasks[task]
    if isinstance(scored, results.SimilarityScores):
        return {name: subset.digest for name, subset in scored.subsets.items()}
    if isinstance(scored, results.RetrievalScores):
        return {"queries": scored.digest}
    transfer = run.result.transfer if isinstance(scored, results.ClassificationScores) else None
    return {"probe": transfer.describe_probe() if transfer else None, "rows": scored.digest}


def _score(
    task: str, runs: Sequence[EvaluationRun], aggregate: Aggregate, measure: str | None, *, resamples: int, seed: int
) -> RunScores:
    """Score all runs on the data and on the same resamples of its units, drawn from ``seed`` and the task's name.

    ``measure`` is that of a retrieval task.
    """
    scored = [run.result.all_tasks[task] for run in runs]
    estimates = [
        one.spearman.of(aggregate) if isinstance(one, results.SimilarityScores) else one.compared for one in scored
    ]
    reasons = tuple(
        None if measure or one.reason is None else f"undefined for {run.source}: {one.reason}"
        for run, one in zip(runs, estimates, strict=True)
    )
    units: Units | None = next((one.units for one in scored if one.units is not None), None)
    count = scored[0].size if units is None else max(units) + 1
    how: dict[str, Any] = {"resamples": resamples, "seed": [seed, *task.encode()], "units": units}
    of_means = isinstance(scored[0], results.RetrievalScores | results.ClassificationScores)
    points, draws = np.full(len(runs), np.nan), np.full((len(runs), resamples), np.nan)
    if defined := [number for number, why in enumerate(reasons) if why is None]:
        subsets = getattr(scored[defined[0]], "subsets", {"": scored[defined[0]]})
        values = np.array([_values(scored[run], measure, list(subsets)) for run in defined], dtype=np.float64)
        if of_means:
            draws[defined] = statistics.bootstrap_means(values, **how)
            points[defined] = values.mean(axis=1)
            if measure is None:  # of a pool, accuracy is a mean over folds
                points[defined] = [(estimates[run].score or 0.0) / 100 for run in defined]
        else:
            golds = [np.array(part.gold, dtype=float) for part in subsets.values()]
            by = aggregate if isinstance(scored[0], results.SimilarityScores) else "all"
            given: Any = (weighted_spearman, np.concatenate(golds), values)
            sizes = list(map(len, golds))
            points[defined] = correlation.scores(*given, sizes=sizes).aggregate(by)[:, 0]
            draws[defined] = correlation.bootstrap_scores(*given, sizes=sizes, only=by, **how).aggregate(by)
    return RunScores(points, draws, reasons, count, float(of_means))


def _values(scored: TaskScores, measure: str | None, subsets: Sequence[str]) -> Sequence[float]:
    """What is known of each row of a task: a measure, whether a label is right, a cosine or a prediction."""
    match scored:
        case results.RetrievalScores():
            return scored.per_query[measure or scored.main]
        case results.ClassificationScores():
            return [float(gold == label) for gold, label in zip(scored.gold, scored.predicted, strict=True)]
        case results.RelatednessScores():
            return scored.predicted_e6
    return [cosine for name in subsets for cosine in scored.subsets[name].cosines_e6]


def compare_sides(
    sides: Sequence[Sequence[EvaluationRun]], **settings: Any
) -> results.ComparisonResult | results.PairwiseResult:
    """:func:`compare_runs` of two sides, or :func:`compare_pairwise` of more."""
    return compare_runs(*sides, **settings) if len(sides) == 2 else compare_pairwise(sides, **settings)


def compare_runs(
    first: Sequence[EvaluationRun], second: Sequence[EvaluationRun], **settings: Any
) -> results.ComparisonResult:
    """Test the mean score of the ``first`` runs against that of the ``second``.

    Each task and average has one difference with one interval (:func:`~nearfar.evaluation.statistics.
    crossed_difference`): it generalises to other pairs, rows or queries, and where a side has several runs, to its
    other training runs. Rows that share a text (queries: that are the same text) are one unit, drawn together. Runs are
    paired where both sides have the same training seeds, else independent. p is corrected over tasks (Holm).

    In the averages each resample draws every task. ``sickr-full`` is left out of the average where ``sickr``, a part of
    it, is compared too. Retrieval tasks are compared, and averaged, by ``measure``; by default each by its main
    measure, and averaged only if it is the same for all.

    ``settings`` are those of :func:`compare_pairwise`.

    Raises:
        NearfarError: a task that a run does not have, no common task, or runs scored on different data.
    """
    result = compare_pairwise([first, second], **settings)
    return replace(result.between(result.comparisons[0]), not_compared=result.not_compared)


def compare_pairwise(
    sides: Sequence[Sequence[EvaluationRun]],
    *,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    measure: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    margin: float = MARGIN,
    progress: bool = False,
) -> results.PairwiseResult:
    """Test each pair of ``sides`` as :func:`compare_runs` does, and correct p over all of these tests (Holm).

    ``margin`` is the largest difference, in points, that counts as level.

    Raises:
        NearfarError: as :func:`compare_runs`.
    """
    runs = [run for side in sides for run in side]
    chosen = list(dict.fromkeys(tasks or shared_tasks(runs)))
    facts = {task: _describe_task(task, runs, measure) for task in chosen}
    bar = track(chosen, "comparing", console=Console(stderr=True), transient=True, disable=not progress)
    drawn: dict[str, Any] = {"resamples": resamples, "seed": seed}
    scored = {task: _score(task, runs, aggregate, facts[task]["measure"], **drawn) for task in bar}
    ends = np.cumsum([0, *map(len, sides)]).tolist()
    numbers = [range(start, end) for start, end in pairwise(ends)]
    how: dict[str, Any] = {"facts": facts, "averages": _averaged_tasks(facts), "margin": margin}
    comparisons = compare_pairs(scored, numbers, **how, order=lambda i, j: _pairing(sides[i], sides[j]))
    described = [_describe(side, chosen) for side in sides]
    every = dict.fromkeys(task for run in runs for task in run.result.all_tasks)
    left_out = [] if tasks else [task for task in every if task not in chosen]
    settings: dict[str, Any] = {"aggregate": aggregate, "measure": measure, "margin": margin, **drawn}
    return pairwise_result(described, comparisons, not_compared=left_out, **settings)


def pairwise_result(
    sides: list[results.ComparedSide], tests: list[results.PairTests], *, not_compared: list[str], **settings: Any
) -> results.PairwiseResult:
    """The result of tests between ``sides``; ``settings`` are those of how they were compared."""
    return results.PairwiseResult(
        sides=sides,
        config=results.ComparisonSettings(level=SIGNIFICANCE_LEVEL, **settings),
        provenance=results.provenance(),
        not_compared=not_compared,
        comparisons=tests,
    )


def compare_pairs(
    scored: Mapping[str, RunScores],
    sides: Sequence[Sequence[int]],
    *,
    facts: Mapping[str, Mapping[str, Any]],
    averages: Mapping[str, list[str]],
    margin: float,
    order: Callable[[int, int], Sequence[int] | None] = lambda *_: None,
) -> list[results.PairTests]:
    """The tests of each pair of sides on each task, corrected over tasks and pairs, and on averages, over pairs (Holm).

    Args:
        scored: the scores of all runs on each task.
        sides: the positions of each side's runs.
        facts: of each task, the fields of a :class:`TaskTest` that describe it.
        averages: the tasks of each average.
        margin: the largest difference, in points, that counts as level.
        order: aligns the runs of the second of two sides with those of the first, where they pair.
    """
    pairs = [(i, j, order(i, j)) for i, j in combinations(range(len(sides)), 2)]

    def tested(one: RunScores) -> Iterator[dict[str, Any]]:
        return (_test(one, sides[i], sides[j], aligned, margin) for i, j, aligned in pairs)

    rows = [results.TaskTest(**facts[task], **fields) for task, one in scored.items() for fields in tested(one)]
    corrected = iter(with_verdicts(rows, margin))
    by_task = {task: [next(corrected) for _ in pairs] for task in scored}
    by_average: dict[str, list[Any]] = {
        name: with_verdicts([results.AverageTest(tasks=tasks, **fields) for fields in tested(mean)], margin)
        for name, tasks in averages.items()
        for mean in [average_of({task: scored[task] for task in tasks})]
    }
    return [
        results.PairTests(
            pair=[i, j],
            tasks={task: of_task[number] for task, of_task in by_task.items()},
            **{name: by_average[name][number] if name in by_average else None for name in AVERAGES},
            named_averages={name: of[number] for name, of in by_average.items() if name not in AVERAGES},
        )
        for number, (i, j, _) in enumerate(pairs)
    ]


def _averaged_tasks(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The tasks of each average: over all tasks of a kind, and those that papers report, unless they are the same."""
    found: dict[str, list[str]] = {}
    kinds = {task: of_task["kind"] for task, of_task in facts.items()}
    for name, kind in AVERAGES.items():
        averaged = [task for task in kinds if kinds[task] == kind and (task != "sickr-full" or "sickr" not in kinds)]
        if averaged and len({facts[task]["measure"] for task in averaged}) == 1:
            found[name] = averaged
    everything = [set(tasks) for tasks in found.values()]
    for name, members in NAMED_AVERAGES.items():
        if set(members) <= set(kinds) and set(members) not in everything:
            found[name] = list(members)
    return found


def with_verdicts(family: Sequence[_Test], margin: float) -> list[_Test]:
    """The tests of a family with p corrected by Holm's method, and the verdicts against ``margin``, in points."""
    corrected = iter(statistics.holm([row.p for row in family if row.p is not None]))
    return [row if row.p is None else _with_verdict(row, next(corrected), margin) for row in family]


def _with_verdict(row: _Test, p_holm: float, margin: float) -> _Test:
    assert row.low is not None
    assert row.high is not None
    says = statistics.verdict(row.low, row.high, margin, p_holm=p_holm)
    more = row.more_units or None if says == "cannot tell" else None
    return replace(row, p_holm=round(p_holm, 6), verdict=says, more_units=more)


def difference_fields(
    first: SideScores,
    second: SideScores,
    *,
    units: int,
    order: Sequence[int] | None,
    margin: float,
    bound: float = 0.0,
    reason: str | None = None,
) -> dict[str, Any]:
    """The fields of a :class:`TestedDifference`, without its verdict; scores are x 1, the fields and ``margin`` x 100.

    The arguments are those of :func:`~nearfar.evaluation.statistics.crossed_difference`; with a ``reason`` nothing is
    tested.
    """
    tested = None if reason else statistics.crossed_difference(first, second, units=units, order=order, bound=bound)
    if tested is None:
        return {"units": units, "reason": reason or "undefined on every resample"}
    points = {key: statistics.percent(getattr(tested, key)) for key in ("difference", "low", "high")}
    return points | {
        "p": round(tested.p, 6),
        "units": units,
        "more_units": statistics.units_to_tell(tested, units, margin / 100),
    }


def average_of(scored: Mapping[str, RunScores]) -> RunScores:
    """The mean over tasks of each run; each of its resamples is one of every task."""
    named = [[why and f"{task}: {why}" for why in one.reasons] for task, one in scored.items()]
    reasons = tuple(next(filter(None, of_run), None) for of_run in zip(*named, strict=True))
    return RunScores(
        np.mean([one.points for one in scored.values()], axis=0),
        np.mean([one.draws for one in scored.values()], axis=0),
        reasons,
        sum(one.units for one in scored.values()),
        min(one.bound for one in scored.values()),
    )


def _test(
    scored: RunScores, first: Sequence[int], second: Sequence[int], order: Sequence[int] | None, margin: float
) -> dict[str, Any]:
    """The test of two sides on a task or average; ``order`` aligns the second's runs with the first's, where they pair.

    The sides are the positions of their runs.
    """
    (a, why_a), (b, why_b) = scored.of(first), scored.of(second)
    means = {"first": statistics.percent(a[0].mean()), "second": statistics.percent(b[0].mean())}
    how: dict[str, Any] = {"units": scored.units, "order": order, "margin": margin, "bound": scored.bound}
    return means | difference_fields(a, b, **how, reason=why_a or why_b)


def _describe(side: Sequence[EvaluationRun], tasks: Collection[str]) -> results.ComparedSide:
    models, seen = [run.result.model for run in side], seen_of([run.result for run in side])
    return results.ComparedSide(
        name=", ".join(dict.fromkeys(run.result.title for run in side)),
        models=models,
        sources=[run.source for run in side],
        training_seeds=[run.result.training_seed for run in side],
        seen={task: shares for task, shares in seen.items() if task in tasks} or None,
        folds=max((run.result.folds for run in side), default=0) or None,
    )
