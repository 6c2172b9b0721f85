"""The dropout mask as a function of a seed and an element's index, so that it is never stored.

torch draws the mask element by element from one sequential generator. Here torch's generator draws one seed. Word n, 64
random bits, is a function of the seed and n alone (SplitMix64; Steele et al. 2014, "Fast Splittable Pseudorandom Number
Generators"), so that threads work in parallel and the backward pass computes the mask again. Each word serves four
elements with 16 bits each. An element is kept where its bits are at least the threshold:

    m = [bits >= round(65536 p)],   P(m = 1) = 1 - round(65536 p) / 65536.

The mask depends on torch's generator alone, not on the number of threads or on whether compiled kernels are used.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor


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
