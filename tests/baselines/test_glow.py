"""The Glow of BERT-flow: reference map, inverse, density by other methods, and initialisation."""

import math

import numpy as np
import pytest
import torch

from nearfar.baselines.flow import ActNorm, Coupling, Glow
from nearfar.types import NearfarError


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


@pytest.mark.parametrize(("dim", "sizes"), SIZES)
def test_the_inverse_and_the_jacobian(dim, sizes):
    glow, x = random_glow(dim, **sizes), 3 * torch.randn(7, dim, dtype=torch.float64)
    torch.testing.assert_close(glow.inverse(glow(x)[0]), x, rtol=0, atol=1e-7)
    torch.testing.assert_close(glow(glow.inverse(x))[0], x, rtol=0, atol=1e-7)
    assert (glow.inverse(x) - x).abs().max() > 0.1
    normal = torch.distributions.MultivariateNormal(torch.zeros(dim).double(), torch.eye(dim).double())
    for row in x[:3] / 3:
        jacobian = torch.func.jacrev(lambda row: glow(row[None])[0][0])(row)
        z, log_density = glow(row[None])
        log_volume = torch.linalg.slogdet(jacobian).logabsdet
        assert log_volume.abs() > 0.01
        torch.testing.assert_close(log_density[0], normal.log_prob(z[0]) + log_volume)


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


def test_a_constant_channel_keeps_its_scale():
    norm, x = ActNorm(3), torch.randn(64, 3)
    x[:, 0], x[:, 1] = 0.3, 1e-4 * x[:, 1]
    norm.fit(x)
    y = norm(x)
    assert norm.log_scale[0] == 0
    assert y[:, 0].abs().max() < 1e-6
    torch.testing.assert_close(y[:, 1:].var(dim=0, correction=0), torch.ones(2), rtol=0.03, atol=0)


def test_initial_weights_follow_the_authors_configuration():
    torch.manual_seed(0)
    glow = Glow(64, width=200)
    shapes = [tuple(step.coupling.first.weight.shape) for level in glow.levels for step in level]
    assert shapes == 3 * [(200, 32)] + 3 * [(200, 16)] + 3 * [(200, 8)]
    assert glow.factored_out == [32, 16, 16]
    coupling = glow.levels[0][0].coupling
    assert coupling.second.weight.std().item() == pytest.approx(0.05, rel=0.02)
    assert coupling.second.weight.abs().max() > 0.15  # a uniform distribution with that deviation ends at 0.087
    assert not any(value.any() for value in (coupling.last.weight, coupling.last.bias, coupling.last_log_scale))
    limit = math.sqrt(6 / 201)
    for parameter in (coupling.second_norm.bias, coupling.second_norm.log_scale):
        assert 0.97 * limit < parameter.abs().max() <= limit
        assert parameter.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
    assert sum(parameter.numel() for parameter in Glow(768).parameters()) == sum(
        3 * (2 * c + 32 * c // 2 + 32 * 32 + 4 * 32 + 32 * c // 2 + 2 * c // 2) for c in (768, 384, 192)
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dim": 4}, "3 levels over 4 dimensions would have one channel"),
        ({"dim": 1, "levels": 1}, "one channel"),
        ({"dim": 16, "levels": 0}, "levels of a flow is 0"),
        ({"dim": 16, "depth": 0}, "depth of a flow is 0"),
        ({"dim": 16, "width": 0}, "width of a flow is 0"),
        ({"dim": 0}, "dim of a flow is 0"),
    ],
)
def test_invalid_sizes_raise(sizes, message):
    with pytest.raises(NearfarError, match=message):
        Glow(**sizes)
    assert Glow(5).factored_out == [2, 1, 2]
