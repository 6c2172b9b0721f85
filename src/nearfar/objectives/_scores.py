"""Losses of scored pairs: squared errors; rankings within groups (RankNet) and of a batch (CoSENT); AnglE's score."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from nearfar.objectives._contrast import by_rows
from nearfar.objectives._similarity import check_same_shape, check_temperature, prepare_pair, row_similarities
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError

EXACT_FROM = 40.0
"""softplus(x) is x in float64 from here; from torch's default, 20, it is wrong by 2e-9."""


def cosine_regression(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """Squared error of each pair's cosine: l_i = (cos(u_i, v_i) - y_i)^2.

    A zero vector has cosine 0 with every vector, and no gradient. float16 and bfloat16 vectors are compared in float32
    and give float32 losses; other dtypes are kept.

    Raises NearfarError for a target outside -1..1 and for shapes that do not match.

    Source: Reimers & Gurevych 2019, section 3 ("regression objective function").

    >>> u, v = torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [3.0, 3.0]])
    >>> cosine_regression(u, v, torch.tensor([0.5, 1.0]))  # cosines 0 and 1
    tensor([0.2500, 0.0000])
    """
    check_same_shape("first second", first, second)
    if targets.shape != first.shape[:1]:
        raise NearfarError(f"targets {tuple(targets.shape)} must be one for each of the {len(first)} pairs")
    if not (targets.abs() <= 1).all():  # this form also rejects NaN
        raise NearfarError(f"targets must be in -1..1, as cosines are, found {targets.min()}..{targets.max()}")
    cosines = row_similarities(first, second, "cosine")
    return (cosines - targets.to(cosines.dtype)).square()


def regression_features(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"]
) -> Float[Tensor, "pairs features"]:
    """Input features of a regression head: [|u - v|; u * v], of width 2 dim; symmetric in u and v.

    Raises NearfarError if the two do not have the same shape.

    Source: Tai et al. 2015, section 4.2; the relatedness tasks of Conneau & Kiela 2018 (SentEval).

    >>> regression_features(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 0.0]])).tolist()
    [[3.0, 2.0, 4.0, 0.0]]
    """
    check_same_shape("first second", first, second)
    return torch.cat([(first - second).abs(), first * second], dim=-1)


def ranknet(
    scores: Float[Tensor, " pairs"],
    targets: Float[Tensor, " pairs"] | Int[Tensor, " pairs"],
    groups: Int[Tensor, " pairs"] | None = None,
    *,
    temperature: float,
    margin: float = 0.0,
) -> Float[Tensor, " comparisons"]:
    """Rank scores as their targets, by a logistic loss on each comparison of two scores of a group.

    l_ij = log(1 + exp((s_i - s_j + m) / t)) for all i, j of one group with y_i < y_j

    with scores s, targets y, temperature t and margin m. Returns one loss for each comparison, ordered by i, then j.
    Without ``groups`` all scores are one group. Scores with equal targets are not compared. Without a comparison the
    result is empty but still attached to the graph. float16 and bfloat16 scores are compared in float32. Targets and
    groups may be on the CPU for scores on a GPU.

    Raises NearfarError for a temperature that is not positive, a margin that is negative or not finite, and shapes that
    do not match.

    Source: Burges et al. 2005, "Learning to Rank using Gradient Descent", eq. 3, with a temperature and a margin.

    >>> ranknet(torch.zeros(3), torch.tensor([2, 1, 0]), temperature=0.05)  # log 2 for each of three comparisons
    tensor([0.6931, 0.6931, 0.6931])
    >>> ranknet(torch.zeros(3), torch.tensor([2, 1, 0]), torch.tensor([7, 7, 8]), temperature=0.05)
    tensor([0.6931])
    """
    _check(scores, targets, temperature, margin)
    if groups is not None and groups.shape != scores.shape:
        raise NearfarError(f"groups {tuple(groups.shape)} must be one for each of the {len(scores)} scores")

    def comparisons(rows: slice) -> Int[Tensor, "comparisons 2"]:
        """The pairs (i, j) with i among these rows."""
        compared = targets[rows, None] < targets
        if groups is not None:
            compared &= groups[rows, None] == groups
        return compared.nonzero() + compared.new_tensor([rows.start, 0], dtype=torch.long)

    low, high = to_device(by_rows(comparisons, len(scores), len(scores)), scores.device).T
    logits = _logits(scores, temperature)
    return functional.softplus(logits[low] - logits[high] + margin / temperature, threshold=EXACT_FROM)


def cosent(
    scores: Float[Tensor, " pairs"],
    targets: Float[Tensor, " pairs"] | Int[Tensor, " pairs"],
    *,
    temperature: float,
    margin: float = 0.0,
) -> Float[Tensor, ""]:
    """Rank all scores of a batch as their targets.

    L = log(1 + sum_{i, j: y_i < y_j} exp((s_i - s_j + m) / t))

    with scores s (cosines of pairs), targets y, temperature t and margin m. Scores with equal targets are not compared.
    Without a comparison the result is 0, attached to the graph. Unlike other objectives this is one value for the whole
    batch, because the comparisons are inside one logarithm. Time is that of a sort and memory linear in the number of
    scores. float16 and bfloat16 scores are compared in float32.

    Raises NearfarError as :func:`ranknet` does.

    Source: CoSENT (Su 2022; Huang et al. 2024, "CoSENT: Consistent Sentence Embedding via Similarity Ranking"). The
    margin is nearfar's addition.

    >>> cosent(torch.zeros(3), torch.tensor([0.1, 0.5, 0.9]), temperature=0.05)  # log(1 + 3)
    tensor(1.3863)
    """
    _check(scores, targets, temperature, margin)
    targets, order = targets.sort(descending=True)
    logits = _logits(scores, temperature)[order]
    above = torch.searchsorted(-targets, -targets)  # number of scores with a higher target
    # sum over j above i of exp(-x_j), for every i at once: a running sum down the sorted targets
    higher = (-logits).logcumsumexp(dim=0)
    compared = (above > 0).nonzero().squeeze(1)
    terms = logits[compared] + higher[above[compared] - 1] + margin / temperature
    return torch.cat([logits.new_zeros(1), terms]).logsumexp(dim=0)


def angle_similarity(first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"]) -> Float[Tensor, " pairs"]:
    """AnglE's score of each pair: the first half of a vector is the real part of a complex one, the second the rest.

    s_i = |sum_k Re(q_ik) + Im(q_ik)| with q_i = (z_i / |z_i|) * conj(w_i / |w_i|)

    for the complex vectors z_i = a + ib of the first and w_i = c + id of the second texts, each scaled to length 1, so
    that s_i = |cos(z_i, w_i) + (b c - a d) / (|z_i| |w_i|)|. Equal vectors have s = 1. Use it as the score of
    :func:`cosent`. A vector of odd width gets a zero appended. A zero vector has score 0 and no gradient. float16 and
    bfloat16 vectors are compared in float32, also under autocast; other dtypes are kept.

    Raises NearfarError for shapes that do not match.

    Source: Li & Li 2024, "AoE: Angle-optimized Embeddings for Semantic Textual Similarity", section 3, with the sign of
    the authors' code, where a higher score means more similar.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> angle_similarity(x, torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 1.])
    """
    check_same_shape("first second", first, second)
    with torch.autocast(first.device.type, enabled=False):
        one, other = (functional.pad(x, (0, x.shape[1] % 2)) for x in prepare_pair(first, second, "cosine"))
        (a, b), (c, d) = one.chunk(2, dim=1), other.chunk(2, dim=1)
        return (a * c + b * d + b * c - a * d).sum(dim=1).abs()


def _logits(scores: Float[Tensor, " pairs"], temperature: float) -> Float[Tensor, " pairs"]:
    """Scores divided by the temperature, in float32 or better."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / temperature


def _check(scores: Tensor, targets: Tensor, temperature: float, margin: float) -> None:
    check_temperature(temperature)
    if not 0 <= margin < math.inf:
        raise NearfarError(f"margin must be a finite number of at least 0, not {margin}")
    if scores.ndim != 1 or targets.shape != scores.shape:
        raise NearfarError(
            f"scores {tuple(scores.shape)} and targets {tuple(targets.shape)} must have one value for each pair"
        )
