"""Intervals of scores and of differences, over test units and training runs; verdicts, and Holm's correction."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nearfar.evaluation.correlation import CORRELATIONS, Floats, Units, bootstrap_scores, scores
from nearfar.evaluation.results import Estimate, Verdict

CONFIDENCE = 0.95
NO_REASON = "no reason is given"
"""Why a score is undefined whose result file does not say why."""
TINY = 1e-20
"""A variance of scores that are equal but for rounding."""
_BLOCK_NUMBERS = 2**22
"""How many numbers are drawn at once, which bounds the memory."""


def percentile_interval(draws: Floats) -> tuple[float, float] | None:
    """The 95% percentile interval of bootstrap draws; undefined draws are left out; None where all are undefined."""
    defined = draws[np.isfinite(draws)]
    if not defined.size:
        return None
    low, high = np.quantile(defined, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def estimate(score: float | None, draws: Floats, reason: str | None = None) -> Estimate:
    """The estimate of a ``score`` that is x 100, with the interval of ``draws`` that are not.

    It is undefined where the score is None or there is a ``reason``.
    """
    if score is None or reason is not None:
        return Estimate(None, None, None, reason)
    interval = [round(100 * end, 4) for end in percentile_interval(draws) or ()]
    return Estimate(round(score, 4), *(interval or (None, None)))


def mean_estimate(estimates: Mapping[str, Estimate], draws: Sequence[Floats]) -> Estimate:
    """The mean over tasks; each of its draws is the mean of a draw of every task."""
    points = [one.score for one in estimates.values() if one.score is not None]
    if len(points) == len(estimates):
        return estimate(float(np.mean(points)), np.mean(draws, axis=0))
    task, why = next((task, one.reason) for task, one in estimates.items() if one.score is None)
    return Estimate(None, None, None, f"undefined on {task}: {why or NO_REASON}")


def correlation_estimate(
    metric: str,
    gold: Floats,
    values: Floats,
    *,
    sizes: Sequence[int],
    resamples: int,
    seed: Sequence[int],
    units: Units | None = None,
) -> Estimate:
    """The correlation of ``values`` with ``gold`` over all pairs, x 100, by its name; units are resampled.

    ``sizes`` are the numbers of pairs of the subsets; see :func:`nearfar.evaluation.correlation.bootstrap_scores`.
    """
    weighted = CORRELATIONS[metric]
    point = scores(weighted, gold, values[None], sizes=sizes).all[0, 0]
    settings: dict[str, Any] = {"sizes": sizes, "resamples": resamples, "seed": seed, "units": units}
    drawn = bootstrap_scores(weighted, gold, values[None], **settings, only="all")
    return estimate(100 * float(point), drawn.all[0])


def percent(score: float) -> float | None:
    """A score x 100 for a result file; NaN is None."""
    return None if np.isnan(score) else round(100 * float(score), 4)


def plain_numbers(values: Floats) -> list[int | float]:
    """Numbers for a result file: whole ones without a fraction."""
    return [int(value) if value.is_integer() else value for value in np.asarray(values, float).tolist()]


MARGIN = 0.5
"""The largest difference, in points, that counts as level unless another margin is given."""


SideScores: TypeAlias = tuple[Floats, Floats]
"""The scores of the runs of a side on the data [runs], and on resamples of the units [runs, resamples]."""


class CrossedDifference(NamedTuple):
    """``first - second`` with one 95% interval over both test units and training runs, and what it is made of."""

    difference: float
    low: float
    high: float
    p: float
    """Two-sided p of no difference; below 0.05 exactly where the interval leaves out 0."""
    of_units: float
    """The variance of ``difference`` from the choice of test units."""
    of_runs: float
    """The variance of ``difference`` from the choice of training runs; 0 where no side has several runs."""


def crossed_difference(
    first: SideScores, second: SideScores, *, units: int, order: Sequence[int] | None = None, bound: float = 0.0
) -> CrossedDifference | None:
    """The difference of two sides' mean scores, with an interval over test units and training runs, crossed.

    A score on J units (pairs, rows, queries, or groups of them that share texts) by I runs varies by the units, by the
    runs, and by both together: Var = U/J + R/I + E/(IJ). The bootstrap over units of the mean over runs has U/J +
    E/(IJ), the spread of the runs' scores R/I + E/(IJ), and the bootstrap of each run's deviation from the mean E/(IJ),
    which would be counted twice. The interval reaches Cochran and Cox's t standard errors to both sides: the mean of
    the quantiles of Student's t for J - 1 units and for the runs (Welch's degrees of freedom), weighted by their
    variances. With one run on a side, nothing is known of its other training runs, and the interval says nothing of
    them. Where the scores of units are not known, the runs' scores as the only resample give the interval over runs
    alone.

    The bootstrap knows no other units than those that are there: if two sides label all but three of 200 texts alike,
    only these three. So where a unit's score has bounds, the variance is that of two units more, one of which differs
    by all that is possible between one run of each side. ``studies/coverage.py`` measures how often the interval holds.

    Args:
        first: the scores of one side.
        second: those of the other side, on the same resamples.
        units: the number of units that were resampled.
        order: where run ``i`` of the first side belongs to run ``order[i]`` of the second, such as by a shared training
            seed; None for independent runs.
        bound: of means over units, the largest difference that a unit can have: 1 for accuracy and most measures of
            retrieval; 0 for correlations, and where it is not known.

    Returns:
        None where no resample has a defined difference.

    Sources: Owen 2007, The pigeonhole bootstrap; Cochran and Cox 1957, Experimental Designs, 4.14; Agresti and Min
    2005, Simple improved confidence intervals for comparing matched proportions.
    """
    paired = None if order is None else tuple(a - b[list(order)] for a, b in zip(first, second, strict=True))
    sides = [first, second] if paired is None else [paired]
    draws = first[1].mean(axis=0) - second[1].mean(axis=0)
    draws = draws[np.isfinite(draws)]
    if not draws.size:
        return None
    runs, together, squares = 0.0, 0.0, 0.0
    for points, drawn in sides:
        if len(points) > 1:
            free = len(points) - 1
            of_side = float(np.var(points, ddof=1)) / len(points)
            runs, squares = runs + of_side, squares + of_side**2 / free
            together += float(np.nanvar(drawn - drawn.mean(axis=0), axis=1).mean()) / free
    of_mean = float(draws.var())
    if draws.size > 1 and (bound or of_mean < TINY):
        added = (bound or 1.0) ** 2 * (1 / len(first[0]) + 1 / len(second[0])) / 2
        of_mean = (of_mean * units**2 + added) / (units + 2) ** 2
    of_units = max(of_mean - together * bool(runs), 0.0) * units / max(units - 1, 1)
    point = float(first[0].mean() - second[0].mean())
    variance = of_units + runs
    if not variance:
        return CrossedDifference(point, point, point, 1.0 if point == 0 else 0.0, of_units, runs)
    from scipy import special  # imported here: the import takes longer than a small comparison

    def reach(p: float) -> float:
        """Cochran and Cox's quantile of t, for a two-sided ``p``, times the standard error."""
        by_units = special.stdtrit(max(units - 1, 1), 1 - p / 2)
        by_runs = special.stdtrit(runs**2 / squares, 1 - p / 2) if runs else 0.0
        return float(of_units * by_units + runs * by_runs) / variance**0.5

    half = reach(1 - CONFIDENCE)
    least, most = 0.0, 1.0
    while most - least > 1e-6 * most and most > 1e-12:
        p = (least + most) / 2
        least, most = (least, p) if reach(p) < abs(point) else (p, most)
    return CrossedDifference(point, point - half, point + half, most, of_units, runs)


def bootstrap_means(values: Floats, *, resamples: int, seed: int | Sequence[int], units: Units | None = None) -> Floats:
    """Mean of each system [systems, rows] on bootstrap resamples of units, the same for all: [systems, resamples].

    By default each row is its own unit. Efficient for values with few levels, such as correct and incorrect: units with
    the same sums in all systems are interchangeable, so only their counts are drawn, which is the same bootstrap at a
    fraction of the cost. A single unit has no resamples; its means are NaN.
    """
    sums = np.concatenate([values, np.ones((1, values.shape[1]))])  # and the number of rows of each unit
    if units is not None:
        sums = np.stack([np.bincount(np.asarray(units), weights=row) for row in sums])
    if sums.shape[1] < 2:
        return np.full((len(values), resamples), np.nan)
    kinds, counts = np.unique(sums, axis=1, return_counts=True)
    drawn, rng = counts.sum(), np.random.default_rng(seed)
    means = np.empty((len(values), resamples))
    size = max(1, _BLOCK_NUMBERS // len(counts))
    for start in range(0, resamples, size):
        totals = kinds @ rng.multinomial(drawn, counts / drawn, size=min(size, resamples - start)).T
        means[:, start : start + size] = totals[:-1] / totals[-1]
    return means


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the given order: below 0.05 means significant with a 5% family-wise error."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted.tolist()


def verdict(low: float, high: float, margin: float = MARGIN, *, p_holm: float = 0.0) -> Verdict:
    """What an interval of ``first - second``, in points, says of the first side.

    ``better`` or ``worse`` where it leaves out 0, and where the difference is one of a family, p is below 0.05 after
    Holm's correction over it (``p_holm``); else ``level`` where it lies within the margin on both sides, ``no worse``
    where it lies above minus the margin, and ``cannot tell`` otherwise.

    >>> verdict(0.1, 2.0), verdict(-0.3, 0.4), verdict(-0.3, 2.0), verdict(-2.0, 2.0)
    ('better', 'level', 'no worse', 'cannot tell')
    >>> verdict(0.1, 2.0, p_holm=0.06), verdict(-2.0, -0.1, p_holm=0.06)
    ('no worse', 'cannot tell')
    """
    if (low > 0 or high < 0) and p_holm < 1 - CONFIDENCE:
        return "better" if low > 0 else "worse"
    if low > -margin:
        return "level" if high < margin else "no worse"
    return "cannot tell"


def units_to_tell(tested: CrossedDifference, units: int, margin: float = MARGIN) -> int | None:
    """About how many more units like the ``units`` tested would tell, if the difference stayed as it is.

    Enough that the interval leaves out 0 or lies above minus the margin, whichever needs fewer; ``tested`` and
    ``margin`` have the same scale. None where units alone do not suffice, because the runs vary too much.
    """
    reach = max(abs(tested.difference), tested.difference + margin)
    half = tested.high - tested.difference
    variance = tested.of_units + tested.of_runs
    if not variance or not half:
        return None
    allowed = variance * (reach / half) ** 2 - tested.of_runs
    return None if allowed <= 0 else max(0, int(np.ceil(units * (tested.of_units / allowed - 1))))


POWER = 0.8
"""The share of tests that find the smallest difference that a test is said to find."""
TYPICAL_SPREAD = 0.4
"""A typical standard deviation of a unit's score: of MRR and accuracy between 0.4 and 0.9, of a correlation of 0.8."""
SIMILARITY_TO_START = {"mrr@10": 0.9, "spearman": 0.9, "accuracy": 0.5}
"""How the scores of units before and after training are typically correlated, where training changes little: as far as
the intervals of committed comparisons with a start tell, 0.7 to 0.96 for queries, 0.85 to 0.91 for pairs and 0.5 for
labels."""


def smallest_difference(units: int, correlation: float, spread: float = TYPICAL_SPREAD, *, bound: float = 0.0) -> float:
    """The smallest true difference between a trained model and its start that a test finds in 8 of 10 cases.

    (t_{0.975} + t_{0.8}) sqrt(V), with Student's t for J - 1, and V = 2 (1 - r) s^2 / J with the two units more that
    :func:`crossed_difference` adds where a unit's score has a ``bound``.

    Args:
        units: J, the number of independent units of the test.
        correlation: r, that of the units' scores before and after training; see :data:`SIMILARITY_TO_START`.
        spread: s, the standard deviation of a unit's score before training, of a correlation what
            :func:`correlation_spread` says.
        bound: as :func:`crossed_difference` takes it.
    """
    from scipy import special

    quantiles = special.stdtrit(max(units - 1, 1), [(1 + CONFIDENCE) / 2, POWER])
    variance = 2 * (1 - correlation) * spread**2 / units
    if bound:
        variance = (variance * units**2 + bound**2) / (units + 2) ** 2
    return float(quantiles.sum() * np.sqrt(variance))


def correlation_spread(correlation: float) -> float:
    """The standard error of Spearman's correlation, times the root of the number of pairs.

    Source: Bonett and Wright 2000, Sample size requirements for estimating Pearson, Kendall and Spearman correlations.
    """
    return float((1 - correlation**2) * np.sqrt(1 + correlation**2 / 2))
