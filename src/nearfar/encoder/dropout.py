"""Dropout with the statistics of torch's and a fraction of its time on a CPU.

    y = m x / P(m = 1),

so that E[y] = x up to the rounding of the probability to a multiple of 1 / 65,536. torch draws the mask m element by
element from one sequential generator. Here torch's generator draws one seed. Word n, 64 random bits, is a function of
the seed and n alone (SplitMix64; Steele et al. 2014, "Fast Splittable Pseudorandom Number Generators"), so that threads
work in parallel, and the backward pass computes the mask again and nothing is stored. Each word serves four elements
with 16 bits each. An element is kept where its bits are at least the threshold:

    m = [bits >= round(65536 p)],   P(m = 1) = 1 - round(65536 p) / 65536.

The mask depends on torch's generator alone, not on the number of threads or on whether compiled kernels are used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.kernels import DTYPES, kernels
from nearfar.types import NearfarError


class DropoutMask(NamedTuple):
    """A mask, as three numbers: an element is kept where its 16 bits, as a signed integer, are >= ``threshold``.

    Kept elements are multiplied by ``scale`` = 1 / P(kept).
    """

    seed: int
    threshold: int
    scale: float

    @classmethod
    def draw(cls, p: float) -> "DropoutMask":
        """A new mask that drops each element with probability ``p`` < 1.

        The seed comes from torch's CPU generator. ``p`` = 0 keeps everything and draws nothing.
        """
        dropped = min(round(p * 65536), 65535)
        seed = int(torch.empty((), dtype=torch.long).random_(-(2**63), None)) if p else 0
        return cls(seed, dropped - 32768, 65536 / (65536 - dropped))

    def keep_mask(self, words: Int64[Tensor, "*rows words"]) -> Bool[Tensor, "*rows elements"]:
        """Whether each of the four elements of each word is kept; ``words`` are word numbers."""
        mixed = (words + 1).mul_(_signed(0x9E3779B97F4A7C15)).add_(self.seed)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            mixed = mixed.bitwise_xor_((mixed >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(_signed(factor))
        return mixed.view(torch.int16) >= self.threshold


def _signed(word: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return word - 2**64 if word >= 2**63 else word


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Set each element of ``x`` to 0 with probability ``p``, and divide the others by 1 - p, as in training."""
    if p == 0:
        return x
    if p == 1 or x.device.type != "cpu" or x.dtype not in DTYPES:
        return functional.dropout(x, p)
    dropped: Tensor = _Drop.apply(x, DropoutMask.draw(p))  # type: ignore[no-untyped-call]
    return dropped


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
    places = [
        (part, name)
        for part in module.modules()
        for name, value in vars(part).items()
        if type(value) in (int, float) and ("dropout" in name or (name == "p" and isinstance(part, nn.Dropout)))
    ]
    for part, name in places:
        setattr(part, name, float(probability))
    if probability and not places:
        raise NearfarError(f"dropout {probability:g}: the encoder has no dropout.")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, which has no dropout; the module's own mode afterwards."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask) -> Tensor:
        ctx.mask = mask
        compiled = kernels()
        if compiled is not None:
            return compiled.drop(x.contiguous(), mask)
        kept = mask.keep_mask(torch.arange(-(-x.numel() // 4)))[: x.numel()].view(x.shape)
        return torch.where(kept, x, x.new_zeros(())) * mask.scale

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return _Drop.apply(grad_output, ctx.mask), None  # type: ignore[no-untyped-call]
