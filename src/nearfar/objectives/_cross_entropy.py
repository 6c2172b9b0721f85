"""Cross-entropy: of NLI pairs, with the input features of their head, and of masked tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from nearfar.types import NearfarError


def nli_softmax_features(
    premises: Float[Tensor, "pairs dim"], hypotheses: Float[Tensor, "pairs dim"]
) -> Float[Tensor, "pairs features"]:
    """Input features of a pair classifier: [u; v; |u - v|], of width 3 dim, for a premise u and its hypothesis v.

    Raises NearfarError if the two do not have the same shape.

    Source: Reimers & Gurevych 2019, section 3 ("classification objective function"); Liao 2021, section 3.

    >>> nli_softmax_features(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 0.0]])).tolist()
    [[1.0, 2.0, 4.0, 0.0, 3.0, 2.0]]
    """
    if premises.shape != hypotheses.shape:
        raise NearfarError(
            f"premises {tuple(premises.shape)} and hypotheses {tuple(hypotheses.shape)} must have the same shape"
        )
    return torch.cat([premises, hypotheses, (premises - hypotheses).abs()], dim=-1)


def nli_softmax(logits: Float[Tensor, "pairs classes"], labels: Int[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Cross-entropy of each pair's label: l_i = -log( exp(x_{i, y_i}) / sum_c exp(x_{i, c}) ).

    Computed and returned in float32 if the logits are float16 or bfloat16, else in their own dtype.
    Raises NearfarError for a label outside 0 .. classes - 1 and for shapes that do not match.

    Source: Liao 2021, eq. 1.

    >>> nli_softmax(torch.zeros(2, 3), torch.tensor([0, 2]))  # log 3
    tensor([1.0986, 1.0986])
    """
    if labels.shape != logits.shape[:1]:
        raise NearfarError(f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} must have as many rows")
    return _cross_entropy(logits, labels, "labels")


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
    return _cross_entropy(logits, tokens, "tokens")


def _cross_entropy(
    logits: Float[Tensor, "rows classes"], targets: Int[Tensor, " rows"], name: str
) -> Float[Tensor, " rows"]:
    classes = logits.shape[1]
    # cross_entropy itself would silently ignore a target of -100.
    if ((targets < 0) | (targets >= classes)).any():
        raise NearfarError(f"{name} must be in 0..{classes - 1}, found {targets.min()}..{targets.max()}")
    exact = torch.promote_types(logits.dtype, torch.float32)
    return functional.cross_entropy(logits.to(exact), targets.long(), reduction="none")
