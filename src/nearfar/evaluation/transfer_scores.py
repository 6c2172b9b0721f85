"""What was predicted on a transfer task -> its entry in a result file, with intervals; or why there is none.

The entries are described in :mod:`nearfar.evaluation.transfer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearfar.evaluation.classifiers import Floats, Indices
from nearfar.evaluation.correlation import bootstrap_scores, undefined_reason, weighted_pearson, weighted_spearman
from nearfar.evaluation.probes import Probe, ProbeResult
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
) -> tuple[dict[str, Any], Floats]:
    """The entry of a task with labels, and the bootstrap draws of its accuracy.

    A draw of rows with replacement has a binomial number of rows that are right.

    Args:
        gold: labels of the tested rows.
        probed: predictions for the same rows, in the same order; None where there is a ``reason``.
        names: of the labels.
        pairs: whether rows have two texts: with two labels, F1 of the second is given too.
        probe: the settings.
        reason: why there is no result.
        resamples: bootstrap draws.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    if probed is None:
        accuracy, drawn = estimate(None, np.full(resamples, np.nan), reason), np.full(resamples, np.nan)
    else:
        drawn = rng.binomial(len(gold), np.mean(gold == probed.predicted), resamples) / len(gold)
        accuracy = estimate(probed.accuracy, drawn, None)
    entry = {
        "kind": "classification",
        "protocol": probe.protocol,
        "rows": len(gold),
        "classes": list(names),
        "accuracy": accuracy,
    }
    if pairs and len(names) == 2:
        entry["f1"] = _f1(gold, None if probed is None else probed.predicted, reason, resamples, rng)
    if probed is None:
        return entry | {
            "dev_accuracy": None,
            "grid": {},
            "chosen": [],
            "fold_accuracies": [],
            "gold": [],
            "predicted": [],
        }, drawn
    penalty = "l2" if probe.protocol == "senteval" else "c"
    return entry | {
        "dev_accuracy": probed.dev_accuracy,
        "grid": {penalty: list(probed.grid), "dev_accuracy": probed.grid_accuracies},
        "chosen": probed.chosen,
        "fold_accuracies": probed.fold_accuracies,
        "gold": gold.tolist(),
        "predicted": probed.predicted.tolist(),
    }, drawn


def relatedness(
    gold: Floats,
    predicted: Floats | None,
    dev_pearson: float | None,
    *,
    reason: str | None,
    resamples: int,
    seed: Sequence[int],
) -> dict[str, Any]:
    """The entry of a task with scores; ``predicted`` is None where there is a ``reason``.

    SentEval has 0 where the predictions are all equal; here the correlations are then undefined.
    """
    entry: dict[str, Any] = {"kind": "relatedness", "pairs": len(gold)}
    if predicted is None:
        entry |= {metric: estimate(None, gold[:0], reason) for metric in METRICS}
        return entry | {"mse": None, "dev_pearson": None, "gold": [], "predicted_e6": []}
    units = np.rint(predicted / PREDICTION_UNIT)
    constant = "all predicted scores are equal" if np.ptp(units) <= 1 else None  # but for how they were rounded
    undefined = constant or undefined_reason(gold, units)
    for metric, weighted in METRICS.items():
        drawn = bootstrap_scores(weighted, gold, units[None], sizes=[len(gold)], resamples=resamples, seed=seed)
        point = None if undefined else 100 * float(weighted(gold, units[None])(np.ones((1, len(gold))))[0, 0])
        entry[metric] = estimate(point, drawn.all[0], undefined)
    return entry | {
        "mse": round(float(np.mean((units * PREDICTION_UNIT - gold) ** 2)), 6),
        "dev_pearson": None if dev_pearson is None else round(100 * dev_pearson, 4),
        "gold": [int(score) if score.is_integer() else score for score in gold.tolist()],
        "predicted_e6": units.astype(int).tolist(),
    }


def estimate(score: float | None, draws: Floats, reason: str | None) -> dict[str, Any]:
    """A score that is x 100 already, with the interval of draws that are not; or nulls with the reason."""
    if score is None:
        return {"score": None, "low": None, "high": None, "reason": reason}
    low, high = percentile_interval(draws) or (None, None)
    bounds = {"low": low, "high": high}
    return {"score": round(score, 4)} | {
        key: None if value is None else round(100 * value, 4) for key, value in bounds.items()
    }


def average(members: Sequence[str], entries: Mapping[str, Any], draws: Mapping[str, Floats]) -> dict[str, Any]:
    """The mean accuracy of ``members``; each draw is the mean of a draw of every task."""
    estimates = {task: entries[task]["accuracy"] for task in members}
    reason = next((f"undefined on {task}: {e['reason']}" for task, e in estimates.items() if "reason" in e), None)
    score = None if reason else float(np.mean([each["score"] for each in estimates.values()]))
    return estimate(score, np.mean([draws[task] for task in members], axis=0), reason)


def _f1(
    gold: Indices, predicted: Indices | None, reason: str | None, resamples: int, rng: np.random.Generator
) -> dict[str, Any]:
    """F1 of the second class, 2 tp / (2 tp + fp + fn); a draw of rows has a multinomial number of each kind."""
    if predicted is None:
        return estimate(None, np.zeros(0), reason)
    kinds = np.bincount(2 * gold + predicted, minlength=4)  # of the first class right and wrong, of the second the same
    numbers = np.concatenate([kinds[None], rng.multinomial(len(gold), kinds / len(gold), resamples)])
    false, hits = numbers[:, 1] + numbers[:, 2], 2.0 * numbers[:, 3]
    values = np.divide(hits, hits + false, out=np.full(len(hits), np.nan), where=hits + false > 0)
    if np.isnan(values[0]):
        return estimate(None, values[1:], "no row has the second label, and none was given it")
    return estimate(float(round(100 * values[0], 2)), values[1:], None)
