"""Predictions of a fine-tuned classifier on test rows -> an entry of a result file, as for transfer tasks.

Results of fine-tuning are therefore compared, corrected and reported like any other
(:mod:`nearfar.evaluation.comparison`). Tasks with two labels also get CoLA's metric, Matthews correlation.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.classification import ClassificationTask
from nearfar.data.fingerprints import units_of_rows
from nearfar.disk.model_folder import SeenHashes
from nearfar.evaluation import results
from nearfar.evaluation.correlation import pearson, spearman
from nearfar.evaluation.seen import add_seen
from nearfar.evaluation.transfer import classification, confusion_estimate, confusions, f1_score, relatedness
from nearfar.types import NearfarError

RESAMPLES = 1000
"""Bootstrap resamples of the confidence intervals."""
PRIMARY = {"accuracy": "accuracy", "matthews": "matthews", "accuracy_f1": "accuracy", "pearson_spearman": "pearson"}
"""Metric of a task -> its main metric, by which steps and settings are chosen if no other is given."""


def metrics_of(*, labels: int, pairs: bool) -> tuple[str, ...]:
    """The metrics of a task with this number of labels (0 where rows have scores), of single texts or of pairs."""
    if not labels:
        return ("pearson", "spearman")
    return ("accuracy", "f1", "matthews")[:: 1 if pairs else 2] if labels == 2 else ("accuracy",)


def main_metric(task: ClassificationTask, chosen: str | None) -> str:
    """The metric that chooses the step: ``chosen``, or the task's main metric.

    Raises:
        NearfarError: the task does not have the metric ``chosen``.
    """
    if chosen is None:
        return PRIMARY[task.metric]
    available = metrics_of(labels=len(task.label_names), pairs=task.pairs)
    if chosen not in available:
        rows = f"{len(task.label_names)} labels" if task.label_names else "scores"
        what = f"these {'pairs' if task.pairs else 'texts'} have {rows}"
        raise NearfarError(f"--metric {chosen}: {what}; choose one of {', '.join(available)}.")
    return chosen


def validation_scores(
    gold: Sequence[float], outputs: NDArray[np.floating], *, labels: int, pairs: bool
) -> dict[str, float]:
    """Every metric of a task, in [-1, 1], from ``outputs`` [rows, classes], or [rows, 1] of a regression.

    Where all predictions are equal, a correlation is undefined and counts as 0, as in GLUE; so does F1 of the second
    label where no row has it and none is predicted to have it.
    """
    targets = np.asarray(gold, dtype=np.float64)
    if not labels:
        scores = outputs[:, 0].astype(np.float64)
        return {
            metric: float(np.nan_to_num(correlate(targets, scores)))
            for metric, correlate in (("pearson", pearson), ("spearman", spearman))
        }
    predicted = outputs.argmax(axis=1)
    found = {"accuracy": float(np.mean(predicted == targets))}
    measures = {"f1": f1_score, "matthews": matthews}
    for metric in metrics_of(labels=labels, pairs=pairs)[1:]:
        found[metric] = float(np.nan_to_num(measures[metric](confusions(targets, predicted)[None])[0]))
    return found


def matthews(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Matthews correlation of the labels 0 and 1, of their confusions [rows, 4]; 0 where a side has only one label.

    (tp tn - fp fn) / sqrt((tp + fp)(tp + fn)(tn + fp)(tn + fn)), the Pearson correlation of the two.
    """
    tn, fp, fn, tp = counts.T.astype(np.float64)
    below = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return np.divide(tp * tn - fp * fn, below, out=np.zeros_like(below), where=below > 0)


def finetuned_entry(
    texts: Sequence[tuple[str, ...]],
    gold: Sequence[float],
    outputs: NDArray[np.floating],
    *,
    label_names: Sequence[str],
    validation: Mapping[str, float] | None = None,
    resamples: int = RESAMPLES,
    seed: Sequence[int],
) -> results.ClassificationScores | results.RelatednessScores:
    """The entry of a task.

    Args:
        texts: one or two texts per tested row.
        gold: labels or scores of the tested rows.
        outputs: the classifier's outputs for them [rows, classes], or [rows, 1].
        label_names: names of the labels; empty where rows have scores.
        validation: scores on the validation rows, by metric, in [-1, 1] (:func:`validation_scores`), if there are any.
        resamples: bootstrap resamples of the tested rows behind each interval.
        seed: seed of the bootstrap.
    """
    names = [label_names[int(label)] if label_names else label for label in gold]
    dev = {f"dev_{metric}": round(100 * score, 4) for metric, score in (validation or {}).items()}
    known: dict[str, Any] = {"texts": texts, "resamples": resamples, "seed": seed, **dev}
    known["digest"] = results.fingerprint([*row, name] for row, name in zip(texts, names, strict=True))
    if not label_names:
        return relatedness(np.asarray(gold, dtype=np.float64), outputs[:, 0].astype(np.float64), **known)
    labels, chosen = np.asarray(gold, dtype=np.intp), outputs.argmax(axis=1)
    if len(label_names) == 2:
        how: dict[str, Any] = {"resamples": resamples, "seed": seed, "units": units_of_rows(texts)}
        known["matthews"] = confusion_estimate(matthews, labels, chosen, **how)
    accuracy = round(100 * float(np.mean(labels == chosen)), 4)
    known |= {"protocol": "finetune", "pairs": any(len(row) == 2 for row in texts[:1]), "fold_accuracies": [accuracy]}
    return classification(labels, chosen, names=label_names, **known)[0]


def finetuned_result(
    entry: results.ClassificationScores | results.RelatednessScores,
    texts: Sequence[tuple[str, ...]],
    *,
    model: str,
    task: str,
    settings: Mapping[str, Any],
    facts: Sequence[str],
    dim: int,
    seen: SeenHashes | None,
    training: results.FinetuningSummary | None = None,
) -> results.EvaluationResult:
    """The result file of a classifier whose only task has ``entry``, which is of ``texts``.

    Args:
        entry: the scores (:func:`finetuned_entry`).
        texts: one or two texts per tested row.
        model: name of the model or its run folder.
        task: name of the task.
        settings: the settings of the run.
        facts: sentences on the rows.
        dim: width of the encoder.
        seen: hashes of what the tested model has seen; None where they are not known.
        training: steps and scores on validation rows.
    """
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    own = {"training_seed": settings.get("seed"), "tasks": [task], "data": list(facts), "resamples": RESAMPLES}
    result = results.EvaluationResult(
        model=model,
        config=plain | own,
        provenance=results.provenance(),
        tasks={},
        texts=len({text for row in texts for text in row}),
        dim=dim,
        transfer=results.TransferResults(protocol="finetune", nhid=0, folds=0, averages={}, tasks={task: entry}),
        training=training,
    )
    return result if seen is None else add_seen(result, seen, tested={task: texts})
