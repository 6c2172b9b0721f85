"""Cross-entropy of pairs and of masked tokens, and the features of pairs: loops, closed forms, extreme inputs."""

from math import exp, log

import pytest
import torch

from nearfar.objectives import masked_lm, nli_softmax, nli_softmax_features
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, vectors

both = pytest.mark.parametrize(
    ("objective", "loops"), [(nli_softmax, references.nli_softmax), (masked_lm, references.masked_lm)]
)


@pytest.mark.parametrize("count", [1, 7])
def test_features_match_the_reference(count):
    assert_same(nli_softmax_features, references.nli_softmax_features, *vectors(2, count, 4))


@both
@pytest.mark.parametrize("count", [1, 7])
def test_they_match_the_reference(objective, loops, count):
    classes = torch.randint(5, (count,), generator=torch.Generator().manual_seed(0))
    assert_same(lambda x: objective(x, classes), lambda x: loops(x, classes), 5 * vectors(count, 5))


@both
def test_closed_forms_and_extreme_logits(objective, loops):
    assert objective(torch.zeros(2, 100), torch.tensor([0, 99])).tolist() == pytest.approx([log(100)] * 2)
    certain = objective(6.0 * torch.eye(4, dtype=torch.float64), torch.arange(4))
    assert certain.tolist() == pytest.approx([log(1 + 3 * exp(-6))] * 4)
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = objective(logits, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == 2e4
    assert logits.grad.tolist() == [[1, -1, 0]]
    empty = torch.zeros(0, 9, requires_grad=True)
    value = objective(empty, torch.zeros(0, dtype=torch.long))
    value.sum().backward()
    assert value.shape == (0,)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(objective, loops, dtype):
    logits, classes = (30 * vectors(5, 40)).to(dtype), torch.arange(5)
    value = objective(logits, classes)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), objective(logits.double(), classes), rtol=1e-5, atol=1e-5)
