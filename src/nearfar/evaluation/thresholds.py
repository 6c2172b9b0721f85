"""The score from which on few of the shown hits are wrong, with a finite-sample guarantee; and what a score is worth.

A query shows its candidates with a score of at least t. Its error is the share of wrong ones among them, a number from
0 to 1, and R(t) is the expected error of a query that shows any. By *Learn then Test* (Angelopoulos, Bates, Candès,
Jordan & Lei 2021, arXiv:2110.01052), P(R(t) > error) <= 1 - confidence for the threshold t that is chosen here. Nothing
is assumed of the scores, and R need not fall with t. The queries are assumed to be drawn independently from those that
are asked later (or are a random part of them, without replacement); hits of one query may depend on each other. So
queries are split and counted, not pairs.

A random fifth of the queries is put aside and fixes which thresholds are tested in which order. On the others the
hypotheses R(t) > error are tested one after the other, and the first that is not rejected ends it (fixed-sequence
testing): so the chance of one wrong rejection is at most 1 - confidence, however many are tested. With n queries that
show any, whose mean error is r, the p-value of R(t) > a is that of Hoeffding and Bentkus (Bates, Angelopoulos, Lei,
Malik & Jordan 2021, arXiv:2101.02703),

    min(exp(-n (r log(r / a) + (1 - r) log((1 - r) / (1 - a)))), e P(Binomial(n, a) <= ceil(n r))),   r <= a,

and where no query has more than one candidate, so that its error is 0 or 1, the exact binomial one of Clopper and
Pearson (1934), P(Binomial(n, a) <= n r).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, ndtri, rel_entr

PILOT = 0.2
"""Share of the queries that fix the thresholds and their order."""
STEPS = 100
"""Number of thresholds, at equal distances between the highest and the lowest score of these queries."""


class Candidates(NamedTuple):
    """What queries may show; all arrays [candidates]."""

    queries: NDArray[np.int64]
    """The number of the query of each, from 0, none left out."""
    scores: NDArray[np.float64]
    right: NDArray[np.bool_]

    def of_queries(self, chosen: NDArray[np.int64]) -> "Candidates":
        """Those of some queries, which are numbered anew."""
        number = np.full(self.queries.max() + 1, -1)
        number[chosen] = np.arange(len(chosen))
        kept = number[self.queries] >= 0
        return Candidates(number[self.queries[kept]], self.scores[kept], self.right[kept])


class Shown(NamedTuple):
    """What queries show at a threshold."""

    shown: int
    """Number of queries that show any hits."""
    hits: int
    wrong: int
    share: float
    """Mean over these queries of the share of wrong ones among the hits of each; 0 without a query."""


def what_is_shown(candidates: Candidates, threshold: float) -> Shown:
    """What the queries show.

    >>> three = Candidates(np.array([0, 0, 1]), np.array([0.9, 0.8, 0.5]), np.array([True, False, True]))
    >>> what_is_shown(three, 0.8)
    Shown(shown=1, hits=2, wrong=1, share=0.5)
    """
    kept = candidates.scores >= threshold
    hits = np.bincount(candidates.queries[kept])
    wrong = np.bincount(candidates.queries[kept], weights=~candidates.right[kept])[hits > 0]
    hits = hits[hits > 0]
    return Shown(len(hits), int(hits.sum()), int(wrong.sum()), float((wrong / hits).mean()) if len(hits) else 0.0)


def p_values(shares: ArrayLike, counts: ArrayLike, error: float, *, binary: bool) -> NDArray[np.float64]:
    """The p-value of R(t) > ``error`` for each mean share of ``counts`` queries; ``binary``: each share is 0 or 1.

    >>> p_values([0.0, 0.02], [59, 200], 0.05, binary=True).round(4).tolist()  # 0.95^59
    [0.0485, 0.0264]
    """
    mean, count = np.asarray(shares, float), np.asarray(counts)
    exact = np.asarray(bdtr(np.ceil(count * mean - 1e-9), count, error))  # the binomial distribution function
    low = np.minimum(mean, error)
    hoeffding = np.exp(-count * (rel_entr(low, error) + rel_entr(1 - low, 1 - error)))
    return exact if binary else np.minimum(hoeffding, np.e * exact)


class ThresholdSearch:
    """The choice of a threshold for candidates: see the module's docstring.

    Args:
        candidates: what the queries, two or more, may show.
        confidence: of the guarantee.
        seed: of the split of the queries.
    """

    def __init__(self, candidates: Candidates, confidence: float, seed: int) -> None:
        self.count, self.confidence, self.every = int(candidates.queries.max()) + 1, confidence, candidates
        order, pilots = np.random.default_rng(seed).permutation(self.count), max(1, int(PILOT * self.count))
        self.pilot, self.tested = candidates.of_queries(order[:pilots]), candidates.of_queries(order[pilots:])
        self._binary = len(candidates.queries) == self.count
        steps = np.linspace(self.pilot.scores.max(), self.pilot.scores.min(), STEPS)
        self.thresholds = np.unique(steps.round(4))[::-1]  # far above rounding of the scores in float32
        self._of_pilot = [what_is_shown(self.pilot, threshold) for threshold in self.thresholds]

    def choose(self, error: float) -> tuple[float, Shown] | None:
        """The lowest threshold at which R is at most ``error``, and what the tested queries show there.

        The first one to be tested is that with the lowest p-value on the queries put aside; the next ones are lower.
        None if no threshold passes.
        """
        first, chosen = self._p_values(self._of_pilot, error).argmin(), None
        for threshold in self.thresholds[first:].tolist():
            now = what_is_shown(self.tested, threshold)
            if self._p_values([now], error)[0] > 1 - self.confidence:
                break
            chosen = threshold, now
        return chosen

    def _p_values(self, each: list[Shown], error: float) -> NDArray[np.float64]:
        return p_values([one.share for one in each], [one.shown for one in each], error, binary=self._binary)

    def lower_limit(self, now: Shown) -> float:
        """R is at least this: by the p-value of the share of right hits, for all thresholds at once (Bonferroni)."""
        level = (1 - self.confidence) / len(self.thresholds)

        def excess(low: float) -> float:
            return float(p_values(1 - now.share, now.shown, 1 - low, binary=self._binary)) - level

        return float(brentq(excess, 1e-12, now.share)) if now.share > 1e-9 and excess(1e-12) < 0 else 0.0

    def queries_for(self, error: float) -> float:
        """About how many queries find a threshold for ``error`` in 8 of 10 cases; infinite if none would.

        It is the number of a normal distribution, smallest over the thresholds, at each of which R is taken as the
        share of all queries and half a wrong query more, because few queries show too few errors.
        """
        each = np.array([what_is_shown(self.every, threshold) for threshold in self.thresholds])
        shown, share = each[:, 0], (each[:, 3] * each[:, 0] + 0.5) / (each[:, 0] + 1)
        gap = np.maximum(error - share, 1e-12)
        tested = error * (1 - error) * ((ndtri(self.confidence) + ndtri(0.8)) / gap) ** 2
        needed = tested * self.count / np.maximum(shown, 1) / (1 - PILOT)
        return float(max(self.count + 1, np.where((share < error) & (shown > 0), needed, np.inf).min()))


def calibrate(fitted: Candidates, held_out: Candidates) -> dict[str, Any]:
    """The probability that a hit is right by its score: isotonic regression (Zadrozny & Elkan 2002), and its error.

    Returns:
        ``scores`` and ``probabilities``: linear between the scores, constant beyond them; and ``calibration_error``:
        the mean difference between probability and share of right ones, in absolute value, over ten bins of equally
        many held-out candidates, fewer where a bin would have less than 50 (the expected calibration error of Naeini,
        Cooper & Hauskrecht 2015).
    """
    from sklearn.isotonic import IsotonicRegression  # imported here: the import is slow

    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(fitted.scores, fitted.right)
    order = np.argsort(held_out.scores, kind="stable")
    gaps = (model.predict(held_out.scores) - held_out.right)[order]
    error = sum(abs(part.sum()) for part in np.array_split(gaps, min(10, len(gaps) // 50 + 1))) / len(gaps)
    known = {"scores": model.X_thresholds_.tolist(), "probabilities": model.y_thresholds_.tolist()}
    return {**known, "calibration_error": float(error)}
