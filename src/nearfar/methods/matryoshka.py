"""Matryoshka training: the loss of any method at several widths of its embeddings, summed (``--matryoshka``).

Kusupati et al. 2022, "Matryoshka Representation Learning" (arXiv 2205.13147, eq. 1): with z[:d] the first d dimensions
of an embedding z, D the widths and w_d their weights,

    L = sum_{d in D} w_d L_d,    L_d = the method's loss on z[:d] in place of z

A cosine is that of the truncated vectors, so they are scaled to length 1 again. A method with a trained head computes
L_d on z with its dimensions from d on set to 0: a linear layer then uses the first d columns of its weight. This is the
paper's efficient variant, MRL-E, which shares one classifier between the widths; dot products and cosines are those of
the truncated vectors in this case too. The part of a loss that does not depend on the embeddings
(:attr:`nearfar.methods.Loss.penalty`) is added once. Random draws are the same at every width.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nearfar.config.training import TrainConfig
from nearfar.methods.base import Loss, Method
from nearfar.types import NearfarError


def train_at_widths(method: Method, config: TrainConfig, dim: int) -> Method:
    """The method with its loss at every width of ``config.matryoshka``; the method itself if there are none.

    Terms: those of the widest, and for each width d its loss before its weight, ``loss@d``.

    Args:
        method: the method.
        config: has the widths, and their weights (by default 1 each).
        dim: width of the embeddings.

    Raises:
        NearfarError: a width is above ``dim``; the method has no loss on embeddings.
    """
    widths = config.matryoshka
    if widths is None:
        return method
    if max(widths) > dim:
        raise NearfarError(
            f"--matryoshka {' '.join(map(str, widths))}: the embeddings have {dim} dimensions; give widths of at most "
            f"{dim}."
        )
    if not method.embeddings:
        raise NearfarError(
            f"--matryoshka: the loss of {method.name} is not defined on the first dimensions of embeddings; train "
            "without it, or choose another method."
        )
    weights = config.matryoshka_weights or (1.0,) * len(widths)
    ordered = sorted(zip(widths, weights, strict=True), reverse=True)

    def loss_fn(batch: Any, representations: Tensor) -> Loss:
        if representations.shape[-1] != dim:
            raise NearfarError(
                f"--matryoshka: {method.name} represents an item by {list(representations.shape[1:])} numbers, not by "
                f"an embedding with {dim} dimensions; train without it."
            )
        devices = [representations.device] if representations.device.type == "cuda" else []
        losses: list[Loss] = []
        for width, _ in ordered:
            with torch.random.fork_rng(devices):
                losses.append(method.loss_fn(batch, _first(representations, width, pad=method.head is not None)))
        value = torch.stack([weight * loss.value for (_, weight), loss in zip(ordered, losses, strict=True)]).sum()
        own = {f"loss@{width}": loss.value.detach() for (width, _), loss in zip(ordered, losses, strict=True)}
        return Loss(value, losses[0].terms | own, losses[0].penalty)

    return replace(method, loss_fn=loss_fn)


def describe_widths(config: TrainConfig, dim: int) -> list[str]:
    """The widths in words, for the facts of a run; empty if there are none."""
    if config.matryoshka is None:
        return []
    weights = config.matryoshka_weights or (1.0,) * len(config.matryoshka)
    listed = _listed([f"{width} (weight {weight:g})" for width, weight in zip(config.matryoshka, weights, strict=True)])
    facts = [f"matryoshka: the loss on the first {listed} of {dim} dimensions"]
    if (widest := max(config.matryoshka)) < dim:
        facts.append(f"matryoshka: no loss trains the dimensions after the first {widest}")
    return facts


def _first(representations: Tensor, width: int, *, pad: bool) -> Tensor:
    """The first ``width`` numbers of the last axis; with ``pad``, followed by zeros up to the full width."""
    kept = representations[..., :width]
    return functional.pad(kept, (0, representations.shape[-1] - width)) if pad else kept


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
