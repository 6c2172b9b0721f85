"""Attention within each text by its formula, in float64: the reference of every implementation."""

import math

import torch
from torch import Tensor

from nearfar.encoder.tokens import LengthGroup


def groups_of(*texts: tuple[int, int]) -> list[LengthGroup]:
    """Consecutive groups, shortest first, given as (length, number of texts)."""
    groups: list[LengthGroup] = []
    for length, count in texts:
        groups.append(LengthGroup(groups[-1].span.stop if groups else 0, count, length))
    return groups


def formula(
    tensors: list[Tensor],
    groups: list[LengthGroup],
    *,
    window: int | None = None,
    causal: bool = False,
    factors: Tensor | None = None,
) -> list[Tensor]:
    """The output and the gradients of query, key and value [tokens, heads, dim], given these and that of the output.

    ``factors`` [tokens, heads, longest] are those of dropout, by which attention weights are multiplied.
    """
    query, key, value = (tensor.double().requires_grad_() for tensor in tensors[:3])
    rows = []
    for group in groups:
        for start in range(group.start, group.span.stop, group.length):
            span = slice(start, start + group.length)
            scores = torch.einsum("ihd,jhd->hij", query[span], key[span]) / math.sqrt(query.shape[2])
            positions = torch.arange(group.length)
            if window is not None:
                scores = scores.masked_fill((positions[:, None] - positions).abs() >= window, -torch.inf)
            if causal:
                scores = scores.masked_fill(positions > positions[:, None], -torch.inf)
            shares = scores.softmax(2)
            if factors is not None:
                shares = shares * factors[span, :, : group.length].transpose(0, 1)
            rows.append(torch.einsum("hij,jhd->ihd", shares, value[span]))
    out = torch.cat(rows)
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), tensors[3].double())]
