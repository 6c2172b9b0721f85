"""Correlations with gold scores, on the data and on bootstrap resamples of it; pure numpy, no sort per resample.

A resample is represented by how often each pair was drawn. These *multiplicities* are all that a weighted
correlation needs: the values are sorted once, and the mid-ranks of every resample are running sums of multiplicities
in that order.

Axes: ``pairs`` are laid out subset after subset, ``sizes`` giving the length of each; ``systems`` are the models (or
the seeds of one model) whose cosines are correlated with the same gold scores.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Units: TypeAlias = Sequence[int] | NDArray[np.int64]
"""The unit of each row, whose rows are resampled together, numbered in the order of their first rows."""
Correlate: TypeAlias = Callable[[Floats], Floats]
"""Multiplicities [resamples, pairs] -> correlations [systems, resamples], NaN where undefined."""
WeightedCorrelation: TypeAlias = Callable[[Floats, Floats], Correlate]
"""gold [pairs], cosines [systems, pairs] -> the function that correlates them on any resample."""

Aggregate: TypeAlias = Literal["all", "mean", "wmean"]
AGGREGATES: tuple[Aggregate, ...] = ("all", "mean", "wmean")

MIN_PAIRS = 3  # through two points every correlation is 1 or -1
_USUAL_EXPONENT = 40
_CHUNK = 2**15  # numbers in a block of multiplicities; a block stays in the processor's cache


def weighted_spearman(gold: Floats, systems: Floats) -> Correlate:
    """Spearman's rank correlation, ties by average ranks: Pearson's correlation of the ranks.

    Ranks are stored as 2 rank - (n + 1), integers centred on 0, so that all sums are exact up to about 10^5 pairs.
    """
    gold_ties = _TieGroups.of(gold)
    by_system = []
    for system in systems:
        runs = _TieGroups.of(system)
        run = runs.group_of[runs.order]
        by_system.append((runs.order, runs.starts[run], runs.ends[run], gold_ties.group_of[runs.order]))

    def correlate(counts: Floats) -> Floats:
        below = _running_sums(counts, gold_ties.order)
        drawn, gold_ranks = _ranks(below, gold_ties.starts, gold_ties.ends)
        gold_squares = np.einsum("ij,ij,ij->i", drawn, gold_ranks, gold_ranks)
        correlations = np.full((len(by_system), len(counts)), np.nan)
        for row, (order, starts, ends, gold_run) in zip(correlations, by_system, strict=True):
            below = _running_sums(counts, order)
            _, ranks = _ranks(below, starts, ends)
            weighted_ranks = np.diff(below, axis=1) * ranks
            squares = gold_squares * np.einsum("ij,ij->i", weighted_ranks, ranks)
            products = np.einsum("ij,ij->i", weighted_ranks, np.take(gold_ranks, gold_run, axis=1))
            np.divide(products, np.sqrt(squares), out=row, where=squares > 0)
        return correlations

    return correlate


def weighted_pearson(gold: Floats, systems: Floats) -> Correlate:
    """Pearson's correlation, from the weighted first and second moments."""
    x, y = _centred(gold), np.stack([_centred(system) for system in systems])

    def correlate(counts: Floats) -> Floats:
        n = np.maximum(counts.sum(axis=1), 1)  # a subset of which no unit was drawn has no correlation
        x_mean, x_square = x @ counts.T / n, x**2 @ counts.T / n
        y_mean, y_square = y @ counts.T / n, y**2 @ counts.T / n
        x_variance, y_variance = x_square - x_mean**2, y_square - y_mean**2
        # A resample of one value drawn n times has a variance of rounding errors, not of zero.
        varies = (x_variance > 1e-13 * x_square) & (y_variance > 1e-13 * y_square)
        covariance = (x * y) @ counts.T / n - x_mean * y_mean
        correlations = np.full_like(covariance, np.nan)
        return np.divide(covariance, np.sqrt(np.abs(x_variance * y_variance)), out=correlations, where=varies)

    return correlate


CORRELATIONS = {"spearman": weighted_spearman, "pearson": weighted_pearson}


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation in [-1, 1], ties by average ranks; NaN for a constant vector or under 3 pairs."""
    return _once(weighted_spearman, first, second)


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation in [-1, 1]; NaN for a constant vector or under 3 pairs."""
    return _once(weighted_pearson, first, second)


class Scores(NamedTuple):
    """Correlations with gold: over all pairs [systems, resamples] and per subset [systems, subsets, resamples]."""

    all: Floats
    subsets: Floats
    sizes: tuple[int, ...]

    def aggregate(self, kind: Aggregate) -> Floats:
        """One number per system and resample [systems, resamples].

        ``all``: the correlation over all subsets' pairs together; ``mean``: the plain average of the subsets'
        correlations; ``wmean``: their average weighted by pairs (SentEval's names, ``all`` being SimCSE's).
        """
        if kind == "all":
            return self.all
        weights = np.asarray(self.sizes) if kind == "wmean" else np.ones(len(self.sizes))
        return np.einsum("xsr,s->xr", self.subsets, weights / weights.sum())


def scores(weighted: WeightedCorrelation, gold: Floats, systems: Floats, *, sizes: Sequence[int]) -> Scores:
    """Correlate each of ``systems`` [systems, pairs] with ``gold`` [pairs]; the result has one resample, the data."""
    return _score(weighted, gold, systems, sizes, [np.ones((1, len(gold)))])


def bootstrap_scores(
    weighted: WeightedCorrelation,
    gold: Floats,
    systems: Floats,
    *,
    sizes: Sequence[int],
    resamples: int,
    seed: int | Sequence[int],
    units: Units | None = None,
    only: Aggregate | None = None,
) -> Scores:
    """:func:`scores` on bootstrap resamples, each of them the same for all systems.

    Without ``units``, pairs are drawn with replacement within their subset, so that each subset keeps its size. With
    them, whole units are drawn from all subsets together, and what a single unit holds has no resamples: its scores are
    NaN. With ``only``, what this aggregate does not need is not computed: the subsets for ``all``, or ``all``, which is
    then NaN where there are several. Each is half the cost.
    """
    blocks = _multiplicities(sizes, resamples, np.random.default_rng(seed), units)
    drawn = _score(weighted, gold, systems, sizes, blocks, only=only)
    if units is not None:
        for number, own in enumerate(np.split(np.asarray(units), np.cumsum(sizes)[:-1])[: drawn.subsets.shape[1]]):
            if len(np.unique(own)) < 2:
                drawn.subsets[:, number] = np.nan
        if len(np.unique(units)) < 2:
            drawn.all[:] = np.nan
    return drawn


def undefined_reason(gold: ArrayLike, cosines: ArrayLike) -> str | None:
    """Why these pairs have no correlation, or None where they have one."""
    gold, cosines = np.asarray(gold), np.asarray(cosines)
    if len(gold) < MIN_PAIRS:
        return f"{len(gold)} pair{'s' * (len(gold) != 1)}, where a correlation needs {MIN_PAIRS}"
    if np.ptp(usual_size(gold)) == 0:
        return "all gold scores are equal"
    if np.ptp(cosines) == 0:
        return "all cosines are equal"
    return None


class _TieGroups(NamedTuple):
    """The order that sorts a vector; where each run of ties starts and ends in it; the run of each element."""

    order: Indices
    starts: Indices
    ends: Indices
    group_of: Indices

    @classmethod
    def of(cls, values: Floats) -> "_TieGroups":
        _, group_of, counts = np.unique(values, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return cls(np.argsort(values, kind="stable"), ends - counts, ends, group_of)


def _running_sums(counts: Floats, order: Indices) -> Floats:
    """How often the first k values in ``order`` were drawn, k from 0 on: [resamples, pairs + 1]."""
    sums = np.zeros((counts.shape[0], counts.shape[1] + 1))
    np.cumsum(np.take(counts, order, axis=1), axis=1, out=sums[:, 1:])
    return sums


def _ranks(below: Floats, starts: Indices, ends: Indices) -> tuple[Floats, Floats]:
    """How often each run was drawn, and 2 rank - (n + 1) for the mid-rank of the run: both [resamples, runs]."""
    lower, upper = np.take(below, starts, axis=1), np.take(below, ends, axis=1)
    return upper - lower, upper + lower - below[:, -1:]


def usual_size(values: ArrayLike) -> Floats:
    """The values as float64, each row scaled by a power of two if its squares would overflow or underflow in float32.

    Neither cosines nor correlations depend on the scale. The product is exact, and usual rows are unchanged.
    """
    x = np.asarray(values, dtype=np.float64)
    if not x.size:
        return x
    exponents = np.frexp(np.abs(x).max(axis=-1, keepdims=True))[1]
    return np.ldexp(x, np.where(np.abs(exponents) > _USUAL_EXPONENT, -exponents, 0))


def _centred(values: Floats) -> Floats:
    values = usual_size(values)
    if np.ptp(values) == 0:  # the mean of equal numbers need not equal them
        return np.zeros_like(values)
    return usual_size(values - values.mean())


def _correlate(weighted: WeightedCorrelation, gold: Floats, systems: Floats) -> Correlate:
    if len(gold) < MIN_PAIRS:
        return lambda counts: np.full((len(systems), len(counts)), np.nan)
    return weighted(gold, systems)


def _once(weighted: WeightedCorrelation, first: ArrayLike, second: ArrayLike) -> float:
    gold, system = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return float(scores(weighted, gold, system[None], sizes=[len(gold)]).all[0, 0])


def _multiplicities(
    sizes: Sequence[int], resamples: int, rng: np.random.Generator, units: Units | None = None
) -> Iterator[Floats]:
    """Blocks [some resamples, pairs] of how often each pair is drawn."""
    rows = max(1, _CHUNK // max(1, sum(sizes)))
    sizes = sizes if units is None else [int(np.max(units)) + 1]
    for start in range(0, resamples, rows):
        block, parts = min(rows, resamples - start), []
        for size in sizes:
            drawn = rng.integers(0, max(1, size), size=(block, size)) + size * np.arange(block)[:, None]
            parts.append(np.bincount(drawn.ravel(), minlength=block * size).reshape(block, size))
        counts = np.concatenate(parts, axis=1).astype(np.float64)
        yield counts if units is None else np.take(counts, units, axis=1)


def _score(
    weighted: WeightedCorrelation,
    gold: Floats,
    systems: Floats,
    sizes: Sequence[int],
    blocks: Iterable[Floats],
    *,
    only: Aggregate | None = None,
) -> Scores:
    several = len(sizes) > 1 and only != "all"
    subsets = [slice(start, end) for start, end in pairwise(np.cumsum([0, *sizes]))] if several else []
    parts = subsets if several and only else [slice(None), *subsets]
    correlated = [(part, _correlate(weighted, gold[part], systems[:, part])) for part in parts]
    none = np.empty((len(systems), len(parts), 0))
    on_blocks = (np.stack([on(counts[:, part]) for part, on in correlated], axis=1) for counts in blocks)
    drawn = np.concatenate([none, *on_blocks], axis=2)
    on_all = np.full_like(drawn[:, 0], np.nan) if several and only else drawn[:, 0]
    return Scores(on_all, drawn[:, -len(subsets) :] if several else drawn[:, : len(sizes) == 1], tuple(sizes))
