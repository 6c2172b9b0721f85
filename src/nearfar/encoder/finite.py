"""The check for vectors that contain NaN or infinity, and its error, which names the text."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.types import NearfarError

SHOWN = 60
"""Characters of a text in a message."""


class NotFiniteError(NearfarError):
    """The model's output for a text contains NaN or infinity.

    Args:
        number: the text's number, counted from 0.
        content: the text, or its decoded tokens.
    """

    def __init__(self, number: int, content: str) -> None:
        self.number, self.content = number, content
        shown = content if len(content) <= SHOWN else content[:SHOWN] + "..."
        super().__init__(
            f"text {number} (counted from 0), {shown!r}: the model's output is not finite: its weights or "
            "activations contain NaN or infinity."
        )


def first_non_finite(vectors: Float[Tensor, "texts dim"], numbers: Sequence[int]) -> int | None:
    """The lowest of ``numbers`` whose vector is not finite, where ``numbers[i]`` is the number of vector i.

    None if all vectors are finite.
    """
    if vectors.isfinite().all():
        return None
    non_finite = torch.where(~vectors.isfinite().all(dim=1))[0]
    return min(numbers[index] for index in non_finite.tolist())
