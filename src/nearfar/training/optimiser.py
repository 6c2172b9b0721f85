"""AdamW with the papers' parameter groups, a step with gradient clipping, and the learning rate schedule."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn


def learning_rate_factor(
    step: int, total_steps: int, *, warmup: float, schedule: Literal["linear", "constant"]
) -> float:
    """Learning rate at a step, counted from 0, as a fraction of the peak learning rate.

    With w = round(warmup * total_steps) warm-up steps: (step + 1) / w for step < w, so that the first step's rate is
    not 0; then 1 (``constant``) or (total_steps - step) / (total_steps - w) (``linear``), which would reach 0 after the
    last step.
    """
    warmup_steps = round(warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return 1.0 if schedule == "constant" else (total_steps - step) / (total_steps - warmup_steps)


def adamw(
    encoder: nn.Module,
    heads: Iterable[nn.Module],
    *,
    learning_rate: float,
    head_learning_rate: float | None,
    weight_decay: float,
    beta2: float,
    epsilon: float = 1e-8,
) -> torch.optim.AdamW:
    """AdamW over encoder and heads, without weight decay for biases and one-dimensional weights (LayerNorm).

    Each parameter group stores its peak learning rate as ``peak``, which :func:`set_learning_rate` scales.
    """
    groups = []
    for module, rate in ((encoder, learning_rate), *((head, head_learning_rate or learning_rate) for head in heads)):
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameters, decay in (
            ([parameter for parameter in trained if parameter.ndim > 1], weight_decay),
            ([parameter for parameter in trained if parameter.ndim <= 1], 0.0),
        ):
            if parameters:
                groups.append({"params": parameters, "weight_decay": decay, "peak": rate, "lr": rate})
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, beta2), eps=epsilon, fused=True)


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
