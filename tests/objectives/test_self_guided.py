"""Self-guided contrastive learning and the parameters' drift: against reference loops, in closed form, with masks."""

import inspect
from math import exp, log

import pytest
import torch
from torch import nn

from nearfar.objectives import parameter_drift, self_guided
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, some_mask, vectors

LOOPS = {
    "sg": references.nt_xent,
    "opt1": references.sg_opt1,
    "opt2": references.sg_opt2,
    "opt3": references.sg_opt3,
}
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


# --- closed forms ---


@counts
@temperatures
@pytest.mark.parametrize("layers", [1, 4])
def test_equal_embeddings_give_log_of_the_candidates(count, temperature, layers):
    c, h = torch.ones(count, 3, dtype=torch.float64), torch.ones(count, layers, 3, dtype=torch.float64)
    candidates = {"sg": 2 * count - 1, "opt1": 2 * count - 1, "opt2": count, "opt3": 1 + layers * (count - 1)}
    for variant, number in candidates.items():
        value = self_guided(c, h if variant == "opt3" else h[:, 0], temperature=temperature, variant=variant)
        values = 2 * count if variant == "sg" else count
        assert value.tolist() == pytest.approx([log(number)] * values)


@counts
@temperatures
@pytest.mark.parametrize("layers", [1, 4])
def test_equal_positives_with_all_else_orthogonal(count, temperature, layers):
    c = torch.eye(count, dtype=torch.float64)
    h = 3 * c[:, None].repeat(1, layers, 1)
    # -log( e^(1/t) / (e^(1/t) + n e^0) ) = log(1 + n e^(-1/t)), with n negatives
    negatives = {"sg": 2 * (count - 1), "opt1": 2 * (count - 1), "opt2": count - 1, "opt3": layers * (count - 1)}
    for variant, number in negatives.items():
        value = self_guided(c, h if variant == "opt3" else h[:, 0], temperature=temperature, variant=variant)
        values = 2 * count if variant == "sg" else count
        assert value.tolist() == pytest.approx([log(1 + number * exp(-1 / temperature))] * values)


def test_opt3_is_a_mean_over_layers_that_see_the_same_negatives():
    # Layer 0 of each sentence is its vector, layer 1 is orthogonal to everything.
    axes = torch.eye(6, dtype=torch.float64)
    c, h = axes[:3], torch.stack([axes[:3], axes[3:]], dim=1)
    value = self_guided(c, h, temperature=1.0, variant="opt3")
    assert value.tolist() == pytest.approx([(log(1 + 4 * exp(-1)) + log(1 + 4)) / 2] * 3)


# --- masks ---


@variants
def test_masking_a_sentence_equals_deleting_it(variant):
    c, h = inputs(variant, 5)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:4, 4] = False
    masked = self_guided(c, h, temperature=0.2, variant=variant, mask=mask)
    alone = self_guided(c[:4], h[:4], temperature=0.2, variant=variant)
    torch.testing.assert_close(masked.view(-1, 5)[:, :4].flatten(), alone)
    assert not torch.allclose(masked, self_guided(c, h, temperature=0.2, variant=variant))


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


def test_drift_between_different_architectures_raises():
    with pytest.raises(NearfarError, match="only the module has bias"):
        parameter_drift(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    with pytest.raises(NearfarError, match="only the reference has bias"):
        parameter_drift(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    with pytest.raises(NearfarError, match=r"weight is \(2, 3\) in the module but \(2, 1\) in the reference"):
        parameter_drift(nn.Linear(3, 2), nn.Linear(1, 2))  # shapes that would broadcast


# --- invalid arguments ---


def test_an_unknown_variant_raises():
    with pytest.raises(NearfarError, match="variant must be one of sg, opt1, opt2, opt3, not 'opt4'"):
        inspect.unwrap(self_guided)(*inputs("sg", 2), temperature=0.1, variant="opt4")


@variants
def test_views_of_the_wrong_rank_raise(variant):
    c, wrong = inputs("sg" if variant == "opt3" else "opt3", 4)
    form = r"\[batch, layers, dim\]" if variant == "opt3" else r"\[batch, dim\]"
    with pytest.raises(NearfarError, match=f"variant {variant} compares cls .* with views {form}, but cls is .4, 5"):
        self_guided(c, wrong, temperature=0.1, variant=variant)


@variants
def test_mismatched_shapes_raise(variant):
    c, h = inputs(variant, 4)
    unchecked = inspect.unwrap(self_guided)
    for cls, views in [(c[:3], h), (c[:, :2], h), (c[0], h[0])]:
        with pytest.raises(NearfarError, match=f"variant {variant} compares"):
            unchecked(cls, views, temperature=0.1, variant=variant)
    with pytest.raises(NearfarError, match=r"mask must be a bool tensor of shape \(4, 4\)"):
        unchecked(c, h, temperature=0.1, variant=variant, mask=torch.ones(4, 8, dtype=torch.bool))


def test_views_without_layers_raise():
    with pytest.raises(NearfarError, match=r"views \(4, 0, 5\)"):
        self_guided(vectors(4, 5), vectors(4, 0, 5), temperature=0.1, variant="opt3")
