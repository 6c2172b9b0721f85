"""Masked language modelling: against reference loops, in closed form, and on extreme inputs."""

import inspect
from math import exp, log

import pytest
import torch

from nearfar.objectives import masked_lm
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, vectors


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_matches_the_reference(count, scale):
    tokens = torch.randint(11, (count,), generator=torch.Generator().manual_seed(0))
    assert_same(lambda x: masked_lm(x, tokens), lambda x: references.masked_lm(x, tokens), scale * vectors(count, 11))


def test_gradients_match_finite_differences():
    tokens = torch.tensor([3, 0, 3])
    assert torch.autograd.gradcheck(lambda x: masked_lm(x, tokens), vectors(3, 5).requires_grad_())


def test_closed_forms():
    equal = masked_lm(torch.zeros(2, 100, dtype=torch.float64), torch.tensor([0, 99]))
    assert equal.tolist() == pytest.approx([log(100)] * 2)
    certain = masked_lm(6.0 * torch.eye(4, dtype=torch.float64), torch.arange(4))
    assert certain.tolist() == pytest.approx([log(1 + 3 * exp(-6))] * 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    logits, tokens = (30 * vectors(5, 40)).to(dtype), torch.arange(5)
    value = masked_lm(logits, tokens)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), masked_lm(logits.double(), tokens), rtol=1e-5, atol=1e-5)


def test_huge_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = masked_lm(logits, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == 2e4
    assert logits.grad.tolist() == [[1, -1, 0]]


def test_no_masked_tokens_give_an_empty_loss_with_a_graph():
    logits = torch.zeros(0, 9, requires_grad=True)
    value = masked_lm(logits, torch.zeros(0, dtype=torch.long))
    value.sum().backward()
    assert value.shape == (0,)


@pytest.mark.parametrize("token", [-100, -1, 9])
def test_tokens_outside_the_vocabulary_raise(token):
    with pytest.raises(NearfarError, match=rf"tokens must be in 0\.\.8, found .*{token}"):
        masked_lm(torch.zeros(2, 9), torch.tensor([4, token]))


def test_mismatched_shapes_raise():
    with pytest.raises(NearfarError, match=r"logits \(2, 9\) must be \[masked, vocabulary\], for tokens \(3,\)"):
        inspect.unwrap(masked_lm)(torch.zeros(2, 9), torch.zeros(3, dtype=torch.long))
