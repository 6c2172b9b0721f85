"""The pair classifier's features and cross-entropy: against reference loops, in closed form, and on extreme inputs."""

import inspect
from math import log

import pytest
import torch

from nearfar.objectives import nli_softmax, nli_softmax_features
from nearfar.types import NearfarError
from tests import reference_objectives as references


def pairs(count, dim=4, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, count, dim, generator=generator, dtype=torch.float64)
    logits = torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return u, v, logits, torch.randint(classes, (count,), generator=generator)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_features_matches_the_reference(count):
    u, v, _, _ = pairs(count)
    torch.testing.assert_close(nli_softmax_features(u, v), references.nli_softmax_features(u, v), rtol=0, atol=0)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_cross_entropy_matches_the_reference_in_value_and_gradient(count):
    _, _, logits, labels = pairs(count)
    ours, loops = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = nli_softmax(ours, labels), references.nli_softmax(loops, labels)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    value.sum().backward()
    expected.sum().backward()
    assert loops.grad.abs().min() > 0
    torch.testing.assert_close(ours.grad, loops.grad, rtol=1e-10, atol=1e-12)


def test_equal_logits_give_log_of_the_classes():
    torch.testing.assert_close(nli_softmax(torch.zeros(2, 5), torch.tensor([0, 4])), torch.full((2,), log(5)))


def test_gradients_of_both_together():
    u, v, _, labels = pairs(5)
    weights = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss(u, v):
        return nli_softmax(nli_softmax_features(u, v) @ weights, labels)

    assert torch.autograd.gradcheck(loss, (u.requires_grad_(), v.requires_grad_()))


def test_equal_embeddings_have_no_difference_and_a_finite_gradient():
    u = torch.ones(2, 3, requires_grad=True)
    features = nli_softmax_features(u, torch.ones(2, 3))
    features.sum().backward()
    assert features[:, 6:].abs().max() == 0
    assert u.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    _, _, logits, labels = pairs(7)
    value = nli_softmax((100 * logits).to(dtype), labels)
    assert value.dtype == torch.float32
    expected = nli_softmax((100 * logits).to(dtype).double(), labels)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


def test_huge_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = nli_softmax(logits, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == 2e4
    assert logits.grad.tolist() == [[1, -1, 0]]


def test_an_empty_batch_gives_an_empty_loss():
    assert nli_softmax(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert nli_softmax_features(torch.zeros(0, 4), torch.zeros(0, 4)).shape == (0, 12)


@pytest.mark.parametrize("label", [-1, 3])
def test_unknown_labels_raise(label):
    with pytest.raises(NearfarError, match=r"labels must be in 0\.\.2"):
        nli_softmax(torch.zeros(2, 3), torch.tensor([0, label]))


def test_mismatched_shapes_raise():
    # Unwrapped, because with jaxtyping checks on the annotations would raise first.
    with pytest.raises(NearfarError, match="same shape"):
        inspect.unwrap(nli_softmax_features)(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(NearfarError, match="as many rows"):
        inspect.unwrap(nli_softmax)(torch.zeros(2, 3), torch.zeros(3, dtype=torch.long))
