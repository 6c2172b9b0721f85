"""Regression on scored pairs: squared error of the cosine, and the input features of a regression head."""

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives._similarity import check_same_shape, row_similarities
from nearfar.types import NearfarError


def cosine_regression(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """Squared error of each pair's cosine: l_i = (cos(u_i, v_i) - y_i)^2.

    A zero vector has cosine 0 with every vector, and no gradient. float16 and bfloat16 vectors are compared in float32
    and give float32 losses; other dtypes are kept.

    Raises NearfarError for a target outside -1..1 and for shapes that do not match.

    Source: Reimers & Gurevych 2019, section 3 ("regression objective function").

    >>> u, v = torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [3.0, 3.0]])
    >>> cosine_regression(u, v, torch.tensor([0.5, 1.0]))  # cosines 0 and 1
    tensor([0.2500, 0.0000])
    """
    check_same_shape("first second", first, second)
    if targets.shape != first.shape[:1]:
        raise NearfarError(f"targets {tuple(targets.shape)} must be one for each of the {len(first)} pairs")
    if not (targets.abs() <= 1).all():  # this form also rejects NaN
        raise NearfarError(f"targets must be in -1..1, as cosines are, found {targets.min()}..{targets.max()}")
    cosines = row_similarities(first, second, "cosine")
    return (cosines - targets.to(cosines.dtype)).square()


def regression_features(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"]
) -> Float[Tensor, "pairs features"]:
    """Input features of a regression head: [|u - v|; u * v], of width 2 dim; symmetric in u and v.

    Raises NearfarError if the two do not have the same shape.

    Source: Tai et al. 2015, section 4.2; the relatedness tasks of Conneau & Kiela 2018 (SentEval).

    >>> regression_features(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 0.0]])).tolist()
    [[3.0, 2.0, 4.0, 0.0]]
    """
    check_same_shape("first second", first, second)
    return torch.cat([(first - second).abs(), first * second], dim=-1)
