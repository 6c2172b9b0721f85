"""Paired tests between sides: evaluations of two or more sides in, tests per task and on averages out.

The results are :class:`~nearfar.evaluation.results.ComparisonResult` for two sides and
:class:`~nearfar.evaluation.results.PairwiseResult` for more.

There are four kinds of tasks, each with one score: similarity (Spearman of cosines with gold scores), relatedness
(Spearman of learned predictions with gold scores), classification (accuracy) and retrieval (a mean over queries). The
scores of a task's runs are those on the data, and on bootstrap resamples that all runs share (:class:`RunScores`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from nearfar.evaluation.correlation import Aggregate, Floats, bootstrap_scores, scores, weighted_spearman
from nearfar.evaluation.results import (
    AverageTest,
    ClassificationScores,
    ComparedSide,
    ComparisonResult,
    ComparisonSettings,
    EvaluationResult,
    PairedTest,
    PairTests,
    PairwiseResult,
    RelatednessScores,
    RetrievalScores,
    SimilarityScores,
    TaskTest,
    provenance,
)
from nearfar.evaluation.statistics import (
    bootstrap_means,
    bootstrap_test,
    holm,
    mcnemar,
    mean_difference,
    over_seeds,
    percent,
    permutation_test,
)
from nearfar.evaluation.tables.evaluation import seen_of
from nearfar.evaluation.tasks import SIMILARITY_AVERAGES, TRANSFER_AVERAGES
from nearfar.types import NearfarError

SIGNIFICANCE_LEVEL = 0.05
AVERAGES = {"overall": "similarity", "overall_transfer": "classification", "overall_retrieval": "retrieval"}
"""Averages of a comparison -> the kind of tasks that each is over."""
NAMED_AVERAGES = {**SIMILARITY_AVERAGES, **TRANSFER_AVERAGES}
"""Averages that papers report, which a comparison has too where all their tasks are compared."""
_Test = TypeVar("_Test", bound=PairedTest)
TaskScores: TypeAlias = SimilarityScores | ClassificationScores | RelatednessScores | RetrievalScores


class EvaluationRun(NamedTuple):
    """One evaluation, and the file or model that it came from, for messages."""

    source: str
    result: EvaluationResult


class RunScores(NamedTuple):
    """Scores of each run [runs] and on each resample [runs, resamples]; NaN where a run has none."""

    points: Floats
    draws: Floats
    reasons: tuple[str | None, ...]
    """Why a run has no score."""
    correct: NDArray[np.bool_] | None = None
    """Of a classification task: which rows each run predicts correctly [runs, rows]."""
    per_query: Floats | None = None
    """Of a retrieval task: the measure of each run on each query [runs, queries]."""

    @property
    def reason(self) -> str | None:
        """The first of the reasons."""
        return next(filter(None, self.reasons), None)

    def select(self, runs: Sequence[int]) -> "RunScores":
        """The scores of some of the runs, by their positions."""
        positions = list(runs)
        return RunScores(
            self.points[positions],
            self.draws[positions],
            tuple(self.reasons[run] for run in positions),
            None if self.correct is None else self.correct[positions],
            None if self.per_query is None else self.per_query[positions],
        )


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


def select_tasks(runs: Sequence[EvaluationRun], tasks: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The tasks to compare on, and those left out because not all runs have them.

    Raises:
        NearfarError: a task that a run does not have; no common task.
    """
    if tasks:
        for run in runs:
            for task in tasks:
                if task not in run.result.all_tasks:
                    raise NearfarError(f"{run.source}: has no task {task}, only {', '.join(run.result.all_tasks)}.")
        return list(dict.fromkeys(tasks)), []
    shared = shared_tasks(runs)
    everything = dict.fromkeys(task for run in runs for task in run.result.all_tasks)
    return shared, [task for task in everything if task not in shared]


def pairing(first: Sequence[EvaluationRun], second: Sequence[EvaluationRun]) -> list[int] | None:
    """For each run of ``first``, the run of ``second`` with the same training seed; None where they do not pair."""
    a, b = training_seeds(first), training_seeds(second)
    if None in a or len(set(a)) < len(a) or len(a) != len(b) or set(a) != set(b):
        return None
    return [b.index(seed) for seed in a]


def training_seeds(side: Sequence[EvaluationRun]) -> list[int | None]:
    """The training seed of each run, where it is known."""
    return [run.result.training_seed for run in side]


def check_same_data(task: str, runs: Sequence[EvaluationRun]) -> None:
    """Refuse runs whose rows cannot be paired.

    Raises:
        NearfarError: they were scored on different data, or probed in different ways.
    """
    first = fingerprints(runs[0], task)
    for run in runs:
        found = fingerprints(run, task)
        differ = [name for name in {**first, **found} if found.get(name) != first.get(name)]
        if differ == ["probe"]:
            raise NearfarError(
                f"{runs[0].source} and {run.source} were probed differently on task {task} ({first['probe']}; "
                f"{found['probe']}). Evaluate both in the same way."
            )
        if differ:
            raise NearfarError(
                f"{runs[0].source} and {run.source} were scored on different data (task {task}, subset {differ[0]}), "
                "so their pairs cannot be compared. Evaluate both on the same data."
            )


def fingerprints(run: EvaluationRun, task: str) -> dict[str, str | None]:
    """Fingerprints of the data by subset; of a transfer task, of its rows, and how it was probed, without seeds.

    Runs that differ in the seed of their probes are comparable; learned relatedness is always probed the same way.
    """
    scored = run.result.all_tasks[task]
    if isinstance(scored, SimilarityScores):
        return {name: subset.digest for name, subset in scored.subsets.items()}
    if isinstance(scored, RetrievalScores):
        return {"queries": scored.digest}
    transfer = run.result.transfer if isinstance(scored, ClassificationScores) else None
    return {"probe": transfer.describe_probe() if transfer else None, "rows": scored.digest}


def measure_of(task: str, runs: Sequence[EvaluationRun], measure: str | None) -> str | None:
    """The measure that is compared on a retrieval task: ``measure``, or the task's own; None for other tasks.

    Raises:
        NearfarError: a run does not have the measure.
    """
    scored = [(run, one) for run in runs if isinstance(one := run.result.all_tasks[task], RetrievalScores)]
    if not scored:
        return None
    chosen = measure or scored[0][1].main
    for run, one in scored:
        if one.metric(chosen) is None:
            raise NearfarError(f"{run.source}: task {task} has no measure {chosen}, only {', '.join(one.measures)}.")
    return chosen


def score(
    task: str,
    runs: Sequence[EvaluationRun],
    aggregate: Aggregate,
    *,
    measure: str | None = None,
    resamples: int,
    seed: int,
) -> RunScores:
    """Score all runs on the data and on the same resamples, drawn from ``seed`` and the task's name.

    ``measure`` is that of a retrieval task; by default the task's main measure.
    """
    scored = [run.result.all_tasks[task] for run in runs]
    retrieval = [one for one in scored if isinstance(one, RetrievalScores)]
    if retrieval:
        chosen = measure_of(task, runs, measure) or retrieval[0].main
        per_query = np.array([one.per_query[chosen] for one in retrieval], dtype=float)
        draws = bootstrap_means(per_query, resamples=resamples, seed=[seed, *task.encode()])
        return RunScores(per_query.mean(axis=1), draws, (None,) * len(runs), per_query=per_query)
    estimates = [one.spearman.of(aggregate) if isinstance(one, SimilarityScores) else one.compared for one in scored]
    whys = (estimate.reason for estimate in estimates)
    reasons = tuple(why and f"undefined for {run.source}: {why}" for run, why in zip(runs, whys, strict=True))
    found = RunScores(np.full(len(runs), np.nan), np.full((len(runs), resamples), np.nan), reasons)
    defined = [number for number, why in enumerate(reasons) if why is None]
    if not defined:
        return found
    scored, seeds = [scored[number] for number in defined], [seed, *task.encode()]
    classified = [one for one in scored if isinstance(one, ClassificationScores)]
    if classified:
        return _score_rows(found, defined, classified, resamples=resamples, seeds=seeds)
    gold, systems, sizes = _vectors(scored)
    aggregate = aggregate if isinstance(scored[0], SimilarityScores) else "all"
    found.points[defined] = scores(weighted_spearman, gold, systems, sizes=sizes).aggregate(aggregate)[:, 0]
    found.draws[defined] = bootstrap_scores(
        weighted_spearman,
        gold,
        systems,
        sizes=sizes,
        resamples=resamples,
        seed=seeds,
        only=aggregate,
    ).aggregate(aggregate)
    return found


def _score_rows(
    found: RunScores,
    defined: Sequence[int],
    scored: Sequence[ClassificationScores],
    *,
    resamples: int,
    seeds: Sequence[int],
) -> RunScores:
    """``found`` with the accuracies of the runs at the positions ``defined``."""
    right = np.array([np.equal(one.gold, one.predicted) for one in scored])
    found.points[defined] = [np.nan if one.accuracy.score is None else one.accuracy.score / 100 for one in scored]
    found.draws[defined] = bootstrap_means(right.astype(float), resamples=resamples, seed=seeds)
    correct = np.zeros((len(found.points), right.shape[1]), dtype=bool)
    correct[defined] = right
    return found._replace(correct=correct)


def _vectors(scored: Sequence[TaskScores]) -> tuple[Floats, Floats, list[int]]:
    """Gold scores [pairs], cosines or predictions [runs, pairs], and the number of pairs of each subset."""
    similarity = [one for one in scored if isinstance(one, SimilarityScores)]
    if similarity:
        subsets = similarity[0].subsets
        gold = np.concatenate([np.array(subset.gold, dtype=float) for subset in subsets.values()])
        cosines = [[x for name in subsets for x in one.subsets[name].cosines_e6] for one in similarity]
        return gold, np.array(cosines, dtype=float), [subset.pairs for subset in subsets.values()]
    learned = [one for one in scored if isinstance(one, RelatednessScores)]
    predicted = np.array([one.predicted_e6 for one in learned], dtype=float)
    return np.array(learned[0].gold, dtype=float), predicted, [learned[0].pairs]


def paired_test(scored: RunScores, first: int, *, resamples: int, seed: Sequence[int]) -> tuple[float, str] | None:
    """Test the ``first`` runs against the others on the same rows or queries: p, and the test.

    None for tasks that are tested by the bootstrap alone.
    """
    if scored.per_query is not None:
        differences = scored.per_query[:first].mean(axis=0) - scored.per_query[first:].mean(axis=0)
        return permutation_test(differences, resamples=resamples, seed=seed), "randomization test over queries"
    if scored.correct is None:
        return None
    correct = scored.correct
    if len(correct) == 2:
        return mcnemar(*correct), "McNemar's exact test over rows"
    shares = correct[:first].mean(axis=0) - correct[first:].mean(axis=0)
    return permutation_test(shares, resamples=resamples, seed=seed), "permutation test over rows"


def compare_sides(sides: Sequence[Sequence[EvaluationRun]], **settings: Any) -> ComparisonResult | PairwiseResult:
    """:func:`compare_runs` of two sides, or :func:`compare_pairwise` of more."""
    return compare_runs(*sides, **settings) if len(sides) == 2 else compare_pairwise(sides, **settings)


def compare_runs(first: Sequence[EvaluationRun], second: Sequence[EvaluationRun], **settings: Any) -> ComparisonResult:
    """Test the mean score of the ``first`` runs against that of the ``second``.

    Correlations are tested by the paired bootstrap over pairs, with the same resamples for all runs of both sides.
    Accuracies are tested by McNemar's exact test, or by a permutation test where a side has several runs, and means
    over queries (retrieval) by a randomization test that flips the signs of their differences; both have a bootstrap
    interval. These tests generalise to other pairs, rows or queries; p is corrected over tasks (Holm).

    With two or more runs on both sides there is also a t-test over seeds and Wilcoxon's test, which generalise to other
    training runs. They are paired where both sides have the same training seeds, else unpaired (Welch's t-test). In the
    averages each resample draws every task; the average over a single task has that task's test. ``sickr-full`` is left
    out of the average where ``sickr``, a part of it, is compared too. Retrieval tasks are compared, and averaged, by
    ``measure``; by default each by its main measure, and averaged only if it is the same for all.

    ``settings`` are those of :func:`compare_pairwise`.

    Raises:
        NearfarError: a task that a run does not have, no common task, or runs scored on different data.
    """
    result = compare_pairwise([first, second], **settings)
    tests = result.comparisons[0]
    named = {name: replace(one, p_holm=None) for name, one in tests.named_averages.items()}
    averages: dict[str, Any] = {name: (one := tests.average(name)) and replace(one, p_holm=None) for name in AVERAGES}
    return replace(result.between(tests), not_compared=result.not_compared, named_averages=named, **averages)


def compare_pairwise(
    sides: Sequence[Sequence[EvaluationRun]],
    *,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    measure: str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
) -> PairwiseResult:
    """Test each pair of ``sides`` as :func:`compare_runs` does, and correct p over all of these tests (Holm)."""
    runs = [run for side in sides for run in side]
    chosen, left_out = select_tasks(runs, tasks)
    for task in chosen:
        check_same_data(task, runs)
    bar = track(chosen, "comparing", console=Console(stderr=True), transient=True, disable=not progress)
    scored = {task: score(task, runs, aggregate, measure=measure, resamples=resamples, seed=seed) for task in bar}
    ends = np.cumsum([len(side) for side in sides])
    numbers = [range(end - len(side), end) for end, side in zip(ends, sides, strict=True)]
    tests = []
    for i, j in combinations(range(len(sides)), 2):
        selected = {task: one.select([*numbers[i], *numbers[j]]) for task, one in scored.items()}
        averages, rows = _between(selected, sides[i], sides[j], measure, resamples=resamples, seed=seed)
        named = {name: averages.pop(name) for name in NAMED_AVERAGES if name in averages}
        overall: dict[str, AverageTest | None] = {name: averages.get(name) for name in AVERAGES}
        tests.append(PairTests(pair=[i, j], tasks=rows, **overall, named_averages=named))
    return PairwiseResult(
        sides=[_describe(side, chosen) for side in sides],
        config=ComparisonSettings(
            aggregate=aggregate, measure=measure, resamples=resamples, seed=seed, level=SIGNIFICANCE_LEVEL
        ),
        provenance=provenance(),
        not_compared=left_out,
        comparisons=_correct_pairs(tests),
    )


def _correct_pairs(tests: Sequence[PairTests]) -> list[PairTests]:
    """The tests with p corrected over tasks and pairs of sides, and that of each average over pairs of sides."""
    rows = iter(_correct([row for one in tests for row in one.tasks.values()]))
    averages = {
        name: iter(_correct([average for one in tests if (average := one.average(name)) is not None]))
        for name in (*AVERAGES, *tests[0].named_averages)
    }
    return [
        PairTests(
            pair=one.pair,
            tasks={task: next(rows) for task in one.tasks},
            **{name: next(averages[name]) if one.average(name) else None for name in AVERAGES},
            named_averages={name: next(averages[name]) for name in one.named_averages},
        )
        for one in tests
    ]


def _between(
    scored: Mapping[str, RunScores],
    first: Sequence[EvaluationRun],
    second: Sequence[EvaluationRun],
    measure: str | None,
    *,
    resamples: int,
    seed: int,
) -> tuple[dict[str, AverageTest], dict[str, TaskTest]]:
    """The averages and the tasks of ``first`` against ``second``; ``scored`` has one side's runs after the other's."""
    runs, order = [*first, *second], pairing(first, second)
    known = runs[0].result.all_tasks
    kinds = {task: known[task].kind for task in scored}
    measures = {task: measure_of(task, runs, measure) for task in scored}
    rows: dict[str, TaskTest] = {}
    for task, one in scored.items():
        tested = _test(one, len(first), order)
        row = TaskTest(kind=kinds[task], pairs=known[task].size, measure=measures[task], **vars(tested))
        by_rows = paired_test(one, len(first), resamples=resamples, seed=[seed, *task.encode()])
        if by_rows is not None and row.p is not None:
            row = replace(row, p=round(by_rows[0], 6), test=by_rows[1])
        rows[task] = row
    averages: dict[str, AverageTest] = {}
    for name, averaged in _averaged_tasks(kinds, measures).items():
        tested = _test(_average({task: scored[task] for task in averaged}), len(first), order)
        if len(averaged) == 1:  # the difference is that of the task, so its test is too
            tested = replace(tested, p=rows[averaged[0]].p, test=rows[averaged[0]].test)
        averages[name] = AverageTest(tasks=averaged, **vars(tested))
    return averages, rows


def _averaged_tasks(kinds: Mapping[str, str], measures: Mapping[str, str | None]) -> dict[str, list[str]]:
    """The tasks of each average: over all tasks of a kind, and those that papers report, unless they are the same."""
    found: dict[str, list[str]] = {}
    for name, kind in AVERAGES.items():
        averaged = [task for task in kinds if kinds[task] == kind and (task != "sickr-full" or "sickr" not in kinds)]
        if averaged and len({measures[task] for task in averaged}) == 1:
            found[name] = averaged
    everything = [set(tasks) for tasks in found.values()]
    for name, members in NAMED_AVERAGES.items():
        if set(members) <= set(kinds) and set(members) not in everything:
            found[name] = list(members)
    return found


def _correct(family: Sequence[_Test]) -> list[_Test]:
    """The tests of a family with p corrected by Holm's method, and the verdict."""
    corrected = iter(holm([row.p for row in family if row.p is not None]))
    return [
        row if row.p is None else replace(row, p_holm=round(p := next(corrected), 6), separable=p < SIGNIFICANCE_LEVEL)
        for row in family
    ]


def _average(scored: Mapping[str, RunScores]) -> RunScores:
    named = [[why and f"{task}: {why}" for why in one.reasons] for task, one in scored.items()]
    reasons = tuple(next(filter(None, of_run), None) for of_run in zip(*named, strict=True))
    return RunScores(
        np.mean([one.points for one in scored.values()], axis=0),
        np.mean([one.draws for one in scored.values()], axis=0),
        reasons,
    )


def _test(scored: RunScores, first: int, order: Sequence[int] | None) -> PairedTest:
    """The test on one task or average; ``order`` aligns the second side's runs with the first's, where they pair."""
    a, b = scored.points[:first], scored.points[first:]
    reason, tested, by_seeds = scored.reason, None, None
    if reason is None:
        tested = bootstrap_test(float(a.mean() - b.mean()), mean_difference(scored.draws, first))
        by_seeds = over_seeds(a, b if order is None else b[order], paired=order is not None)
        reason = None if tested else "undefined on every resample"
    return PairedTest(
        first=percent(a.mean()),
        second=percent(b.mean()),
        difference=None if tested is None else percent(tested.difference),
        low=None if tested is None else percent(tested.low),
        high=None if tested is None else percent(tested.high),
        p=None if tested is None else round(tested.p, 6),
        test=None if tested is None else tested.test,
        separable=None,
        seeds=by_seeds,
        reason=reason,
    )


def _describe(side: Sequence[EvaluationRun], tasks: Collection[str]) -> ComparedSide:
    models = [run.result.model for run in side]
    return ComparedSide(
        name=", ".join(dict.fromkeys(models)),
        models=models,
        sources=[run.source for run in side],
        training_seeds=training_seeds(side),
        seen={task: shares for task, shares in seen_of([run.result for run in side]).items() if task in tasks} or None,
        folds=max((run.result.folds for run in side), default=0) or None,
    )
