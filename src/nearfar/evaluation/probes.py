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
computed the sum. ``exact`` uses the same folds with scikit-learn's logistic regression, solved to convergence, on the
grid of SentEval's scikit-learn classifier. It has no early stopping, holds out no rows, and only its folds are random.

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
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from nearfar.evaluation import classifiers
from nearfar.evaluation.classifiers import Job
from nearfar.evaluation.correlation import Floats, Indices, pearson
from nearfar.evaluation.probe_settings import Probe
from nearfar.types import NearfarError

Features: TypeAlias = NDArray[np.floating]
C_SPLIT = tuple(2.0**power for power in range(-2, 4))  # also of inner_kfold
C_KFOLD = tuple(2.0**power for power in range(-1, 6))
HELD_OUT = 0.05
GRADES = 5
PREDICTION_TOLERANCE = 1e-6
"""Predicted grades that differ by less are equal up to rounding."""
TOLERANCE = 1e-6
"""Of ``exact``, for the gradient of the mean loss: the labels that it predicts do not change below it."""
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


def inner_kfold(features: Features, labels: Indices, *, classes: int, probe: Probe) -> ProbeResult:
    """Probe one pool; ``features`` [rows, dim], and labels from 0 to ``classes - 1``. Every row is tested once."""
    fits, grid = _Fits(features, labels, classes, probe), _grid(probe, C_SPLIT)
    outer = _folds(labels, np.arange(len(labels)), probe)
    inner = [fold for train, _ in outer for fold in _folds(labels, train, probe)]
    scores = np.array([fitted.scores for fitted in fits.choose(inner, grid)]).reshape(len(outer), probe.folds, -1)
    dev = [_mean_scores(of_fold) for of_fold in scores]
    chosen = [grid[int(np.argmax(of_fold))] for of_fold in dev]
    predicted = np.zeros(len(labels), dtype=np.intp)
    accuracies = []
    for (_, test), fitted in zip(outer, fits.refit([train for train, _ in outer], chosen), strict=True):
        predicted[test] = fitted.predict(0, test)
        accuracies.append(_percent(predicted[test] == labels[test]))
    accuracy, best = float(round(np.mean(accuracies), 2)), float(round(np.mean([max(of_fold) for of_fold in dev]), 2))
    return ProbeResult(accuracy, best, predicted, accuracies, chosen, grid, dev)


def kfold(
    features: Features, labels: Indices, train: Indices, test: Indices, *, classes: int, probe: Probe
) -> ProbeResult:
    """Probe rows ``train`` and ``test`` of ``features`` [rows, dim]."""
    fits, grid = _Fits(features, labels, classes, probe), _grid(probe, C_KFOLD)
    scores = _mean_scores([fitted.scores for fitted in fits.choose(_folds(labels, train, probe), grid)])
    (refitted,) = fits.refit([train], [grid[int(np.argmax(scores))]])
    return _tested(labels[test], refitted.predict(0, test), grid, scores)


def split(
    features: Features, labels: Indices, train: Indices, dev: Indices, test: Indices, *, classes: int, probe: Probe
) -> ProbeResult:
    """Probe rows ``train``, ``dev`` and ``test`` of ``features`` [rows, dim].

    SentEval trains the chosen penalty again on the same rows with the same seed, which gives the same classifier.
    """
    fits, grid = _Fits(features, labels, classes, probe), _grid(probe, C_SPLIT)
    (fitted,) = fits.choose([(train, dev)], grid)
    scores = _mean_scores([fitted.scores])
    return _tested(labels[test], fitted.predict(int(np.argmax(scores)), test), grid, scores)


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
    features: Features, scores: Floats, train_rows: Indices, dev_rows: Indices, test_rows: Indices, *, seed: int = 1111
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

    Returns:
        Predictions, and the best correlation on dev; None where it was never defined, as all predictions are equal.
    """
    inputs = torch.as_tensor(features).float()

    def score(rows: Indices, logits: torch.Tensor) -> Floats:
        grades = map(_mean_grades, logits)
        return np.array([pearson(scores[rows], of) if np.ptp(of) > PREDICTION_TOLERANCE else np.nan for of in grades])

    job = Job(train_rows, dev_rows, (0.0,), np.random.RandomState(seed))
    targets = torch.from_numpy(soft_labels(scores))
    probe = replace(RELATEDNESS, seed=seed)
    trained = classifiers.train(inputs, targets, [job], score=score, probe=probe, loss="mse")[0]
    predicted = _mean_grades(classifiers.outputs(trained.weights, inputs[test_rows])[0])
    return predicted, float(trained.scores[0]) if trained.scores[0] > -1 else None


def _mean_grades(logits: torch.Tensor) -> Floats:
    """Logits [5, pairs] -> the mean grade of each pair."""
    return np.arange(1, GRADES + 1) @ torch.softmax(logits, dim=0).double().numpy()


class _Fitted(NamedTuple):
    """The classifiers of a grid of penalties, fitted to the same rows."""

    scores: Sequence[float]
    """Their accuracies on check rows, in [0, 1]."""
    predict: Callable[[int, Indices], Indices]
    """The number of a penalty in the grid, and rows -> the labels of the rows; a tie goes to the lower label."""


class _Fits(NamedTuple):
    """Fits of classifiers on rows of one matrix, by the protocol of ``probe``."""

    features: Features
    labels: Indices
    classes: int
    probe: Probe

    def choose(self, folds: Sequence[tuple[Indices, Indices]], grid: tuple[float, ...]) -> list[_Fitted]:
        """Fit each penalty on the training rows of each fold, and score it on the fold's check rows."""
        if self.probe.protocol == "exact":
            return [self._solve(train, check, grid) for train, check in folds]
        return self._train([Job(train, check, grid, np.random.RandomState(self.probe.seed)) for train, check in folds])

    def refit(self, rows: Sequence[Indices], penalties: Sequence[float]) -> list[_Fitted]:
        """Fit each of some rows with its chosen penalty; SentEval's classifier stops by a random part of them."""
        if self.probe.protocol == "exact":
            return [self._solve(own, own, (penalty,)) for own, penalty in zip(rows, penalties, strict=True)]
        jobs = []
        for train, penalty in zip(rows, penalties, strict=True):
            rng = np.random.RandomState(self.probe.seed)
            held, fitted = np.split(train[rng.permutation(len(train))], [int(HELD_OUT * len(train))])
            jobs.append(Job(fitted, held, (penalty,), rng))
        return self._train(jobs)

    def _train(self, jobs: Sequence[Job]) -> list[_Fitted]:
        inputs, gold = torch.as_tensor(self.features).float(), torch.as_tensor(self.labels)

        def score(rows: Indices, logits: torch.Tensor) -> Floats:
            return (logits.argmax(dim=1) == gold[rows]).sum(dim=1).numpy() / len(rows)

        def predict(weights: Sequence[torch.Tensor], number: int, rows: Indices) -> Indices:
            logits = classifiers.outputs([layer[number : number + 1] for layer in weights], inputs[rows])
            return logits[0].argmax(dim=0).numpy().astype(np.intp)

        targets = torch.nn.functional.one_hot(gold, self.classes).float()
        trained = classifiers.train(inputs, targets, jobs, score=score, probe=self.probe)
        return [_Fitted(one.scores.tolist(), partial(predict, one.weights)) for one in trained]

    def _solve(self, train: Indices, check: Indices, grid: tuple[float, ...]) -> _Fitted:
        from sklearn.linear_model import LogisticRegression

        def inputs(rows: Indices) -> Features:
            return self.features[rows].astype(np.float64)

        models = [LogisticRegression(C=c, tol=TOLERANCE, max_iter=10_000) for c in grid]
        for model in models:
            model.fit(inputs(train), self.labels[train])
        scores = [model.score(inputs(check), self.labels[check]) for model in models]
        return _Fitted(scores, lambda number, rows: models[number].predict(inputs(rows)))


def _grid(probe: Probe, inverse: tuple[float, ...]) -> tuple[float, ...]:
    return probe.l2 if probe.protocol == "senteval" else inverse


def _folds(labels: Indices, rows: Indices, probe: Probe) -> list[tuple[Indices, Indices]]:
    from sklearn.model_selection import StratifiedKFold  # imported here: only needed for cross-validation

    parts = StratifiedKFold(n_splits=probe.folds, shuffle=True, random_state=probe.fold_seed).split(rows, labels[rows])
    return [(rows[train], rows[check]) for train, check in parts]


def _mean_scores(scores: ArrayLike) -> list[float]:
    """Mean over folds of [folds, grid], x 100, rounded."""
    return [float(round(100 * np.mean(column), 2)) for column in np.transpose(scores)]


def _percent(right: NDArray[np.bool_]) -> float:
    return float(round(100 * np.mean(right), 2))


def _tested(gold: Indices, predicted: Indices, grid: tuple[float, ...], scores: list[float]) -> ProbeResult:
    accuracy = _percent(predicted == gold)
    return ProbeResult(accuracy, max(scores), predicted, [accuracy], [grid[int(np.argmax(scores))]], grid, [scores])
