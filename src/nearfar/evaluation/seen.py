"""Which share of a task a model has seen in training, and its score on the pairs that it has not seen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import Hashes, RowHashes, among, number_units, row_hashes
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
    texts, chosen_texts = _shares(rows.texts, seen.trained_texts, seen.chosen_texts)
    pairs, chosen_pairs = (
        _shares(rows.pairs, seen.trained_pairs, seen.chosen_pairs) if len(rows.pairs) else (None, None)
    )
    known, chosen = (rows.pairs, seen.chosen_pairs) if len(rows.pairs) else (rows.texts, seen.chosen_texts)
    dev = True if len(known) and among(chosen, known).all() else None
    return SeenShares(pairs=pairs, texts=texts, chosen_pairs=chosen_pairs, chosen_texts=chosen_texts, dev=dev)


def _shares(rows: Hashes, trained: Hashes, chosen: Hashes) -> tuple[float, float]:
    """The share of ``rows`` in either, and the share in ``chosen`` alone; 0 without rows."""
    in_training = among(trained, rows)
    only_chosen = among(chosen, rows) & ~in_training
    either, alone = (
        round(float(part.sum()) / max(1, len(rows)), 6) for part in (in_training | only_chosen, only_chosen)
    )
    return either, alone


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
    subsets, unseen = scored.subsets.values(), ~seen_pairs
    gold = np.concatenate([subset.gold for subset in subsets])[unseen].astype(float)
    cosines = np.concatenate([subset.cosines_e6 for subset in subsets])[unseen].astype(float)
    reason = undefined_reason(gold, cosines)
    if len(gold) < MIN_UNSEEN_PAIRS:
        reason = f"{len(gold)} unseen pair{'s' * (len(gold) != 1)}, where a score needs {MIN_UNSEEN_PAIRS}"
    own = Estimate(None, None, None, reason)
    if reason is None:
        sizes = [int(part.sum()) for part in np.split(unseen, np.cumsum([one.pairs for one in subsets])[:-1])]
        units = None if scored.units is None else number_units(np.array(scored.units)[unseen])
        how: dict[str, Any] = {"resamples": resamples, "seed": [seed, *task.encode()], "units": units}
        own = correlation_estimate("spearman", gold, cosines, sizes=sizes, **how)
    return UnseenScores(pairs=len(gold), spearman=own, seen_pairs=np.flatnonzero(seen_pairs).tolist())


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
    rows: dict[str, Iterable[Sequence[object]]] = {**(tested or {})}
    rows |= {task: chain.from_iterable(subsets.values()) for task, subsets in (similarity or {}).items()}
    rows |= {task: _relevant_pairs(ranked) for task, ranked in (retrieval or {}).items()}
    hashes = {task: row_hashes(of_task) for task, of_task in rows.items()}

    def with_shares(tasks: Mapping[str, Any]) -> dict[str, Any]:
        return {task: replace(scored, seen=seen_shares(seen, hashes[task])) for task, scored in tasks.items()}

    tasks = with_shares(result.tasks)
    for task, scored in tasks.items():
        known = among(seen.trained_pairs, hashes[task].pairs) | among(seen.chosen_pairs, hashes[task].pairs)
        if known.any():
            unseen = unseen_scores(task, scored, known, resamples=result.resamples, seed=seed)
            tasks[task] = replace(scored, unseen=unseen)
    transfer = result.transfer and replace(result.transfer, tasks=with_shares(result.transfer.tasks))
    return replace(result, tasks=tasks, retrieval=with_shares(result.retrieval), transfer=transfer)


def _relevant_pairs(task: RetrievalTask) -> Iterator[tuple[str, ...]]:
    """The pairs of each query and its relevant documents; other documents may be training texts."""
    for query, relevant in zip(task.queries, task.relevant, strict=True):
        yield from ((query, task.documents[position]) for position in relevant)


def scored_rows(task: TransferTask) -> Sequence[Sequence[str]]:
    """The rows that a transfer task is tested on: its test split, or all rows of a pool."""
    splits = task.splits
    return splits["test"].texts if "test" in splits else list(chain.from_iterable(s.texts for s in splits.values()))
