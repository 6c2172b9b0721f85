"""How often the interval of two compared sides holds: simulations in which the true difference is known.

    python studies/coverage.py run       simulates what studies/results/coverage misses
    python studies/coverage.py report    writes docs/coverage.md from the result file only

A score has a latent number for each unit and run, mean + shared + own + together + run: `shared` is the unit's for both
sides, `own` the unit's for one side, `together` the unit's for one run, `run` the run's for all units. A measure is a
step function of it, whose mean over units is known exactly, or, for Spearman's correlation, it is the cosine of a pair.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from common import ROOT, results_of
from numpy.typing import NDArray
from scipy.special import ndtr

from nearfar.evaluation.correlation import weighted_spearman

Floats = NDArray[np.float64]
RESULT = "coverage.json"
RESULTS = results_of("coverage")
PAGE = ROOT / "docs" / "coverage.md"
UNITS, SEEDS = (50, 200, 1000, 5000), (1, 2, 3, 5, 10)
RESAMPLES = 800
LEVELS = 16
"""Steps of a measure stand at multiples of 1 / LEVELS of the latent number, which makes it a table."""
REACH = 8
"""Latent numbers beyond it are at it."""


class Measure(NamedTuple):
    """A measure of simulated units; ``steps`` and ``values`` are empty for Spearman's correlation."""

    title: str
    means: tuple[float, float]
    """Mean latent number of both sides; for Spearman's correlation the slopes of the cosines over the gold scores."""
    shares: tuple[float, float, float]
    """Variance of shared, own and together; the sum is 1."""
    steps: Floats
    values: Floats

    def truth(self, means: "Floats | float") -> Floats:
        """The mean score, or Spearman's correlation, over all units of runs with these latent means."""
        mean = np.asarray(means, dtype=float)[..., None]
        if len(self.steps):
            below = ndtr(self.steps - mean)
            edges = np.concatenate([np.zeros_like(mean), below, np.ones_like(mean)], axis=-1)
            return np.diff(edges) @ self.values
        rank = np.cumsum(GOLD_SHARES) - GOLD_SHARES / 2
        ahead = ndtr(mean[..., None] * (GOLD[:, None] - GOLD) / np.sqrt(2)) @ GOLD_SHARES
        covariance = ahead @ (GOLD_SHARES * rank) - 1 / 4
        return covariance / np.sqrt((GOLD_SHARES @ rank**2 - 1 / 4) / 12)

    def population(self, mean: float, spread: float) -> float:
        """:meth:`truth`, averaged over runs whose latent means have a standard deviation of ``spread``."""
        places, weights = np.polynomial.hermite_e.hermegauss(40)
        return float(self.truth(mean + spread * places) @ weights / weights.sum())

    @property
    def table(self) -> NDArray[np.float32]:
        """The score at each multiple of 1 / LEVELS between -REACH and REACH."""
        grid = np.arange(-REACH * LEVELS, REACH * LEVELS) / LEVELS
        return self.values[np.searchsorted(self.steps, grid, side="right")].astype(np.float32)


def ranked(title: str, means: tuple[float, float], values: Floats) -> Measure:
    """A measure of the rank of the only right document: rank k up to 10 has ``values[k - 1]``, others have 0."""
    steps = np.round(-np.log(np.arange(10, 0, -1) + 0.5) / 1.5 * LEVELS) / LEVELS
    return Measure(title, means, (0.5, 0.1, 0.4), steps, np.r_[0.0, values[::-1]])


GOLD = np.arange(-2.5, 3) / 1.5
"""Gold scores of pairs, six levels."""
GOLD_SHARES = np.array([0.1, 0.15, 0.2, 0.2, 0.2, 0.15])
RANKS = np.arange(1, 11)
STEP = np.array([0.0])
MEASURES = {
    "mrr": ranked("MRR@10", (-0.1, -0.2), 1 / RANKS),
    "ndcg": ranked("nDCG@10, half of it 0", (-1.5, -1.6), 1 / np.log2(1 + RANKS)),
    "accuracy": Measure("accuracy of 80%", (0.875, 0.8), (0.5, 0.2, 0.3), STEP, np.array([0.0, 1.0])),
    "accuracy-95": Measure(
        "accuracy of 95%, hardly any disagreement", (1.7, 1.6), (0.9, 0.05, 0.05), STEP, np.array([0.0, 1.0])
    ),
    "spearman": Measure("Spearman's correlation, ties in gold", (1.6, 1.4), (0.5, 0.1, 0.4), STEP[:0], STEP),
}


class Scenario(NamedTuple):
    """How runs vary, and what belongs together."""

    spread: float
    """Standard deviation of the runs of a side, in standard errors of the difference over units."""
    paired: bool = False
    """Runs of the two sides belong together, with a correlation of 0.7."""
    start: bool = False
    """The second side is one fixed model."""
    grouped: bool = False
    """A unit is a group of 1 to 10 pairs or rows that have half of what is shared and own in common."""


ONE_RUN = {"one run each": Scenario(1), "groups": Scenario(1, grouped=True)}
SEVERAL = {
    "equal runs": Scenario(0),
    "runs vary little": Scenario(0.1),
    "runs vary much": Scenario(1),
    "paired": Scenario(1, paired=True),
    "against a start": Scenario(1, start=True),
    "groups": Scenario(0.1, grouped=True),
}


class DataSet(NamedTuple):
    """The scores of a simulated comparison, and the difference that is true in it."""

    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats]
    truth: float


def noise(rng: np.random.Generator, share: float, shape: tuple[int, ...], group: NDArray[np.intp] | None) -> Any:
    """Normal numbers with variance ``share``, half of it common to the members of a group on the last axis."""
    if group is None:
        return np.float32(share**0.5) * rng.standard_normal(shape, dtype=np.float32)
    common = rng.standard_normal((*shape[:-1], int(group[-1]) + 1), dtype=np.float32)[..., group]
    return np.float32((share / 2) ** 0.5) * (common + rng.standard_normal(shape, dtype=np.float32))


def simulate(
    name: str, units: int, seeds: int, scenario: Scenario, rng: np.random.Generator, *, count: int
) -> Iterator[DataSet]:
    """``count`` data sets, which have the same groups and resamples."""
    measure, resamples = MEASURES[name], RESAMPLES
    sizes = rng.integers(1, 11, units) if scenario.grouped else np.ones(units, dtype=int)
    group = np.repeat(np.arange(units), sizes) if scenario.grouped else None
    pairs = int(sizes.sum())
    counts = rng.multinomial(units, np.full(units, 1 / units), size=resamples).astype(np.float64)
    counts = np.concatenate([np.ones((1, units)), counts])  # the first is the data
    runs = (seeds, 1 if scenario.start else seeds)
    spread = scenario.spread * unit_error(name, units)
    slopes = [abs(float(measure.truth(mean + 0.01) - measure.truth(mean - 0.01))) / 0.02 for mean in measure.means]
    latent_spread = [spread / slope for slope in slopes]
    if scenario.start:
        latent_spread[1] = 0.0
    of_runs = rng.standard_normal((count, 2, seeds))
    if scenario.paired:
        of_runs[:, 1] = 0.7 * of_runs[:, 0] + 0.51**0.5 * of_runs[:, 1]
    means = [measure.means[side] + latent_spread[side] * of_runs[:, side, : runs[side]] for side in (0, 1)]
    several = [of_side.shape[1] > 1 for of_side in means]
    truths = [
        np.full(count, measure.population(measure.means[side], latent_spread[side]))
        if several[side]
        else measure.truth(means[side][:, 0])
        for side in (0, 1)
    ]
    shared_share, own_share, together = measure.shares
    shared = noise(rng, shared_share, (count, 1, pairs), group)
    cosines = []
    for side in (0, 1):
        own = shared + noise(rng, own_share, (count, 1, pairs), group)
        cosines.append(own + noise(rng, together, (count, runs[side], pairs), None))
    if name == "spearman":
        kinds = np.searchsorted(np.cumsum(GOLD_SHARES)[:-1], ndtr(noise(rng, 1, (count, pairs), group)))
        gold = GOLD[kinds]
        weights = counts if group is None else counts[:, group]
        for at in range(count):
            systems = np.concatenate([cosines[side][at] + means[side][at][:, None] * gold[at] for side in (0, 1)])
            scored = np.concatenate(
                [weighted_spearman(gold[at], systems)(block) for block in np.array_split(weights, 1 + pairs // 50)],
                axis=1,
            )
            yield split(scored, runs[0], float(truths[0][at] - truths[1][at]))
        return
    steps = measure.table
    scores = []
    for side in (0, 1):
        places = ((cosines[side] + means[side][..., None].astype(np.float32) + REACH) * LEVELS).astype(np.int32)
        scores.append(steps[np.clip(places, 0, len(steps) - 1)].astype(np.float64))
    total = counts @ sizes
    sums = [s if group is None else np.add.reduceat(s, np.r_[0, np.cumsum(sizes)[:-1]], axis=-1) for s in scores]
    drawn = [s @ counts.T / total for s in sums]
    for at in range(count):
        truth = float(truths[0][at] - truths[1][at])
        yield split(np.concatenate([drawn[0][at], drawn[1][at]]), runs[0], truth)


def split(scored: Floats, first: int, truth: float) -> DataSet:
    """The scores on the data, in column 0, and on the resamples, of the ``first`` runs and of the others."""
    a, b = scored[:first], scored[first:]
    return DataSet((a[:, 0], a[:, 1:]), (b[:, 0], b[:, 1:]), truth)


@cache
def unit_error(name: str, units: int) -> float:
    """The standard error of the difference of two runs from the choice of units."""
    if units != 200:
        return unit_error(name, 200) * (200 / units) ** 0.5
    found = []
    for data in simulate_plain(name):
        found.append(data)
    return float(np.std(found))


def simulate_plain(name: str) -> Iterator[float]:
    """Differences of two equal runs on other units."""
    measure, rng = MEASURES[name], np.random.default_rng(0)
    shared_share, own_share, together = measure.shares
    shared = noise(rng, shared_share, (2000, 1, 200), None)
    sides = shared + noise(rng, own_share + together, (2000, 2, 200), None)
    if name != "spearman":
        places = ((sides + np.float32(measure.means[1]) + REACH) * LEVELS).astype(int)
        yield from np.diff(measure.table[np.clip(places, 0, 2 * REACH * LEVELS - 1)].mean(axis=2))[:, 0]
        return
    kinds = np.searchsorted(np.cumsum(GOLD_SHARES)[:-1], rng.random((2000, 200)))
    for gold, pair in zip(GOLD[kinds], sides, strict=True):
        scored = weighted_spearman(gold, pair + measure.means[1] * gold)(np.ones((1, 200)))
        yield float(scored[0, 0] - scored[1, 0])
