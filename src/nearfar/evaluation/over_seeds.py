"""Tests over training seeds, of the scores of the runs of two sides."""

from collections.abc import Sequence

import numpy as np

from nearfar.evaluation.correlation import Floats
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.results import SeedTest
from nearfar.evaluation.statistics import rank_test_over_seeds, t_test_over_seeds


def over_seeds(a: Floats, b: Floats, *, paired: bool) -> SeedTest | None:
    """Tests of the mean of ``a`` against that of ``b``, scores of runs; None where a side has a single run."""
    tested, ranks = t_test_over_seeds(a, b, paired=paired), rank_test_over_seeds(a, b, paired=paired)
    if tested is None:
        return None
    p, name = ranks or (None, None)
    return SeedTest(
        difference=percent(tested.difference),
        low=percent(tested.low),
        high=percent(tested.high),
        p=round(tested.p, 6),
        test=tested.test,
        p_rank=None if p is None else round(p, 6),
        rank_test=name,
    )


def pairing(first: Sequence[EvaluationRun], second: Sequence[EvaluationRun]) -> list[int] | None:
    """For each run of ``first``, the run of ``second`` with the same training seed; None where they do not pair."""
    a, b = training_seeds(first), training_seeds(second)
    if None in a or len(set(a)) < len(a) or len(a) != len(b) or set(a) != set(b):
        return None
    return [b.index(seed) for seed in a]


def training_seeds(side: Sequence[EvaluationRun]) -> list[int | None]:
    """The training seed of each run, where it is known."""
    return [run.result.training_seed for run in side]


def percent(score: float) -> float | None:
    """A score x 100 for a result file; NaN is None."""
    return None if np.isnan(score) else round(100 * float(score), 4)
