"""What the runs of a comparison scored on one task, on the data and on resamples of it that all runs share.

Tasks are of three kinds, and each kind has one number: similarity (Spearman of cosines with people's scores),
relatedness (Spearman of learned predictions with them) and classification (accuracy of a probe).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.correlation import Aggregate, Floats, bootstrap_scores, scores, weighted_spearman
from nearfar.evaluation.results import Result
from nearfar.evaluation.statistics import bootstrap_means, mcnemar, permutation_test
from nearfar.types import NearfarError


class EvaluationRun(NamedTuple):
    """One evaluation, and the file or model that it came from, for messages."""

    source: str
    result: Result


class RunScores(NamedTuple):
    """Scores of each run [runs] and on each resample [runs, resamples]; NaN where a run has none."""

    points: Floats
    draws: Floats
    reasons: tuple[str | None, ...]
    """Why a run has no score."""
    correct: NDArray[np.bool_] | None = None
    """Of a classification task: which rows each run has right [runs, rows]."""

    @property
    def reason(self) -> str | None:
        """The first of the reasons."""
        return next(filter(None, self.reasons), None)

    def select(self, runs: Sequence[int]) -> "RunScores":
        """The same of some of the runs, by their numbers."""
        places = list(runs)
        correct = None if self.correct is None else self.correct[places]
        return RunScores(self.points[places], self.draws[places], tuple(self.reasons[run] for run in places), correct)


def tasks_of(result: Result) -> dict[str, Any]:
    """What a result file holds by task, transfer tasks after the others."""
    return {**result["tasks"], **result.get("transfer", {}).get("tasks", {})}


def kind_of(task: str, runs: Sequence[EvaluationRun]) -> str:
    """``similarity``, ``classification`` or ``relatedness``."""
    return str(tasks_of(runs[0].result)[task].get("kind", "similarity"))


def check_same_data(task: str, runs: Sequence[EvaluationRun]) -> None:
    """Refuse runs whose rows cannot be paired.

    Raises:
        NearfarError: they were scored on different data, or probed in different ways.
    """
    held = [tasks_of(run.result)[task] for run in runs]
    if kind_of(task, runs) != "similarity":
        _check_same(
            task,
            runs,
            [{"probe": _probe(run, one), "rows": one["digest"]} for run, one in zip(runs, held, strict=True)],
        )
    else:
        _check_same(task, runs, [{name: one["digest"] for name, one in task_["subsets"].items()} for task_ in held])


def _probe(run: EvaluationRun, held: Mapping[str, Any]) -> str | None:
    """How a transfer task was probed, in words; learned relatedness has one way."""
    if held["kind"] != "classification":
        return None
    transfer = run.result["transfer"]
    return f"{held['protocol']}, {transfer.get('nhid', 0)} hidden units, {transfer.get('folds', 10)} folds"


def _check_same(task: str, runs: Sequence[EvaluationRun], fingerprints: Sequence[Mapping[str, Any]]) -> None:
    first = fingerprints[0]
    for run, found in zip(runs, fingerprints, strict=True):
        differ = [name for name in first | found if found.get(name) != first.get(name)]  # type: ignore[operator]
        if differ == ["probe"]:
            raise NearfarError(
                f"{runs[0].source} and {run.source} were probed differently on task {task} ({first['probe']}; "
                f"{found['probe']}). Evaluate both in the same way."
            )
        if differ:
            raise NearfarError(
                f"{runs[0].source} and {run.source} were scored on different data (task {task}, subset {differ[0]}), "
                "so that their pairs cannot be compared. Evaluate both on the same data."
            )


def size_of(task: str, runs: Sequence[EvaluationRun]) -> int:
    """Pairs, or rows that were tested."""
    held = tasks_of(runs[0].result)[task]
    return int(held["pairs"] if "pairs" in held else held["rows"])


def score(task: str, runs: Sequence[EvaluationRun], aggregate: Aggregate, *, resamples: int, seed: int) -> RunScores:
    """Score all runs on the data and on the same resamples, drawn from ``seed`` and the task's name."""
    held = [tasks_of(run.result)[task] for run in runs]
    kind, seeds = kind_of(task, runs), [seed, *task.encode()]
    if kind == "similarity":
        estimates = [one["spearman"][aggregate] for one in held]
    else:
        estimates = [one["accuracy" if kind == "classification" else "spearman"] for one in held]
    whys = (estimate.get("reason") for estimate in estimates)
    reasons = tuple(why and f"undefined for {run.source}: {why}" for run, why in zip(runs, whys, strict=True))
    fit = [number for number, why in enumerate(reasons) if why is None]
    points, draws = np.full(len(runs), np.nan), np.full((len(runs), resamples), np.nan)
    if not fit:
        return RunScores(points, draws, reasons)
    held = [held[number] for number in fit]
    if kind == "classification":
        right = np.array([np.equal(one["gold"], one["predicted"]) for one in held])
        points[fit] = [one["accuracy"]["score"] / 100 for one in held]
        draws[fit] = bootstrap_means(right.astype(float), resamples=resamples, seed=seeds)
        correct = np.zeros((len(runs), right.shape[1]), dtype=bool)
        correct[fit] = right
        return RunScores(points, draws, reasons, correct)
    subsets = held[0]["subsets"] if kind == "similarity" else {"": held[0]}
    gold = np.concatenate([np.array(one["gold"], dtype=float) for one in subsets.values()])
    if kind == "similarity":
        systems = np.array([[x for name in subsets for x in one["subsets"][name]["cosines_e6"]] for one in held], float)
    else:
        systems, aggregate = np.array([one["predicted_e6"] for one in held], dtype=float), "all"
    sizes = [one["pairs"] for one in subsets.values()]
    points[fit] = scores(weighted_spearman, gold, systems, sizes=sizes).aggregate(aggregate)[:, 0]
    draws[fit] = bootstrap_scores(
        weighted_spearman,
        gold,
        systems,
        sizes=sizes,
        resamples=resamples,
        seed=seeds,
        per_subset=aggregate != "all",
    ).aggregate(aggregate)
    return RunScores(points, draws, reasons)


def paired_row_test(
    correct: NDArray[np.bool_], first: int, *, resamples: int, seed: Sequence[int]
) -> tuple[float, str]:
    """Are the ``first`` runs right more often than the others, on the same rows? p, and the test that gave it."""
    if len(correct) == 2:
        return mcnemar(*correct), "McNemar's exact test over rows"
    shares = correct[:first].mean(axis=0) - correct[first:].mean(axis=0)
    return permutation_test(shares, resamples=resamples, seed=seed), "permutation test over rows"
