"""SentEval's learned relatedness: a regressor on pairs of embeddings, for SICK-R and STS-B (Conneau & Kiela 2018).

A pair's features are [|u - v|; u * v]. A linear layer with softmax gives five probabilities, trained by their squared
error to the soft label of Tai et al. 2015 (section 4.2): a score y in [1, 5] is split between the grades floor(y) and
floor(y) + 1, so that the expected grade is y. The prediction is the expected grade.

STS-B has scores from 0 to 5 and uses the same five grades, as in SentEval. Below 1 there is no lower grade, so a score
y < 1 has the soft label (y, 0, 0, 0, 0), which does not sum to one. No prediction is below 1.

These scores are not comparable with correlations of cosines, which the published tables of SBERT and SimCSE contain.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.evaluation.classifiers import Floats, Indices, Job, Schedule, outputs, train
from nearfar.evaluation.correlation import pearson

GRADES = 5
PREDICTION_TOLERANCE = 1e-6
"""Predictions that differ by less are equal up to rounding."""
SCHEDULE = Schedule(epochs_per_check=50, tenacity=3, max_epochs=1000)


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
    schedule: Schedule = SCHEDULE,
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
        schedule: when training stops.

    Returns:
        Predictions, and the best correlation on dev; None where it was never defined, as all predictions are equal.
    """
    inputs = torch.as_tensor(features).float()

    def score(rows: Indices, logits: Tensor) -> Floats:
        grades = [_mean_grades(one) for one in logits]
        return np.array(
            [pearson(scores[rows], one) if np.ptp(one) > PREDICTION_TOLERANCE else np.nan for one in grades]
        )

    job = Job(train_rows, dev_rows, (0.0,), np.random.RandomState(seed))
    targets = torch.from_numpy(soft_labels(scores))
    trained = train(inputs, targets, [job], score=score, loss="mse", seed=seed, schedule=schedule)[0]
    predicted = _mean_grades(outputs(trained.weights, inputs[test_rows])[0])
    return predicted, float(trained.scores[0]) if trained.scores[0] > -1 else None


def _mean_grades(logits: Tensor) -> Floats:
    """Logits [5, pairs] -> the mean grade of each pair."""
    return np.arange(1, GRADES + 1) @ torch.softmax(logits, dim=0).double().numpy()
