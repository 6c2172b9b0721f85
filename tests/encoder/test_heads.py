"""The softmax head: its shapes, that it is linear, and its precision."""

import pytest
import torch

from nearfar.encoder.heads import SoftmaxHead
from nearfar.types import NearfarError


@pytest.mark.parametrize(("layers", "shapes"), [(1, [(3, 24), (3,)]), (2, [(12, 24), (12,), (3, 12), (3,)])])
def test_widths_are_the_papers(layers, shapes):
    assert [tuple(weights.shape) for weights in SoftmaxHead(8, layers=layers).parameters()] == shapes


@pytest.mark.parametrize("layers", [1, 2])
def test_the_head_is_affine(layers):
    torch.manual_seed(0)
    head = SoftmaxHead(4, classes=5, layers=layers).double()
    a, b = torch.randn(2, 6, 12, dtype=torch.float64)
    offset = head(torch.zeros(1, 12))
    torch.testing.assert_close(head(a) + head(b), head(a + b) + offset)
    assert head(a).shape == (6, 5)


def test_initial_weights_come_from_the_global_generator():
    torch.manual_seed(1)
    one = torch.cat([weights.flatten() for weights in SoftmaxHead(4).parameters()])
    torch.manual_seed(1)
    assert torch.equal(one, torch.cat([weights.flatten() for weights in SoftmaxHead(4).parameters()]))


def test_half_precision_features_are_classified_in_the_heads_precision():
    head, features = SoftmaxHead(4), torch.randn(2, 12, dtype=torch.bfloat16, requires_grad=True)
    logits = head(features)
    logits.sum().backward()
    assert logits.dtype == torch.float32
    assert features.grad.abs().max() > 0


def test_other_depths_are_refused():
    with pytest.raises(NearfarError, match="1 or 2 layers, not 3"):
        SoftmaxHead(4, layers=3)
