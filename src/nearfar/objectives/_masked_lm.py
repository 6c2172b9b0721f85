"""Masked language modelling: the cross-entropy of the masked tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from nearfar.types import NearfarError


def masked_lm(logits: Float[Tensor, "masked vocabulary"], tokens: Int[Tensor, " masked"]) -> Float[Tensor, " masked"]:
    """Cross-entropy of each masked token: l_i = -log( exp(x_{i, w_i}) / sum_w exp(x_{i, w}) ), w_i the original token.

    ``logits`` has the masked positions only. Computed and returned in float32 if the logits are float16 or bfloat16,
    else in their own dtype.

    Raises NearfarError for a token outside the vocabulary and for shapes that do not match.

    Source: Devlin et al. 2019, section 3.1, task 1; with SimCSE: Gao et al. 2021, the auxiliary MLM objective.

    >>> masked_lm(torch.zeros(2, 100), torch.tensor([7, 42]))  # log 100
    tensor([4.6052, 4.6052])
    """
    if logits.ndim != 2 or tokens.shape != logits.shape[:1]:
        raise NearfarError(
            f"logits {tuple(logits.shape)} must be [masked, vocabulary], for tokens {tuple(tokens.shape)}"
        )
    words = logits.shape[1]
    # cross_entropy would silently ignore the token -100.
    if ((tokens < 0) | (tokens >= words)).any():
        raise NearfarError(f"tokens must be in 0..{words - 1}, found {tokens.min()}..{tokens.max()}")
    exact = torch.promote_types(logits.dtype, torch.float32)
    return functional.cross_entropy(logits.to(exact), tokens.long(), reduction="none")
