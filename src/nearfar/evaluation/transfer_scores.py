"""Predictions on a transfer task -> its entry in a result file, with intervals, or the reason why it has no score.

The entries are :class:`ClassificationScores` and :class:`RelatednessScores` of :mod:`nearfar.evaluation.results`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nearfar.evaluation.classifiers import Floats, Indices
from nearfar.evaluation.correlation import bootstrap_scores, undefined_reason, weighted_pearson, weighted_spearman
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.probes import ProbeResult
from nearfar.evaluation.results import ClassificationScores, Estimate, PenaltyGrid, RelatednessScores
from nearfar.evaluation.statistics import percentile_interval

METRICS = {"pearson": weighted_pearson, "spearman": weighted_spearman}
PREDICTION_UNIT = 1e-6


def classification(
    gold: Indices,
    probed: ProbeResult | None,
    *,
    names: Sequence[str],
    pairs: bool,
    probe: Probe,
    reason: str | None,
    resamples: int,
    seed: Sequence[int],
) -> tuple[ClassificationScores, Floats]:
    """The entry of a task with labels, without its digest, and the bootstrap draws of its accuracy.

    The number of correct rows in a bootstrap resample has a binomial distribution.

    Args:
        gold: labels of the tested rows.
        probed: predictions for the same rows, in the same order; None where there is a ``reason``.
        names: names of the labels.
        pairs: whether rows have two texts; with two labels, F1 of the second label is computed too.
        probe: settings of the probe.
        reason: why there is no result.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    if probed is None:
        accuracy, drawn = estimate(None, np.full(resamples, np.nan), reason), np.full(resamples, np.nan)
    else:
        drawn = rng.binomial(len(gold), np.mean(gold == probed.predicted), resamples) / len(gold)
        accuracy = estimate(probed.accuracy, drawn, None)
    f1 = None
    if pairs and len(names) == 2:
        f1 = _f1(gold, None if probed is None else probed.predicted, reason, resamples, rng)
    entry = ClassificationScores(
        protocol=probe.protocol, rows=len(gold), classes=list(names), accuracy=accuracy, f1=f1, digest=""
    )
    if probed is None:
        return entry, drawn
    penalties = list(probed.grid)
    if probe.protocol == "senteval":
        grid = PenaltyGrid(l2=penalties, dev_accuracy=probed.grid_accuracies)
    else:
        grid = PenaltyGrid(c=penalties, dev_accuracy=probed.grid_accuracies)
    return replace(
        entry,
        dev_accuracy=probed.dev_accuracy,
        grid=grid,
        chosen=list(probed.chosen),
        fold_accuracies=list(probed.fold_accuracies),
        gold=gold.tolist(),
        predicted=probed.predicted.tolist(),
    ), drawn


def relatedness(
    gold: Floats,
    predicted: Floats | None,
    dev_pearson: float | None,
    *,
    reason: str | None,
    resamples: int,
    seed: Sequence[int],
) -> RelatednessScores:
    """The entry of a task with scores, without its digest; ``predicted`` is None where there is a ``reason``.

    Where all predictions are equal the correlations are undefined (SentEval returns 0).
    """
    if predicted is None:
        missing = estimate(None, gold[:0], reason)
        return RelatednessScores(pairs=len(gold), pearson=missing, spearman=missing, digest="")
    estimates = {}
    units = np.rint(predicted / PREDICTION_UNIT)
    constant = "all predicted scores are equal" if np.ptp(units) <= 1 else None  # up to rounding
    undefined = constant or undefined_reason(gold, units)
    for metric, weighted in METRICS.items():
        drawn = bootstrap_scores(weighted, gold, units[None], sizes=[len(gold)], resamples=resamples, seed=seed)
        point = None if undefined else 100 * float(weighted(gold, units[None])(np.ones((1, len(gold))))[0, 0])
        estimates[metric] = estimate(point, drawn.all[0], undefined)
    return RelatednessScores(
        pairs=len(gold),
        pearson=estimates["pearson"],
        spearman=estimates["spearman"],
        mse=round(float(np.mean((units * PREDICTION_UNIT - gold) ** 2)), 6),
        dev_pearson=None if dev_pearson is None else round(100 * dev_pearson, 4),
        gold=[int(score) if score.is_integer() else score for score in gold.tolist()],
        predicted_e6=units.astype(int).tolist(),
        digest="",
    )


def estimate(score: float | None, draws: Floats, reason: str | None) -> Estimate:
    """The estimate of a ``score`` that is x 100, with the interval of ``draws`` that are not; None is undefined."""
    if score is None:
        return Estimate(None, None, None, reason)
    interval = percentile_interval(draws)
    low, high = (None, None) if interval is None else (round(100 * bound, 4) for bound in interval)
    return Estimate(round(score, 4), low, high)


def average(members: Sequence[str], accuracies: Mapping[str, Estimate], draws: Mapping[str, Floats]) -> Estimate:
    """The mean accuracy of ``members``; each draw is the mean of a draw of every task."""
    estimates = {task: accuracies[task] for task in members}
    reason = next((f"undefined on {task}: {e.reason}" for task, e in estimates.items() if e.reason), None)
    points = [e.score for e in estimates.values() if e.score is not None]
    score = None if reason else float(np.mean(points))
    return estimate(score, np.mean([draws[task] for task in members], axis=0), reason)


def _f1(
    gold: Indices, predicted: Indices | None, reason: str | None, resamples: int, rng: np.random.Generator
) -> Estimate:
    """F1 of the second class, 2 tp / (2 tp + fp + fn); the confusion counts of a resample are multinomial."""
    if predicted is None:
        return estimate(None, np.zeros(0), reason)
    counts = np.bincount(2 * gold + predicted, minlength=4)  # true negatives, false positives, false negatives, tp
    drawn = np.concatenate([counts[None], rng.multinomial(len(gold), counts / len(gold), resamples)])
    false, hits = drawn[:, 1] + drawn[:, 2], 2.0 * drawn[:, 3]
    values = np.divide(hits, hits + false, out=np.full(len(hits), np.nan), where=hits + false > 0)
    if np.isnan(values[0]):
        return estimate(None, values[1:], "no row has the second label, and none is predicted to have it")
    return estimate(float(round(100 * values[0], 2)), values[1:], None)
