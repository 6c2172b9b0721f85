"""AdamW with the papers' parameter groups, its clipped step, and the learning rate as a pure function of the step."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn


def learning_rate_factor(
    step: int, total_steps: int, *, warmup: float, schedule: Literal["linear", "constant"]
) -> float:
    """Share of the peak learning rate at a step, counted from 0.

    With w = round(warmup * total_steps): (step + 1) / w while step < w, so that no step is spent at 0; afterwards 1
    (``constant``) or (total_steps - step) / (total_steps - w) (``linear``, which would reach 0 after the last step).
    """
    rising = round(warmup * total_steps)
    if step < rising:
        return (step + 1) / rising
    return 1.0 if schedule == "constant" else (total_steps - step) / (total_steps - rising)


def adamw(
    encoder: nn.Module,
    heads: Iterable[nn.Module],
    *,
    learning_rate: float,
    head_learning_rate: float | None,
    weight_decay: float,
    beta2: float,
) -> torch.optim.AdamW:
    """AdamW over encoder and heads; biases and one-dimensional weights (LayerNorm) do not decay.

    Each group keeps its peak rate as ``peak``; :func:`set_learning_rate` scales it.
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
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, beta2), fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Scale each group's peak rate."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor


def gradient_norm(parameters: Iterable[nn.Parameter]) -> float:
    """The length of all gradients together."""
    return float(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))


def clipped_step(optimiser: torch.optim.AdamW, *, norm: float, max_norm: float) -> None:
    """Step with gradients, of length ``norm``, times min(1, max_norm / norm); ``max_norm`` 0 leaves them as they are.

    The optimiser, which has to be fused, divides them as it reads them, as it does for ``torch.amp.GradScaler``:
    `clip_grad_norm_` would read and write all of them once more.
    """
    optimiser.grad_scale = torch.tensor(max(1.0, (norm + 1e-6) / max_norm) if max_norm else 1.0)  # type: ignore[attr-defined]
    optimiser.step()
