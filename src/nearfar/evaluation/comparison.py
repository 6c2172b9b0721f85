"""Paired tests between sides: evaluations of two or more sides in, tests per task and on averages out.

The results are :class:`~nearfar.evaluation.results.ComparisonResult` for two sides and
:class:`~nearfar.evaluation.results.PairwiseResult` for more.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.paired import (
    EvaluationRun,
    RunScores,
    check_same_data,
    measure_of,
    paired_test,
    pairing,
    score,
    select_tasks,
    training_seeds,
)
from nearfar.evaluation.results import (
    AverageTest,
    ComparedSide,
    ComparisonResult,
    ComparisonSettings,
    PairedTest,
    PairTests,
    PairwiseResult,
    TaskTest,
    provenance,
)
from nearfar.evaluation.statistics import (
    bootstrap_test,
    holm,
    mean_difference,
    over_seeds,
    percent,
)
from nearfar.evaluation.tables.evaluation import seen_of
from nearfar.evaluation.tasks import SIMILARITY_AVERAGES, TRANSFER_AVERAGES

SIGNIFICANCE_LEVEL = 0.05
AVERAGES = {"overall": "similarity", "overall_transfer": "classification", "overall_retrieval": "retrieval"}
"""Averages of a comparison -> the kind of tasks that each is over."""
NAMED_AVERAGES = {**SIMILARITY_AVERAGES, **TRANSFER_AVERAGES}
"""Averages that papers report, which a comparison has too where all their tasks are compared."""
_Test = TypeVar("_Test", bound=PairedTest)


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
