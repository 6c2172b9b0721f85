"""Scores of the runs of a table on bootstrap resamples of the test data, the same resamples for all runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nearfar.evaluation.correlation import (
    AGGREGATES,
    Aggregate,
    Floats,
    bootstrap_scores,
    weighted_pearson,
    weighted_spearman,
)
from nearfar.evaluation.results import ClassificationScores, RelatednessScores, RetrievalScores, SubsetScores
from nearfar.evaluation.statistics import bootstrap_means

_Group: TypeAlias = tuple[str, str, tuple[str, ...]]
_Key: TypeAlias = tuple[_Group, int]


@dataclass(frozen=True, eq=False)
class TestData:
    """Predictions of one run on the rows of one task, with what computes a score of them."""

    __test__ = False  # no class of tests, whatever its name

    task: str
    statistic: str
    """``spearman.all`` and others with an aggregate, ``accuracy``, ``f1``, ``matthews``, ``mean``."""
    digest: tuple[str, ...]
    """Fingerprints of the test data; runs with equal ones can be paired row by row."""
    gold: Sequence[float]
    predicted: Sequence[float]
    """One number for each row: a cosine, a prediction, or the measure of a query."""
    run: int
    """The identity of the result; the same data of one result, in several columns, are resampled once."""
    sizes: tuple[int, ...] = ()
    """Pairs of each subset."""

    @property
    def group(self) -> _Group:
        """Runs of the same group share resamples."""
        return self.task, self.statistic, self.digest

    @property
    def key(self) -> _Key:
        """The run within its group."""
        return self.group, self.run


def similarity_data(
    task: str, subsets: Mapping[str, SubsetScores], metric: str, aggregate: Aggregate, *, run: int
) -> TestData:
    """The pairs of a similarity task."""
    return TestData(
        task,
        f"{metric}.{aggregate}",
        tuple(f"{name}:{subset.digest}" for name, subset in subsets.items()),
        [score for subset in subsets.values() for score in subset.gold],
        [cosine for subset in subsets.values() for cosine in subset.cosines_e6],
        run,
        tuple(subset.pairs for subset in subsets.values()),
    )


def relatedness_data(task: str, scored: RelatednessScores, metric: str) -> TestData | None:
    """The tested pairs of learned relatedness; None without predictions."""
    if not scored.gold:
        return None
    sizes = (len(scored.gold),)
    return TestData(task, f"{metric}.all", (scored.digest,), scored.gold, scored.predicted_e6, id(scored), sizes)


def classification_data(task: str, scored: ClassificationScores, metric: str) -> TestData | None:
    """The tested rows of a classification task; None without predictions."""
    if not scored.gold:
        return None
    digest = (scored.digest, str(len(scored.gold)))
    return TestData(task, metric, digest, scored.gold, scored.predicted, id(scored))


def retrieval_data(task: str, scored: RetrievalScores, measure: str) -> TestData:
    """The measure of each query."""
    return TestData(task, "mean", (scored.digest, measure), [], scored.per_query[measure], id(scored))


class Resampler:
    """Bootstrap scores of all runs, computed once for each task and statistic.

    ``resamples`` drawn from ``seed`` and the task's name, as in ``nearfar compare``; runs with the same test data share
    them.
    """

    def __init__(self, data: Iterable[TestData], *, resamples: int, seed: int, progress: bool = False) -> None:
        from rich.console import Console
        from rich.progress import track

        self.resamples = resamples
        self.seed = seed
        self._draws: dict[_Key, Floats] = {}
        groups: dict[_Group, dict[_Key, TestData]] = defaultdict(dict)
        for one in data:
            groups[one.group][one.key] = one
        shown = {"console": Console(stderr=True), "transient": True, "disable": not progress}
        for members in track([*groups.values()], "resampling", **shown):  # type: ignore[arg-type]
            scores = self._scores([*members.values()])
            self._draws |= {key: row.astype(np.float32) for key, row in zip(members, scores, strict=True)}

    def of(self, parts: Sequence[TestData]) -> Floats:
        """Scores on each resample [resamples], the mean over the parts; x 1, NaN where undefined."""
        return np.mean([self._draws[part.key] for part in parts], axis=0, dtype=np.float64)

    def _scores(self, members: Sequence[TestData]) -> Floats:
        first = members[0]
        seeds = [self.seed, *first.task.encode()]
        metric, _, aggregate = first.statistic.partition(".")
        predicted = np.array([one.predicted for one in members], dtype=np.float64)
        if metric in ("spearman", "pearson"):
            by: Aggregate = next(one for one in AGGREGATES if one == aggregate)
            weighted = weighted_spearman if metric == "spearman" else weighted_pearson
            gold = np.array(first.gold, dtype=np.float64)
            return bootstrap_scores(
                weighted,
                gold,
                predicted,
                sizes=first.sizes,
                resamples=self.resamples,
                seed=seeds,
                per_subset=by != "all",
                together=by == "all",
            ).aggregate(by)
        if metric == "mean":
            return bootstrap_means(predicted, resamples=self.resamples, seed=seeds)
        gold = np.array(first.gold, dtype=np.float64)
        if metric == "accuracy":
            return bootstrap_means((predicted == gold).astype(float), resamples=self.resamples, seed=seeds)
        return self._confusion(metric, gold, predicted, seeds)

    def _confusion(self, metric: str, gold: Floats, predicted: Floats, seeds: Sequence[int]) -> Floats:
        """F1 of the second class, or Matthews correlation, from resampled shares of the confusion counts."""
        true, guess = gold == 1, predicted == 1
        indicators = np.concatenate([guess & true, guess & ~true, ~guess & true]).astype(float)
        shares = bootstrap_means(indicators, resamples=self.resamples, seed=seeds)
        hits, false_alarms, misses = shares.reshape(3, len(predicted), -1)
        if metric == "f1":
            above, below = 2 * hits, 2 * hits + false_alarms + misses
        else:
            rejections = 1 - hits - false_alarms - misses
            above = hits * rejections - false_alarms * misses
            product = (hits + false_alarms) * (hits + misses) * (rejections + false_alarms) * (rejections + misses)
            below = np.sqrt(np.maximum(product, 0))
        return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 1e-12)
