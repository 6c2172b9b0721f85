"""Several methods on one encoder: each step takes a batch of each, and the loss is their weighted sum.

The epochs of the first method are those of the run; the batches of the others are repeated as often as needed. Each
method has its own data and its own negatives; only the gradients are added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from nearfar.methods.base import Batches, Method

MAX_LINES = 9
"""Maximum number of lines of an anchor in a shortened description, with its own line."""


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
        lead = self.parts[0][0].batches
        if at_most is None:
            return lead.total_steps(epochs)
        total = 0
        for epoch in range(epochs):
            total += lead.steps(epoch)
            if total >= at_most:
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
    """The lines of the first ``anchors`` (or pairs, labels, sentences), each cut at :data:`MAX_LINES`, and all notes.

    >>> truncate_description(["text  a", "  near b", "text  c", "text  d", "each is an anchor too"], 1)
    ['text  a', '  near b', '... and 2 more', 'each is an anchor too']
    """
    if anchors is None or not lines:
        return list(lines)
    starts = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    groups = [list(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    first = lines[0].split()[0]
    shown = [group for group in groups if group[0].split()[0] == first]
    notes = [line for group in groups if group[0].split()[0] != first for line in group]
    kept: list[str] = []
    for group in shown[:anchors]:
        more = len(group) - MAX_LINES
        kept += [*group[:MAX_LINES], f"  ... and {more} more"] if more > 1 else group
    return [*kept, *([f"... and {len(shown) - anchors} more"] if len(shown) > anchors else []), *notes]
