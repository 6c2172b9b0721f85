"""Scores on the pairs that no run of a study has seen: the same pairs for all runs, so that rows can be compared."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.results import EvaluationResult, SimilarityScores
from nearfar.evaluation.seen import unseen_scores
from nearfar.evaluation.study_table.cells import FinishedCell
from nearfar.evaluation.study_table.columns import ColumnValue
from nearfar.evaluation.study_table.resampling import TestData, similarity_data

SUFFIX = ".unseen_by_all"
AVERAGE_UNSEEN = f"average{SUFFIX}"
_TaskData: TypeAlias = tuple[str, tuple[str, ...]]
"""Name of a task, and the digests of its subsets."""


class UnseenByAll:
    """The similarity tasks of the finished runs of a study, and which of their pairs any run has seen.

    A run has seen a pair if its model was trained on it, or if the pair is in the dev set that chose the training step.
    A model without a record of training has seen nothing.
    """

    def __init__(self, cells: Sequence[FinishedCell]) -> None:
        self._seen: dict[_TaskData, NDArray[np.bool_]] = {}
        for cell in cells:
            for result in cell.results:
                for task, scored in result.tasks.items() if isinstance(result, EvaluationResult) else ():
                    self._add(task, scored)

    def _add(self, task: str, scored: SimilarityScores) -> None:
        seen = self._seen.setdefault(_place(task, scored), np.zeros(scored.pairs, dtype=np.bool_))
        if scored.unseen is not None:
            seen[scored.unseen.seen_pairs] = True

    def column(self, column: str, cell: FinishedCell) -> ColumnValue | None:
        """``TASK.unseen_by_all`` of a run: Spearman x 100 over the unseen pairs of all subsets together."""
        task = column.removesuffix(SUFFIX)
        for result in reversed(cell.results):
            if isinstance(result, EvaluationResult) and task in result.tasks:
                return self._value(task, result.tasks[task])
        return None

    def _value(self, task: str, scored: SimilarityScores) -> ColumnValue:
        seen = self._seen[_place(task, scored)]
        spearman = unseen_scores(task, scored, seen, resamples=0).spearman
        if spearman.score is None:
            return ColumnValue(None, spearman.reason)
        return ColumnValue(spearman.score, data=(_unseen_data(task, scored, seen),))

    def counts(self, tasks: Sequence[str]) -> dict[str, list[int]]:
        """Task -> number of pairs that no run has seen, and of all pairs; without tasks whose data differ by run."""
        known = {}
        for task in tasks:
            masks = [mask for (name, _), mask in self._seen.items() if name == task]
            if len(masks) == 1:
                known[task] = [int((~masks[0]).sum()), len(masks[0])]
        return known

    @property
    def tasks(self) -> set[str]:
        """The similarity tasks of all runs."""
        return {task for task, _ in self._seen}


def _place(task: str, scored: SimilarityScores) -> _TaskData:
    return task, tuple(subset.digest for subset in scored.subsets.values())


def _unseen_data(task: str, scored: SimilarityScores, seen: NDArray[np.bool_]) -> TestData:
    """What is resampled: the unseen pairs, within their subsets."""
    if not seen.any():
        return similarity_data(task, scored.subsets, "spearman", "all", run=id(scored))
    subsets, start = {}, 0
    for name, one in scored.subsets.items():
        kept = np.flatnonzero(~seen[start : start + one.pairs]).tolist()
        start += one.pairs
        if kept:
            gold, cosines = [one.gold[row] for row in kept], [one.cosines_e6[row] for row in kept]
            subsets[name] = replace(one, pairs=len(kept), gold=gold, cosines_e6=cosines)
    data = similarity_data(task, subsets, "spearman", "all", run=id(scored))
    return replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
