"""Is the first better than the second? Evaluations of two sides in, paired tests per task and overall out.

A comparison (schema 1)::

    {
      "schema": 1, "kind": "comparison",
      "first": {"name", "models": [one per run], "sources": [file or model], "training_seeds": [...]}, "second": same,
      "config": {"metric", "aggregate", "resamples", "seed", "level"},
      "provenance": as in an evaluation,
      "not_compared": [tasks that not all runs have],
      "tasks": {task: {"kind", "pairs", "first", "second", "difference", "low", "high", "p", "test", "p_holm",
                       "separable", "seeds": null or
                       {"difference", "low", "high", "p", "test", "p_rank", "rank_test"}}},
      "overall": {"tasks": [those averaged], and the same but "kind", "pairs" and "p_holm"}, or null,
      "overall_transfer": the same for the accuracies, or null
    }

Of three sides or more (``"kind": "comparisons"``) it holds ``config``, ``provenance`` and ``not_compared`` as above,
``"sides": [as "first"]``, and ``"comparisons"``: one of each two sides, with their numbers as ``"pair": [i, j]``; there
p_holm is corrected over all pairs of sides too, also that of the averages.

Scores are Spearman x 100, or for classification tasks accuracies x 100; a difference is first minus second. Where a
score is undefined, so are the difference and what follows from it: they are null, and ``"reason"`` says why.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.evaluation.correlation import AGGREGATES, Aggregate, Floats, check_resampling
from nearfar.evaluation.paired import (
    EvaluationRun,
    RunScores,
    check_same_data,
    kind_of,
    paired_row_test,
    score,
    size_of,
    tasks_of,
)
from nearfar.evaluation.results import SCHEMA, Result, provenance
from nearfar.evaluation.statistics import (
    Difference,
    bootstrap_test,
    holm,
    mean_difference,
    rank_test_over_seeds,
    t_test_over_seeds,
)
from nearfar.types import NearfarError

SIGNIFICANCE_LEVEL = 0.05
AVERAGES = {"overall": "similarity", "overall_transfer": "classification"}
"""The averages of a comparison, and the kind of task that each is over."""


def check_comparison(aggregate: str, resamples: int, seed: int) -> None:
    """Refuse settings that no comparison can run with, before models are encoded.

    Raises:
        NearfarError: an unknown aggregate, fewer than one resample, a negative seed.
    """
    check_resampling(resamples, seed, at_least=1)
    if aggregate not in AGGREGATES:
        raise NearfarError(f"aggregate {aggregate!r}: take one of {', '.join(AGGREGATES)}.")


def compare_runs(
    first: Sequence[EvaluationRun],
    second: Sequence[EvaluationRun],
    *,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
) -> Result:
    """Test the mean score of the ``first`` runs against that of the ``second``; a comparison as described above.

    Correlations have the paired bootstrap, which draws pairs, the same for all runs of both sides. Accuracies have
    McNemar's exact test, or with several runs on a side a permutation test, and a bootstrap interval. Both speak of
    other pairs or rows; p is corrected over tasks (Holm). With two runs or more on both sides there is a t-test too,
    paired where both have the same training seeds, else Welch's, and Wilcoxon's test of the same kind; they speak of
    other training runs. In the averages each resample draws every task; ``sickr-full`` is left out where ``sickr``, a
    part of it, is there too.

    Raises:
        NearfarError: a task that a run does not have, no common task, or runs that were scored on different data.
    """
    check_comparison(aggregate, resamples, seed)
    runs = [*first, *second]
    chosen, left_out = _choose(runs, tasks)
    scored = _score(chosen, runs, aggregate, resamples=resamples, seed=seed, progress=progress)
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "first": _describe(first),
        "second": _describe(second),
        "config": _settings(aggregate, resamples, seed),
        "provenance": provenance(),
        "not_compared": left_out,
        **_between(scored, first, second, resamples=resamples, seed=seed),
    }


def compare_pairwise(
    sides: Sequence[Sequence[EvaluationRun]],
    *,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
) -> Result:
    """Test each two of ``sides`` as :func:`compare_runs` does, and correct p over all of these tests (Holm)."""
    check_comparison(aggregate, resamples, seed)
    runs = [run for side in sides for run in side]
    chosen, left_out = _choose(runs, tasks)
    scored = _score(chosen, runs, aggregate, resamples=resamples, seed=seed, progress=progress)
    ends = np.cumsum([len(side) for side in sides])
    numbers = [range(end - len(side), end) for end, side in zip(ends, sides, strict=True)]
    comparisons = []
    for i, j in combinations(range(len(sides)), 2):
        of_two = {task: one.select([*numbers[i], *numbers[j]]) for task, one in scored.items()}
        comparisons.append({"pair": [i, j]} | _between(of_two, sides[i], sides[j], resamples=resamples, seed=seed))
    of_tasks = [row for one in comparisons for row in one["tasks"].values()]
    of_averages = ([one[name] for one in comparisons if one[name] is not None] for name in AVERAGES)
    for family in (of_tasks, *of_averages):
        _correct(family)
    return {
        "schema": SCHEMA,
        "kind": "comparisons",
        "sides": [_describe(side) for side in sides],
        "config": _settings(aggregate, resamples, seed),
        "provenance": provenance(),
        "not_compared": left_out,
        "comparisons": comparisons,
    }


def shared_tasks(runs: Sequence[EvaluationRun]) -> list[str]:
    """The tasks that all ``runs`` have, in the first one's order.

    Raises:
        NearfarError: there are none.
    """
    shared = [task for task in tasks_of(runs[0].result) if all(task in tasks_of(run.result) for run in runs)]
    if not shared:
        each = "; ".join(f"{run.source}: {', '.join(tasks_of(run.result))}" for run in runs)
        raise NearfarError(f"no task was evaluated everywhere ({each}).")
    return shared


def _choose(runs: Sequence[EvaluationRun], tasks: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The tasks to compare on, and those left out because not all runs have them."""
    if tasks:
        for run in runs:
            for task in tasks:
                if task not in tasks_of(run.result):
                    raise NearfarError(f"{run.source}: has no task {task}, only {', '.join(tasks_of(run.result))}.")
        return list(dict.fromkeys(tasks)), []
    shared = shared_tasks(runs)
    everything = dict.fromkeys(task for run in runs for task in tasks_of(run.result))
    return shared, [task for task in everything if task not in shared]


def _score(
    tasks: Sequence[str],
    runs: Sequence[EvaluationRun],
    aggregate: Aggregate,
    *,
    resamples: int,
    seed: int,
    progress: bool,
) -> dict[str, RunScores]:
    for task in tasks:
        check_same_data(task, runs)
    bar = track(tasks, "comparing", console=Console(stderr=True), transient=True, disable=not progress)
    return {task: score(task, runs, aggregate, resamples=resamples, seed=seed) for task in bar}


def _between(
    scored: Mapping[str, RunScores],
    first: Sequence[EvaluationRun],
    second: Sequence[EvaluationRun],
    *,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """``tasks`` and the averages of a comparison; ``scored`` are the runs of both sides, one after the other."""
    runs, order = [*first, *second], _pairing(first, second)
    kinds = {task: kind_of(task, runs) for task in scored}
    rows: dict[str, dict[str, Any]] = {}
    for task, one in scored.items():
        row = {"kind": kinds[task], "pairs": size_of(task, runs)} | _test_row(one, len(first), order)
        if one.correct is not None and row["p"] is not None:
            p, test = paired_row_test(one.correct, len(first), resamples=resamples, seed=[seed, *task.encode()])
            row |= {"p": round(p, 6), "test": test}
        rows[task] = row
    _correct(list(rows.values()))
    averages: dict[str, Any] = dict.fromkeys(AVERAGES)
    for name, kind in AVERAGES.items():
        averaged = [task for task in scored if kinds[task] == kind and (task != "sickr-full" or "sickr" not in scored)]
        if averaged:
            average = _test_row(_average({task: scored[task] for task in averaged}), len(first), order)
            if average["p"] is not None:
                average["separable"] = average["p"] < SIGNIFICANCE_LEVEL
            averages[name] = {"tasks": averaged} | average
    return {"tasks": rows} | averages


def _correct(family: Sequence[dict[str, Any]]) -> None:
    """Add the p of a family of tests corrected by Holm's method, and the verdict."""
    tested = [row for row in family if row["p"] is not None]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row |= {"p_holm": round(p, 6), "separable": p < SIGNIFICANCE_LEVEL}


def _average(scored: Mapping[str, RunScores]) -> RunScores:
    held = list(scored.values())
    named = [[why and f"{task}: {why}" for why in one.reasons] for task, one in scored.items()]
    reasons = tuple(next(filter(None, of_run), None) for of_run in zip(*named, strict=True))
    return RunScores(
        np.mean([one.points for one in held], axis=0), np.mean([one.draws for one in held], axis=0), reasons
    )


def _test_row(scored: RunScores, first: int, order: Sequence[int] | None) -> dict[str, Any]:
    """One row of the comparison; ``order`` puts the second side's runs beside the first's, where they pair."""
    a, b = scored.points[:first], scored.points[first:]
    row: dict[str, Any] = {"first": _percent(a.mean()), "second": _percent(b.mean())}
    reason, tested, over_seeds = scored.reason, None, None
    if reason is None:
        tested = bootstrap_test(float(a.mean() - b.mean()), mean_difference(scored.draws, first))
        over_seeds = _over_seeds(a, b if order is None else b[order], paired=order is not None)
        reason = None if tested else "undefined on every resample"
    row |= _percents(tested) | {"separable": None, "seeds": over_seeds}
    return row | ({"reason": reason} if reason else {})


def _over_seeds(a: Floats, b: Floats, *, paired: bool) -> dict[str, Any] | None:
    tested, ranks = t_test_over_seeds(a, b, paired=paired), rank_test_over_seeds(a, b, paired=paired)
    if tested is None:
        return None
    p, name = ranks or (None, None)
    return _percents(tested) | {"p_rank": None if p is None else round(p, 6), "rank_test": name}


def _pairing(first: Sequence[EvaluationRun], second: Sequence[EvaluationRun]) -> list[int] | None:
    """For each run of ``first``, the run of ``second`` with the same training seed; None where they do not pair."""
    a, b = _training_seeds(first), _training_seeds(second)
    if None in a or len(set(a)) < len(a) or len(a) != len(b) or set(a) != set(b):
        return None
    return [b.index(seed) for seed in a]


def _training_seeds(side: Sequence[EvaluationRun]) -> list[int | None]:
    return [run.result["config"].get("training_seed") for run in side]


def _settings(aggregate: str, resamples: int, seed: int) -> dict[str, Any]:
    return {
        "metric": "spearman",
        "aggregate": aggregate,
        "resamples": resamples,
        "seed": seed,
        "level": SIGNIFICANCE_LEVEL,
    }


def _describe(side: Sequence[EvaluationRun]) -> dict[str, Any]:
    models = [run.result["model"] for run in side]
    return {
        "name": ", ".join(dict.fromkeys(models)),
        "models": models,
        "sources": [run.source for run in side],
        "training_seeds": _training_seeds(side),
    }


def _percent(score: float) -> float | None:
    return None if np.isnan(score) else round(100 * float(score), 4)


def _percents(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return dict.fromkeys(Difference._fields)
    scaled = {key: _percent(getattr(difference, key)) for key in ("difference", "low", "high")}
    return scaled | {"p": round(difference.p, 6), "test": difference.test}
