"""Self-guided contrastive learning and the parameters' drift: against reference loops, in closed form, with masks."""

import pytest
import torch
from torch import nn

from nearfar.objectives import parameter_drift, self_guided
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, some_mask, vectors

LOOPS = {"sg": references.nt_xent, "opt1": references.sg_opt1, "opt2": references.sg_opt2, "opt3": references.sg_opt3}
VARIANTS = sorted(LOOPS)
counts = pytest.mark.parametrize("count", [1, 7])
temperatures = pytest.mark.parametrize("temperature", [1.0, 0.1])
variants = pytest.mark.parametrize("variant", VARIANTS)


def inputs(variant, count, layers=3, dim=5):
    """Return c and h in the shapes of the variant."""
    return vectors(count, dim), vectors(count, layers, dim, seed=1) if variant == "opt3" else vectors(
        count, dim, seed=1
    )


# --- values and gradients against references ---


@variants
@counts
@temperatures
@pytest.mark.parametrize("masked", [False, True])
def test_matches_the_reference(variant, count, temperature, masked):
    mask = some_mask(count, count) if masked else None
    assert_same(
        lambda c, h: self_guided(c, h, temperature=temperature, variant=variant, mask=mask),
        lambda c, h: LOOPS[variant](c, h, temperature, mask),
        *inputs(variant, count),
        trivial=count == 1 or (masked and not (mask & ~torch.eye(count, dtype=torch.bool)).any()),
    )


# --- masks ---


@variants
def test_a_sentence_with_all_others_masked_has_zero_loss(variant):
    c, h = (x.requires_grad_() for x in inputs(variant, 4))
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[1, 2] = True
    with torch.autograd.set_detect_anomaly(mode=True, check_nan=True):  # no intermediate NaN either
        value = self_guided(c, h, temperature=0.1, variant=variant, mask=mask)
        value.sum().backward()
    values = value.view(-1, 4)
    assert values[:, [0, 2, 3]].abs().max() == 0
    assert values[0, 1] > 0
    assert c.grad.isfinite().all()
    assert h.grad.isfinite().all()
    assert c.grad[[0, 3]].abs().max() == 0
    assert c.grad[1].abs().max() > 0


@variants
def test_an_empty_batch_gives_an_empty_loss_with_a_graph(variant):
    c, h = (x.requires_grad_() for x in inputs(variant, 0))
    value = self_guided(c, h, temperature=0.1, variant=variant)
    value.sum().backward()
    assert value.shape == (0,)
    assert c.grad.shape == c.shape


# --- drift ---


def small(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()


def test_drift_matches_the_reference():
    module, other, reference = small(0), small(0), small(1)
    value = parameter_drift(module, reference)
    expected = references.parameter_drift(dict(other.named_parameters()), dict(reference.named_parameters()))
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    assert module[0].weight.grad.abs().min() > 0
    assert all(parameter.grad is None for parameter in reference.parameters())


def test_drift_includes_frozen_parameters():
    module, reference = small(0), small(0)
    with torch.no_grad():
        module[0].bias.add_(3.0)
    module[0].bias.requires_grad_(False)
    assert parameter_drift(module, reference).item() == pytest.approx(2 * 9)


def test_drift_of_half_precision_is_computed_in_float32():
    module, reference = nn.Linear(64, 64, bias=False).half(), nn.Linear(64, 64, bias=False).half()
    nn.init.constant_(module.weight, 8.0)
    nn.init.constant_(reference.weight, 0.0)
    value = parameter_drift(module, reference)
    assert value.dtype == torch.float32
    assert value.item() == 64 * 64 * 64  # beyond float16
