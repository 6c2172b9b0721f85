"""Several losses on one encoder: methods on sets of rows, or one method at several widths (``--matryoshka``).

Each set has its own rows, method, batches and negatives; only the gradients are added. Either each step takes a batch
of every set, and the loss is their weighted sum, or each batch comes from one set (``--mix``). An epoch is one pass
over the first set; the batches of the others are repeated, or left over for later epochs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from nearfar.config.training import TrainConfig
from nearfar.types import Batches, Loss, Method, Mix, NearfarError

WeightedLosses: TypeAlias = tuple[tuple[Method, float], ...]
"""The losses on the batches of a set, and their weights."""


@dataclass(frozen=True)
class Mixture:
    """The sets of rows that are trained on, each by its losses."""

    sets: tuple[WeightedLosses, ...]
    mix: Mix = "together"
    """How sets make batches: :meth:`batches_of_epoch` has the numbers. ``round-robin`` takes the sets in turn,
    ``proportional`` and ``weighted`` in a random order."""
    shares: tuple[float, ...] = ()
    """With ``weighted``, the share of each set in the batches, up to a factor."""
    temperature: float = 1.0
    """With ``proportional``, T in shares of n^(1/T), of a set with n batches an epoch."""
    seed: int = 0
    """Seed of the order of the sets."""

    @property
    def losses(self) -> list[Method]:
        """The losses of all sets."""
        return [method for method, _ in chain(*self.sets)]

    @property
    def heads(self) -> list[nn.Module]:
        """The modules trained beside the encoder."""
        return [method.head for method in self.losses if method.head is not None]

    def batches_of_epoch(self, epoch: int) -> list[int]:
        """Number of batches of each set: all of the first one, and of the others in the sets' proportions."""
        batches = [losses[0][0].batches for losses in self.sets]
        first = batches[0].steps(epoch)
        if self.mix in ("together", "round-robin"):
            return [first] * len(batches)
        proportions = (each.steps(epoch) ** (1 / self.temperature) for each in batches)
        shares = self.shares if self.mix == "weighted" else tuple(proportions)
        return [first, *(max(1, round(first * share / shares[0])) for share in shares[1:])]

    def total_steps(self, epochs: int, *, at_most: int | None = None) -> int:
        """Number of batches in ``epochs`` epochs; counted no further than ``at_most``."""
        total = 0
        for epoch in range(epochs):
            counts = self.batches_of_epoch(epoch)
            total += counts[0] if self.mix == "together" else sum(counts)
            if at_most is not None and total >= at_most:
                return at_most
        return total

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[tuple[Method, Any, float], ...]]:
        """Yield (method, batch, weight) of the losses of each batch of an epoch from batch ``start`` on."""
        together = self.mix == "together"
        order = np.array([], dtype=np.int64) if together else self._order(epoch)
        done = [start] * len(self.sets) if together else np.bincount(order[:start], minlength=len(self.sets)).tolist()
        first, *others = self.sets
        streams = [_with_losses(first, [method.batches.epoch(epoch, done[0]) for method, _ in first])]
        for number, losses in enumerate(others, start=1):
            skip = self._batches_before(epoch, number) + done[number]
            streams.append(_with_losses(losses, [_batches_from(method.batches, skip) for method, _ in losses]))
        if together:
            yield from (tuple(chain(*parts)) for parts in zip(*streams, strict=False))
        else:
            yield from (next(streams[number]) for number in order[start:])

    def _batches_before(self, epoch: int, number: int) -> int:
        """Number of batches of a set before an epoch."""
        if self.mix in ("together", "round-robin"):
            return self.sets[0][0][0].batches.total_steps(epoch)
        return sum(self.batches_of_epoch(before)[number] for before in range(epoch))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The number of the set of each batch of an epoch, if each comes from one."""
        counts = self.batches_of_epoch(epoch)
        if self.mix == "round-robin":
            return np.tile(np.arange(len(counts)), counts[0])
        numbers = np.repeat(np.arange(len(counts)), counts)
        return np.random.default_rng([self.seed, epoch]).permutation(numbers)

    def describe(self) -> list[str]:
        """How the sets are mixed in the first epoch, in words; empty for a single set."""
        if len(self.sets) == 1:
            return []
        if self.mix == "together":
            weights = ", ".join(f"{losses[0][1]:g}" for losses in self.sets)
            return [f"each step takes a batch of every set; the weights of their losses are {weights}"]
        counts = ", ".join(f"{count:,}" for count in self.batches_of_epoch(0))
        return [f"each batch is of one set ({self.mix}): in the first epoch {counts} batches of sets 1, 2, ..."]


def with_distinct_names(sets: Sequence[WeightedLosses]) -> tuple[WeightedLosses, ...]:
    """The losses of sets with names that differ: 2, 3 and so on are appended to repeated ones."""
    counts: Counter[str] = Counter()
    named: list[WeightedLosses] = []
    for losses in sets:
        own = []
        for method, weight in losses:
            counts[method.name] += 1
            number = counts[method.name]
            own.append((method if number == 1 else replace(method, name=f"{method.name} {number}"), weight))
        named.append(tuple(own))
    return tuple(named)


def _with_losses(
    losses: WeightedLosses, streams: Sequence[Iterator[Any]]
) -> Iterator[tuple[tuple[Method, Any, float], ...]]:
    """The batches of each loss of a set, with the loss and its weight."""
    for batches in zip(*streams, strict=False):
        yield tuple((method, batch, weight) for (method, weight), batch in zip(losses, batches, strict=True))


def _batches_from(batches: Batches, skip: int) -> Iterator[Any]:
    """All batches of all epochs, endlessly, after the first ``skip``."""
    epoch = 0
    while skip >= (steps := batches.steps(epoch)):
        skip, epoch = skip - steps, epoch + 1
    while True:
        yield from batches.epoch(epoch, skip)
        epoch, skip = epoch + 1, 0


def describe_parts(parts: tuple[tuple[Method, Any, float], ...], *, anchors: int | None = None) -> list[str]:
    """A step in words: the first method's batch, then the others', each under its name and weight.

    The first ``anchors`` of each are shown, by default all.
    """
    described = [truncate_description(method.describe(batch), anchors) for method, batch, _ in parts]
    lines = described[0]
    for (method, _, weight), others in zip(parts[1:], described[1:], strict=True):
        lines += [f"and {weight:g} times {method.name}:", *(f"  {line}" for line in others)]
    return lines


def truncate_description(lines: Sequence[str], anchors: int | None) -> list[str]:
    """The lines of the first ``anchors`` (or premises, labels, sentences); all without a number.

    >>> truncate_description(["text  a", "  near b", "text  c", "text  d"], 1)
    ['text  a', '  near b', '... and 2 more']
    """
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    if anchors is None or len(starts) <= anchors:
        return list(lines)
    return [*lines[: starts[anchors]], f"... and {len(starts) - anchors} more"]


# --- one method at several widths ---


def train_at_widths(method: Method, config: TrainConfig, dim: int) -> Method:
    """The method with its loss at every width of ``config.matryoshka``; the method itself if there are none.

    Kusupati et al. 2022, "Matryoshka Representation Learning" (arXiv 2205.13147, eq. 1): with z[:d] the first d
    dimensions of an embedding z, D the widths and w_d their weights,

        L = sum_{d in D} w_d L_d,    L_d = the method's loss on z[:d] in place of z

    A cosine is that of the truncated vectors, so they are scaled to length 1 again. A method with a trained head
    computes L_d on z with its dimensions from d on set to 0: a linear layer then uses the first d columns of its
    weight. This is the paper's efficient variant, MRL-E, which shares one classifier between the widths; dot
    products and cosines are those of the truncated vectors in this case too. The part of a loss that does not
    depend on the embeddings (:attr:`nearfar.methods.Loss.penalty`) is added once. Random draws are the same at
    every width.

    Terms: those of the widest, and for each width d its loss before its weight, ``loss@d``.

    Args:
        method: the method.
        config: has the widths, and their weights (by default 1 each).
        dim: width of the embeddings.

    Raises:
        NearfarError: a width is above ``dim``; the method has no loss on embeddings.
    """
    widths = config.matryoshka
    if widths is None:
        return method
    if max(widths) > dim:
        raise NearfarError(
            f"--matryoshka {' '.join(map(str, widths))}: the embeddings have {dim} dimensions; give widths of at most "
            f"{dim}."
        )
    if not method.embeddings:
        raise NearfarError(
            f"--matryoshka: the loss of {method.name} is not defined on the first dimensions of embeddings; train "
            "without it, or choose another method."
        )
    weights = config.matryoshka_weights or (1.0,) * len(widths)
    ordered = sorted(zip(widths, weights, strict=True), reverse=True)

    def loss_fn(batch: Any, representations: Tensor) -> Loss:
        if representations.shape[-1] != dim:
            raise NearfarError(
                f"--matryoshka: {method.name} represents an item by {list(representations.shape[1:])} numbers, not by "
                f"an embedding with {dim} dimensions; train without it."
            )
        random = method.head is not None and representations.device.type == "cuda"  # dropout, and the like
        devices = [representations.device] if random else []
        losses: list[Loss] = []
        for width, _ in ordered:
            with torch.random.fork_rng(devices):
                losses.append(method.loss_fn(batch, _first(representations, width, pad=method.head is not None)))
        value = torch.stack([weight * loss.value for (_, weight), loss in zip(ordered, losses, strict=True)]).sum()
        own = {f"loss@{width}": loss.value.detach() for (width, _), loss in zip(ordered, losses, strict=True)}
        return Loss(value, losses[0].terms | own, losses[0].penalty)

    return replace(method, loss_fn=loss_fn)


def describe_widths(config: TrainConfig, dim: int) -> list[str]:
    """The widths in words, for the facts of a run; empty if there are none."""
    if config.matryoshka is None:
        return []
    weights = config.matryoshka_weights or (1.0,) * len(config.matryoshka)
    listed = (f"{width} (weight {weight:g})" for width, weight in zip(config.matryoshka, weights, strict=True))
    facts = [f"matryoshka: the loss on the first {', '.join(listed)} of {dim} dimensions"]
    if (widest := max(config.matryoshka)) < dim:
        facts.append(f"matryoshka: no loss trains the dimensions after the first {widest}")
    return facts


def _first(representations: Tensor, width: int, *, pad: bool) -> Tensor:
    """The first ``width`` numbers of the last axis; with ``pad``, followed by zeros up to the full width."""
    kept = representations[..., :width]
    return functional.pad(kept, (0, representations.shape[-1] - width)) if pad else kept
