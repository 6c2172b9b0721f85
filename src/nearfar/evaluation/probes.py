"""Probes: classifiers trained on frozen embeddings, by SentEval's three protocols (Conneau & Kiela 2018).

=============  ======================================  =================================================================
function       data                                    how the penalty is chosen, and what is tested
=============  ======================================  =================================================================
inner_kfold    one pool (MR, CR, SUBJ, MPQA)           nested cross-validation: k inner folds of the training rows of
                                                       each outer fold choose; the mean of the k test accuracies
kfold          train, test (TREC, MRPC)                k folds of train choose; test is scored once
split          train, dev, test (SST, SICK-E)          dev chooses; test is scored once
=============  ======================================  =================================================================

The settings are those of :class:`nearfar.evaluation.probe_settings.Probe`. ``senteval`` trains SentEval's own
classifiers with early stopping (:mod:`nearfar.evaluation.classifiers`). The score of a penalty is the best validation
accuracy during its training, on the same rows that early stopping uses; the refit uses a random 5% of its rows for
early stopping. The loss is the mean over a minibatch, as in PyTorch since 0.4.1; with older versions SentEval's code
computed the sum. ``exact`` uses the same folds with logistic regression solved to convergence
(:mod:`nearfar.evaluation.logistic`) on the grid of SentEval's scikit-learn classifier. It has no early stopping, holds
out no rows, and only its folds are random.

Accuracies are x 100 and rounded to two decimals wherever SentEval rounds: before penalties are compared (a tie goes to
the first in the grid), for each fold, and at the end.

With only a few hundred rows, SentEval's classifiers stop too early: an epoch is one or two steps of Adam, and six
checks without improvement follow soon. ``exact`` does not have this problem.

SentEval's learned relatedness, for SICK-R and STS-B, is a regressor on pairs of embeddings (:func:`fit_relatedness`).
A pair's features are [|u - v|; u * v]. A linear layer with softmax gives five probabilities, trained by their squared
error to the soft label of Tai et al. 2015 (section 4.2): a score y in [1, 5] is split between the grades floor(y) and
floor(y) + 1, so that the expected grade is y. The prediction is the expected grade.

STS-B has scores from 0 to 5 and uses the same five grades, as in SentEval. Below 1 there is no lower grade, so a score
y < 1 has the soft label (y, 0, 0, 0, 0), which does not sum to one. No prediction is below 1.

These scores are not comparable with correlations of cosines, which the published tables of SBERT and SimCSE contain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.evaluation import classifiers, logistic
from nearfar.evaluation.correlation import Floats, Indices, pearson
from nearfar.evaluation.probe_settings import Probe
from nearfar.types import NearfarError

C_SPLIT = tuple(2.0**power for power in range(-2, 4))  # also of inner_kfold
C_KFOLD = tuple(2.0**power for power in range(-1, 6))
HELD_OUT = 0.05
GRADES = 5
PREDICTION_TOLERANCE = 1e-6
"""Predicted grades that differ by less are equal up to rounding."""
RELATEDNESS = Probe(epoch_size=50, tenacity=3, max_epochs=1000)


class ProbeResult(NamedTuple):
    """The result of a probe; accuracies x 100."""

    accuracy: float
    dev_accuracy: float
    """Accuracy of the chosen penalty on the rows that chose it; the mean over outer folds."""
    predicted: Indices
    """Predicted labels of the tested rows, in their order."""
    fold_accuracies: list[float]
    """Accuracy of each outer fold, or the single accuracy."""
    chosen: list[float]
    """The chosen penalty (L2, or C) of each outer fold, or the single one."""
    grid: tuple[float, ...]
    grid_accuracies: list[list[float]]
    """Validation accuracy by penalty, for each outer fold or once."""


def inner_kfold(features: NDArray[np.floating], labels: Indices, *, classes: int, probe: Probe) -> ProbeResult:
    """Probe one pool; ``features`` [rows, dim], and labels from 0 to ``classes - 1``. Every row is tested once."""
    grid = _grid(probe, C_SPLIT)
    fit = _fitting(features, labels, classes, probe)
    outer = _folds(labels, np.arange(len(labels)), probe)
    inner = [fold for train, _ in outer for fold in _folds(labels, train, probe)]
    inner_scores = fit(inner, [grid] * len(inner), False).scores
    dev = [_mean_scores(inner_scores[k : k + probe.folds]) for k in range(0, len(inner), probe.folds)]
    chosen = [grid[int(np.argmax(scores))] for scores in dev]
    refit = fit([(train, train) for train, _ in outer], [(penalty,) for penalty in chosen], True)
    predicted = np.zeros(len(labels), dtype=np.intp)
    accuracies = []
    for number, (_, test) in enumerate(outer):
        predicted[test] = refit.predict(number, 0, test)
        accuracies.append(_percent(predicted[test] == labels[test]))
    accuracy, best = float(round(np.mean(accuracies), 2)), float(round(np.mean([max(scores) for scores in dev]), 2))
    return ProbeResult(accuracy, best, predicted, accuracies, chosen, grid, dev)


def kfold(
    features: NDArray[np.floating], labels: Indices, train: Indices, test: Indices, *, classes: int, probe: Probe
) -> ProbeResult:
    """Probe rows ``train`` and ``test`` of ``features`` [rows, dim]."""
    grid = _grid(probe, C_KFOLD)
    fit = _fitting(features, labels, classes, probe)
    inner = _folds(labels, train, probe)
    scores = _mean_scores(fit(inner, [grid] * len(inner), False).scores)
    best = int(np.argmax(scores))
    refit = fit([(train, train)], [(grid[best],)], True)
    return _tested(labels[test], refit.predict(0, 0, test), grid, scores)


def split(
    features: NDArray[np.floating],
    labels: Indices,
    train: Indices,
    dev: Indices,
    test: Indices,
    *,
    classes: int,
    probe: Probe,
) -> ProbeResult:
    """Probe rows ``train``, ``dev`` and ``test`` of ``features`` [rows, dim].

    SentEval trains the chosen penalty again on the same rows with the same seed, which gives the same classifier.
    """
    grid = _grid(probe, C_SPLIT)
    fitted = _fitting(features, labels, classes, probe)([(train, dev)], [grid], False)
    scores = _mean_scores(fitted.scores)
    return _tested(labels[test], fitted.predict(0, int(np.argmax(scores)), test), grid, scores)


def check_labels(splits: Mapping[str, Sequence[int]], names: Sequence[str], probe: Probe) -> None:
    """Refuse labels that cannot be probed; ``splits`` has the keys ``all``, or ``train``, (``dev``,) ``test``.

    Raises:
        NearfarError: a split without a row, a single label, a label with too few rows for the folds, too few rows to
            hold out some for early stopping.
    """
    for name, labels in splits.items():
        if not len(labels):
            raise NearfarError(f"no rows in {name}.")
    labels, folds = next(iter(splits.values())), probe.folds
    counts = np.bincount(labels, minlength=len(names))
    if (present := np.flatnonzero(counts)).size < 2:
        raise NearfarError(f"every row has the label {names[present[0]]!r}; a classifier needs two labels or more.")
    if "dev" in splits:
        return
    pooled = "all" in splits
    least = next(rows for rows in range(folds, 3 * folds) if not pooled or rows - -(-rows // folds) >= folds)
    rarest = present[np.argmin(counts[present])]
    if counts[rarest] < least:
        what = f"{folds} folds{f' within {folds} folds' * pooled} need {least} of each label"
        rows = f"{counts[rarest]} row{'s' * int(counts[rarest] != 1)}"
        ways = "Add rows, leave the label out, or use fewer folds."
        raise NearfarError(f"the label {names[rarest]!r} has {rows}, but {what}. {ways}")
    fitted = len(labels) - -(-len(labels) // folds) if pooled else len(labels)
    if probe.protocol == "senteval" and not int(HELD_OUT * fitted):
        raise NearfarError(
            f"{len(labels)} rows are too few: {HELD_OUT:.0%} of the {fitted} training rows, held out for early "
            "stopping, are less than one row. Add rows, or use the protocol exact."
        )


def pair_features(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.floating]:
    """[|u - v|; u * v] of each pair: two [pairs, dim] -> [pairs, 2 dim]."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def soft_labels(scores: Floats) -> NDArray[np.float32]:
    """Scores [pairs] -> their soft labels [pairs, 5].

    Example:
        >>> soft_labels(np.array([3.0, 4.25, 0.5])).tolist()
        [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.75, 0.25], [0.5, 0.0, 0.0, 0.0, 0.0]]
    """
    grades, below = np.arange(1, GRADES + 1), np.floor(scores)[:, None]
    over = scores[:, None] - below
    return np.where(grades == below, 1 - over, np.where(grades == below + 1, over, 0)).astype(np.float32)


def fit_relatedness(
    features: NDArray[np.floating],
    scores: Floats,
    train_rows: Indices,
    dev_rows: Indices,
    test_rows: Indices,
    *,
    seed: int = 1111,
    probe: Probe = RELATEDNESS,
) -> tuple[Floats, float | None]:
    """Fit on the training rows and predict the scores of the test rows, each from 1 to 5.

    Adam at 0.001 on minibatches of 64; every 50 epochs Pearson's correlation on the dev rows is computed. It
    stops at the fourth evaluation without improvement, or after 1000 epochs; the best weights are kept.

    Args:
        features: features of all pairs (see :func:`pair_features`) [pairs, 2 dim].
        scores: scores of all pairs [pairs].
        train_rows: rows to fit on.
        dev_rows: rows for early stopping.
        test_rows: rows to predict.
        seed: seed of weights and minibatches.
        probe: when training stops.

    Returns:
        Predictions, and the best correlation on dev; None where it was never defined, as all predictions are equal.
    """
    inputs = torch.as_tensor(features).float()

    def score(rows: Indices, logits: torch.Tensor) -> Floats:
        grades = map(_mean_grades, logits)
        return np.array([pearson(scores[rows], of) if np.ptp(of) > PREDICTION_TOLERANCE else np.nan for of in grades])

    job = classifiers.Job(train_rows, dev_rows, (0.0,), np.random.RandomState(seed))
    targets = torch.from_numpy(soft_labels(scores))
    probe = replace(probe, seed=seed)
    trained = classifiers.train(inputs, targets, [job], score=score, probe=probe, loss="mse")[0]
    predicted = _mean_grades(classifiers.outputs(trained.weights, inputs[test_rows])[0])
    return predicted, float(trained.scores[0]) if trained.scores[0] > -1 else None


def _mean_grades(logits: torch.Tensor) -> Floats:
    """Logits [5, pairs] -> the mean grade of each pair."""
    return np.arange(1, GRADES + 1) @ torch.softmax(logits, dim=0).double().numpy()


class _Fitted(NamedTuple):
    scores: NDArray[np.float64]
    """Accuracy of each classifier on the check rows, in [0, 1] [folds, grid]."""
    predict: Callable[[int, int, Indices], Indices]
    """Fold, position in its grid, rows -> predicted labels."""


_Folds: TypeAlias = Sequence[tuple[Indices, Indices]]
"""Training rows and check rows of each fold."""
_Fit: TypeAlias = Callable[[_Folds, Sequence[tuple[float, ...]], bool], _Fitted]
"""Folds, the grid of each, and whether to hold out training rows for early stopping (else the check rows)."""


def _fitting(features: NDArray[np.floating], labels: Indices, classes: int, probe: Probe) -> _Fit:
    return (_early_stopping if probe.protocol == "senteval" else _exact)(features, labels, classes, probe)


def _early_stopping(features: NDArray[np.floating], labels: Indices, classes: int, probe: Probe) -> _Fit:
    inputs, gold = torch.as_tensor(features).float(), torch.as_tensor(labels)
    targets = torch.nn.functional.one_hot(gold, classes).float()

    def score(rows: Indices, logits: torch.Tensor) -> NDArray[np.float64]:
        return (logits.argmax(dim=1) == gold[rows]).sum(dim=1).numpy() / len(rows)

    def fit(folds: _Folds, grids: Sequence[tuple[float, ...]], hold_out: bool) -> _Fitted:
        jobs = []
        for (train, check), grid in zip(folds, grids, strict=True):
            rng, fitted, stop_by = np.random.RandomState(probe.seed), train, check
            if hold_out:
                order = rng.permutation(len(train))
                held = int(HELD_OUT * len(train))
                fitted, stop_by = train[order[held:]], train[order[:held]]
            jobs.append(classifiers.Job(fitted, stop_by, grid, rng))
        trained = classifiers.train(inputs, targets, jobs, score=score, probe=probe)

        def predict(fold: int, number: int, rows: Indices) -> Indices:
            weights = [weight[number : number + 1] for weight in trained[fold].weights]
            return classifiers.outputs(weights, inputs[rows])[0].argmax(dim=0).numpy().astype(np.intp)

        return _Fitted(np.array([one.scores for one in trained]), predict)

    return fit


def _exact(features: NDArray[np.floating], labels: Indices, classes: int, probe: Probe) -> _Fit:  # noqa: ARG001
    def fit(folds: _Folds, grids: Sequence[tuple[float, ...]], hold_out: bool) -> _Fitted:  # noqa: ARG001
        jobs = [logistic.Job(train, grid) for (train, _), grid in zip(folds, grids, strict=True)]
        weights = logistic.fit(features, labels, jobs, classes=classes)
        found = [logistic.predict(one, features[check]) for one, (_, check) in zip(weights, folds, strict=True)]
        scores = [(one == labels[check]).mean(axis=1) for one, (_, check) in zip(found, folds, strict=True)]

        def predict(fold: int, number: int, rows: Indices) -> Indices:
            return logistic.predict(weights[fold][number : number + 1], features[rows])[0]

        return _Fitted(np.array(scores), predict)

    return fit


def _grid(probe: Probe, inverse: tuple[float, ...]) -> tuple[float, ...]:
    return probe.l2 if probe.protocol == "senteval" else inverse


def _folds(labels: Indices, rows: Indices, probe: Probe) -> list[tuple[Indices, Indices]]:
    from sklearn.model_selection import StratifiedKFold  # imported here: only needed for cross-validation

    parts = StratifiedKFold(n_splits=probe.folds, shuffle=True, random_state=probe.fold_seed).split(rows, labels[rows])
    return [(rows[train], rows[check]) for train, check in parts]


def _mean_scores(scores: NDArray[np.float64]) -> list[float]:
    """Mean over folds of [folds, grid], x 100, rounded."""
    return [float(round(100 * np.mean(column), 2)) for column in scores.T]


def _percent(right: NDArray[np.bool_]) -> float:
    return float(round(100 * np.mean(right), 2))


def _tested(gold: Indices, predicted: Indices, grid: tuple[float, ...], scores: list[float]) -> ProbeResult:
    accuracy = _percent(predicted == gold)
    return ProbeResult(accuracy, max(scores), predicted, [accuracy], [grid[int(np.argmax(scores))]], grid, [scores])
