"""How often the interval of two compared sides holds: simulations in which the true difference is known.

    python studies/coverage.py run       simulates what studies/results/coverage misses
    python studies/coverage.py report    writes docs/coverage.md from the result file only

A score has a latent number for each unit and run, mean + shared + own + together + run: `shared` is the unit's for both
sides, `own` the unit's for one side, `together` the unit's for one run, `run` the run's for all units. A measure is a
step function of it, whose mean over units is known exactly, or, for Spearman's correlation, it is the cosine of a pair.
"""

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from common import ROOT, load, results_of, table
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from nearfar.disk import write_text
from nearfar.evaluation.correlation import weighted_spearman
from nearfar.evaluation.results import provenance
from nearfar.evaluation.statistics import (
    SIMILARITY_TO_START,
    correlation_spread,
    crossed_difference,
    percentile_interval,
    smallest_difference,
)

Floats = NDArray[np.float64]
RESULTS = results_of("coverage")
PAGE = ROOT / "docs" / "coverage.md"
UNITS, SEEDS = (50, 200, 1000, 5000), (1, 2, 3, 5, 10)
RESAMPLES = 400
POWER_UNITS = (100, 400, 1600)
CLOSE = (0.96, 0.01, 0.03)
START_SHARES = {"mrr": CLOSE, "ndcg": CLOSE, "accuracy": (0.7, 0.1, 0.2), "spearman": (0.9, 0.03, 0.07)}
"""The shares of a measure for a run and its start, which are closer to each other than two sides of a comparison."""
BATCH = 50
"""Data sets that have the same groups and resamples."""
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
    "accuracy": Measure("accuracy of 80%", (0.875, 0.8), (0.5, 0.2, 0.3), STEP, np.array([0.0, 1.0])),
    "spearman": Measure("Spearman's correlation, ties in gold", (1.6, 1.4), (0.5, 0.1, 0.4), STEP[:0], STEP),
    "accuracy-95": Measure(
        "accuracy of 95%, hardly any disagreement", (1.7, 1.6), (0.9, 0.05, 0.05), STEP, np.array([0.0, 1.0])
    ),
    "ndcg": ranked("nDCG@10, half of it 0", (-1.5, -1.6), 1 / np.log2(1 + RANKS)),
}


BOUNDS = {name: float(len(measure.steps) > 0) for name, measure in MEASURES.items()}
"""The largest difference that a unit can have, as :func:`crossed_difference` takes it."""


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


LITTLE = ("one run each", "runs vary little")
MAIN = (*LITTLE, "runs vary much")
MOST_SEEDS = {("spearman", 200): 5, ("spearman", 1000): 3, ("spearman", 5000): 1}
ONE_RUN = {"one run each": Scenario(1), "groups": Scenario(1, grouped=True)}
SEVERAL = {
    "equal runs": Scenario(0),
    "runs vary little": Scenario(0.1),
    "runs vary much": Scenario(1),
    "paired": Scenario(1, paired=True),
    "against a start": Scenario(1, start=True),
    "groups": Scenario(0.1, grouped=True),
}


TEXT = """# How often the intervals hold

Generated by `python studies/coverage.py report` from the files in `studies/results/coverage`; do not edit.

Every comparison has one 95% interval over test units and training runs. In {sets:,} simulated comparisons whose true
difference is known, the table counts how often it holds that difference, in percent: the lowest and the highest of up
to six ways in which runs vary (not at all, little, as much as the choice of units; paired by seed; against one fixed
start; units that are groups of 1 to 10 rows). It should be 95, and is {lowest:.1f} or more, with a standard error of
0.7 to 1.3, for Spearman's correlation of 1.3 to 2.2. With two or three runs on a side, and for few units that hardly
differ, the interval is wider than it needs to be. With one run on each side it speaks of these two models, not of other
runs.

*Width* is that of the interval over that of a bootstrap over units alone, where runs vary little; *plain, lowest* is
how often that bootstrap's interval holds the difference where it does so least, because it knows nothing of the runs.
{resamples} resamples; {minutes:.0f} minutes on one core.
"""
POWER_TEXT = """
## What a test finds

Before training, `nearfar train` says which difference the held-out test rows find in 8 of 10 cases:
(t<sub>0.975</sub> + t<sub>0.8</sub>) √V, where V = 2 (1 - r) s² / J for J units whose scores before training have the
standard deviation s, with the two units more that the interval adds to bounded scores. r, between before and after
training, is taken as {ranks} for ranks and correlations and {labels} for accuracy; training that changes much has a
lower r, but differences that are found anyway. The table has simulated differences of that size, with the r of the
simulation, and how many of 1,000 tests found them: 80% if the formula is right.
"""


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
    name: str,
    units: int,
    seeds: int,
    scenario: Scenario,
    rng: np.random.Generator,
    *,
    count: int,
    measure: Measure | None = None,
) -> Iterator[DataSet]:
    """``count`` data sets, which have the same groups and resamples; ``measure`` replaces that of the name."""
    measure, resamples = measure or MEASURES[name], RESAMPLES
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
    drawn = [(s.reshape(-1, units) @ counts.T / total).reshape(*s.shape[:2], -1) for s in sums]
    for at in range(count):
        truth = float(truths[0][at] - truths[1][at])
        yield split(np.concatenate([drawn[0][at], drawn[1][at]]), runs[0], truth)


def split(scored: Floats, first: int, truth: float) -> DataSet:
    """The scores on the data, in column 0, and on the resamples, of the ``first`` runs and of the others."""
    a, b = scored[:first], scored[first:]
    return DataSet((a[:, 0], a[:, 1:]), (b[:, 0], b[:, 1:]), truth)


@cache
def pilot(name: str, shares: tuple[float, float, float]) -> Floats:
    """Scores of two equal runs with other units, 2,000 times 200 of them: [2, 2000]."""
    measure, rng = MEASURES[name], np.random.default_rng(0)
    shared_share, own_share, together = shares
    sides = noise(rng, shared_share, (2000, 1, 200), None) + noise(rng, own_share + together, (2000, 2, 200), None)
    if name != "spearman":
        places = ((sides + np.float32(measure.means[1]) + REACH) * LEVELS).astype(int)
        return np.asarray(measure.table[np.clip(places, 0, 2 * REACH * LEVELS - 1)].mean(axis=2).T, dtype=float)
    kinds = np.searchsorted(np.cumsum(GOLD_SHARES)[:-1], rng.random((2000, 200)))
    pairs = zip(GOLD[kinds], sides, strict=True)
    scored = [weighted_spearman(gold, of + measure.means[1] * gold)(np.ones((1, 200)))[:, 0] for gold, of in pairs]
    return np.array(scored).T


def unit_error(name: str, units: int) -> float:
    """The standard error of the difference of two runs from the choice of units."""
    first, second = pilot(name, MEASURES[name].shares)
    return float(np.std(first - second) * (200 / units) ** 0.5)


def cover(name: str, units: int, seeds: int, scenario: Scenario, *, count: int) -> dict[str, Any]:
    """How often the interval, and that of the bootstrap over units alone, has the true difference, and their widths."""
    rng = np.random.default_rng([units, seeds, *name.encode()])
    covered, plain_covered, widths, plain_widths = 0, 0, 0.0, 0.0
    for _ in range(count // BATCH):
        for data in simulate(name, units, seeds, scenario, rng, count=BATCH):
            order = range(seeds) if scenario.paired else None
            found = crossed_difference(data.first, data.second, units=units, order=order, bound=BOUNDS[name])
            plain = percentile_interval(data.first[1].mean(axis=0) - data.second[1].mean(axis=0))
            assert found is not None
            assert plain is not None
            covered += found.low <= data.truth <= found.high
            plain_covered += plain[0] <= data.truth <= plain[1]
            widths += found.high - found.low
            plain_widths += plain[1] - plain[0]
    return {
        "units": units,
        "seeds": seeds,
        "data_sets": count,
        "holds": round(100 * covered / count, 2),
        "plain_holds": round(100 * plain_covered / count, 2),
        "width": round(widths / plain_widths, 3),
    }


def power(name: str, units: int) -> dict[str, Any]:
    """How often the smallest difference that a test should find in 8 of 10 cases is found: a run against its start."""
    measure = MEASURES[name]._replace(shares=START_SHARES[name])
    first, second = pilot(name, measure.shares)
    score = float(measure.truth(measure.means[1]))
    correlation = float(np.corrcoef(first, second)[0, 1])
    spread = correlation_spread(score) if name == "spearman" else float(np.std(second) * 200**0.5)
    smallest = smallest_difference(units, correlation, spread, bound=BOUNDS[name])
    mean = brentq(lambda mean: float(measure.truth(mean)) - score - smallest, -REACH, REACH)
    changed = measure._replace(means=(mean, measure.means[1]))
    rng, found = np.random.default_rng([units, *name.encode()]), 0
    for _ in range(1000 // BATCH):
        for data in simulate(name, units, 1, Scenario(0), rng, count=BATCH, measure=changed):
            tested = crossed_difference(data.first, data.second, units=units, bound=BOUNDS[name])
            found += tested is not None and tested.low > 0
    return {
        "units": units,
        "score": round(100 * score, 2),
        "correlation": round(correlation, 3),
        "smallest": round(100 * smallest, 2),
        "found": round(found / 10, 1),
    }


def cells(name: str) -> list[tuple[int, int, str, int]]:
    """The simulations of a measure: units, seeds, scenario and data sets; fewer where they take long."""
    few = {50: 300, 200: 300, 1000: 200, 5000: 100}
    counts = few if name == "spearman" else {50: 1000, 200: 1000, 1000: 1000, 5000: 300}
    chosen = []
    for units, seeds in product(UNITS, SEEDS):
        scenarios = list(ONE_RUN if seeds == 1 else SEVERAL)
        if name == "spearman" and (seeds > 1 or units > 200):
            scenarios = [scenario for scenario in scenarios if scenario in (*MAIN, "against a start")]
        if units == 5000:
            scenarios = [scenario for scenario in scenarios if scenario in MAIN and seeds in (1, 3)]
        if seeds <= MOST_SEEDS.get((name, units), max(SEEDS)):
            chosen += [(units, seeds, scenario, counts[units]) for scenario in scenarios]
    return chosen


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    if parser.parse_args().command == "run":
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name in MEASURES:
            file = RESULTS / f"{name}.json"
            if file.exists():
                continue
            started, simulated = time.perf_counter(), []
            for units, seeds, scenario, count in cells(name):
                how = (ONE_RUN if seeds == 1 else SEVERAL)[scenario]
                simulated.append({"scenario": scenario, **cover(name, units, seeds, how, count=count)})
                print(name, simulated[-1], flush=True)
            tested = [power(name, units) for units in POWER_UNITS if name in START_SHARES]
            seconds = round(time.perf_counter() - started, 1)
            record = {**provenance().to_dict(), "seconds": seconds, "coverage": simulated, "power": tested}
            write_text(file, json.dumps(record, indent=1) + "\n")
    write_text(PAGE, page())


def page() -> str:
    """The page, from the result files."""
    records = {name: load(file) for name in MEASURES if (file := RESULTS / f"{name}.json").exists()}
    rows, tested = [], []
    for name, record in records.items():
        for units in UNITS:
            of = [cell for cell in record["coverage"] if cell["units"] == units]
            holds = [span([cell["holds"] for cell in of if cell["seeds"] == seeds]) for seeds in SEEDS]
            widths = {cell["seeds"]: f"{cell['width']:.2f}" for cell in of if cell["scenario"] in LITTLE}
            plain = f"{min(cell['plain_holds'] for cell in of):.0f}"
            rows.append([MEASURES[name].title, f"{units:,}", *holds, widths[1], widths.get(3, ""), plain])
        for cell in record["power"]:
            numbers = (f"{cell['units']:,}", f"{cell['correlation']:.2f}", f"{cell['smallest']:.1f}")
            tested.append([MEASURES[name].title, f"{cell['score']:.0f}", *numbers, f"{cell['found']:.0f}%"])
    every = [cell for record in records.values() for cell in record["coverage"]]
    sets, lowest = sum(cell["data_sets"] for cell in every), min(cell["holds"] for cell in every)
    minutes = sum(record["seconds"] for record in records.values()) / 60
    seeds = [f"{seeds} run{'s' * (seeds > 1)}" for seeds in SEEDS]
    lines = [TEXT.format(sets=sets, lowest=lowest, minutes=minutes, resamples=RESAMPLES)]
    lines += table(["measure", "units", *seeds, "width, 1 run", "width, 3 runs", "plain, lowest"], rows)
    lines += [POWER_TEXT.format(ranks=SIMILARITY_TO_START["mrr@10"], labels=SIMILARITY_TO_START["accuracy"])]
    lines += table(["measure", "start's score", "test units", "r", "difference", "found"], tested)
    commits = sorted({record["commit"] for record in records.values()})
    lines += ["", f"Versions: {json.dumps(records['mrr']['versions'])}. Commits: {', '.join(commits)}."]
    return "\n".join(lines) + "\n"


def span(values: list[float]) -> str:
    """The lowest and the highest of some values."""
    if not values:
        return ""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    main()
