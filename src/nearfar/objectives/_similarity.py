"""Shared by the objectives: similarities of vectors, and checks of arguments."""

import math
import re
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.types import NearfarError

MIN_TEMPERATURE = 1e-8
"""Divided by less, similarities would overflow in float32, or be all rounding error."""
USUAL_EXPONENT = 40
"""Vectors with a largest element between 2^-40 and 2^40 in size have squares that float32 can add."""
Similarity: TypeAlias = Literal["dot", "cosine"]
"""How two vectors are compared: dot product or cosine."""


def similarities(
    anchors: Float[Tensor, "anchors dim"], candidates: Float[Tensor, "candidates dim"], similarity: Similarity
) -> Float[Tensor, "anchors candidates"]:
    """Return the similarity of every anchor with every candidate, in float32 or better."""
    anchors, candidates = prepare_pair(anchors, candidates, similarity)
    # Autocast would round the products to bfloat16: three digits, and raw dot products reach hundreds.
    with torch.autocast(anchors.device.type, enabled=False):
        return anchors @ candidates.T


def row_similarities(
    first: Float[Tensor, "batch dim"], second: Float[Tensor, "batch dim"], similarity: Similarity
) -> Float[Tensor, " batch"]:
    """Return the similarity of each row of ``first`` with the same row of ``second``, in float32 or better."""
    first, second = prepare_pair(first, second, similarity)
    return (first * second).sum(dim=1)


def prepare_pair(
    first: Float[Tensor, "anchors dim"], second: Float[Tensor, "candidates dim"], similarity: Similarity
) -> tuple[Float[Tensor, "anchors dim"], Float[Tensor, "candidates dim"]]:
    """Convert both to one dtype, float32 or better, and for the cosine to length 1.

    Raises NearfarError for an unknown similarity.
    """
    if similarity not in get_args(Similarity):
        raise NearfarError(f"similarity must be one of {', '.join(get_args(Similarity))}, not {similarity!r}")
    exact = compute_dtype(first, second)
    prepared = prepare_vectors(first, exact, similarity)
    return prepared, prepared if second is first else prepare_vectors(second, exact, similarity)


def compute_dtype(first: Tensor, second: Tensor) -> torch.dtype:
    """Return the dtype in which both are compared, float32 or better."""
    return torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)


def prepare_vectors(
    vectors: Float[Tensor, "vectors dim"], exact: torch.dtype, similarity: Similarity
) -> Float[Tensor, "vectors dim"]:
    """Return vectors whose dot products are the similarities."""
    return l2_normalize(vectors.to(exact)) if similarity == "cosine" else vectors.to(exact)


def l2_normalize(vectors: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    """Scale to length 1. A zero vector stays zero, with zero gradient: an epsilon would make its gradient huge.

    A vector whose squares are too large or too small for its dtype is scaled by powers of two first, which is exact.
    """
    vectors = _to_usual_length(vectors)
    norms = vectors.norm(dim=1, keepdim=True)
    zero = norms == 0
    return torch.where(zero, 0.0, vectors / torch.where(zero, 1.0, norms))


def _to_usual_length(vectors: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    """Vectors with the same directions, whose squares neither overflow nor underflow; usual ones are unchanged."""
    if not vectors.numel():
        return vectors
    with torch.no_grad():
        exponent = vectors.abs().amax(dim=1, keepdim=True).frexp().exponent
        limit = 1 - math.frexp(torch.finfo(vectors.dtype).tiny)[1]  # 2^limit and 2^-limit are normal numbers
        exponent = (exponent * (exponent.abs() > USUAL_EXPONENT)).clamp(-limit, limit)
        factor = torch.exp2(-exponent.to(vectors.dtype))
    return vectors * factor


def check_temperature(temperature: float) -> None:
    """Raise NearfarError unless the temperature is a finite number of at least :data:`MIN_TEMPERATURE`."""
    if not 0 < temperature < math.inf:
        raise NearfarError(f"temperature must be a positive number, not {temperature}")
    if temperature < MIN_TEMPERATURE:
        raise NearfarError(f"temperature must be at least {MIN_TEMPERATURE:g}, not {temperature}")


def check_shapes(expected: str, *tensors: Tensor | None) -> None:
    """Raise NearfarError unless tensors have the axes of ``expected``, as in "anchors [batch dim], labels [batch]".

    Axes of the same name have the same size. A tensor that is None is not checked.
    """
    sizes: dict[str, int] = {}
    given = [
        (name, axes.split(), tensor.shape)
        for (name, axes), tensor in zip(re.findall(r"(\w+) \[([^]]*)\]", expected), tensors, strict=True)
        if tensor is not None
    ]
    for _, axes, shape in given:
        if len(axes) != len(shape) or any(sizes.setdefault(*axis) != axis[1] for axis in zip(axes, shape, strict=True)):
            shown = ", ".join(f"{name} {tuple(shape)}" for name, _, shape in given)
            raise NearfarError(f"{shown}: the shapes must be {expected}")


def check_finite(name: str, value: float) -> None:
    """Raise NearfarError unless the value is a finite number."""
    if not math.isfinite(value):
        raise NearfarError(f"{name} must be a finite number, not {value}")
