"""What a method is: batches, what is encoded of them, and the loss. Training needs to know no more of a paper.

A batch names its items: each is encoded independently, a text or several texts that belong together. ``represent``
turns items into one row of numbers each, ``loss_fn`` turns the rows of the whole batch into its loss. Because the two
are separate, every method can be computed exactly in micro-batches that fit in memory, and by several processes that
see the same batch (:mod:`nearfar.training.gradients`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor, nn

EmbedFn: TypeAlias = Callable[[Sequence[Any]], Tensor]
"""Texts -> embeddings [batch, dim], differentiable, in training mode; a text that is given twice is encoded twice.

A text is a string, which gets the model's default prompt, or a :class:`nearfar.encoder.prompts.PromptedText`."""

Item: TypeAlias = Any
"""What is encoded independently; only the method's ``extract_items`` and ``represent`` look inside."""


class Loss(NamedTuple):
    """The loss of one batch."""

    value: Tensor
    """The loss of the representations: a scalar with gradient."""
    terms: dict[str, Tensor]
    """Its parts, and other measures to log: named scalars without gradient."""
    penalty: Tensor | None = None
    """A further part that does not depend on the representations, such as a regulariser of the weights."""

    @property
    def total(self) -> Tensor:
        """What is minimised: the value plus the penalty."""
        return self.value if self.penalty is None else self.value + self.penalty


class Batches(Protocol):
    """The batches of every epoch, in a fixed order, from any batch on."""

    @property
    def batch_size(self) -> int: ...  # noqa: D102

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]: ...  # noqa: D102

    def steps(self, epoch: int) -> int: ...  # noqa: D102

    def total_steps(self, epochs: int) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Method:
    """A way to train an encoder."""

    name: str
    batches: Batches
    extract_items: Callable[[Any], Sequence[Item]]
    """The items of a batch. Random draws here and in ``loss_fn`` are the same in every process."""
    represent: Callable[[Sequence[Item]], Tensor]
    """Items -> [items, ...] with gradient. Row i depends on item i alone (and on dropout)."""
    loss_fn: Callable[[Any, Tensor], Loss]
    """A batch and the representations of all its items, in their order -> its loss."""
    describe: Callable[[Any], list[str]]
    """A batch in words, line by line: anchors, their positives and their negatives. Encodes nothing."""
    head: nn.Module | None = None
    """Trained with the encoder and dropped after training; None if the method needs no head."""
    count_tokens: Callable[[Sequence[Item]], Sequence[int]] | None = None
    """Number of tokens of each item that the encoder reads with gradient; None if that is not known."""
    embeddings: bool = True
    """Whether the last axis of the representations is that of an embedding, so that the loss is also defined on the
    first dimensions alone (``--matryoshka``)."""

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch, with all items at once in this process."""
        return self.loss_fn(batch, self.represent(self.extract_items(batch)))
