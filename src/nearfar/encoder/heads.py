"""Heads that are trained beside an encoder and dropped afterwards."""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from nearfar.types import LABEL_NAMES, NearfarError


class SoftmaxHead(nn.Module):
    """Pair features [u; v; |u - v|] of width 3 dim -> logits over the labels.

    ``layers=2`` is the head of Liao 2021 (section 3): 3 dim -> 3 dim / 2 -> classes, with nothing between the two
    linear layers, as in the authors' code. ``layers=1`` is SBERT's (Reimers & Gurevych 2019, section 3): 3 dim ->
    classes. Weights start from torch's default initialisation, drawn from its global generator.

    Raises NearfarError for another number of layers.
    """

    def __init__(self, dim: int, *, classes: int = len(LABEL_NAMES), layers: int = 2) -> None:
        super().__init__()
        widths = {1: (3 * dim, classes), 2: (3 * dim, 3 * dim // 2, classes)}
        if layers not in widths:
            raise NearfarError(f"the softmax head has 1 or 2 layers, not {layers}")
        self.linears = nn.Sequential(*(nn.Linear(*ends) for ends in pairwise(widths[layers])))

    def forward(self, features: Float[Tensor, "pairs features"]) -> Float[Tensor, "pairs classes"]:
        """Logits of each pair, in the head's own precision even if the encoder's is lower."""
        return self.linears(features.to(next(self.parameters()).dtype))
