"""NT-Xent: the two views of each text among those of the batch; self-guided contrastive learning.

There, a sentence's vector is compared with the views of it from a frozen clone's layers.

And the drift, the squared distance of the trained parameters from the clone's, which keeps training near its start.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._info_nce import info_nce
from nearfar.objectives._masks import full_mask, not_itself
from nearfar.objectives._similarity import check_same_shape, prepare_pair
from nearfar.types import NearfarError, SelfGuidedVariant


def nt_xent(
    first: Float[Tensor, "batch dim"],
    second: Float[Tensor, "batch dim"],
    *,
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None = None,
) -> Float[Tensor, " vectors"]:
    """Pull the two views of each text together, and away from both views of every other text of the batch.

    l(x) = -log[ exp(cos(x, x+) / t) / sum_{y in X, y != x} exp(cos(x, y) / t) ]

    with X the 2 batch vectors of both views, x+ the other view of x and t the temperature. The losses of the first
    views come first, then those of the second, ``2 * batch`` in total.

    ``mask`` False at [i, j] excludes both vectors of row j from the denominators of both vectors of row i; a vector's
    own positive is always kept. Precision, and masks for large batches, are as in :func:`info_nce`.

    Raises NearfarError for a temperature that is not positive and shapes that do not match.

    Source: Chen et al. 2020, eq. 1; Kim et al. 2021, the base loss of section 3.1. The mask is nearfar's addition.

    >>> same = torch.ones(2, 3)
    >>> nt_xent(same, same, temperature=0.1)  # log 3, all vectors but the anchor
    tensor([1.0986, 1.0986, 1.0986, 1.0986])
    """
    check_same_shape("first second", first, second)
    return torch.cat(
        [view_loss(*views, temperature=temperature, mask=mask) for views in ((first, second), (second, first))]
    )


def view_loss(
    anchors: Float[Tensor, "batch dim"],
    views: Float[Tensor, "batch dim"],
    *,
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None,
) -> Float[Tensor, " batch"]:
    """Each anchor's own view against the other anchors and all views; the arguments are those of :func:`nt_xent`.

    l_i = -log[ exp(cos(a_i, v_i) / t) / ( sum_j exp(cos(a_i, v_j) / t) + sum_{j != i} exp(cos(a_i, a_j) / t) ) ]
    """
    own = torch.arange(len(anchors), device=anchors.device)
    among = full_mask(mask, len(anchors), views)
    kept = among.beside(among & not_itself(len(anchors), anchors))
    candidates = torch.cat([views, anchors])
    return contrast(anchors, candidates, own, kept, temperature=temperature, similarity="cosine")


def self_guided(
    cls: Float[Tensor, "batch dim"],
    views: Float[Tensor, "batch dim"] | Float[Tensor, "batch layers dim"],
    *,
    temperature: float,
    variant: SelfGuidedVariant,
    mask: Bool[Tensor, "batch batch"] | RowMask | None = None,
) -> Float[Tensor, " values"]:
    """Pull each sentence's vector towards its own views, and away from the vectors and views of other sentences.

    With phi(u, v) = exp(cos(u, v) / t), c_i the vector of sentence i, h_i its view, h_{i,k} its view at layer k:

    - sg: NT-Xent of the vectors c and the views h (:func:`nt_xent`), two losses per sentence
    - opt1: l_i = -log[ phi(c_i, h_i) / ( sum_{j != i} phi(c_i, c_j) + sum_j phi(c_i, h_j) ) ]
    - opt2: l_i = -log[ phi(c_i, h_i) / sum_j phi(c_i, h_j) ]
    - opt3: l_{i,k} = -log[ phi(c_i, h_{i,k}) / ( phi(c_i, h_{i,k}) + sum_{m != i} sum_n phi(c_i, h_{m,n}) ) ],
      and l_i its mean over k

    ``cls`` and ``views`` are outputs of the projection head. ``views`` is [batch, layers, dim] for opt3 and
    [batch, dim] for the others. The result is [2 * batch] for sg, the losses of ``cls`` first, else [batch].

    ``mask`` False at [i, j] excludes the vector and the views of sentence j from the denominators of sentence i; a
    sentence's own positives are always kept. Precision, and masks for large batches, are as in :func:`info_nce`.

    Raises NearfarError for a temperature that is not positive, an unknown variant, and shapes that do not match the
    variant or one another.

    Source: Kim et al. 2021, sections 3.1 (sg) and 3.2 (the others; Table 5 compares them). opt2 keeps all negatives
    of the formula; the authors' code omits one of them. The mask is nearfar's addition.

    >>> cls = torch.eye(3)
    >>> views = cls[:, None].expand(3, 2, 3)  # two layers
    >>> self_guided(cls, views, temperature=1.0, variant="opt3")  # log(1 + 2 layers * 2 others / e)
    tensor([0.9048, 0.9048, 0.9048])
    """
    if variant not in get_args(SelfGuidedVariant):
        raise NearfarError(f"variant must be one of {', '.join(get_args(SelfGuidedVariant))}, not {variant!r}")
    shape = "[batch, layers, dim]" if variant == "opt3" else "[batch, dim]"
    matching = views.shape[:1] + views.shape[2:] if variant == "opt3" else views.shape
    if cls.ndim != 2 or matching != cls.shape or (variant == "opt3" and views.shape[1] == 0):
        raise NearfarError(
            f"variant {variant} compares cls [batch, dim] with views {shape}, "
            f"but cls is {tuple(cls.shape)} and views {tuple(views.shape)}"
        )
    if variant == "sg":
        return nt_xent(cls, views, temperature=temperature, mask=mask)
    if variant == "opt1":
        return view_loss(cls, views, temperature=temperature, mask=mask)
    if variant == "opt2":
        return info_nce(cls, views, temperature=temperature, mask=mask)

    # A sentence's views at its other layers are not among its negatives.
    batch, layers = views.shape[:2]
    one, other = prepare_pair(cls, views.flatten(0, 1), "cosine")
    own_logits = (one[:, None] * other.unflatten(0, (batch, layers))).sum(dim=2) / temperature
    others = (full_mask(mask, batch, cls) & not_itself(batch, cls)).repeated(layers)
    negatives = contrast(one, other, None, others, temperature=temperature, similarity="dot")
    # -log(e^own / (e^own + e^negatives)) = log(1 + e^(negatives - own)), in full precision at any distance.
    return torch.logaddexp(negatives[:, None] - own_logits, torch.zeros_like(own_logits)).mean(dim=1)


def parameter_drift(module: nn.Module, reference: nn.Module) -> Float[Tensor, ""]:
    """Squared distance between two modules' parameters: sum of (theta - theta')^2 over all parameters.

    ``reference`` is constant: only ``module`` gets a gradient, once. float16 and bfloat16 parameters are compared in
    float32. Raises NearfarError unless both modules have the same parameter names and shapes.

    Source: Kim et al. 2021, section 3.1, the regulariser ||theta_F - theta_T||_2^2.

    >>> one, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.constant_(one.weight, 1.0), nn.init.constant_(other.weight, 4.0)
    >>> parameter_drift(one, other).item()  # 4 * 3^2
    36.0
    """
    parameters, references = matching_parameters(module, reference)
    return squared_distance(parameters, references) if parameters else torch.zeros(())


def matching_parameters(module: nn.Module, reference: nn.Module) -> tuple[list[nn.Parameter], list[Tensor]]:
    """The parameters of ``module``, and those of ``reference`` with the same names, detached.

    Raises NearfarError unless both modules have the same parameter names and shapes.
    """
    tuned, start = dict(module.named_parameters()), dict(reference.named_parameters())
    for name in sorted(tuned.keys() ^ start.keys()):
        owner = "module" if name in tuned else "reference"
        raise NearfarError(f"module and reference must have the same parameters, but only the {owner} has {name}")
    for name, parameter in tuned.items():
        if parameter.shape != start[name].shape:
            raise NearfarError(
                f"parameter {name} is {tuple(parameter.shape)} in the module but {tuple(start[name].shape)} "
                "in the reference"
            )
    return list(tuned.values()), [start[name].detach() for name in tuned]


def squared_distance(parameters: Sequence[Tensor], references: Sequence[Tensor]) -> Float[Tensor, ""]:
    """Sum of (theta - theta')^2 over one or more pairs of tensors of the same shape, as in :func:`parameter_drift`."""
    exact = reduce(torch.promote_types, (parameter.dtype for parameter in parameters), torch.float32)
    distance: Tensor = _SquaredDistance.apply(  # type: ignore[no-untyped-call]
        [reference.to(exact) for reference in references], *(parameter.to(exact) for parameter in parameters)
    )
    return distance


class _SquaredDistance(torch.autograd.Function):
    """sum |theta - theta'|^2 over tensors: a GPU starts one kernel for many small tensors, not several for each."""

    @staticmethod
    def forward(ctx: Any, references: list[Tensor], *parameters: Tensor) -> Tensor:
        differences = torch._foreach_sub(parameters, references)
        ctx.save_for_backward(*differences)
        return torch.stack(torch._foreach_norm(differences)).square().sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        trained = ctx.needs_input_grad[1:]
        differences = [each for each, needed in zip(ctx.saved_tensors, trained, strict=True) if needed]
        gradients = iter(torch._foreach_mul(differences, 2 * grad_output) if differences else ())
        return (None, *(next(gradients) if needed else None for needed in trained))
