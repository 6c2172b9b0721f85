"""Scores of the runs of a comparison on one task: on the data, and on bootstrap resamples that all runs share.

There are four kinds of tasks, each with one score: similarity (Spearman of cosines with gold scores), relatedness
(Spearman of learned predictions with gold scores), classification (accuracy) and retrieval (a mean over queries).
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.correlation import Aggregate, Floats, bootstrap_scores, scores, weighted_spearman
from nearfar.evaluation.results import (
    ClassificationScores,
    EvaluationResult,
    RelatednessScores,
    RetrievalScores,
    SimilarityScores,
)
from nearfar.evaluation.statistics import bootstrap_means, mcnemar, permutation_test
from nearfar.types import NearfarError

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
        per_subset=aggregate != "all",
        together=aggregate == "all",
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
