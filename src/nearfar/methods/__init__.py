"""One page per paper: which rows, which batches, which objective, and where the defaults come from.

A method is what the training loop needs to know of a paper and no more: batches, the loss of one, and the head that
is trained beside the encoder. The functions of each page build a :class:`Method` from ``embed``, which turns texts into
embeddings with gradient, and from rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from nearfar.data.batching import NliBatch, NliBatches

Embed: TypeAlias = Callable[[Sequence[str]], Tensor]
"""Texts -> embeddings [batch, dim], differentiable, in training mode."""


class Loss(NamedTuple):
    """The loss of one batch."""

    total: Tensor
    """What is minimised: a scalar with gradient."""
    terms: dict[str, Tensor]
    """What it is made of, and what is worth watching beside it: named scalars without gradient."""


@dataclass(frozen=True)
class Method:
    """A way to train an encoder."""

    name: str
    head: nn.Module | None
    """Trained beside the encoder and dropped afterwards; None if the objective needs no head."""
    batches: NliBatches
    loss_of: Callable[[NliBatch], Loss]
    describe: Callable[[NliBatch], list[str]]
    """A batch in words, line by line: who is pulled towards whom, and who pushed away. Encodes nothing."""
