"""Significance of differences: bootstrap intervals, tests over pairs, rows and seeds, and Holm's correction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearfar.evaluation.correlation import CORRELATIONS, Floats, Units, bootstrap_scores, scores
from nearfar.evaluation.results import Estimate, Verdict

CONFIDENCE = 0.95
_BLOCK_NUMBERS = 2**22


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
    low, high = (
        None if bound is None else round(100 * bound, 4) for bound in percentile_interval(draws) or (None, None)
    )
    return Estimate(round(score, 4), low, high)


def mean_estimate(estimates: Mapping[str, Estimate], draws: Sequence[Floats]) -> Estimate:
    """The mean over tasks; each of its draws is the mean of a draw of every task."""
    reason = next((f"undefined on {task}: {one.reason}" for task, one in estimates.items() if one.reason), None)
    points = [one.score for one in estimates.values() if one.score is not None]
    return estimate(None if reason else float(np.mean(points)), np.mean(draws, axis=0), reason)


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


MARGIN = 0.5
"""The largest difference, in points, that counts as level unless another margin is given."""


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
    first: tuple[Floats, Floats],
    second: tuple[Floats, Floats],
    *,
    units: int,
    order: Sequence[int] | None = None,
) -> CrossedDifference | None:
    """The difference of two sides' mean scores, with an interval over test units and training runs, crossed.

    A score on J units (pairs, rows, queries, or groups of them that share texts) by I runs varies by the units, by the
    runs, and by both together: Var = U/J + R/I + E/(IJ). The bootstrap over units of the mean over runs has U/J +
    E/(IJ), the spread of the runs' scores R/I + E/(IJ), and the bootstrap of each run's deviation from the mean E/(IJ),
    which would be counted twice. The interval's half-widths are those of the bootstrap percentiles, so a skewed score
    keeps its skew, stretched to the whole standard error times Cochran and Cox's t: the mean of the quantiles of
    Student's t for J - 1 units and for the runs (Welch's degrees of freedom), weighted by their variances. With one run
    on a side, nothing is known of its other training runs, and the interval says nothing of them. Where the scores of
    units are not known, the runs' scores as the only resample give the interval over runs alone.

    Args:
        first: the scores of the runs on the data [runs], and on resamples of the units [runs, resamples].
        second: the same of the other side, on the same resamples.
        units: the number of units that were resampled.
        order: where run ``i`` of the first side belongs to run ``order[i]`` of the second, such as by a shared training
            seed; None for independent runs.

    Returns:
        None where no resample has a defined difference.

    Sources: Owen 2007, The pigeonhole bootstrap; Cochran and Cox 1957, Experimental Designs, 4.14.
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
    spread = float(draws.std())
    of_units = max(spread**2 - together, 0.0) * units / max(units - 1, 1)
    point = float(first[0].mean() - second[0].mean())
    variance = of_units + runs
    if not variance:
        return CrossedDifference(point, point, point, 1.0 if point == 0 else 0.0, of_units, runs)
    from scipy import special  # imported here: the import takes longer than a small comparison

    def t(level: float) -> float:
        """Cochran and Cox's quantile of t."""
        by_units = special.stdtrit(max(units - 1, 1), level)
        by_runs = special.stdtrit(runs**2 / squares, level) if runs else 0.0
        return float(of_units * by_units + runs * by_runs) / variance

    tail = (1 - CONFIDENCE) / 2
    normal = special.ndtri(1 - tail)
    ends = (np.quantile(draws, [tail, 1 - tail]) - draws.mean()) / spread if spread else np.array([-normal, normal])
    low, high = map(float, ends * t(1 - tail) * np.sqrt(variance) / normal)
    reach = abs(low if point > 0 else high) / t(1 - tail)  # one standard error, towards 0
    least, most = 0.0, 0.5
    while reach and most - least > 1e-6 * most and most > 1e-12:  # t(1 - p / 2) standard errors reach 0
        tail = (least + most) / 2
        least, most = (least, tail) if t(1 - tail) * reach < abs(point) else (tail, most)
    return CrossedDifference(point, point + low, point + high, 2 * most, of_units, runs)


class Difference(NamedTuple):
    """``first - second``, its 95% interval, the two-sided p of no difference, and the test that gave the two."""

    difference: float
    low: float
    high: float
    p: float
    test: str


def bootstrap_test(point: float, draws: Floats) -> Difference | None:
    """Test a difference by its values on paired bootstrap resamples ``draws`` [resamples].

    p = min(1, 2 min(P(d* <= 0), P(d* >= 0))), each probability as (1 + count) / (1 + resamples), so that p is never
    0 and two equal systems have p = 1. None where no resample has a defined difference.
    """
    bounds = percentile_interval(draws)
    if bounds is None:
        return None
    defined = draws[np.isfinite(draws)]
    tails = [(1 + int(np.sum(side))) / (1 + len(defined)) for side in (defined <= 0, defined >= 0)]
    return Difference(point, *bounds, min(1.0, 2 * min(tails)), "paired bootstrap over pairs")


def t_test_over_seeds(first: ArrayLike, second: ArrayLike, *, paired: bool) -> Difference | None:
    """Test mean(first) - mean(second) over training runs: a t-test on paired runs, else Welch's t-test.

    None where a side has fewer than two runs, or where the runs do not differ at all, so that t has no scale.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(len(a), len(b)) < 2:
        return None
    spread = np.ptp(a - b) if paired else max(np.ptp(a), np.ptp(b))
    if not spread > 1e-9 * max(np.abs(a).max(), np.abs(b).max()):
        return None
    from scipy import stats  # imported here: the import takes longer than a small comparison

    if paired:
        outcome, name = stats.ttest_rel(a, b), "paired t-test over seeds"
    else:
        outcome, name = stats.ttest_ind(a, b, equal_var=False), "Welch's t-test over seeds"
    bounds = outcome.confidence_interval(CONFIDENCE)
    return Difference(float(a.mean() - b.mean()), float(bounds.low), float(bounds.high), float(outcome.pvalue), name)


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
    for block in _blocks(resamples, len(counts)):
        totals = kinds @ rng.multinomial(drawn, counts / drawn, size=block.stop - block.start).T
        means[:, block] = totals[:-1] / totals[-1]
    return means


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """The exact two-sided p of McNemar's test that two systems are equally accurate on the same rows.

    Among the n rows that exactly one of them predicts correctly, the number that the first predicts correctly is
    Binomial(n, 1/2) under the null hypothesis (McNemar 1947). Arguments are booleans [rows]; without a
    discordant row p is 1.
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_first, discordant = int(np.sum(a & ~b)), int(np.sum(a != b))
    if not discordant:
        return 1.0
    from scipy import stats

    return float(stats.binomtest(only_first, discordant).pvalue)


def permutation_test(differences: ArrayLike, *, resamples: int, seed: int | Sequence[int]) -> float:
    """Two-sided p of a permutation test that paired differences [rows] have mean 0: signs are flipped at random.

    p = (1 + #(|sum*| >= |sum|)) / (1 + resamples). For one system on each side it converges to
    :func:`mcnemar`; for several seeds on a side, use the share of seeds that predict a row correctly.
    """
    levels, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    rng = np.random.default_rng(seed)
    sums = np.empty(resamples)
    for block in _blocks(resamples, len(counts)):
        kept = rng.binomial(counts, 0.5, size=(block.stop - block.start, len(counts)))
        sums[block] = (2 * kept - counts) @ levels
    observed = abs(float(counts @ levels))
    rounding = 1e-11 * float(counts @ np.abs(levels))  # equal sums differ by their rounding
    return (1 + int(np.sum(np.abs(sums) >= observed - rounding))) / (1 + resamples)


def _blocks(resamples: int, columns: int) -> Iterator[slice]:
    """Divide resamples into blocks of at most :data:`_BLOCK_NUMBERS` drawn numbers, which bounds the memory."""
    size = max(1, _BLOCK_NUMBERS // max(columns, 1))
    for start in range(0, resamples, size):
        yield slice(start, min(start + size, resamples))


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
    half = (tested.difference - tested.low) if tested.difference > -margin else (tested.high - tested.difference)
    variance = tested.of_units + tested.of_runs
    if not variance or not half:
        return None
    allowed = variance * (reach / half) ** 2 - tested.of_runs
    return None if allowed <= 0 else max(0, int(np.ceil(units * (tested.of_units / allowed - 1))))
