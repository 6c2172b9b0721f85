"""Semantic textual similarity: correlations of the cosines of an encoder's embeddings with gold scores.

The protocol of SentEval and SimCSE (Gao et al. 2021, appendix B): all pairs of a task's test set, cosine similarity,
Spearman and Pearson. A model that compares by another similarity is scored by that, as by sentence-transformers'
``EmbeddingSimilarityEvaluator``. There are three ways to aggregate a task with subsets, whose scores differ by points,
so all three are computed: ``all`` (SBERT, SimCSE, MTEB), ``mean`` and ``wmean`` (BERT-flow, Liao 2021).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import units_of_rows
from nearfar.evaluation import correlation, results
from nearfar.evaluation.correlation import AGGREGATES, CORRELATIONS, Aggregate, Floats, undefined_reason
from nearfar.evaluation.statistics import estimate, mean_estimate, plain_numbers
from nearfar.evaluation.tasks import SEMEVAL, SIMILARITY_AVERAGES, ScoredTasks, embed, widest
from nearfar.neighbours import pair_similarities
from nearfar.types import Encode, ScoredPair, VectorSimilarity

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
    resamples: int = 1000,
    seed: int = 0,
) -> ScoredTasks[results.SimilarityScores, results.SimilarityAverage]:
    """Score ``encode`` on ``tasks`` (task -> subset -> pairs); it is called once for each task with its distinct texts.

    A task with a text whose vector is not finite is skipped and listed in ``unavailable``.

    A pair with a zero vector has cosine 0, as in SentEval, and is counted. An interval is the 95% percentile interval
    over ``resamples`` bootstrap resamples of pairs within each subset; where pairs share texts, of groups of them over
    all subsets. It depends on the task's name and ``seed`` but not on the other tasks. With ``resamples=0`` there are
    no intervals.

    Raises:
        NearfarError: ``encode`` does not return one vector per text.
    """
    texts = {
        task: [text for pairs in subsets.values() for pair in pairs for text in pair[:2]]
        for task, subsets in tasks.items()
    }
    embedded = {task: embed(encode, of_task) for task, of_task in texts.items()}
    unavailable = {task: one.failure for task, one in embedded.items() if one.failure}
    available = [task for task in tasks if task not in unavailable]
    scored: dict[str, results.SimilarityScores] = {}
    draws: dict[str, Draws] = {}
    for task in available:
        rows = np.array([embedded[task].rows[text] for text in texts[task]], dtype=np.int64).reshape(-1, 2)
        cosines, zeros = _compare_pairs(embedded[task].vectors, rows, similarity)
        how: dict[str, Any] = {"zero_vectors": zeros, "resamples": resamples, "seed": seed}
        scored[task], draws[task] = similarity_scores(task, tasks[task], cosines, **how)
    averages = {
        name: _average(members, scored, draws)
        for name, members in SIMILARITY_AVERAGES.items()
        if set(members) <= set(scored)
    }
    return ScoredTasks(scored, averages, unavailable, widest(embedded.values()))


def similarity_scores(
    task: str, subsets: Subsets, cosines: Floats, *, zero_vectors: int, resamples: int, seed: int
) -> tuple[results.SimilarityScores, Draws]:
    """The scores of a task and their bootstrap draws, given the cosine of each pair in units of :data:`COSINE_UNIT`."""
    sizes = [len(pairs) for pairs in subsets.values()]
    gold = np.array([pair.score for pairs in subsets.values() for pair in pairs], dtype=np.float64)
    parts = [slice(start, end) for start, end in pairwise(np.cumsum([0, *sizes]))]
    whys = [undefined_reason(gold[part], cosines[part]) for part in parts]
    reasons: dict[str, str | None] = dict.fromkeys(AGGREGATES, _undefined_mean_reason(task, [*subsets], whys))
    reasons["all"] = undefined_reason(gold, cosines)
    units = units_of_rows([pair[:2] for pairs in subsets.values() for pair in pairs])
    settings: dict[str, Any] = {"resamples": resamples, "seed": [seed, *task.encode()], "units": units}
    draws: Draws = {}
    known: dict[str, Any] = {"pairs": len(gold), "zero_vectors": zero_vectors, "units": units}
    of_subsets: list[dict[str, Any]] = [{} for _ in parts]
    for metric, weighted in CORRELATIONS.items():
        point = correlation.scores(weighted, gold, cosines[None], sizes=sizes)
        drawn = correlation.bootstrap_scores(weighted, gold, cosines[None], sizes=sizes, **settings)
        draws[metric] = {kind: drawn.aggregate(kind)[0] for kind in AGGREGATES}
        estimates = {
            kind: estimate(100 * float(point.aggregate(kind)[0, 0]), draws[metric][kind], reasons[kind])
            for kind in AGGREGATES
        }
        known[metric] = results.AggregateEstimates(**estimates)
        each = zip(of_subsets, point.subsets[0, :, 0].tolist(), drawn.subsets[0], whys, strict=True)
        for of_subset, score, of_draws, why in each:
            of_subset[metric] = estimate(100 * score, of_draws, why)
    scored = {
        name: results.SubsetScores(
            pairs=len(pairs),
            digest=results.digest(pairs),
            gold=plain_numbers(gold[part]),
            cosines_e6=list(map(int, cosines[part].tolist())),
            **of_subset,
        )
        for (name, pairs), part, of_subset in zip(subsets.items(), parts, of_subsets, strict=True)
    }
    return results.SimilarityScores(subsets=scored, **known), draws


def _undefined_mean_reason(task: str, subsets: Sequence[str], whys: Sequence[str | None]) -> str | None:
    """Why a task has no mean over its subsets, given why each of them has no correlation."""
    if len(subsets) == 1:
        return "this copy of the data does not separate the subsets" if task in SEMEVAL else whys[0]
    return next((f"undefined on {name}: {why}" for name, why in zip(subsets, whys, strict=True) if why), None)


def _average(
    members: Sequence[str], scored: Mapping[str, results.SimilarityScores], draws: Mapping[str, Draws]
) -> results.SimilarityAverage:
    def mean(metric: str, kind: Aggregate) -> results.Estimate:
        estimates = {task: scored[task].metric(metric).of(kind) for task in members}
        return mean_estimate(estimates, [draws[task][metric][kind] for task in members])

    means = {metric: {kind: mean(metric, kind) for kind in AGGREGATES} for metric in CORRELATIONS}
    averages = {metric: results.AggregateEstimates(**of_metric) for metric, of_metric in means.items()}
    return results.SimilarityAverage(tasks=list(members), **averages)


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
            a, b = correlation.usual_size(a), correlation.usual_size(b)
        lengths = np.sqrt(np.einsum("pd,pd->p", a, a) * np.einsum("pd,pd->p", b, b))
        scale = np.where(lengths > 0, lengths, 1) if similarity == "cosine" else 1
        values[part] = pair_similarities(a, b, similarity) / scale
        zeros += int(np.sum(lengths == 0))
    return np.rint(values / COSINE_UNIT), zeros
