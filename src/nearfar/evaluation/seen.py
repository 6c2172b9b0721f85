"""Which share of a task a model has seen in training, and its score on the pairs that it has not seen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import Hashes, RowHashes, number_units, row_hashes
from nearfar.data.labelled import TransferTask
from nearfar.data.retrieval import RetrievalTask
from nearfar.disk.model_folder import SeenHashes
from nearfar.evaluation.correlation import undefined_reason
from nearfar.evaluation.results import Estimate, EvaluationResult, SeenShares, SimilarityScores, UnseenScores
from nearfar.evaluation.statistics import correlation_estimate
from nearfar.evaluation.sts import Subsets

MIN_UNSEEN_PAIRS = 50
"""Smallest number of unseen pairs that a score is computed on."""


def seen_shares(seen: SeenHashes, rows: RowHashes) -> SeenShares:
    """The shares of a task's pairs and distinct texts that are among the hashes of a model."""
    pairs, chosen_pairs = _shares(rows.pairs, seen.trained_pairs, seen.chosen_pairs)
    texts, chosen_texts = _shares(rows.texts, seen.trained_texts, seen.chosen_texts)
    known, chosen = (rows.pairs, seen.chosen_pairs) if len(rows.pairs) else (rows.texts, seen.chosen_texts)
    dev = True if len(known) and np.isin(known, chosen).all() else None
    of_pairs = {"pairs": pairs, "chosen_pairs": chosen_pairs} if len(rows.pairs) else {}
    return SeenShares(texts=texts, chosen_texts=chosen_texts, dev=dev, **of_pairs)


def _shares(rows: Hashes, trained: Hashes, chosen: Hashes) -> tuple[float, float]:
    """The share of ``rows`` in either, and the share in ``chosen`` alone."""
    if not len(rows):
        return 0.0, 0.0
    in_training = np.isin(rows, trained)
    only_chosen = np.isin(rows, chosen) & ~in_training
    return round(float(np.mean(in_training | only_chosen)), 6), round(float(np.mean(only_chosen)), 6)


def unseen_scores(
    task: str, scored: SimilarityScores, seen_pairs: NDArray[np.bool_], *, resamples: int = 1000, seed: int = 0
) -> UnseenScores:
    """Spearman over the pairs that are not seen, all subsets together, with its bootstrap interval.

    The interval is made as in :func:`nearfar.evaluation.sts.evaluate_sts`.

    Args:
        task: name of the task, part of the seed of the bootstrap.
        scored: the task's scores on all pairs.
        seen_pairs: which pairs the model has seen, shape (pairs,), subset after subset.
        resamples: bootstrap resamples; 0 for no interval.
        seed: seed of the bootstrap.
    """
    gold = np.array([score for subset in scored.subsets.values() for score in subset.gold], dtype=np.float64)
    cosines = np.array([one for subset in scored.subsets.values() for one in subset.cosines_e6], dtype=np.float64)
    subset_of = np.repeat(np.arange(len(scored.subsets)), [subset.pairs for subset in scored.subsets.values()])
    unseen, positions = ~seen_pairs, np.flatnonzero(seen_pairs).tolist()
    count, (gold, cosines) = int(unseen.sum()), (gold[unseen], cosines[unseen])
    reason = undefined_reason(gold, cosines)
    if count < MIN_UNSEEN_PAIRS:
        reason = f"{count} unseen pair{'s' * (count != 1)}, where a score needs {MIN_UNSEEN_PAIRS}"
    own = Estimate(None, None, None, reason)
    if reason is None:
        sizes = np.bincount(subset_of[unseen], minlength=len(scored.subsets)).tolist()
        how: dict[str, Any] = {"sizes": sizes, "resamples": resamples, "seed": [seed, *task.encode()]}
        how["units"] = None if scored.units is None else number_units(np.array(scored.units)[unseen])
        own = correlation_estimate("spearman", gold, cosines, **how)
    return UnseenScores(pairs=count, spearman=own, seen_pairs=positions)


def add_seen(
    result: EvaluationResult,
    seen: SeenHashes,
    *,
    similarity: Mapping[str, Subsets] | None = None,
    tested: Mapping[str, Sequence[Sequence[str]]] | None = None,
    retrieval: Mapping[str, RetrievalTask] | None = None,
    seed: int = 0,
) -> EvaluationResult:
    """The result, with what the model has seen of each task, and its scores on the unseen pairs of similarity tasks.

    Args:
        result: the scores.
        seen: hashes of what the model has seen.
        similarity: the pairs of each similarity task of the result.
        tested: the texts of the tested rows of each task in ``result.transfer``.
        retrieval: queries and documents of each retrieval task of the result.
        seed: seed of the bootstrap of the scores on unseen pairs.
    """

    def shares(rows: Iterable[Sequence[object]]) -> SeenShares:
        return seen_shares(seen, row_hashes(rows))

    tasks, transfer = {}, result.transfer
    for task, scored in result.tasks.items():
        rows = row_hashes(pair for pairs in (similarity or {})[task].values() for pair in pairs)
        known = np.isin(rows.pairs, np.union1d(seen.trained_pairs, seen.chosen_pairs))
        unseen = unseen_scores(task, scored, known, resamples=result.resamples, seed=seed) if known.any() else None
        tasks[task] = replace(scored, seen=seen_shares(seen, rows), unseen=unseen)
    ranked = {
        task: replace(scored, seen=shares(retrieval_rows((retrieval or {})[task])))
        for task, scored in result.retrieval.items()
    }
    if transfer is not None:
        probed = {task: replace(of, seen=shares((tested or {})[task])) for task, of in transfer.tasks.items()}
        transfer = replace(transfer, tasks=probed)
    return replace(result, tasks=tasks, retrieval=ranked, transfer=transfer)


def retrieval_rows(task: RetrievalTask) -> Iterator[tuple[str, ...]]:
    """The pairs of each query and its relevant documents; other documents may be training texts."""
    for query, relevant in zip(task.queries, task.relevant, strict=True):
        yield from ((query, task.documents[position]) for position in relevant)


def scored_rows(task: TransferTask) -> Sequence[Sequence[str]]:
    """The rows that a transfer task is tested on: its test split, or all rows of a pool."""
    splits = task.splits
    return splits["test"].texts if "test" in splits else list(chain.from_iterable(s.texts for s in splits.values()))
