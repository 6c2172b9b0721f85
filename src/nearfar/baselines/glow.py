"""The invertible network of BERT-flow: Glow (Kingma & Dhariwal 2018) on vectors, as configured by Li et al. 2020.

One step is actnorm, a reversal of the channels, and an additive coupling. A level is ``depth`` steps. After each level
but the last, the second half of the channels is factored out into z; the first half goes through the next level:

    z = [second half of level 1; second half of level 2; ...; all of the last level],   z ~ N(0, I),
    log p(x) = log N(z; 0, I) + sum over steps and channels of log s,

because only the scales s of actnorm change volume. So det dz/dx is the same for every x.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.types import NearfarError

SIDES = 2


SCALE_FACTOR = 3.0
"""The parameter is log s / 3, so that Adam changes log s three times as fast (tensor2tensor's ``logscale_factor``)."""


class ActNorm(nn.Module):
    """y = s (x + b) for each channel; b and log s / 3 are Glorot-uniform unless :meth:`fit` initialises them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        limit = math.sqrt(6 / (1 + channels))  # TensorFlow's default for a variable of shape [1, 1, 1, channels]
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-limit, limit))
        self.log_scale = nn.Parameter(torch.empty(channels).uniform_(-limit, limit))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "texts channels"]) -> None:
        """Set b and s so that the output for ``x`` has mean 0 and variance 1 in each channel.

        In a channel that is constant up to rounding, s is 1: the authors' 1e6 would overflow after three steps.
        """
        mean = x.mean(dim=0)
        deviation = (x - mean).square().mean(dim=0).sqrt()
        constant = deviation <= 1e-6 * mean.abs().clamp(min=1)
        self.bias.copy_(-mean)
        self.log_scale.copy_(-torch.where(constant, 1, deviation + 1e-6).log() / SCALE_FACTOR)

    def forward(self, x: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Shift, then scale."""
        return (x + self.bias) * (SCALE_FACTOR * self.log_scale).exp()

    def inverse(self, y: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Return the x of a y."""
        return y * (-SCALE_FACTOR * self.log_scale).exp() - self.bias

    def log_determinant(self) -> Float[Tensor, ""]:
        """Return log |det dy/dx|, the sum of log s."""
        return SCALE_FACTOR * self.log_scale.sum()


class Coupling(nn.Module):
    """[x1; x2] -> [x1; x2 + m(x1)], with m = linear, actnorm, ReLU, linear, actnorm, ReLU, linear times exp(3 g).

    x1 is the first half of the channels, the larger half if their number is odd. On a 1x1 image all convolutions are
    linear layers. The first two have no bias (actnorm has one) and are initialised from N(0, 0.05^2); the last one and
    g are initialised to 0, so that a new coupling is the identity.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        kept, shifted = halves(channels)
        self.first, self.first_norm = nn.Linear(kept, width, bias=False), ActNorm(width)
        self.second, self.second_norm = nn.Linear(width, width, bias=False), ActNorm(width)
        self.last, self.last_log_scale = nn.Linear(width, shifted), nn.Parameter(torch.zeros(shifted))
        for linear in (self.first, self.second):
            nn.init.normal_(linear.weight, std=0.05)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def shift(self, kept: Float[Tensor, "texts kept"]) -> Float[Tensor, "texts shifted"]:
        """m(x1)."""
        hidden = self.first_norm(self.first(kept)).relu()
        hidden = self.second_norm(self.second(hidden)).relu()
        return self.last(hidden) * (SCALE_FACTOR * self.last_log_scale).exp()

    def forward(self, x: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Add the shift."""
        kept, rest = x.split(halves(x.shape[-1]), dim=-1)
        return torch.cat([kept, rest + self.shift(kept)], dim=-1)

    def inverse(self, y: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Subtract the shift."""
        kept, rest = y.split(halves(y.shape[-1]), dim=-1)
        return torch.cat([kept, rest - self.shift(kept)], dim=-1)


class Step(nn.Module):
    """Actnorm, reversal of the channels, coupling: one step of the flow."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.norm, self.coupling = ActNorm(channels), Coupling(channels, width)

    def forward(self, x: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Apply the step."""
        return self.coupling(self.norm(x).flip(-1))

    def inverse(self, y: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Invert the step."""
        return self.norm.inverse(self.coupling.inverse(y).flip(-1))


class Glow(nn.Module):
    """An invertible map x -> z of ``dim`` numbers, and the density of x if z is standard normal.

    As the authors configured it (bohanli/BERT-flow, ``config_l3_d3_w32.json``, ``glow_ops_1x1.py``, at commit 9f79ed1):
    3 levels of 3 steps; additive couplings of width 32, with ReLU and without dropout; a fixed reversal instead of
    Glow's learned matrix; an unconditional standard normal prior at every level; no squeeze, as there is no image; z of
    all levels as the embedding. Their code assumes that ``dim`` is divisible by 2^levels; here an odd number of
    channels is split with the larger half first, at any level.

    Weights are initialised as in their code, by torch's global generator. Call :meth:`initialise` with a batch before
    training: see :func:`nearfar.baselines.flow.fit_glow` for why their code does not.

    Raises NearfarError if a number is below 1, or if there are so many levels that the last has a single channel.

    >>> x = torch.randn(50, 12)
    >>> glow = Glow(12)
    >>> glow.initialise(x)
    >>> z, log_density = glow(x)
    >>> z.shape, log_density.shape, torch.allclose(glow.inverse(z), x, atol=1e-4)
    (torch.Size([50, 12]), torch.Size([50]), True)
    """

    def __init__(self, dim: int, *, levels: int = 3, depth: int = 3, width: int = 32) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("levels", levels), ("depth", depth), ("width", width)):
            if value < 1:
                raise NearfarError(f"{name} of a flow is {value}, but must be at least 1.")
        channels = list(_channels(dim, levels))
        if channels[-1] < 2:
            raise NearfarError(
                f"the last level of a flow of {levels} levels over {dim} dimensions would have one channel, too few "
                "for a coupling; choose fewer levels."
            )
        self.dim, self.depth, self.width = dim, depth, width
        self.factored_out = [halves(count)[1] for count in channels[:-1]] + channels[-1:]
        """Number of channels that each level factors out into z."""
        self.levels = nn.ModuleList(nn.Sequential(*(Step(count, width) for _ in range(depth))) for count in channels)

    def forward(self, x: Float[Tensor, "texts dim"]) -> tuple[Float[Tensor, "texts dim"], Float[Tensor, " texts"]]:
        """Return z and log p(x), in nats, of each row."""
        parts = []
        for level, done in zip(self.levels, self.factored_out, strict=True):
            y = level(x)
            x, part = y.split((y.shape[-1] - done, done), dim=-1)
            parts.append(part)
        z = torch.cat(parts, dim=-1)
        log_normal = -0.5 * (z.square().sum(dim=-1) + self.dim * math.log(2 * math.pi))
        return z, log_normal + self.log_determinant()

    def inverse(self, z: Float[Tensor, "texts dim"]) -> Float[Tensor, "texts dim"]:
        """Return the x of a z."""
        parts = z.split(self.factored_out, dim=-1)
        x = parts[-1][..., :0]
        for level, part in zip(reversed(self.levels), reversed(parts), strict=True):
            x = torch.cat([x, part], dim=-1)
            for step in reversed(_steps(level)):
                x = step.inverse(x)
        return x

    def log_determinant(self) -> Float[Tensor, ""]:
        """Return log \\|det dz/dx\\|, equal for all x."""
        return torch.stack([step.norm.log_determinant() for level in self.levels for step in _steps(level)]).sum()

    def initialise(self, x: Float[Tensor, "texts dim"]) -> None:
        """Fit each actnorm, also those inside couplings, to its input for this batch."""
        norms = [module for module in self.modules() if isinstance(module, ActNorm)]
        hooks = [norm.register_forward_pre_hook(lambda norm, inputs: norm.fit(*inputs)) for norm in norms]
        try:
            with torch.no_grad():
                self(x)
        finally:
            for hook in hooks:
                hook.remove()


def halves(channels: int) -> tuple[int, int]:
    """Return the sizes of the two halves; the first one is larger if the number is odd."""
    return channels - channels // 2, channels // 2


def _steps(level: nn.Module) -> list[Step]:
    return [step for step in level.children() if isinstance(step, Step)]


def _channels(dim: int, levels: int) -> Iterator[int]:
    """Yield the number of channels of each level."""
    for _ in range(levels):
        yield dim
        dim, _ = halves(dim)
