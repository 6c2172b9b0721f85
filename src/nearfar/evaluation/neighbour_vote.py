"""Labels of texts by a vote of their nearest labelled neighbours: accuracy without training a classifier."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.correlation import usual_size
from nearfar.evaluation.results import ClassificationScores
from nearfar.evaluation.statistics import estimate
from nearfar.neighbours.exact import nearest
from nearfar.types import NearfarError

NEIGHBOURS = 10
PROTOCOL = "neighbours"
"""The protocol's name in results."""


def neighbour_vote(
    vectors: NDArray[np.float32],
    labelled: NDArray[np.float32],
    labels: Sequence[str],
    *,
    k: int = NEIGHBOURS,
    device: str = "cpu",
) -> list[str]:
    """The most frequent label among the ``k`` labelled texts with the highest cosine.

    Of labels with equally many votes, the one with the highest sum of cosines wins, then the first in text order.

    Args:
        vectors: texts to label [texts, dim].
        labelled: labelled texts [labelled, dim].
        labels: their labels.
        k: number of neighbours.
        device: where cosines are computed.

    Raises:
        NearfarError: no labelled text; a vector is not finite.
    """
    if not len(labelled):
        raise NearfarError("there is no labelled text to vote.")
    found = nearest(_unit(vectors), _unit(labelled), k, device=device)
    winners = []
    for places, cosines in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
        votes: Counter[str] = Counter()
        weights: Counter[str] = Counter()
        for place, cosine in zip(places, cosines, strict=True):
            votes[labels[place]] += 1
            weights[labels[place]] += cosine
        winners.append(min(votes, key=lambda label: (-votes[label], -weights[label], label)))
    return winners


def vote_scores(
    gold: Sequence[str], predicted: Sequence[str], *, resamples: int, seed: Sequence[int], digest: str
) -> ClassificationScores:
    """The entry of a result file for the labels of a vote. ``digest`` is that of the texts and their neighbours."""
    classes = sorted({*gold, *predicted})
    numbers = {name: number for number, name in enumerate(classes)}
    correct = np.mean([one == other for one, other in zip(gold, predicted, strict=True)])
    drawn = np.random.default_rng(seed).binomial(len(gold), correct, resamples) / len(gold)
    return ClassificationScores(
        protocol=PROTOCOL,
        rows=len(gold),
        classes=classes,
        accuracy=estimate(round(100 * float(correct), 4), drawn, None),
        gold=[numbers[label] for label in gold],
        predicted=[numbers[label] for label in predicted],
        digest=digest,
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    vectors = usual_size(vectors).astype(np.float32)  # their squares fit into float32
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit
