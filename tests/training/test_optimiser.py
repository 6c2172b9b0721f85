"""The learning rate schedule, the parameter groups with weight decay, and clipping."""

import pytest
import torch
from torch import nn

from nearfar.training.optimiser import (
    OptimiserSettings,
    adamw,
    clipped_step,
    gradient_norm,
    learning_rate_factor,
    set_learning_rate,
)


def factors(total: int, **settings: object) -> list[float]:
    return [learning_rate_factor(step, total, **settings) for step in range(total)]  # type: ignore[arg-type]


def test_linear() -> None:
    assert factors(5, warmup=0.4, schedule="linear") == [1 / 2, 1, 1, 2 / 3, 1 / 3]
    assert factors(3, warmup=0.0, schedule="linear") == [1, 2 / 3, 1 / 3]


def test_constant() -> None:
    assert factors(5, warmup=0.4, schedule="constant") == [1 / 2, 1, 1, 1, 1]


def test_cosine() -> None:
    root = 0.5**0.5
    assert factors(5, warmup=0.2, schedule="cosine") == pytest.approx([1, 1, (1 + root) / 2, 1 / 2, (1 - root) / 2])
    assert factors(4, warmup=0.0, schedule="cosine")[0] == 1


def test_all_warmup_never_divides_by_zero() -> None:
    assert factors(2, warmup=1.0, schedule="linear") == [1 / 2, 1]


def test_no_step_has_learning_rate_zero() -> None:
    for total in (1, 2, 7, 100):
        for schedule in ("linear", "cosine", "constant"):
            assert min(factors(total, warmup=0.1, schedule=schedule)) > 0


def test_groups() -> None:
    encoder, head = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), nn.Linear(3, 2)
    encoder[0].weight.requires_grad_(False)
    optimiser = adamw(
        encoder, [head], OptimiserSettings(learning_rate=0.1, head_learning_rate=0.3, weight_decay=0.5, beta2=0.9)
    )
    groups = [(len(group["params"]), group["weight_decay"], group["lr"]) for group in optimiser.param_groups]
    assert groups == [(3, 0.0, 0.1), (1, 0.5, 0.3), (1, 0.0, 0.3)]
    set_learning_rate(optimiser, 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.05, 0.15, 0.15])
    without_head = adamw(encoder, [], OptimiserSettings(learning_rate=0.1, beta2=0.9))
    assert [(group["lr"], group["betas"]) for group in without_head.param_groups] == [(0.1, (0.9, 0.9))]


def test_factors_of_single_parameters_make_groups_from_the_highest_rate_down() -> None:
    encoder, head = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.LayerNorm(3)), nn.Linear(3, 2)
    factors = dict.fromkeys(encoder[0].parameters(), 0.5)
    rates = {"learning_rate": 0.1, "head_learning_rate": 0.3, "weight_decay": 0.5, "beta2": 0.9}
    optimiser = adamw(encoder, [head], OptimiserSettings(**rates), factors)
    groups = [(len(group["params"]), group["weight_decay"], group["lr"]) for group in optimiser.param_groups]
    assert groups == [(1, 0.5, 0.1), (3, 0.0, 0.1), (1, 0.5, 0.05), (1, 0.0, 0.05), (1, 0.5, 0.3), (1, 0.0, 0.3)]
    set_learning_rate(optimiser, 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == [0.05, 0.05, 0.025, 0.025, 0.15, 0.15]


def test_steps_with_factors_equal_those_of_torch_with_one_group_for_each_parameter() -> None:
    """Bit for bit."""

    def network() -> list[nn.Linear]:
        draw = torch.Generator().manual_seed(0)
        layers = [nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 2)]
        for layer in layers:
            for parameter in layer.parameters():
                parameter.data.normal_(generator=draw)
        return layers

    ours, theirs = network(), network()
    decays = (0.25, 0.5, 1.0)
    factors = {p: decay for layer, decay in zip(ours, decays, strict=True) for p in layer.parameters()}
    shared = {"learning_rate": 0.1, "head_learning_rate": None, "weight_decay": 0.1, "beta2": 0.95}
    optimiser = adamw(nn.Sequential(*ours), [], OptimiserSettings(**shared), factors)  # type: ignore[arg-type]
    reference = torch.optim.AdamW(
        [
            {"params": [p], "lr": 0.1 * decay, "peak": 0.1 * decay, "weight_decay": 0.1 if p.ndim > 1 else 0.0}
            for layer, decay in zip(theirs, decays, strict=True)
            for p in layer.parameters()
        ],
        betas=(0.9, 0.95),
        fused=True,
    )
    start = [p.detach().clone() for layer in ours for p in layer.parameters()]
    inputs = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    for factor in (0.5, 1.0, 0.3, 0.1):
        for layers, used in ((ours, optimiser), (theirs, reference)):
            set_learning_rate(used, factor)
            nn.Sequential(*layers)(inputs).square().sum().backward()
            used.step()
            used.zero_grad()
    moved = [
        float((p.detach() - before).abs().max())
        for p, before in zip(nn.Sequential(*ours).parameters(), start, strict=True)
    ]
    assert moved[0] < 0.6 * moved[-1]
    for mine, other in zip(nn.Sequential(*ours).parameters(), nn.Sequential(*theirs).parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("epsilon", [1e-8, 0.5])
def test_epsilon_is_added_to_the_root_of_the_second_moment(epsilon: float) -> None:
    layer = nn.Linear(2, 1, bias=False)
    start = layer.weight.detach().clone()
    rates = {"learning_rate": 0.1, "head_learning_rate": None, "weight_decay": 0.0, "beta2": 0.999}
    optimiser = adamw(layer, [], OptimiserSettings(epsilon=epsilon, **rates))  # type: ignore[arg-type]
    layer(torch.tensor([[1.0, -2.0]])).sum().backward()
    optimiser.step()
    # after bias correction, the first moments are g and g^2
    moved = 0.1 * torch.tensor([[1.0 / (1.0 + epsilon), -2.0 / (2.0 + epsilon)]])
    torch.testing.assert_close(layer.weight.detach(), start - moved, atol=1e-6, rtol=0)


@pytest.mark.parametrize("max_norm", [0.0, 0.3, 1.0])
def test_a_clipped_step_equals_clipping_by_torch_and_a_step(max_norm: float) -> None:
    """Gradient norms are above and below 1, because the moments depend on all previous gradients."""

    def trained(ours: bool) -> list[torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        layer = nn.Linear(30, 20)
        unused = nn.Linear(3, 3)
        for parameter in layer.parameters():
            parameter.data.normal_(generator=draw)
        optimiser = adamw(layer, [unused], OptimiserSettings(learning_rate=0.1, weight_decay=0.1, beta2=0.9))
        parameters = [*layer.parameters(), *unused.parameters()]
        for factor in (0.01, 1.0, 0.003, 30.0):
            optimiser.zero_grad()
            for parameter in layer.parameters():
                parameter.grad = factor * torch.randn(parameter.shape, generator=draw)
            if ours:
                clipped_step(optimiser, norm=gradient_norm(parameters), max_norm=max_norm)
            else:
                norm = nn.utils.clip_grad_norm_(parameters, max_norm or float("inf"))
                optimiser.step()
                assert factor < 1 or norm > 1
        return [parameter.detach() for parameter in layer.parameters()]

    for ours, theirs in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_norm_without_gradients_is_zero() -> None:
    assert gradient_norm(nn.Linear(2, 2).parameters()) == 0
