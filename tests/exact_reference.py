"""Objectives and statistics in mpmath with 60 digits: exact values for inputs at the ends of floating point."""

from collections.abc import Sequence
from typing import Any

import mpmath
from torch import Tensor

mpmath.mp.dps = 60
Row = Sequence[Any]


def rows_of(matrix: Any) -> list[list[Any]]:
    """The rows of a matrix as exact numbers."""
    values = matrix.detach().double().tolist() if isinstance(matrix, Tensor) else matrix.tolist()
    return [[mpmath.mpf(value) for value in row] for row in values]


def dot(one: Row, other: Row) -> Any:
    return mpmath.fsum(x * y for x, y in zip(one, other, strict=True))


def cosine(one: Row, other: Row) -> Any:
    """0 for a zero vector."""
    lengths = mpmath.sqrt(dot(one, one) * dot(other, other))
    return dot(one, other) / lengths if lengths else mpmath.mpf(0)


def nll(positive: Any, candidates: Row) -> Any:
    """-log(exp(positive) / sum exp(candidates)), the positive among them."""
    return mpmath.log(mpmath.fsum(mpmath.exp(x - positive) for x in candidates))


def info_nce(a: Any, p: Any, n: Any, t: float) -> list[Any]:
    a, p, n = rows_of(a), rows_of(p), [] if n is None else rows_of(n)
    return [nll(cosine(a[i], p[i]) / t, [cosine(a[i], x) / t for x in [*p, *n]]) for i in range(len(a))]


def supcon(z: Any, labels: Sequence[int], t: float) -> list[Any]:
    z, losses = rows_of(z), []
    for i in range(len(z)):
        same = [j for j in range(len(z)) if j != i and labels[j] == labels[i]]
        logits = [cosine(z[i], z[k]) / t for k in range(len(z)) if k != i]
        if same:
            losses.append(mpmath.fsum(nll(cosine(z[i], z[j]) / t, logits) for j in same) / len(same))
    return losses


def list_distillation(students: Any, teachers: Any, t: float) -> list[Any]:
    s, losses = [rows_of(students), rows_of(teachers)], []
    for i in range(len(s[0])):
        others = [j for j in range(len(s[0])) if j != i]
        log_q, log_p = (
            [-nll(cosine(v[i], v[j]) / t, [cosine(v[i], v[k]) / t for k in others]) for j in others] for v in s
        )
        losses.append(mpmath.fsum(mpmath.exp(p) * (p - q) for p, q in zip(log_p, log_q, strict=True)))
    return losses


def ranknet(s: Row, y: Row, t: float) -> list[Any]:
    pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if y[i] < y[j]]
    return [mpmath.log1p(mpmath.exp((s[i] - s[j]) / t)) for i, j in pairs]


def cosent(s: Row, y: Row, t: float) -> Any:
    return mpmath.log1p(
        mpmath.fsum(mpmath.exp((s[i] - s[j]) / t) for i in range(len(s)) for j in range(len(s)) if y[i] < y[j])
    )


def cosine_regression(u: Any, v: Any, y: Row) -> list[Any]:
    return [(cosine(a, b) - mpmath.mpf(target)) ** 2 for a, b, target in zip(rows_of(u), rows_of(v), y, strict=True)]


def cross_entropy(logits: Any, labels: Sequence[int]) -> list[Any]:
    return [nll(row[label], row) for row, label in zip(rows_of(logits), labels, strict=True)]


def pearson(x: Row, y: Row) -> Any:
    x, y = ([mpmath.mpf(one) for one in values] for values in (x, y))
    centred = [[one - mpmath.fsum(values) / len(values) for one in values] for values in (x, y)]
    return cosine(*centred)


def ranks(values: Row) -> list[Any]:
    """Ranks from 1, ties by average ranks."""
    values = [float(one) for one in values]
    return [
        mpmath.mpf(sum(other < one for other in values)) + mpmath.mpf(sum(other == one for other in values) + 1) / 2
        for one in values
    ]
