"""SentEval's small classifiers (Conneau & Kiela 2018), many of them trained together in one batch.

A probing protocol fits hundreds of one-layer classifiers on different rows of one embedding matrix. Here a *job* is one
set of training rows, its rows for early stopping, and a grid of L2 penalties. The classifiers of a job have the same
seed, so they see the same minibatches. Several jobs are trained at a time, each in a *slot*, and step together. Only
minibatches are copied from the matrix; the number of slots is chosen so that these copies fit into the processor's
cache.

Axes, in addition to those of :mod:`nearfar.types`: ``rows`` of the matrix, ``slots``, ``grid`` (penalties of a job),
``hidden`` (units, or the classes where there is no hidden layer). Gradients are computed by formula, because there are
at most two layers; the last column of a weight is its bias.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from nearfar.evaluation.correlation import Floats, Indices
from nearfar.evaluation.probe_settings import Probe

Score: TypeAlias = Callable[[Indices, Tensor], Floats]
"""The check rows of a job and the outputs for them [grid, classes, rows] -> one score per penalty, higher is better."""

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's
ALPHA = 0.99  # torch.optim.RMSprop's, whose epsilon is Adam's
_MINIBATCHES = 2**18  # numbers in the minibatches of all slots: a megabyte, which stays in the cache


class Job(NamedTuple):
    """Training rows, rows for early stopping, a grid of penalties, and the random generator of the orders of rows."""

    train: Indices
    check: Indices
    penalties: tuple[float, ...]
    rng: np.random.RandomState


class FittedClassifiers(NamedTuple):
    """The best check of each classifier of a job [grid], and the weights at it (see :func:`outputs`)."""

    scores: Floats
    weights: tuple[Tensor, ...]


def train(
    features: Tensor,
    targets: Tensor,
    jobs: Sequence[Job],
    *,
    score: Score,
    probe: Probe,
    loss: Literal["cross-entropy", "mse"] = "cross-entropy",
) -> list[FittedClassifiers]:
    """Train the classifiers of all ``jobs`` with early stopping; each keeps the weights of its best check.

    The model is softmax(W x + b), or with ``nhid`` units softmax(V sigmoid(W x + b) + c); all start from the same
    weights, those that torch gives such layers after ``seed``. The loss is the mean over a minibatch of the
    cross-entropy, or of the squared error of the probabilities (the mean over classes too). The penalty is added to
    the gradient before the moments of Adam or RMSprop, biases included (``weight_decay`` of torch's optimisers).

    Args:
        features: [rows, dim], float32.
        targets: target probabilities [rows, classes], float32.
        jobs: the jobs; all have the same number of penalties.
        score: scores the outputs of a check.
        probe: hidden units, seed of the initial weights, optimiser, minibatches, and when training stops.
        loss: the loss.

    Returns:
        One for each job, in their order.
    """
    matrix = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    start = _start(features.shape[1], probe.nhid, targets.shape[1], probe.seed)
    width = max(4, _MINIBATCHES // (probe.batch_size * matrix.shape[1]))
    steps = [-(-len(job.train) // probe.batch_size) for job in jobs]
    trained: dict[int, FittedClassifiers] = {}
    for alike in set(steps):  # jobs that step together take the same number of steps in an epoch
        numbers = [number for number, own in enumerate(steps) if own == alike]
        for first in range(0, len(numbers), width):
            slots = [_Slot(number, jobs[number], start) for number in numbers[first : first + width]]
            while slots:
                _train_to_check(slots, matrix, targets, alike, loss=loss, probe=probe)
                for slot in slots:
                    slot.update_best(score(slot.job.check, outputs(slot.weights, features[slot.job.check])), probe)
                    trained[slot.number] = FittedClassifiers(slot.best, tuple(slot.best_weights))
                slots = [slot for slot in slots if not slot.stopped.all()]
    return [trained[number] for number in range(len(jobs))]


def outputs(weights: Sequence[Tensor], features: Tensor) -> Tensor:
    """Logits of the classifiers of a job: features [rows, dim] -> [grid, classes, rows]."""
    inputs = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    return _forward([weight[None] for weight in weights], inputs[None])[0][0]


class _Slot:
    """A job in training: weights and the optimiser's moments [grid, hidden, dim + 1], and the results of its checks."""

    def __init__(self, number: int, job: Job, start: Sequence[Tensor]) -> None:
        grid = len(job.penalties)
        self.number, self.job = number, job
        self.weights = [weight.expand(grid, -1, -1).clone() for weight in start]
        self.moments = [torch.zeros_like(weight) for weight in 2 * self.weights]
        self.best_weights = [weight.clone() for weight in self.weights]
        self.best = np.full(grid, -1.0)
        self.misses = np.zeros(grid, dtype=int)
        self.stopped = np.zeros(grid, dtype=bool)
        self.epochs = 0

    def update_best(self, scores: Floats, probe: Probe) -> None:
        """Keep improved weights, and stop classifiers with too many checks without improvement; NaN never improves."""
        better = (scores > self.best) & ~self.stopped
        self.best[better] = scores[better]
        for best, weight in zip(self.best_weights, self.weights, strict=True):
            best[better] = weight[better]
        stops = ~better & (self.misses >= probe.tenacity)
        self.misses += ~better
        self.stopped |= stops | (self.epochs > probe.max_epochs)


def _start(dim: int, nhid: int, classes: int, seed: int) -> list[Tensor]:
    """The initial weights of the layers, [1, units, inputs + 1] each, as torch initialises them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(*sizes) for sizes in pairwise([dim, *[nhid] * bool(nhid), classes])]
    return [torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()[None] for layer in layers]


def _train_to_check(
    slots: Sequence[_Slot], matrix: Tensor, targets: Tensor, steps: int, *, loss: str, probe: Probe
) -> None:
    """Train all slots until their next check, ``steps`` minibatches an epoch."""
    weights, moments = (
        [torch.stack(layer) for layer in zip(*(getattr(slot, name) for slot in slots), strict=True)]
        for name in ("weights", "moments")
    )
    firsts, seconds = moments[: len(weights)], moments[len(weights) :]
    penalties = torch.tensor([slot.job.penalties for slot in slots])[:, :, None, None]
    sizes = np.array([len(slot.job.train) for slot in slots])
    left = sizes - (steps - 1) * probe.batch_size
    last = np.arange(probe.batch_size) < left[:, None]  # the last minibatch can be smaller
    shares = torch.from_numpy(last / last.sum(axis=1, keepdims=True)).float()[:, None, None, :]
    gathered = torch.empty(len(slots) * probe.batch_size, matrix.shape[1])
    minibatches = gathered.view(len(slots), probe.batch_size, -1)
    for _ in range(probe.epoch_size):
        order = np.zeros((len(slots), steps * probe.batch_size), dtype=np.intp)
        for row, slot in zip(order, slots, strict=True):
            row[: len(slot.job.train)] = slot.job.train[slot.job.rng.permutation(len(slot.job.train))]
        rows = torch.from_numpy(order).view(len(slots), steps, probe.batch_size).transpose(0, 1).contiguous()
        target = targets[rows].transpose(2, 3)[:, :, None].contiguous()
        taken = np.array([slot.epochs * steps for slot in slots]) + np.arange(1, steps + 1)[:, None]
        rates, roots = (
            torch.from_numpy(scale).float()[:, :, None, None, None]
            for scale in (-probe.rate / (1 - BETA1**taken), 1 / np.sqrt(1 - BETA2**taken))
        )
        for step in range(steps):
            torch.index_select(matrix, 0, rows[step].view(-1), out=gathered)
            row_weight = 1 / probe.batch_size if step < steps - 1 else shares
            gradients = _gradients(weights, minibatches, target[step], row_weight, loss)
            for weight, gradient, first, second in zip(weights, gradients, firsts, seconds, strict=True):
                gradient.addcmul_(weight, penalties)
                if probe.optimiser == "rmsprop":
                    second.mul_(ALPHA).addcmul_(gradient, gradient, value=1 - ALPHA)
                    weight.addcdiv_(gradient, second.sqrt().add_(EPSILON), value=-probe.rate)
                    continue
                first.lerp_(gradient, 1 - BETA1)
                second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
                weight.addcdiv_(first * rates[step], second.sqrt().mul_(roots[step]).add_(EPSILON))
        for slot in slots:
            slot.epochs += 1
    for number, slot in enumerate(slots):
        slot.weights = [layer[number] for layer in weights]
        slot.moments = [moment[number] for moment in moments]


def _forward(weights: Sequence[Tensor], inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Logits [slots, grid, classes, rows], and the hidden layer where there is one; inputs [slots, rows, dim + 1]."""
    slots, grid, units, _ = weights[0].shape
    first = torch.bmm(weights[0].flatten(1, 2), inputs.transpose(1, 2)).view(slots, grid, units, -1)
    if len(weights) == 1:
        return first, None
    hidden = torch.sigmoid(first)
    return weights[1][..., :-1] @ hidden + weights[1][..., -1:], hidden


def _gradients(
    weights: Sequence[Tensor], inputs: Tensor, target: Tensor, row_weight: float | Tensor, loss: str
) -> list[Tensor]:
    """Gradients of the mean loss of each slot's minibatch; ``row_weight`` is the weight of each row in the mean."""
    logits, hidden = _forward(weights, inputs)
    probabilities = torch.softmax(logits, dim=2)
    grad_logits = probabilities - target
    if loss == "mse":  # through the softmax: p_c (g_c - sum_k g_k p_k), where g = 2 (p - y) / classes
        grad_probabilities = grad_logits * (2 / target.shape[2])
        grad_logits = probabilities * (
            grad_probabilities - (grad_probabilities * probabilities).sum(dim=2, keepdim=True)
        )
    grad_logits *= row_weight
    gradients: list[Tensor] = []
    if hidden is not None:
        gradients = [torch.cat([grad_logits @ hidden.transpose(2, 3), grad_logits.sum(dim=3, keepdim=True)], dim=3)]
        grad_logits = (weights[1][..., :-1].transpose(2, 3) @ grad_logits) * hidden * (1 - hidden)
    first = torch.bmm(grad_logits.flatten(1, 2), inputs).view_as(weights[0])
    return [first, *gradients]
