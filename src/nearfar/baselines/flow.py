"""BERT-flow (Li et al. 2020): a Glow maps embeddings to a standard normal distribution; its output z is the embedding.

The flow is fitted by maximum likelihood to the embeddings of unlabelled texts; the encoder is frozen. The loss is
-log p(x) / (dim log 2), bits per dimension. In the paper, "target" fits on the texts of the task itself (train, dev and
test), "NLI" on those of SNLI and MNLI; here the caller chooses the texts.

Training follows the authors' code (bohanli/BERT-flow, ``run_siamese.py``, ``optimization_bert_flow.py``, at commit
9f79ed1): one epoch over shuffled pairs; 32 pairs, that is 64 texts, per step, an incomplete last step dropped; the loss
is the *sum* of the means over first and over second texts, twice the mean over both, which affects only clipping and
Adam's epsilon; gradients clipped at norm 1; BERT's Adam, with weight decay 0.01 on *every* weight (none of the flow's
parameter names matches their exceptions), epsilon 1e-6 and no bias correction, so that steps are 3 to 6.6 times larger
at first and still 2 times larger after 300 steps; a constant learning rate of 1e-3, without warm-up or decay;
embeddings are not normalised before the flow.

Differences: ``encode`` is called once; their encoder runs again in each epoch and with dropout (an ``encode`` with
dropout is equivalent for one epoch). Texts are sampled singly, not in pairs. The embedding and the maximum length, 64,
are settings of the encoder here. The paper averages the last two layers over all tokens (pooling ``last_two``); the
``avg-last-2`` of the code averages the first and the last transformer layer (``first_last``), by an error in an index.
Actnorm is initialised from data, see :func:`fit_glow`. Not verified: their TensorFlow code was read, not run; their
released models were not compared; settings are from the code, not from the paper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from nearfar.types import Encode, NearfarError

BETAS, EPSILON = (0.9, 0.999), 1e-6
LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 0.01, 1.0
SIDES = 2
CHUNK = 4096


# --- the network: Glow (Kingma & Dhariwal 2018) on vectors ---

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


class Coupling(nn.Module):
    """[x1; x2] -> [x1; x2 + m(x1)], with m = linear, actnorm, ReLU, linear, actnorm, ReLU, linear times exp(3 g).

    x1 is the first half of the channels, the larger half if their number is odd. On a 1x1 image all convolutions are
    linear layers. The first two have no bias (actnorm has one) and are initialised from N(0, 0.05^2); the last one and
    g are initialised to 0, so that a new coupling is the identity.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        shifted = channels // 2
        self.first, self.first_norm = nn.Linear(channels - shifted, width, bias=False), ActNorm(width)
        self.second, self.second_norm = nn.Linear(width, width, bias=False), ActNorm(width)
        self.last, self.last_log_scale = nn.Linear(width, shifted), nn.Parameter(torch.zeros(shifted))
        nn.init.normal_(self.first.weight, std=0.05)
        nn.init.normal_(self.second.weight, std=0.05)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Add the shift m(x1)."""
        kept, rest = x.chunk(2, dim=-1)
        hidden = self.first_norm(self.first(kept)).relu()
        hidden = self.second_norm(self.second(hidden)).relu()
        return torch.cat([kept, rest + self.last(hidden) * (SCALE_FACTOR * self.last_log_scale).exp()], dim=-1)


class Step(nn.Module):
    """Actnorm, reversal of the channels, coupling: one step of the flow."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.norm, self.coupling = ActNorm(channels), Coupling(channels, width)

    def forward(self, x: Float[Tensor, "texts channels"]) -> Float[Tensor, "texts channels"]:
        """Apply the step."""
        return self.coupling(self.norm(x).flip(-1))


class Glow(nn.Module):
    """An invertible map x -> z of ``dim`` numbers, and the density of x if z is standard normal.

    One step is actnorm, a reversal of the channels, and an additive coupling. A level is ``depth`` steps. After each
    level but the last, the second half of the channels is factored out into z; the first half goes through the next:

        z = [second half of level 1; second half of level 2; ...; all of the last level],   z ~ N(0, I),
        log p(x) = log N(z; 0, I) + sum over steps and channels of log s,

    because only the scales s of actnorm change volume. So det dz/dx is the same for every x.

    As the authors configured it (bohanli/BERT-flow, ``config_l3_d3_w32.json``, ``glow_ops_1x1.py``, at commit 9f79ed1):
    3 levels of 3 steps; additive couplings of width 32, with ReLU and without dropout; a fixed reversal instead of
    Glow's learned matrix; an unconditional standard normal prior at every level; no squeeze, as there is no image; z of
    all levels as the embedding. Their code assumes that ``dim`` is divisible by 2^levels; here an odd number of
    channels is split with the larger half first, at any level.

    Weights are initialised as in their code, by torch's global generator. Call :meth:`initialise` with a batch before
    training: see :func:`nearfar.baselines.flow.fit_glow` for why their code does not.

    Raises NearfarError if there are so many levels that the last has a single channel.

    >>> x = torch.randn(50, 12)
    >>> glow = Glow(12)
    >>> glow.initialise(x)
    >>> z, log_density = glow(x)
    >>> z.shape, log_density.shape
    (torch.Size([50, 12]), torch.Size([50]))
    """

    def __init__(self, dim: int, *, levels: int = 3, depth: int = 3, width: int = 32) -> None:
        super().__init__()
        channels = [dim]
        while len(channels) < levels:
            channels.append(channels[-1] - channels[-1] // 2)
        if channels[-1] < 2:
            raise NearfarError(
                f"the last level of a flow of {levels} levels over {dim} dimensions would have one channel, too few "
                "for a coupling; choose fewer levels."
            )
        self.dim = dim
        self.levels = nn.ModuleList(nn.Sequential(*(Step(count, width) for _ in range(depth))) for count in channels)

    def forward(self, x: Float[Tensor, "texts dim"]) -> tuple[Float[Tensor, "texts dim"], Float[Tensor, " texts"]]:
        """Return z and log p(x), in nats, of each row."""
        parts = []
        for level in self.levels[:-1]:
            x, part = level(x).chunk(2, dim=-1)
            parts.append(part)
        parts.append(self.levels[-1](x))
        z = torch.cat(parts, dim=-1)
        log_normal = -0.5 * (z.square().sum(dim=-1) + self.dim * math.log(2 * math.pi))
        scales = [step.norm.log_scale for step in self.modules() if isinstance(step, Step)]
        return z, log_normal + torch.stack([SCALE_FACTOR * log_scale.sum() for log_scale in scales]).sum()

    @torch.no_grad()
    def initialise(self, x: Float[Tensor, "texts dim"]) -> None:
        """Fit each actnorm, also those inside couplings, to its input for this batch."""
        norms = [module for module in self.modules() if isinstance(module, ActNorm)]
        hooks = [norm.register_forward_pre_hook(lambda norm, inputs: norm.fit(*inputs)) for norm in norms]
        self(x)
        for hook in hooks:
            hook.remove()


# --- the baseline ---


@dataclass(frozen=True)
class Flow:
    """Maps texts to the z of their embeddings; an :data:`nearfar.types.Encode`. Compare z by cosine."""

    encode: Encode
    glow: Glow

    @classmethod
    def fit(cls, encode: Encode, texts: Sequence[str], **settings: Any) -> "Flow":
        """Fit a flow to the embeddings of ``texts``; repeated texts count repeatedly.

        ``settings`` are those of :func:`fit_glow`. All embeddings are in memory: 4 dim bytes per text, 3.4 GB for both
        sides of NLI at 768 dimensions.

        Raises:
            NearfarError: as :func:`fit_glow`.
        """
        return cls(encode, fit_glow(encode(texts), **settings))

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """Return the embeddings as float32 [texts, dim], not normalised."""
        chunks = torch.as_tensor(self.encode(texts)).float().split(CHUNK)
        return torch.cat([self.glow(chunk)[0] for chunk in chunks]).numpy()


def fit_glow(
    embeddings: NDArray[np.floating],
    *,
    epochs: int = 1,
    batch_size: int = 64,  # texts: the authors' 32 pairs
    seed: int = 0,
    progress: bool = False,
) -> Glow:
    """Fit a Glow to finite embeddings [texts, dim] (see the module docstring).

    Rows are shuffled in each epoch; an incomplete last batch is dropped. A seed gives the same weights on the same
    machine, independent of torch's global generator, whose state is restored.

    Before the first step, actnorm is fitted to the first batch, as in Kingma & Dhariwal 2018 (section 3.1). The
    authors' code intends this too, but leaves it to a session hook (``GlowInitHook``) that ``run_siamese.py`` imports
    and never passes to its estimator, so that actnorm starts from TensorFlow's default, Glorot-uniform. The
    re-implementation UKPLab/pytorch-bertflow initialises from data, and was reported to reproduce the results.

    Raises:
        NearfarError: embeddings that are all equal or have fewer dimensions than the levels need; a batch larger than
            the number of texts; a loss that is not finite.
    """
    rows, dim = embeddings.shape
    if not 2 <= batch_size <= rows:
        raise NearfarError(f"batch_size is {batch_size}, but must be from 2 to the number of texts, {rows}.")
    if not np.ptp(embeddings, axis=0).any():
        raise NearfarError(f"all {rows} embeddings are equal, so there is no distribution to fit a flow to.")

    x = torch.as_tensor(embeddings).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        glow = Glow(dim)
        optimiser = torch.optim.AdamW(glow.parameters(), betas=BETAS, fused=True)
        for epoch in range(epochs):
            batches = torch.randperm(rows)[: rows // batch_size * batch_size].split(batch_size)
            bar = track(batches, "flow", console=Console(stderr=True), transient=True, disable=not progress)
            for step, batch in enumerate(bar, start=epoch * len(batches) + 1):
                if step == 1:
                    glow.initialise(x[batch])
                bits = -glow(x[batch])[1].mean() / (dim * math.log(2))
                optimiser.zero_grad()
                (SIDES * bits).backward()
                norm = torch.nn.utils.clip_grad_norm_(glow.parameters(), CLIP)
                if not (math.isfinite(bits.item()) and math.isfinite(norm.item())):
                    raise NearfarError(
                        f"the flow's loss is {bits.item()} at step {step}; its embeddings cannot be fitted."
                    )
                _without_bias_correction(optimiser, step)
                optimiser.step()
    return glow.eval().requires_grad_(False)


def _without_bias_correction(optimiser: torch.optim.Optimizer, step: int) -> None:
    """Set the parameter groups so that torch's next step is that of BERT's Adam, without bias correction.

    BERT: w -= learning_rate (m / (sqrt(v) + 1e-6) + weight_decay w). torch: w -= rate m / (1 - beta1^t) /
    (sqrt(v) / c + eps) + rate decay w, with c = sqrt(1 - beta2^t).
    """
    correction = math.sqrt(1 - BETAS[1] ** step)
    factor = (1 - BETAS[0] ** step) / correction
    for group in optimiser.param_groups:
        group["lr"], group["weight_decay"] = LEARNING_RATE * factor, WEIGHT_DECAY / factor
        group["eps"] = EPSILON / correction
