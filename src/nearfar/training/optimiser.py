"""AdamW with the papers' parameter groups, clipping, the learning rate schedule, and averages of the weights.

Evaluations and the saved model use the averages in place of the weights of the step. They are over the steps
(``--ema``), or with the weights before training (``--start-weight``).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from nearfar.types import Schedule


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


def learning_rate_factor(step: int, total_steps: int, settings: OptimiserSettings) -> float:
    """Learning rate at a step, counted from 0, as a fraction of the peak learning rate.

    With w = round(warmup * total_steps) warm-up steps: (step + 1) / w for step < w, so that the first step's rate is
    not 0. Then, with the remaining share r = (total_steps - step) / (total_steps - w), which would reach 0 after the
    last step: 1 (``constant``), r (``linear``), or (1 - cos(pi r)) / 2 (``cosine``; Loshchilov & Hutter 2017, without
    restarts).
    """
    warmup_steps = round(settings.warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if settings.schedule == "constant":
        return 1.0
    remaining = (total_steps - step) / (total_steps - warmup_steps)
    return remaining if settings.schedule == "linear" else (1 - math.cos(math.pi * remaining)) / 2


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


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The Euclidean norm of all gradients, concatenated; a scalar."""
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def clipped_step(optimiser: torch.optim.AdamW, *, norm: Tensor, max_norm: float, also: Sequence[Tensor] = ()) -> None:
    """Optimiser step with gradients of total norm ``norm`` scaled by min(1, max_norm / norm); ``max_norm`` 0: unscaled.

    If the norm or one of ``also``, the losses, is not finite, weights and moments stay as they are. This too is decided
    on the device, so that Python need not wait for it.

    The fused optimiser scales the gradients as it reads them, as it does for ``torch.amp.GradScaler``, so that they are
    not read and written once more as by ``clip_grad_norm_``.
    """
    scale = ((norm.double() + 1e-6) / max_norm).clamp(min=1.0) if max_norm else torch.ones_like(norm)
    optimiser.grad_scale = scale.float()  # type: ignore[attr-defined]
    optimiser.found_inf = 1.0 - torch.stack([norm, *also]).isfinite().all().float()  # type: ignore[attr-defined]
    optimiser.step()


class WeightAverage:
    """Exponential moving average of all trained parameters of ``modules``, with bias correction, in float32.

    After step t, with decay d and the weights w_1, ..., w_t after each step,

        e_t = (1 - d) / (1 - d^t) * sum over s = 1..t of d^(t - s) * w_s,

    which is computed as e_t = e_(t-1) + a_t (w_t - e_(t-1)) with a_t = (1 - d) / (1 - d^t). This is the temporal
    averaging of Kingma & Ba 2015, section 7.2: e_1 = w_1, and the initial weights have no share in the average.
    Parameters that require no gradient are neither trained nor averaged. A parameter that several modules share is
    averaged once.

    Args:
        modules: the trained modules, by name.
        decay: d, in (0, 1).
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float) -> None:
        self.decay = decay
        trained: dict[nn.Parameter, str] = {}
        for prefix, module in modules.items():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    trained.setdefault(parameter, f"{prefix}.{name}")
        self.parameters = list(trained)
        self.tensors: dict[str, Tensor] = {
            name: parameter.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            for parameter, name in trained.items()
        }
        """The average of each parameter by its name; the initial weights before the first update."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the current weights to the average; ``step`` is the number of steps done, from 1."""
        weight = (1 - self.decay) / (1 - self.decay**step)
        current = [parameter.detach().float() for parameter in self.parameters]
        if current:
            torch._foreach_lerp_(list(self.tensors.values()), current, weight)

    @torch.no_grad()
    def copy_to_modules(self) -> None:
        """Replace the weights of the modules by the average."""
        for parameter, average in zip(self.parameters, self.tensors.values(), strict=True):
            parameter.copy_(average)


class StartWeights:
    """The average of the weights before training and those of the step, in float32.

    With the weights w_0 before training, the weights w_t after step t, and the share a of the former,

        a * w_0 + (1 - a) * w_t.

    Source: Wortsman et al. 2022, "Robust fine-tuning of zero-shot models" (WiSE-FT), section 3, where the share of the
    trained weights is alpha = 1 - a. Parameters that require no gradient are not trained, so they stay as they are.

    Args:
        module: the encoder, with its weights before training, which are kept.
        share: a, in [0, 1).
    """

    def __init__(self, module: nn.Module, share: float) -> None:
        self.share = share
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._start = [parameter.detach().to(torch.float32, copy=True) for parameter in self.parameters]

    @torch.no_grad()
    def copy_to_modules(self) -> None:
        """Replace the weights of the module by the average of these and those before training."""
        for parameter, start in zip(self.parameters, self._start, strict=True):
            parameter.copy_(torch.lerp(parameter.detach().float(), start, self.share))


EvaluatedWeights: TypeAlias = WeightAverage | StartWeights
"""Weights that take the place of the trained parameters while the modules are evaluated and saved."""


@contextmanager
def applied(weights: Sequence[EvaluatedWeights]) -> Iterator[None]:
    """Inside the block, modules have ``weights``, each computed from what the one before left.

    Afterwards they have their own again, bit for bit.
    """
    parameters = dict.fromkeys(parameter for average in weights for parameter in average.parameters)
    own = [parameter.detach().clone() for parameter in parameters]
    try:
        for average in weights:
            average.copy_to_modules()
        yield
    finally:
        with torch.no_grad():
            for parameter, tensor in zip(parameters, own, strict=True):
                parameter.copy_(tensor)
