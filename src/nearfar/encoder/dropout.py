"""Dropout by 16 random bits a number: the same statistics as torch's, a fraction of its time on a CPU.

torch draws each number's fate by itself, one after the other. Here its generator fills whole words, and a number is
kept where its 16 bits are at least the probability, to the nearest 1 / 65,536:

    y = m x / q,   m = [bits >= p],   q = P(m = 1) = 1 - round(65536 p) / 65536,

so that E[y] = x. Who draws what hangs on torch's generator alone: neither on threads nor on compiled kernels.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.kernels import DTYPES, kernels


class Keep(NamedTuple):
    """How 16 bits become a factor: 0 below the threshold, else the scale."""

    threshold: int
    scale: float

    @classmethod
    def of(cls, p: float) -> "Keep":
        """For the probability ``p`` of a 0, below 1."""
        dropped = min(round(p * 65536), 65535)
        return cls(dropped - 32768, 65536 / (65536 - dropped))

    def factors(self, bits: Int16[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
        """0 or the scale, for each."""
        return (bits >= self.threshold).to(dtype).mul_(self.scale)


def random_bits(count: int) -> Int16[Tensor, " count"]:
    """16 random bits each, drawn by torch's generator of the CPU."""
    words = torch.empty(-(-count // 4), dtype=torch.long).random_(-(2**63), None)
    return words.view(torch.int16)[:count]


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """``x`` with each number 0 with probability ``p`` and divided by 1 - p otherwise, as in training."""
    if p == 0:
        return x
    if p == 1 or x.device.type != "cpu" or x.dtype not in DTYPES:
        return functional.dropout(x, p)
    return _Drop.apply(x, random_bits(x.numel()), Keep.of(p))  # type: ignore[no-untyped-call]


class Dropout(nn.Dropout):
    """:func:`drop` in training, nothing otherwise."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        """Drop."""
        return drop(input, self.p) if self.training else input


def use_fast_dropout(module: nn.Module) -> None:
    """Put :class:`Dropout` in the place of each ``nn.Dropout`` inside."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p).train(child.training))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: Tensor, keep: Keep) -> Tensor:
        ctx.save_for_backward(bits)
        ctx.keep = keep
        return _dropped(x, bits, keep)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        return _Drop.apply(slope, bits, ctx.keep), None, None  # type: ignore[no-untyped-call]


def _dropped(x: Tensor, bits: Tensor, keep: Keep) -> Tensor:
    compiled = kernels()
    if compiled is not None:
        return compiled.drop(x.contiguous(), bits, threshold=keep.threshold, scale=keep.scale)
    kept = bits.view(x.shape) >= keep.threshold
    return torch.where(kept, x, x.new_zeros(())) * keep.scale
