"""Dropout with the statistics of torch's and a fraction of its time on a CPU.

    y = m x / P(m = 1),

so that E[y] = x up to the rounding of the probability to a multiple of 1 / 65,536. The mask m is a
:class:`nearfar.encoder.dropout_mask.DropoutMask`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.dropout_mask import DropoutMask
from nearfar.encoder.kernels import DTYPES, kernels
from nearfar.types import NearfarError


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Set each element of ``x`` to 0 with probability ``p``, and divide the others by 1 - p, as in training."""
    if p == 0:
        return x
    if p == 1 or x.device.type != "cpu" or x.dtype not in DTYPES:
        return functional.dropout(x, p)
    return apply_dropout_mask(DropoutMask.draw(p), x)


def apply_dropout_mask(mask: DropoutMask, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Apply ``mask`` to ``x``, a CPU tensor whose elements are numbered in row-major order."""
    if mask.scale == 1:
        return x
    return _Drop.apply(x, mask)  # type: ignore[no-untyped-call]


class Dropout(nn.Dropout):
    """:func:`drop` in training, the identity in evaluation."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        """Apply dropout in training."""
        return drop(input, self.p) if self.training else input


def use_fast_dropout(module: nn.Module) -> None:
    """Turn each ``nn.Dropout`` inside ``module`` into a :class:`Dropout`, in place."""
    for part in module.modules():
        if type(part) is nn.Dropout:
            part.__class__ = Dropout


def set_dropout(module: nn.Module, probability: float) -> None:
    """Set the probability of every dropout inside ``module``, in place. A saved model keeps that of its config.

    Some architectures have a number in place of a layer, such as ModernBERT's ``attention_dropout``.

    Raises:
        NearfarError: the probability is not in [0, 1), or it is not 0 and the module has no dropout.
    """
    if not 0 <= probability < 1:
        raise NearfarError(f"dropout {probability}: must be in [0, 1).")
    found = False
    for part in module.modules():
        names = ["p"] if isinstance(part, nn.Dropout) else [name for name in vars(part) if "dropout" in name]
        for name in names:
            if isinstance(getattr(part, name), float):
                setattr(part, name, float(probability))
                found = True
    if probability and not found:
        raise NearfarError(f"dropout {probability:g}: the encoder has no dropout.")


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask) -> Tensor:
        ctx.mask = mask
        return _apply_mask(x, mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return _Drop.apply(grad_output, ctx.mask), None  # type: ignore[no-untyped-call]


def _apply_mask(x: Tensor, mask: DropoutMask) -> Tensor:
    compiled = kernels()
    if compiled is not None:
        return compiled.drop(x.contiguous(), mask)
    kept = mask.keep_mask(torch.arange(-(-x.numel() // 4)))[: x.numel()].view(x.shape)
    return torch.where(kept, x, x.new_zeros(())) * mask.scale
