"""BERT-flow: the map of its Glow, inverse and density; reference optimiser, training, seeds, invalid input."""

import math

import numpy as np
import pytest
import torch

from nearfar.baselines import flow
from nearfar.baselines.flow import ActNorm, Coupling, Glow, fit_glow
from nearfar.types import NearfarError


def cone(rows: int, dim: int = 16, *, seed: int = 0) -> np.ndarray:
    """Return anisotropic Gaussian vectors far from 0, with cosines near 1, like those of an untuned BERT."""
    draw = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(dim, dim)) * np.geomspace(2, 0.05, dim)
    return (3 + draw.normal(size=(rows, dim)) @ mixing.T).astype(np.float32)


def mean_cosine(x: np.ndarray) -> float:
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float((x @ x.T)[~np.eye(len(x), dtype=bool)].mean())


def log_likelihood(glow: Glow, x: np.ndarray) -> float:
    return glow(torch.from_numpy(x))[1].mean().item()


@pytest.mark.long
def test_training_increases_the_likelihood_and_reduces_anisotropy():
    train, held_out = cone(1000), cone(500, seed=1)
    short, fitted = fit_glow(train[:64]), fit_glow(train, epochs=5)
    assert log_likelihood(fitted, held_out) > log_likelihood(short, held_out) + 3
    z = fitted(torch.from_numpy(held_out))[0].numpy()
    assert mean_cosine(held_out) > 0.5
    assert abs(mean_cosine(z)) < 0.2
    truth = np.cov(cone(20_000, seed=2).T)
    best = -0.5 * (16 * math.log(2 * math.pi * math.e) + np.linalg.slogdet(truth)[1])
    assert log_likelihood(fitted, held_out) < best + 0.5  # no flow beats the distribution that the data is from


def test_the_optimiser_matches_plain_loops(monkeypatch):
    """Three steps of BERT's Adam, in plain loops; all rows in a batch, so that shuffling changes nothing."""
    x, rate, decay, clip = 0.1 * cone(20), 1e-2, 0.1, 1e5
    monkeypatch.setattr(Glow, "initialise", lambda *_: None)
    for name, value in (("LEARNING_RATE", rate), ("WEIGHT_DECAY", decay), ("CLIP", clip)):
        monkeypatch.setattr(flow, name, value)
    torch.manual_seed(5)
    glow = Glow(16).double()
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in glow.parameters()]
    start = [parameter.clone() for parameter in glow.parameters()]
    norms = []
    for _ in range(3):
        bits = -glow(torch.from_numpy(x).double())[1] / math.log(2) / 16
        gradients = torch.autograd.grad(bits[:10].mean() + bits[10:].mean(), list(glow.parameters()))
        norms.append(math.sqrt(sum(gradient.square().sum().item() for gradient in gradients)))
        with torch.no_grad():
            for parameter, gradient, (m, v) in zip(glow.parameters(), gradients, moments, strict=True):
                clipped = gradient * min(1, clip / norms[-1])
                m.copy_(0.9 * m + 0.1 * clipped)
                v.copy_(0.999 * v + 0.001 * clipped**2)
                parameter.sub_(rate * (m / (v.sqrt() + 1e-6) + decay * parameter))
    assert min(norms) < clip < max(norms)
    fitted = fit_glow(x, epochs=3, batch_size=20, seed=5)
    for (name, expected), actual, before in zip(glow.named_parameters(), fitted.parameters(), start, strict=True):
        torch.testing.assert_close(actual.double(), expected.detach(), atol=1e-4, rtol=0, msg=name)
        assert (expected - before).abs().max() > 1e-3, name


@pytest.mark.parametrize(
    ("embeddings", "settings", "message"),
    [
        (cone(63), {}, "batch_size is 64, but must be from 2 to the number of texts, 63"),
        (np.full((100, 16), 0.3), {}, "all 100 embeddings are equal"),
        (cone(100, 4), {}, "choose fewer levels"),
    ],
)
def test_invalid_input_raises(embeddings, settings, message):
    with pytest.raises(NearfarError, match=message):
        fit_glow(embeddings, **settings)


def random_glow(dim: int, *, seed: int = 0, **sizes: int) -> Glow:
    """Return a float64 flow that is far from the identity, with z of the order of 1."""
    torch.manual_seed(seed)
    glow = Glow(dim, **sizes).double()
    with torch.no_grad():
        for module in glow.modules():
            if isinstance(module, Coupling):
                module.last.weight.normal_(std=0.5 * module.last.in_features**-0.5)
        glow.initialise(1 + 2 * torch.randn(100, dim, dtype=torch.float64))
        for parameter in glow.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return glow


def by_hand(glow: Glow, x: np.ndarray) -> tuple[list[float], float]:
    """Z of one text and the log of the volume, as plain loops over the 1x1 convolutions of the authors' code."""
    log_volume, finished = 0.0, []
    for number, level in enumerate(glow.levels):
        for step in level:
            norm, net = step.norm, step.coupling
            x = np.array([(v + b) * math.exp(3 * s) for v, b, s in zipped(x, norm)])
            log_volume += 3 * sum(norm.log_scale.tolist())
            reverse = np.eye(len(x))[::-1]
            x = x @ reverse
            half = (len(x) + 1) // 2
            h = x[:half]
            for linear, inner in ((net.first, net.first_norm), (net.second, net.second_norm)):
                h = linear.weight.detach().numpy() @ h
                h = [max(0, (v + b) * math.exp(3 * s)) for v, b, s in zipped(h, inner)]
            h = net.last.weight.detach().numpy() @ h + net.last.bias.detach().numpy()
            x[half:] += h * np.exp(3 * net.last_log_scale.detach().numpy())
        if number < len(glow.levels) - 1:
            half = (len(x) + 1) // 2
            finished, x = [*finished, *x[half:]], x[:half]
    return [*finished, *x], log_volume


def zipped(values: np.ndarray, norm: ActNorm) -> list[tuple[float, float, float]]:
    return list(zip(values, norm.bias.tolist(), norm.log_scale.tolist(), strict=True))


SIZES = [(16, {}), (13, {}), (5, {"levels": 2, "depth": 2, "width": 3}), (2, {"levels": 1, "depth": 4, "width": 5})]


@pytest.mark.parametrize(("dim", "sizes"), SIZES)
def test_the_map_matches_plain_loops(dim, sizes):
    glow, x = random_glow(dim, **sizes), torch.randn(3, dim, dtype=torch.float64)
    z, log_density = glow(x)
    assert (z - x).abs().min() > 1e-6
    for row in range(3):
        expected, log_volume = by_hand(glow, x[row].numpy())
        np.testing.assert_allclose(z[row].detach().numpy(), expected, rtol=1e-10, atol=1e-12)
        normal = sum(-(value**2) / 2 - math.log(2 * math.pi) / 2 for value in expected)
        assert log_density[row].item() == pytest.approx(normal + log_volume, rel=1e-10)


def test_initialise_normalises_the_output_of_each_actnorm():
    glow = random_glow(16)
    x = torch.randn(200, 16).double() @ torch.randn(16, 16).double() + 5
    glow.initialise(x)
    seen = []
    for module in glow.modules():
        if isinstance(module, ActNorm):
            module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    glow(x)
    assert len(seen) == 9 * 3
    for output in seen:
        torch.testing.assert_close(output.mean(dim=0), torch.zeros(output.shape[1]).double(), atol=1e-9, rtol=0)
        torch.testing.assert_close(
            output.var(dim=0, correction=0), torch.ones(output.shape[1]).double(), rtol=0.01, atol=0
        )
    before = {name: value.clone() for name, value in glow.state_dict().items()}
    glow(x + 100)
    assert all(torch.equal(value, before[name]) for name, value in glow.state_dict().items())
