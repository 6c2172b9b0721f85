"""AdamW with the papers' parameter groups, a step with gradient clipping, and the learning rate schedule."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from nearfar.types import Schedule


def learning_rate_factor(step: int, total_steps: int, *, warmup: float, schedule: Schedule) -> float:
    """Learning rate at a step, counted from 0, as a fraction of the peak learning rate.

    With w = round(warmup * total_steps) warm-up steps: (step + 1) / w for step < w, so that the first step's rate is
    not 0. Then, with the remaining share r = (total_steps - step) / (total_steps - w), which would reach 0 after the
    last step: 1 (``constant``), r (``linear``), or (1 - cos(pi r)) / 2 (``cosine``; Loshchilov & Hutter 2017, without
    restarts).
    """
    warmup_steps = round(warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    remaining = (total_steps - step) / (total_steps - warmup_steps)
    return remaining if schedule == "linear" else (1 - math.cos(math.pi * remaining)) / 2


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """AdamW, its learning rate over the steps, and clipping; by default as PyTorch has them."""

    learning_rate: float
    """Peak learning rate of the encoder."""
    head_learning_rate: float | None = None
    """That of the heads; None for ``learning_rate``."""
    weight_decay: float = 0.0
    """Of weights with two or more dimensions."""
    beta2: float = 0.999
    """AdamW's second beta; the first is 0.9."""
    epsilon: float = 1e-8
    """Added to the root of the second moment."""
    warmup: float = 0.0
    schedule: Schedule = "constant"
    max_grad_norm: float = 0.0
    """Gradients are clipped to this norm; 0 turns clipping off."""


def adamw(
    encoder: nn.Module,
    heads: Iterable[nn.Module],
    settings: OptimiserSettings,
    rate_factors: Mapping[nn.Parameter, float] | None = None,
) -> torch.optim.AdamW:
    """AdamW over encoder and heads, without weight decay for biases and one-dimensional weights (LayerNorm).

    Each parameter group stores its peak learning rate as ``peak``, which :func:`set_learning_rate` scales. The groups
    of the encoder come first, those with the highest rate before the others.

    Args:
        encoder: the encoder; parameters that require no gradient are left out.
        heads: modules that are trained with the encoder.
        settings: rates, decay, beta and epsilon.
        rate_factors: factors of the learning rate of single parameters, as for a learning rate by layer; 1 for a
            parameter that is not among them.
    """
    factors = rate_factors or {}
    rate_of_heads = settings.head_learning_rate or settings.learning_rate
    groups = []
    for module, rate in ((encoder, settings.learning_rate), *((head, rate_of_heads) for head in heads)):
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for factor in sorted({factors.get(parameter, 1.0) for parameter in trained}, reverse=True):
            same = [parameter for parameter in trained if factors.get(parameter, 1.0) == factor]
            for parameters, decay in (
                ([parameter for parameter in same if parameter.ndim > 1], settings.weight_decay),
                ([parameter for parameter in same if parameter.ndim <= 1], 0.0),
            ):
                if parameters:
                    peak = rate * factor
                    groups.append({"params": parameters, "weight_decay": decay, "peak": peak, "lr": peak})
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, settings.beta2), eps=settings.epsilon, fused=True
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Set each group's learning rate to ``factor`` times its peak."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor


def gradient_norm(parameters: Iterable[nn.Parameter]) -> float:
    """The Euclidean norm of all gradients, concatenated."""
    return float(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))


def clipped_step(optimiser: torch.optim.AdamW, *, norm: float, max_norm: float) -> None:
    """Optimiser step with gradients of total norm ``norm`` scaled by min(1, max_norm / norm); ``max_norm`` 0: unscaled.

    The fused optimiser scales the gradients as it reads them, as it does for ``torch.amp.GradScaler``, so that they are
    not read and written once more as by ``clip_grad_norm_``.
    """
    optimiser.grad_scale = torch.tensor(max(1.0, (norm + 1e-6) / max_norm) if max_norm else 1.0)  # type: ignore[attr-defined]
    optimiser.step()
