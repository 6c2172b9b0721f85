"""One page per paper: which rows, which batches, which objective, and where the defaults come from.

A method is what training needs to know of a paper and no more. A batch names its items, what is encoded on its own: a
text, or texts that belong together. ``represent`` turns any of them into one row of numbers each, ``loss_fn`` turns the
rows of the whole batch into its loss. Because the two are apart, any method can be computed in pieces that fit in
memory, and by several processes that see the same batch, exactly (:mod:`nearfar.training.gradients`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor, nn

EmbedFn: TypeAlias = Callable[[Sequence[str]], Tensor]
"""Texts -> embeddings [batch, dim], differentiable, in training mode; a text that comes twice is encoded twice."""

Item: TypeAlias = Any
"""What is encoded on its own; only the method's ``extract_items`` and ``represent`` look inside."""


class Loss(NamedTuple):
    """The loss of one batch."""

    total: Tensor
    """What is minimised: a scalar with gradient."""
    terms: dict[str, Tensor]
    """What it is made of, and what is worth watching beside it: named scalars without gradient."""


class Batches(Protocol):
    """Batches of any epoch, from any place in it on, always the same ones."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]: ...  # noqa: D102

    def steps(self, epoch: int) -> int: ...  # noqa: D102

    def total_steps(self, epochs: int) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Method:
    """A way to train an encoder."""

    name: str
    batches: Batches
    extract_items: Callable[[Any], Sequence[Item]]
    """The items of a batch. What is drawn at random here or in ``loss_fn`` is the same in every process."""
    represent: Callable[[Sequence[Item]], Tensor]
    """Items -> [items, ...] with gradient. Row i depends on item i alone (and on dropout)."""
    loss_fn: Callable[[Any, Tensor], Loss]
    """A batch and the representations of all its items, in their order -> its loss."""
    describe: Callable[[Any], list[str]]
    """A batch in words, line by line: who is pulled towards whom, and who pushed away. Encodes nothing."""
    head: nn.Module | None = None
    """Trained beside the encoder and dropped afterwards; None if the method needs none."""
    count_tokens: Callable[[Sequence[Item]], Sequence[int]] | None = None
    """How many tokens the encoder reads of each item with gradient; None if that is not known."""

    def loss(self, batch: Any) -> Loss:
        """The plain path: all items at once, in this process."""
        return self.loss_fn(batch, self.represent(self.extract_items(batch)))
