"""Weights that evaluations and the saved model use in place of those of the step.

They are averages: over the steps (``--ema``), and with the weights before training (``--start-weight``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn


class EvaluatedWeights(ABC):
    """Weights that take the place of the trained parameters while the modules are evaluated and saved."""

    _parameters: Sequence[nn.Parameter]

    @abstractmethod
    def copy_to_modules(self) -> None:
        """Replace the weights of the modules by these."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the modules have these weights; afterwards their own again, bit for bit."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        try:
            self.copy_to_modules()
            yield
        finally:
            with torch.no_grad():
                for parameter, weights in zip(self._parameters, own, strict=True):
                    parameter.copy_(weights)


@contextmanager
def all_applied(weights: Sequence[EvaluatedWeights | None]) -> Iterator[None]:
    """Inside the block, modules have ``weights``, each computed from what the one before left. None is skipped."""
    with ExitStack() as stack:
        for one in weights:
            if one is not None:
                stack.enter_context(one.applied())
        yield


class WeightAverage(EvaluatedWeights):
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
        self._parameters = list(trained)
        self.tensors: dict[str, Tensor] = {
            name: parameter.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            for parameter, name in trained.items()
        }
        """The average of each parameter by its name; the initial weights before the first update."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the current weights to the average; ``step`` is the number of steps done, from 1."""
        weight = (1 - self.decay) / (1 - self.decay**step)
        current = [parameter.detach().float() for parameter in self._parameters]
        if current:
            torch._foreach_lerp_(list(self.tensors.values()), current, weight)

    @torch.no_grad()
    def copy_to_modules(self) -> None:
        """Replace the weights of the modules by the average."""
        for parameter, average in zip(self._parameters, self.tensors.values(), strict=True):
            parameter.copy_(average)


class StartWeights(EvaluatedWeights):
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
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._start = [parameter.detach().to(torch.float32, copy=True) for parameter in self._parameters]

    @torch.no_grad()
    def copy_to_modules(self) -> None:
        """Replace the weights of the module by the average of these and those before training."""
        for parameter, start in zip(self._parameters, self._start, strict=True):
            parameter.copy_(torch.lerp(parameter.detach().float(), start, self.share))
