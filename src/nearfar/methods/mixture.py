"""Several losses on one encoder: a mixture of methods, or one method at several widths (``--matryoshka``).

In a mixture each step takes a batch of each method, and the loss is their weighted sum.

The epochs of the first method are those of the run; the batches of the others are repeated as often as needed. Each
method has its own data and its own negatives; only the gradients are added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearfar.config.training import TrainConfig
from nearfar.types import Batches, Loss, Method, NearfarError


@dataclass(frozen=True)
class Mixture:
    """Methods and their weights, the first of which sets the epochs."""

    parts: tuple[tuple[Method, float], ...]

    @property
    def heads(self) -> list[nn.Module]:
        """The modules trained beside the encoder."""
        return [method.head for method, _ in self.parts if method.head is not None]

    def total_steps(self, epochs: int, *, at_most: int | None = None) -> int:
        """Number of batches of the first method in ``epochs`` epochs; counted no further than ``at_most``."""
        total, lead = 0, self.parts[0][0].batches
        for total in accumulate(map(lead.steps, range(epochs))):
            if at_most is not None and total >= at_most:
                return at_most
        return total

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[tuple[Method, Any, float], ...]]:
        """Yield (method, batch, weight) of each method, for each batch of the first one's epoch from ``start`` on."""
        lead = self.parts[0][0].batches
        before = lead.total_steps(epoch) + start if len(self.parts) > 1 else 0
        streams = [lead.epoch(epoch, start), *(_batches_from(method.batches, before) for method, _ in self.parts[1:])]
        for batches in zip(*streams, strict=False):
            yield tuple((method, batch, weight) for (method, weight), batch in zip(self.parts, batches, strict=True))


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
        devices = [representations.device] if representations.device.type == "cuda" else []
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
