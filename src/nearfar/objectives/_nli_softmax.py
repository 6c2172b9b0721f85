"""Softmax classification of NLI pairs: the input features of the head, and its cross-entropy."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from nearfar.types import NearfarError


def nli_softmax_features(
    premises: Float[Tensor, "pairs dim"], hypotheses: Float[Tensor, "pairs dim"]
) -> Float[Tensor, "pairs features"]:
    """Input features of a pair classifier: [u; v; |u - v|], of width 3 dim, for a premise u and its hypothesis v.

    Raises NearfarError if the two do not have the same shape.

    Source: Reimers & Gurevych 2019, section 3 ("classification objective function"); Liao 2021, section 3.

    >>> nli_softmax_features(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 0.0]])).tolist()
    [[1.0, 2.0, 4.0, 0.0, 3.0, 2.0]]
    """
    if premises.shape != hypotheses.shape:
        raise NearfarError(
            f"premises {tuple(premises.shape)} and hypotheses {tuple(hypotheses.shape)} must have the same shape"
        )
    return torch.cat([premises, hypotheses, (premises - hypotheses).abs()], dim=-1)


def nli_softmax(logits: Float[Tensor, "pairs classes"], labels: Int[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Cross-entropy of each pair's label: l_i = -log( exp(x_{i, y_i}) / sum_c exp(x_{i, c}) ).

    Computed and returned in float32 if the logits are float16 or bfloat16, else in their own dtype.
    Raises NearfarError for a label outside 0 .. classes - 1 and for shapes that do not match.

    Source: Liao 2021, eq. 1.

    >>> nli_softmax(torch.zeros(2, 3), torch.tensor([0, 2]))  # log 3
    tensor([1.0986, 1.0986])
    """
    if labels.shape != logits.shape[:1]:
        raise NearfarError(f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} must have as many rows")
    classes = logits.shape[1]
    if ((labels < 0) | (labels >= classes)).any():
        raise NearfarError(f"labels must be in 0..{classes - 1}, found {labels.min()}..{labels.max()}")
    exact = torch.promote_types(logits.dtype, torch.float32)
    return functional.cross_entropy(logits.to(exact), labels.long(), reduction="none")
