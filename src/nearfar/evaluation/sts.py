"""Semantic textual similarity: correlations of the cosines of an encoder's embeddings with gold scores.

The protocol of SentEval and SimCSE (Gao et al. 2021, appendix B): all pairs of a task's test set, cosine similarity,
Spearman and Pearson. A model that compares by another similarity is scored by that, as by sentence-transformers'
``EmbeddingSimilarityEvaluator``. There are three ways to aggregate a task with subsets, whose scores differ by points,
so all three are computed: ``all`` (SBERT, SimCSE, MTEB), ``mean`` and ``wmean`` (BERT-flow, Liao 2021).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from nearfar.data.fingerprints import units_of_rows
from nearfar.evaluation.correlation import (
    AGGREGATES,
    CORRELATIONS,
    Aggregate,
    Floats,
    bootstrap_scores,
    scores,
    undefined_reason,
    usual_size,
)
from nearfar.evaluation.results import (
    AggregateEstimates,
    Estimate,
    SimilarityAverage,
    SimilarityScores,
    SubsetScores,
    digest,
)
from nearfar.evaluation.statistics import estimate, mean_estimate
from nearfar.evaluation.tasks import SEMEVAL, SIMILARITY_AVERAGES, ScoredTasks, embed_tasks, encoded_size
from nearfar.neighbours import pair_similarities
from nearfar.types import Encode, NearfarError, ScoredPair, VectorSimilarity

COSINE_UNIT = 1e-6
PAIRS_AT_ONCE = 2**14
"""Number of pairs whose vectors are in memory in float64 at once."""

Subsets: TypeAlias = Mapping[str, Sequence[ScoredPair]]
Draws: TypeAlias = dict[str, dict[Aggregate, Floats]]
"""Metric -> aggregate -> its bootstrap draws [resamples]."""


def evaluate_sts(
    encode: Encode,
    tasks: Mapping[str, Subsets],
    *,
    similarity: VectorSimilarity = "cosine",
    per_task: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> ScoredTasks[SimilarityScores, SimilarityAverage]:
    """Score ``encode`` on ``tasks`` (task -> subset -> pairs); all their distinct texts are encoded in one call.

    With ``per_task``, ``encode`` is called once for each task with that task's texts. Baselines that are fitted on the
    texts they encode need this.

    A task with a text whose vector is not finite is skipped and listed in ``unavailable``.

    A pair with a zero vector has cosine 0, as in SentEval, and is counted. An interval is the 95% percentile interval
    over ``resamples`` bootstrap resamples of pairs within each subset; where pairs share texts, of groups of them over
    all subsets. It depends on the task's name and ``seed`` but not on the other tasks. With ``resamples=0`` there are
    no intervals.

    Raises:
        NearfarError: no tasks or no pairs; a gold score that is not finite; ``encode`` does not return one vector per
            text. The message names task and text.
    """
    _check_gold(tasks)
    texts = {task: list(_texts({task: subsets})) for task, subsets in tasks.items()}
    embedded = embed_tasks(encode, texts, per_task=per_task)
    unavailable = {task: why for task in tasks if (why := embedded[task].failure_reason(texts[task]))}
    tasks = {task: subsets for task, subsets in tasks.items() if task not in unavailable}
    scored: dict[str, SimilarityScores] = {}
    draws: dict[str, Draws] = {}
    bar = track(tasks.items(), "bootstrap", console=Console(stderr=True), transient=True, disable=not progress)
    for task, subsets in bar:
        pairs = [pair for held in subsets.values() for pair in held]
        rows, vectors = embedded[task].rows, embedded[task].vectors
        both = (rows[text] for pair in pairs for text in (pair.first, pair.second))
        places = np.fromiter(both, dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
        cosines, zeros = _compare_pairs(vectors, places, similarity)
        scored[task], draws[task] = similarity_scores(
            task, subsets, cosines, zero_vectors=zeros, resamples=resamples, seed=seed
        )
    averages = {
        name: _average(members, scored, draws)
        for name, members in SIMILARITY_AVERAGES.items()
        if set(members) <= set(scored)
    }
    return ScoredTasks(scored, averages, unavailable, *encoded_size(embedded.values()))


def similarity_scores(
    task: str, subsets: Subsets, cosines: Floats, *, zero_vectors: int, resamples: int, seed: int
) -> tuple[SimilarityScores, Draws]:
    """The scores of a task and their bootstrap draws, given the cosine of each pair in units of :data:`COSINE_UNIT`."""
    sizes = [len(pairs) for pairs in subsets.values()]
    gold = np.array([pair.score for pairs in subsets.values() for pair in pairs], dtype=np.float64)
    parts = [slice(start, end) for start, end in pairwise(np.cumsum([0, *sizes]))]
    subset_reasons = {name: undefined_reason(gold[p], cosines[p]) for name, p in zip(subsets, parts, strict=True)}
    reasons: dict[str, str | None] = dict.fromkeys(AGGREGATES, _undefined_mean_reason(task, subset_reasons))
    reasons["all"] = undefined_reason(gold, cosines)
    estimates: dict[str, AggregateEstimates] = {}
    subset_estimates: dict[str, list[Estimate]] = {}
    draws: Draws = {}
    units = units_of_rows([pair[:2] for pairs in subsets.values() for pair in pairs])
    settings: dict[str, Any] = {"sizes": sizes, "resamples": resamples, "seed": [seed, *task.encode()], "units": units}
    for metric, weighted in CORRELATIONS.items():
        point = scores(weighted, gold, cosines[None], sizes=sizes)
        drawn = bootstrap_scores(weighted, gold, cosines[None], **settings)
        draws[metric] = {kind: drawn.aggregate(kind)[0] for kind in AGGREGATES}
        points = {kind: 100 * float(point.aggregate(kind)[0, 0]) for kind in AGGREGATES}
        estimates[metric] = _aggregates(
            {kind: estimate(points[kind], draws[metric][kind], reasons[kind]) for kind in AGGREGATES}
        )
        subset_estimates[metric] = [
            estimate(100 * float(point.subsets[0, number, 0]), drawn.subsets[0, number], why)
            for number, why in enumerate(subset_reasons.values())
        ]
    scored = {
        name: SubsetScores(
            pairs=len(pairs),
            digest=digest(pairs),
            spearman=subset_estimates["spearman"][number],
            pearson=subset_estimates["pearson"][number],
            gold=[int(score) if score.is_integer() else score for score in gold[part].tolist()],
            cosines_e6=list(map(int, cosines[part].tolist())),
        )
        for number, ((name, pairs), part) in enumerate(zip(subsets.items(), parts, strict=True))
    }
    similarity = SimilarityScores(
        pairs=len(gold),
        zero_vectors=zero_vectors,
        spearman=estimates["spearman"],
        pearson=estimates["pearson"],
        subsets=scored,
        units=units,
    )
    return similarity, draws


def _aggregates(estimates: Mapping[Aggregate, Estimate]) -> AggregateEstimates:
    return AggregateEstimates(all=estimates["all"], mean=estimates["mean"], wmean=estimates["wmean"])


def _undefined_mean_reason(task: str, subset_reasons: Mapping[str, str | None]) -> str | None:
    """Why a task has no mean over its subsets, given why each of them has no correlation."""
    if len(subset_reasons) == 1:
        if task in SEMEVAL:
            return "this copy of the data does not separate the subsets"
        return next(iter(subset_reasons.values()))
    return next((f"undefined on {name}: {why}" for name, why in subset_reasons.items() if why), None)


def _average(
    members: Sequence[str], scored: Mapping[str, SimilarityScores], draws: Mapping[str, Draws]
) -> SimilarityAverage:
    averages = {}
    for metric in CORRELATIONS:
        of_tasks = {task: scored[task].metric(metric) for task in members}
        by_aggregate = {
            kind: mean_estimate(
                {task: estimates.of(kind) for task, estimates in of_tasks.items()},
                [draws[task][metric][kind] for task in members],
            )
            for kind in AGGREGATES
        }
        averages[metric] = _aggregates(by_aggregate)
    return SimilarityAverage(tasks=list(members), **averages)


def _texts(tasks: Mapping[str, Subsets]) -> Iterable[str]:
    return (text for subsets in tasks.values() for pairs in subsets.values() for pair in pairs for text in pair[:2])


def _check_gold(tasks: Mapping[str, Subsets]) -> None:
    if not tasks:
        raise NearfarError("no tasks to evaluate on.")
    for task, subsets in tasks.items():
        if not any(subsets.values()):
            raise NearfarError(f"task {task} has no pairs.")
        for subset, pairs in subsets.items():
            for number, pair in enumerate(pairs, start=1):
                if not math.isfinite(pair.score):
                    raise NearfarError(f"task {task}, subset {subset}, pair {number}: the score is {pair.score}.")


def _compare_pairs(
    vectors: NDArray[Any], places: NDArray[np.int64], similarity: VectorSimilarity
) -> tuple[Floats, int]:
    """The similarities of the vectors at ``places`` [pairs, 2], and how many pairs have a zero vector.

    Similarities are whole numbers in units of :data:`COSINE_UNIT`.
    """
    values, zeros = np.empty(len(places)), 0
    for start in range(0, len(places), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        a, b = (vectors[places[part, side]].astype(np.float64) for side in (0, 1))
        if similarity == "cosine":
            a, b = usual_size(a), usual_size(b)
        lengths = np.sqrt(np.einsum("pd,pd->p", a, a) * np.einsum("pd,pd->p", b, b))
        values[part] = pair_similarities(a, b, similarity)
        if similarity == "cosine":
            values[part] = np.divide(values[part], lengths, out=np.zeros_like(lengths), where=lengths > 0)
        zeros += int(np.sum(lengths == 0))
    return np.rint(values / COSINE_UNIT), zeros
