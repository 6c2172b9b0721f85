"""Losses with a target for each row: scores and ranks of pairs, classes of pairs and tokens, vectors of a teacher.

Scored pairs have squared errors, rankings within groups (RankNet) and of a batch (CoSENT), and AnglE's score.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from nearfar.objectives._contrast import by_rows
from nearfar.objectives._similarity import (
    check_shapes,
    check_temperature,
    compute_dtype,
    l2_normalize,
    prepare_pair,
    row_similarities,
)
from nearfar.runtime.gpu import to_device
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
    check_shapes("first [pairs dim], second [pairs dim], targets [pairs]", first, second, targets)
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
    check_shapes("first [pairs dim], second [pairs dim]", first, second)
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
    _check(scores, targets, temperature, margin, groups)

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
    check_shapes("first [pairs dim], second [pairs dim]", first, second)
    with torch.autocast(first.device.type, enabled=False):
        one, other = (functional.pad(x, (0, x.shape[1] % 2)) for x in prepare_pair(first, second, "cosine"))
        (a, b), (c, d) = one.chunk(2, dim=1), other.chunk(2, dim=1)
        return (a * c + b * d + b * c - a * d).sum(dim=1).abs()


def _logits(scores: Float[Tensor, " pairs"], temperature: float) -> Float[Tensor, " pairs"]:
    """Scores divided by the temperature, in float32 or better."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / temperature


def _check(scores: Tensor, targets: Tensor, temperature: float, margin: float, groups: Tensor | None = None) -> None:
    check_temperature(temperature)
    if not 0 <= margin < math.inf:
        raise NearfarError(f"margin must be a finite number of at least 0, not {margin}")
    check_shapes("scores [pairs], targets [pairs], groups [pairs]", scores, targets, groups)


# --- classes ---


def nli_softmax_features(
    premises: Float[Tensor, "pairs dim"], hypotheses: Float[Tensor, "pairs dim"]
) -> Float[Tensor, "pairs features"]:
    """Input features of a pair classifier: [u; v; |u - v|], of width 3 dim, for a premise u and its hypothesis v.

    Raises NearfarError if the two do not have the same shape.

    Source: Reimers & Gurevych 2019, section 3 ("classification objective function"); Liao 2021, section 3.

    >>> nli_softmax_features(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 0.0]])).tolist()
    [[1.0, 2.0, 4.0, 0.0, 3.0, 2.0]]
    """
    check_shapes("premises [pairs dim], hypotheses [pairs dim]", premises, hypotheses)
    return torch.cat([premises, hypotheses, (premises - hypotheses).abs()], dim=-1)


def nli_softmax(logits: Float[Tensor, "pairs classes"], labels: Int[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Cross-entropy of each pair's label: l_i = -log( exp(x_{i, y_i}) / sum_c exp(x_{i, c}) ).

    Computed and returned in float32 if the logits are float16 or bfloat16, else in their own dtype.
    Raises NearfarError for a label outside 0 .. classes - 1 and for shapes that do not match.

    Source: Liao 2021, eq. 1.

    >>> nli_softmax(torch.zeros(2, 3), torch.tensor([0, 2]))  # log 3
    tensor([1.0986, 1.0986])
    """
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
    return _cross_entropy(logits, tokens, "tokens")


def _cross_entropy(
    logits: Float[Tensor, "rows classes"], targets: Int[Tensor, " rows"], name: str
) -> Float[Tensor, " rows"]:
    check_shapes(f"logits [rows classes], {name} [rows]", logits, targets)
    classes = logits.shape[1]
    # cross_entropy itself would silently ignore a target of -100.
    if ((targets < 0) | (targets >= classes)).any():
        raise NearfarError(f"{name} must be in 0..{classes - 1}, found {targets.min()}..{targets.max()}")
    exact = torch.promote_types(logits.dtype, torch.float32)
    return functional.cross_entropy(logits.to(exact), targets.long(), reduction="none")


# --- vectors and scores of a teacher ---


def list_distillation(
    students: Float[Tensor, "anchors dim"],
    teachers: Float[Tensor, "anchors teacher_dim"],
    *,
    temperature: float,
    teacher_temperature: float | None = None,
) -> Float[Tensor, " anchors"]:
    """KL divergence between the similarity lists of teacher and student: l_i = sum_{j != i} p_ij log(p_ij / q_ij).

    p_i is the softmax over j != i of cos(t_i, t_j) / t_T, and q_i that of cos(s_i, s_j) / t_S. Row i of both arguments
    belongs to the same text; the two may have different widths. Teachers get no gradient. Without other rows, the list
    is empty and the loss 0. Values are in nats; 0 if and only if the lists are equal.

    Up to a constant, which is the entropy of p_i, this is ListNet's top-one cross-entropy. Computed in float32 or
    better, also under autocast. Memory is linear in the number of rows.

    Args:
        students: embeddings of the student.
        teachers: embeddings of the teacher.
        temperature: t_S, divides the student's cosines.
        teacher_temperature: t_T, divides the teacher's cosines; by default ``temperature``.

    Raises NearfarError for different numbers of rows, and for a temperature that is not a positive number.

    Source: Liu et al. 2023, "RankCSE", ranking distillation (ListNet: Cao et al. 2007).

    >>> students, teachers = torch.eye(3), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> list_distillation(students, students, temperature=0.1)
    tensor([0., 0., 0.])
    >>> list_distillation(students, teachers, temperature=0.01)  # q = 1/2 each; p_1 = p_2 = (1, 0), p_3 = (1/2, 1/2)
    tensor([0.6931, 0.6931, 0.0000])
    """
    check_shapes("students [anchors dim], teachers [anchors teacher_dim]", students, teachers)
    given = temperature if teacher_temperature is None else teacher_temperature
    for value in (temperature, given):
        check_temperature(value)
    exact = compute_dtype(students, teachers)
    with torch.autocast(students.device.type, enabled=False):
        own, target = l2_normalize(students.to(exact)), l2_normalize(teachers.detach().to(exact))

        def divergence(rows: slice) -> Float[Tensor, " anchors"]:
            own_logits, logits = (x[rows] @ x.T / tau for x, tau in ((own, temperature), (target, given)))
            return score_distillation(own_logits, logits, index[rows, None] != index)

        index = torch.arange(len(own), device=own.device)
        return by_rows(divergence, len(own), len(own), recompute=True)


def score_distillation(
    scores: Float[Tensor, "anchors candidates"],
    teachers: Float[Tensor, "anchors candidates"],
    mask: Bool[Tensor, "anchors candidates"],
) -> Float[Tensor, " anchors"]:
    """KL divergence between a teacher's and the student's scores of documents: l_i = sum_j p_ij log(p_ij / q_ij).

    p_i is the softmax over j of the teacher's scores t_ij, q_i that of the student's s_ij, each divided by its
    temperature before, over the candidates that ``mask`` has; 0 without any. Teachers get no gradient. Computed in
    float32 or better.

    Raises NearfarError for shapes that do not match.

    Source: Lin et al. 2020, "Distilling Dense Representations for Ranking using Tightly-Coupled Teachers".

    >>> scores, teachers = torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [100.0, 0.0]])
    >>> mask = torch.ones(2, 2, dtype=torch.bool)
    >>> score_distillation(scores, teachers, mask)  # q = 1/2 each; p_1 = (1/2, 1/2), p_2 = (1, 0)
    tensor([0.0000, 0.6931])
    """
    axes = "[anchors candidates]"
    check_shapes(f"scores {axes}, teachers {axes}, mask {axes}", scores, teachers, mask)
    exact = compute_dtype(scores, teachers)
    # Not -inf: a list without candidates would have a NaN gradient.
    log_q, log_p = (
        x.to(exact).masked_fill(~mask, torch.finfo(exact).min).log_softmax(dim=1) for x in (scores, teachers.detach())
    )
    return torch.where(mask, log_p.exp() * (log_p - log_q), 0.0).sum(dim=1)


def margin_mse(margins: Float[Tensor, " triplets"], teachers: Float[Tensor, " triplets"]) -> Float[Tensor, " triplets"]:
    """Squared error of each triplet's margin: l_i = ((s(q_i, p_i) - s(q_i, n_i)) - (t(q_i, p_i) - t(q_i, n_i)))^2.

    ``margins`` are the differences of the student's scores s of positive and negative, ``teachers`` those of the
    teacher's scores t, which get no gradient. Computed in float32 or better.

    Raises NearfarError for shapes that do not match.

    Source: Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation", eq. 1.

    >>> margin_mse(torch.tensor([5.0 - 2.0]), torch.tensor([9.0 - 8.0]))  # (3 - 1)^2
    tensor([4.])
    """
    check_shapes("margins [triplets], teachers [triplets]", margins, teachers)
    exact = compute_dtype(margins, teachers)
    return (margins.to(exact) - teachers.detach().to(exact)).square()


def vector_distillation(
    students: Float[Tensor, "anchors dim"], teachers: Float[Tensor, "anchors dim"]
) -> Float[Tensor, " anchors"]:
    """Mean squared error between each vector of the student and the teacher's: l_i = 1/d sum_k (s_ik - t_ik)^2.

    d is the width, which must be the same; a projection of the students can make it so. Teachers get no gradient.
    Computed in float32 or better.

    Raises NearfarError if the two do not have the same shape.

    Source: Reimers & Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
    section 2.

    >>> vector_distillation(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    tensor([2., 1.])
    """
    check_shapes("students [anchors dim], teachers [anchors dim]", students, teachers)
    exact = compute_dtype(students, teachers)
    return (students.to(exact) - teachers.detach().to(exact)).square().mean(dim=1)
