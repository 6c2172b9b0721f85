"""Reference implementations of every objective, as plain loops over scalars in the papers' notation.

They are slow and short, and take the same tensors, but compute with one scalar at a time, so that gradients can be
compared too.
"""

import math

import torch
from torch import Tensor

ENTAILMENT = 0


def nli_softmax_features(u: Tensor, v: Tensor) -> Tensor:
    """[u; v; |u - v|] of each pair (Reimers & Gurevych 2019, section 3)."""
    rows = []
    for i in range(len(u)):
        row = [*u[i], *v[i]]
        for k in range(u.shape[1]):
            row.append(u[i, k] - v[i, k] if u[i, k] > v[i, k] else v[i, k] - u[i, k])
        rows.append(torch.stack(row))
    return torch.stack(rows)


def nli_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p_y of each pair (Liao 2021, eq. 1)."""
    losses = []
    for i in range(len(labels)):
        exponentials = [torch.exp(logit) for logit in logits[i]]
        losses.append(-torch.log(exponentials[int(labels[i])] / sum(exponentials)))
    return torch.stack(losses)


def premise_scl(
    premises: Tensor,
    hypotheses: Tensor,
    premise_ids: Tensor,
    labels: Tensor,
    temperature: float,
    similarity: str = "dot",
    hypothesis_ids: Tensor | None = None,
    margin: float | None = None,
    hard: tuple[int, ...] = (1, 2),
) -> list[Tensor]:
    """Liao 2021, eq. 2, one loss per entailment pair; without the texts that ``hypothesis_ids`` mark as positives.

    With a margin, also without those that are nearer than the nearest positive by more than it. Of the premise's own
    hypotheses those with labels in ``hard`` are negatives.
    """
    ids, y = premise_ids.tolist(), labels.tolist()
    texts = [("hypothesis", j) for j in range(len(y))] if hypothesis_ids is None else hypothesis_ids.tolist()
    losses = []
    for i in range(len(y)):
        if y[i] != ENTAILMENT:
            continue
        positives = [j for j in range(len(y)) if ids[j] == ids[i] and y[j] == ENTAILMENT]
        near = {ids[i]} | {texts[j] for j in positives}
        negatives = [j for j in range(len(y)) if j not in positives and texts[j] not in near]
        negatives = [j for j in negatives if ids[j] != ids[i] or y[j] in hard]
        s = [_similarity(premises[i], hypotheses[j], similarity) for j in range(len(y))]
        if margin is not None:
            nearest = max(s[j].item() for j in positives)
            negatives = [j for j in negatives if s[j].item() <= nearest + margin]
        share = {j: torch.exp(s[j] / temperature) for j in range(len(y))}
        denominator = sum(share[k] for k in positives + negatives)
        losses.append(-sum(torch.log(share[j] / denominator) for j in positives) / len(positives))
    return losses


def info_nce(
    h: Tensor,
    h_plus: Tensor,
    h_minus: Tensor | None,
    temperature: float,
    log_alpha: float = 0.0,
    similarity: str = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """SimCSE, with or without hard negatives (Gao et al. 2021); alpha is the weight of h_minus_i for anchor h_i."""
    losses = []
    for i in range(len(h)):
        numerator = torch.exp(_similarity(h[i], h_plus[i], similarity) / temperature)
        denominator = numerator
        for j in range(len(h)):
            if j != i and (mask is None or mask[i, j]):
                denominator = denominator + torch.exp(_similarity(h[i], h_plus[j], similarity) / temperature)
        for j in range(0 if h_minus is None else len(h_minus)):
            if mask is None or mask[i, len(h) + j]:
                term = torch.exp(_similarity(h[i], h_minus[j], similarity) / temperature)
                denominator = denominator + (math.exp(log_alpha) * term if i == j else term)
        losses.append(-torch.log(numerator / denominator))
    return torch.stack(losses)


def nt_xent(first: Tensor, second: Tensor, temperature: float, mask: Tensor | None = None) -> Tensor:
    """-log phi(x, mu(x)) / sum_{y in X - {x}} phi(x, y) for every x in X, the 2b vectors (Kim et al. 2021, 3.1)."""
    b = len(first)
    x = [*first, *second]
    losses = []
    for m in range(2 * b):
        numerator, denominator = None, 0.0
        for n in range(2 * b):
            if m == n:
                continue
            if n % b == m % b:  # the other view of the same row
                numerator = _phi(x[m], x[n], temperature)
                denominator = denominator + numerator
            elif mask is None or mask[m % b, n % b]:
                denominator = denominator + _phi(x[m], x[n], temperature)
        losses.append(-torch.log(numerator / denominator))
    return torch.stack(losses)


def supcon(z: Tensor, labels: Tensor, temperature: float) -> list[Tensor]:
    """Gunel et al. 2021, the SCL loss, one value per example that has another of its label."""
    y = labels.tolist()
    losses = []
    for i in range(len(y)):
        if y.count(y[i]) == 1:
            continue
        denominator = sum(_phi(z[i], z[k], temperature) for k in range(len(y)) if k != i)
        logs = [
            torch.log(_phi(z[i], z[j], temperature) / denominator) for j in range(len(y)) if j != i and y[j] == y[i]
        ]
        losses.append(-sum(logs) / (y.count(y[i]) - 1))
    return losses


def sg_opt1(c: Tensor, h: Tensor, temperature: float, mask: Tensor | None = None) -> Tensor:
    """Kim et al. 2021, section 3.2: without the h as anchors, and so without h against h."""
    losses = []
    for i in range(len(c)):
        others = [j for j in range(len(c)) if j != i and (mask is None or mask[i, j])]
        numerator = _phi(c[i], h[i], temperature)
        denominator = sum(_phi(c[i], c[j], temperature) for j in others)
        denominator = denominator + numerator + sum(_phi(c[i], h[j], temperature) for j in others)
        losses.append(-torch.log(numerator / denominator))
    return torch.stack(losses)


def sg_opt2(c: Tensor, h: Tensor, temperature: float, mask: Tensor | None = None) -> Tensor:
    """Kim et al. 2021, section 3.2: opt1 without c against c."""
    losses = []
    for i in range(len(c)):
        numerator = _phi(c[i], h[i], temperature)
        others = [j for j in range(len(c)) if j != i and (mask is None or mask[i, j])]
        denominator = numerator + sum(_phi(c[i], h[j], temperature) for j in others)
        losses.append(-torch.log(numerator / denominator))
    return torch.stack(losses)


def sg_opt3(c: Tensor, h: Tensor, temperature: float, mask: Tensor | None = None) -> Tensor:
    """Kim et al. 2021, section 3.2 (SG-OPT): each layer's view h_{i,k} is a positive; mean over the layers."""
    b, layers = h.shape[:2]
    losses = []
    for i in range(b):
        others = [m for m in range(b) if m != i and (mask is None or mask[i, m])]
        z = sum(_phi(c[i], h[m, n], temperature) for m in others for n in range(layers))
        phis = [_phi(c[i], h[i, k], temperature) for k in range(layers)]
        losses.append(sum(-torch.log(phi / (phi + z)) for phi in phis) / layers)
    return torch.stack(losses)


def masked_lm(logits: Tensor, tokens: Tensor) -> Tensor:
    """-log p(w) of each masked token (Devlin et al. 2019, section 3.1)."""
    return nli_softmax(logits, tokens)


def cosine_regression(u: Tensor, v: Tensor, targets: Tensor) -> Tensor:
    """(cos(u, v) - y)^2 of each pair (Reimers & Gurevych 2019, section 3)."""
    return torch.stack([(_similarity(u[i], v[i], "cosine") - targets[i]) ** 2 for i in range(len(u))])


def regression_features(u: Tensor, v: Tensor) -> Tensor:
    """[|u - v|; u * v] of each pair (Tai et al. 2015, section 4.2)."""
    rows = []
    for i in range(len(u)):
        row = [u[i, k] - v[i, k] if u[i, k] > v[i, k] else v[i, k] - u[i, k] for k in range(u.shape[1])]
        rows.append(torch.stack(row + [u[i, k] * v[i, k] for k in range(u.shape[1])]))
    return torch.stack(rows)


def ranknet(
    s: Tensor, y: Tensor, temperature: float, margin: float = 0.0, groups: Tensor | None = None
) -> list[Tensor]:
    """log(1 + e^(o_i - o_j)) for every i that shall be below j, by i, then j (Burges et al. 2005, eq. 3)."""
    losses = []
    for i in range(len(s)):
        for j in range(len(s)):
            if y[i] < y[j] and (groups is None or groups[i] == groups[j]):
                losses.append(torch.log(1 + torch.exp((s[i] - s[j] + margin) / temperature)))
    return losses


def cosent(s: Tensor, y: Tensor, temperature: float, margin: float = 0.0) -> Tensor:
    """log(1 + sum of e^((s_i - s_j) / t) over all i that shall be below j (CoSENT)."""
    total = torch.ones((), dtype=s.dtype)
    for i in range(len(s)):
        for j in range(len(s)):
            if y[i] < y[j]:
                total = total + torch.exp((s[i] - s[j] + margin) / temperature)
    return torch.log(total)


def angle_similarity(x: Tensor, y: Tensor) -> Tensor:
    """|sum of real and imaginary parts| of the quotients of complex vectors of length 1 (Li & Li 2024)."""
    scores = []
    for i in range(len(x)):
        half = -(-x.shape[1] // 2)
        one = [x[i, k] if k < x.shape[1] else x.new_zeros(()) for k in range(2 * half)]
        other = [y[i, k] if k < x.shape[1] else x.new_zeros(()) for k in range(2 * half)]
        length = (_dot(x[i], x[i]) * _dot(y[i], y[i])).sqrt()
        total = 0.0
        for k in range(half):
            (a, b), (c, d) = (one[k], one[half + k]), (other[k], other[half + k])
            total = total + ((a * c + b * d) + (b * c - a * d)) / length  # Re and Im of (a + bi)(c - di)
        scores.append(total.abs())
    return torch.stack(scores)


def info_nce_directions(
    a: Tensor,
    p: Tensor,
    n: Tensor | None,
    temperature: float,
    directions: str,
    log_alpha: float = 0.0,
    similarity: str = "cosine",
    masks: tuple[Tensor | None, ...] = (None, None, None, None),
) -> Tensor:
    """InfoNCE from anchors to documents, from positives to anchors, in both, or in all four directions (GTE)."""
    d = [*p, *(() if n is None else n)]
    losses = []
    for i in range(len(a)):

        def share(one: Tensor, other: Tensor) -> Tensor:
            return torch.exp(_similarity(one, other, similarity) / temperature)

        own = share(a[i], p[i])
        sums = []
        for number, (one, others) in enumerate(((a[i], d), (p[i], a), (a[i], a), (p[i], d))):
            total = own if number < 2 else 0.0
            for k in range(len(others)):
                if k != i and (masks[number] is None or masks[number][i, k]):
                    alpha = math.exp(log_alpha) if number == 0 and k == len(a) + i else 1.0
                    total = total + alpha * share(one, others[k])
            sums.append(total)
        losses.append(
            {
                "query_to_doc": torch.log(sums[0]),
                "doc_to_query": torch.log(sums[1]),
                "both": (torch.log(sums[0]) + torch.log(sums[1])) / 2,
                "all": torch.log(sum(sums)),
            }[directions]
            - torch.log(own)
        )
    return torch.stack(losses)


def below_positive(a: Tensor, p: Tensor, x: Tensor, margin: float, similarity: str = "cosine") -> list[list[bool]]:
    """Whether candidate k is at most as similar to anchor i as its positive, plus the margin."""
    return [
        [
            _similarity(a[i], x[k], similarity).item() <= _similarity(a[i], p[i], similarity).item() + margin
            for k in range(len(x))
        ]
        for i in range(len(a))
    ]


def distinct_rows(*ids: Tensor) -> list[list[bool]]:
    """Whether two rows share no text."""
    rows = [set(row) for row in zip(*(column.tolist() for column in ids), strict=True)]
    return [[not (one & other) for other in rows] for one in rows]


def _phi(u: Tensor, v: Tensor, temperature: float) -> Tensor:
    return torch.exp(_similarity(u, v, "cosine") / temperature)


def _similarity(a: Tensor, b: Tensor, similarity: str) -> Tensor:
    product = _dot(a, b)
    return product if similarity == "dot" else product / (_dot(a, a).sqrt() * _dot(b, b).sqrt())


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return sum((a[k] * b[k] for k in range(len(a))), start=torch.zeros((), dtype=a.dtype))


def list_distillation(students: Tensor, teachers: Tensor, temperature: float, teacher_temperature: float) -> Tensor:
    """sum_{j != i} p_ij log(p_ij / q_ij) of each row; p and q are softmax over the other rows (RankCSE, ListNet)."""

    def cosine(u: Tensor, v: Tensor) -> Tensor:
        product, first, second = (sum(a * b for a, b in zip(*two, strict=True)) for two in ((u, v), (u, u), (v, v)))
        return product / (first * second).sqrt()

    losses = []
    for i in range(len(students)):
        others = [j for j in range(len(students)) if j != i]
        q, p = (
            [torch.exp(cosine(vectors[i], vectors[j]) / tau) for j in others]
            for vectors, tau in ((students, temperature), (teachers.detach(), teacher_temperature))
        )
        terms = [a / sum(p) * torch.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True)]
        losses.append(sum(terms, 0 * students[i].sum()))
    return torch.stack(losses)


def score_distillation(scores: Tensor, teachers: Tensor, mask: Tensor) -> Tensor:
    """sum_j p_ij log(p_ij / q_ij) of each row; p and q are softmax over the j of the mask (Lin et al. 2020)."""
    losses = []
    for i in range(len(scores)):
        listed = [j for j in range(scores.shape[1]) if mask[i, j]]
        q, p = ([torch.exp(x[i, j]) for j in listed] for x in (scores, teachers))
        terms = [a / sum(p) * torch.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True)]
        losses.append(sum(terms, 0 * scores[i].sum()))
    return torch.stack(losses)


def margin_mse(margins: Tensor, teachers: Tensor) -> Tensor:
    """(m_i - t_i)^2 of each triplet (Hofstaetter et al. 2020)."""
    return torch.stack([(own - wanted) * (own - wanted) for own, wanted in zip(margins, teachers, strict=True)])


def vector_distillation(students: Tensor, teachers: Tensor) -> Tensor:
    """1/d sum_k (s_k - t_k)^2 of each row (Reimers & Gurevych 2020)."""
    rows = zip(students, teachers.detach(), strict=True)
    return torch.stack([sum((a - b) * (a - b) for a, b in zip(s, t, strict=True)) / len(t) for s, t in rows])
