"""Who some anchors of a batch are compared with, and how many of them at a time."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BLOCK = 2**22
"""Logits that are held at a time, 16 MiB in float32. A matrix of no more than that, 2,048 x 2,048, is computed whole.

Up to there blocks would save a few dozen MiB. Much smaller ones take longer, as each adds to the gradients of all
candidates; larger ones are no faster.
"""


class ContrastTargets(NamedTuple):
    """Who some anchors are compared with."""

    positives: Int[Tensor, " anchors"] | Bool[Tensor, "anchors candidates"] | None
    """P: the column of each anchor's one positive, or where its positives are."""
    candidate_mask: Bool[Tensor, "anchors candidates"] | None = None
    """C: what stands in each anchor's denominator; None for all. A column named in ``positives`` always does."""
    self_column: Int[Tensor, " anchors"] | None = None
    """The column of the anchor self_column, which is never in C."""
    own_negatives: Int[Tensor, " anchors"] | None = None
    """The column of each anchor's own hard negative, to whose logit ``weight`` is added."""
    weight: float = 0.0


TargetsFn: TypeAlias = Callable[[Tensor], ContrastTargets]
"""Numbers of some anchors [rows] -> who they are compared with. Asked again, it must say the same."""


def fits_in_one_block(anchors: int, candidates: int) -> bool:
    """Whether all logits are held at a time."""
    return anchors * candidates <= BLOCK


def row_blocks(anchors: int, candidates: int, *, device: torch.device | None = None) -> tuple[Tensor, ...]:
    """The numbers 0 .. anchors - 1, as many at a time as have a block of logits, one at least.

    >>> [len(rows) for rows in row_blocks(5, 2**21)]
    [2, 2, 1]
    """
    return torch.arange(anchors, device=device).split(max(1, BLOCK // max(1, candidates)))
