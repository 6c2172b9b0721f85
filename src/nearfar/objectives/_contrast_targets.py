"""The positives and candidates of a block of anchors, and the size of a block."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BLOCK = 2**22
"""Maximum number of logits in memory, 16 MiB in float32. A matrix up to this size, 2,048 x 2,048, is not split.

Below this size, blocks would save only a few dozen MiB. Much smaller blocks are slower, because each one adds to the
gradients of all candidates; larger blocks are not faster.
"""


class ContrastTargets(NamedTuple):
    """The positives and candidates of a block of anchors."""

    positives: Int[Tensor, " anchors"] | Bool[Tensor, "anchors candidates"] | None
    """P: the column of each anchor's single positive, or a mask of its positives; None for no positives."""
    candidate_mask: Bool[Tensor, "anchors candidates"] | None = None
    """C: the candidates in each anchor's denominator; None for all. A column in ``positives`` is always included."""
    self_column: Int[Tensor, " anchors"] | None = None
    """The column of the anchor itself, which is never in C."""
    own_negatives: Int[Tensor, " anchors"] | None = None
    """The column of each anchor's own hard negative; ``weight`` is added to its logit."""
    weight: float = 0.0


TargetsFn: TypeAlias = Callable[[Tensor], ContrastTargets]
"""Indices of anchors [rows] -> their targets. It is called again for gradients, and must return the same targets."""


def fits_in_one_block(anchors: int, candidates: int) -> bool:
    """Whether the full matrix of logits fits in one block."""
    return anchors * candidates <= BLOCK


def row_blocks(anchors: int, candidates: int, *, device: torch.device | None = None) -> tuple[Tensor, ...]:
    """Split the anchor indices 0 .. anchors - 1 into blocks of at most BLOCK logits, each of at least one anchor.

    >>> [len(rows) for rows in row_blocks(5, 2**21)]
    [2, 2, 1]
    """
    return torch.arange(anchors, device=device).split(max(1, BLOCK // max(1, candidates)))
