"""Every objective again, as plain loops over numbers in the papers' notation, to test the fast ones against.

Slow and short on purpose. They take the same tensors, but compute with one scalar at a time, so that gradients can be
compared as well.
"""

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
) -> list[Tensor]:
    """Liao 2021, eq. 2, a value for each entailment pair; without the texts that ``hypothesis_ids`` show to be near."""
    ids, y = premise_ids.tolist(), labels.tolist()
    texts = [("hypothesis", j) for j in range(len(y))] if hypothesis_ids is None else hypothesis_ids.tolist()
    losses = []
    for i in range(len(y)):
        if y[i] != ENTAILMENT:
            continue
        positives = [j for j in range(len(y)) if ids[j] == ids[i] and y[j] == ENTAILMENT]
        near = {ids[i]} | {texts[j] for j in positives}
        negatives = [j for j in range(len(y)) if j not in positives and texts[j] not in near]
        share = {j: torch.exp(_similarity(premises[i], hypotheses[j], similarity) / temperature) for j in range(len(y))}
        denominator = sum(share[k] for k in positives + negatives)
        losses.append(-sum(torch.log(share[j] / denominator) for j in positives) / len(positives))
    return losses


def _similarity(a: Tensor, b: Tensor, similarity: str) -> Tensor:
    product = _dot(a, b)
    return product if similarity == "dot" else product / (_dot(a, a).sqrt() * _dot(b, b).sqrt())


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return sum((a[k] * b[k] for k in range(len(a))), start=torch.zeros((), dtype=a.dtype))
