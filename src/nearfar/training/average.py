"""The exponential moving average of the trained weights, which evaluations and the saved model use (``--ema``)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the modules have the averaged weights; afterwards their own again, bit for bit."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        try:
            self.copy_to_modules()
            yield
        finally:
            with torch.no_grad():
                for parameter, weights in zip(self._parameters, own, strict=True):
                    parameter.copy_(weights)
