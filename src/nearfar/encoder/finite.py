"""Vectors that hold a NaN or infinity are an error, told with the text that they are of."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.types import NearfarError

SHOWN = 60
"""Characters of a text in a message."""


class NotFiniteError(NearfarError):
    """The vector of a text holds a NaN or infinity.

    Args:
        number: of the text, counted from 0.
        content: the text, or what its tokens say.
    """

    def __init__(self, number: int, content: str) -> None:
        self.number, self.content = number, content
        shown = content if len(content) <= SHOWN else content[:SHOWN] + "..."
        super().__init__(
            f"text {number} (counted from 0), {shown!r}: what the model computes is not finite, for its weights or "
            "activations hold NaN or infinity."
        )


def first_broken(vectors: Float[Tensor, "texts dim"], numbers: Sequence[int]) -> int | None:
    """The lowest of ``numbers``, which are those of the texts, whose vector is not finite; None if all are."""
    if vectors.isfinite().all():
        return None
    broken = torch.where(~vectors.isfinite().all(dim=1))[0]
    return min(numbers[place] for place in broken.tolist())
