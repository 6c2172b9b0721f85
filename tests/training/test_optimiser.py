"""The learning rate schedule, parameter groups and clipping; averages of the weights equal their formulas."""

import copy
from contextlib import suppress

import pytest
import torch
from torch import nn

from nearfar.training.optimiser import (
    OptimiserSettings,
    StartWeights,
    WeightAverage,
    adamw,
    applied,
    clipped_step,
    gradient_norm,
    learning_rate_factor,
    set_learning_rate,
)
from nearfar.types import Schedule


@pytest.mark.parametrize(
    ("total", "warmup", "schedule", "expected"),
    [
        (5, 0.4, "linear", [1 / 2, 1, 1, 2 / 3, 1 / 3]),
        (3, 0.0, "linear", [1, 2 / 3, 1 / 3]),
        (2, 1.0, "linear", [1 / 2, 1]),  # warm-up alone
        (5, 0.4, "constant", [1 / 2, 1, 1, 1, 1]),
        (5, 0.2, "cosine", [1, 1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2]),
        (1, 0.1, "linear", [1]),
        (1, 0.1, "cosine", [1]),
    ],
)
def test_the_schedule(total: int, warmup: float, schedule: Schedule, expected: list[float]) -> None:
    settings = OptimiserSettings(learning_rate=1.0, warmup=warmup, schedule=schedule)
    factors = [learning_rate_factor(step, total, settings) for step in range(total)]
    assert factors == pytest.approx(expected)


def test_groups_are_made_from_the_highest_rate_down() -> None:
    encoder, head = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(9, 9)), nn.Linear(3, 2)
    encoder[3].requires_grad_(False)
    factors = dict.fromkeys(encoder[0].parameters(), 0.5)
    rates = {"learning_rate": 0.1, "head_learning_rate": 0.3, "weight_decay": 0.5, "beta2": 0.9}
    optimiser = adamw(encoder, [head], OptimiserSettings(**rates), factors)
    groups = [(len(group["params"]), group["weight_decay"], group["lr"]) for group in optimiser.param_groups]
    assert groups == [(1, 0.5, 0.1), (3, 0.0, 0.1), (1, 0.5, 0.05), (1, 0.0, 0.05), (1, 0.5, 0.3), (1, 0.0, 0.3)]
    set_learning_rate(optimiser, 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == [0.05, 0.05, 0.025, 0.025, 0.15, 0.15]
    (group,) = adamw(encoder[2], [], OptimiserSettings(learning_rate=0.1, beta2=0.9, epsilon=0.5)).param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.1, (0.9, 0.9), 0.5)


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


@pytest.mark.parametrize("what", ["gradient", "norm overflows", "loss"])
def test_a_step_that_is_not_finite_changes_nothing(what: str) -> None:
    """Weights, moments and the number of steps are those before, and the next step is as if it had not been."""
    draw, layers = torch.Generator().manual_seed(0), [nn.Linear(30, 20) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    optimisers = [adamw(layer, [], OptimiserSettings(learning_rate=0.1, weight_decay=0.1)) for layer in layers]
    for step in range(3):
        gradients = [torch.randn(parameter.shape, generator=draw) for parameter in layers[0].parameters()]
        for layer, optimiser in zip(layers, optimisers, strict=True):
            broken = step == 1 and layer is layers[1]
            if step == 1 and not broken:
                continue
            for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            if broken and what == "gradient":
                layer.bias.grad[3] = float("nan")
            elif broken and what == "norm overflows":
                layer.weight.grad.fill_(1e38)
            losses = [torch.tensor(1.0), torch.tensor(float("inf") if broken and what == "loss" else 2.0)]
            clipped_step(optimiser, norm=gradient_norm(layer.parameters()), max_norm=1.0, also=losses)
    for ours, theirs in zip(layers[1].parameters(), layers[0].parameters(), strict=True):
        assert torch.equal(ours, theirs)
        states = [optimiser.state[one] for optimiser, one in zip(optimisers, (theirs, ours), strict=True)]
        assert all(torch.equal(states[0][key], states[1][key]) for key in ("step", "exp_avg", "exp_avg_sq"))


def network() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.LayerNorm(4))
    encoder[1].weight = encoder[0].weight  # tied, as embeddings often are
    encoder[2].weight.requires_grad_(False)
    return {"encoder": encoder, "head0": nn.Linear(4, 2)}


def change(modules: dict[str, nn.Module], seed: int) -> None:
    """Stands for an optimiser step: other weights wherever they are trained."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in modules.values():
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.normal_(generator=draw)


@pytest.mark.parametrize("decay", [0.1, 0.9, 0.99, 0.99999])
def test_it_is_the_weighted_mean_of_the_weights_after_each_step(decay: float) -> None:
    modules = network()
    average = WeightAverage(modules, decay)
    seen: list[torch.Tensor] = []
    for step in range(1, 8):
        change(modules, step)
        average.update(step)
        seen.append(modules["head0"].weight.detach().double().clone())  # type: ignore[union-attr, operator]
        powers = [decay ** (step - 1 - place) for place in range(step)]
        expected = sum(power * weights for power, weights in zip(powers, seen, strict=True)) / sum(powers)
        torch.testing.assert_close(average.tensors["head0.weight"].double(), expected, rtol=0, atol=1e-6)
    assert float((average.tensors["head0.weight"] - seen[-1]).abs().max()) > 0.01
    assert float((average.tensors["head0.weight"] - seen[0]).abs().max()) > 0.01


def test_each_trained_parameter_is_averaged_once() -> None:
    modules = network()
    average = WeightAverage(modules, 0.9)
    names = ["encoder.0.weight", "encoder.0.bias", "encoder.2.bias", "head0.weight", "head0.bias"]
    assert list(average.tensors) == names
    change(modules, 3)
    average.update(1)
    change(modules, 4)
    with applied([average]):
        assert torch.equal(modules["encoder"][1].weight, average.tensors["encoder.0.weight"])  # type: ignore[index]


def test_lower_precision_is_averaged_in_float32() -> None:
    """In bfloat16 a share of 1/1000 of a change would round to nothing."""
    layer = nn.Linear(3, 1, bias=False).to(torch.bfloat16)
    average = WeightAverage({"encoder": layer}, 0.999)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        for step in range(1, 1001):
            average.update(step)
        layer.weight.fill_(2.0)
    average.update(1001)
    (tensor,) = average.tensors.values()
    assert tensor.dtype == torch.float32
    torch.testing.assert_close(tensor, torch.full((1, 3), 1 + 0.001 / (1 - 0.999**1001)))
    with applied([average]):
        assert layer.weight.dtype == torch.bfloat16
    assert torch.equal(layer.weight, torch.full((1, 3), 2.0, dtype=torch.bfloat16))


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_the_start_is_averaged_with_the_average_over_steps(share: float) -> None:
    """Inside the block, also one that fails; afterwards the weights are those of the step, bit for bit."""
    modules = network()
    average, start = WeightAverage(modules, 0.5), StartWeights(modules["encoder"], share)
    before = modules["encoder"].state_dict()["0.bias"].clone()
    for step in (1, 2):
        change(modules, step)
        average.update(step)
    own = copy.deepcopy({name: module.state_dict() for name, module in modules.items()})
    with suppress(ZeroDivisionError), applied((average, start)):
        expected = share * before + (1 - share) * average.tensors["encoder.0.bias"]
        torch.testing.assert_close(modules["encoder"].state_dict()["0.bias"], expected, rtol=0, atol=1e-6)
        assert torch.equal(modules["head0"].weight, average.tensors["head0.weight"])  # type: ignore[arg-type]
        1 / 0  # noqa: B018
    for name, module in modules.items():
        assert all(torch.equal(tensor, own[name][key]) for key, tensor in module.state_dict().items())
    start.copy_to_modules()
    expected = share * before + (1 - share) * own["encoder"]["0.bias"]
    torch.testing.assert_close(modules["encoder"].state_dict()["0.bias"], expected, rtol=0, atol=1e-6)
