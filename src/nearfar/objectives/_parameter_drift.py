"""The squared distance of a module's parameters from those of a reference, which keeps training near its start."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.types import NearfarError


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
