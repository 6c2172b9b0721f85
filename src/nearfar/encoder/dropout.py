"""Dropout whose mask is a function of a seed and a place: torch's statistics, a fraction of its time on a CPU.

torch draws each number's fate from one generator, one after the other. Here its generator draws one seed, from which
word n of 64 random bits is made on its own (SplitMix64; Steele et al. 2014, "Fast Splittable Pseudorandom Number
Generators"), so that processors share the work and no mask is kept. Each word serves four numbers, and a number is kept
where its 16 bits are at least the probability, to the nearest 1 / 65,536:

    y = m x / q,   m = [bits >= p],   q = P(m = 1) = 1 - round(65536 p) / 65536,

so that E[y] = x. What is dropped hangs on torch's generator alone: neither on threads nor on compiled kernels.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.kernels import DTYPES, kernels


class Mask(NamedTuple):
    """Which numbers are dropped, by their place, and what the others are multiplied with."""

    seed: int
    threshold: int
    scale: float

    @classmethod
    def draw(cls, p: float) -> "Mask":
        """A fresh one for the probability ``p`` of a 0, below 1, by torch's generator of the CPU; for 0, none."""
        dropped = min(round(p * 65536), 65535)
        seed = int(torch.empty((), dtype=torch.long).random_(-(2**63), None)) if p else 0
        return cls(seed, dropped - 32768, 65536 / (65536 - dropped))

    def keep_mask(self, words: Int64[Tensor, "*rows words"]) -> Bool[Tensor, "*rows numbers"]:
        """Which of the four numbers of each of these words are kept."""
        mixed = (words + 1).mul_(_signed(0x9E3779B97F4A7C15)).add_(self.seed)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            mixed = mixed.bitwise_xor_((mixed >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(_signed(factor))
        return mixed.view(torch.int16) >= self.threshold


def _signed(word: int) -> int:
    """The same 64 bits as torch has them."""
    return word - 2**64 if word >= 2**63 else word


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """``x`` with each number 0 with probability ``p`` and divided by 1 - p otherwise, as in training."""
    if p == 0:
        return x
    if p == 1 or x.device.type != "cpu" or x.dtype not in DTYPES:
        return functional.dropout(x, p)
    return apply_dropout_mask(Mask.draw(p), x)


def apply_dropout_mask(mask: Mask, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x``, on a CPU, less what the mask drops, which numbers have their places in the order of their indices."""
    if mask.scale == 1:
        return x
    return _Drop.apply(x, mask)  # type: ignore[no-untyped-call]


class Dropout(nn.Dropout):
    """:func:`drop` in training, nothing otherwise."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        """Drop."""
        return drop(input, self.p) if self.training else input


def use_fast_dropout(module: nn.Module) -> None:
    """Make each ``nn.Dropout`` inside a :class:`Dropout`."""
    for part in module.modules():
        if type(part) is nn.Dropout:
            part.__class__ = Dropout


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        return _apply_mask(x, mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return _Drop.apply(grad_output, ctx.mask), None  # type: ignore[no-untyped-call]


def _apply_mask(x: Tensor, mask: Mask) -> Tensor:
    compiled = kernels("dropout")
    if compiled is not None:
        return compiled.drop(x.contiguous(), mask)
    kept = mask.keep_mask(torch.arange(-(-x.numel() // 4)))[: x.numel()].view(x.shape)
    return torch.where(kept, x, x.new_zeros(())) * mask.scale
