"""Gradients by the name of their parameter, and whether those of two computations agree."""

from torch import Tensor, nn


def gradients_of(module: nn.Module) -> dict[str, Tensor]:
    """Copies on the CPU, of the parameters that have one."""
    return {name: p.grad.detach().float().cpu().clone() for name, p in module.named_parameters() if p.grad is not None}


def assert_same_gradients(
    found: dict[str, Tensor], expected: dict[str, Tensor], *, tolerance: float, least: float = 0.1
) -> None:
    """Assert that the gradient of each parameter agrees within a relative ``tolerance``.

    One that is 0 up to rounding, such as a key's bias, is compared on a hundredth of the largest, at ``least`` so long.
    """
    assert found.keys() == expected.keys()
    largest = max(float(gradient.norm()) for gradient in expected.values())
    assert largest > least
    for name, right in expected.items():
        error = float((found[name] - right).norm())
        assert error <= tolerance * (float(right.norm()) + 0.01 * largest), f"{name}: off by {error} of {right.norm()}"
