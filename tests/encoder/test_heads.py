"""The heads: shapes, formulas, initial weights and precision; a tied weight is registered once."""

import math

import pytest
import torch
from torch import nn

from nearfar.encoder.heads import MaskedLmHead, ProjectionHead, RegressionHead, SoftmaxHead, TanhHead
from nearfar.types import NearfarError


@pytest.mark.parametrize("layers", [1, 2])
def test_the_head_is_affine(layers):
    torch.manual_seed(0)
    head = SoftmaxHead(4, classes=5, layers=layers).double()
    a, b = torch.randn(2, 6, 12, dtype=torch.float64)
    offset = head(torch.zeros(1, 12))
    torch.testing.assert_close(head(a) + head(b), head(a + b) + offset)
    assert head(a).shape == (6, 5)
    assert shapes(SoftmaxHead(8, layers=layers)) == {1: [(3, 24), (3,)], 2: [(12, 24), (12,), (3, 12), (3,)]}[layers]


def test_other_depths_are_refused():
    with pytest.raises(NearfarError, match="1 or 2 layers, not 3"):
        SoftmaxHead(4, layers=3)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def affine(linear: nn.Linear, x: list[float]) -> list[float]:
    weight, bias = linear.weight.tolist(), linear.bias.tolist()
    return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def shapes(head: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(weights.shape) for weights in head.parameters()]


def test_tanh_head_by_hand():
    torch.manual_seed(0)
    head, x = TanhHead(4).double(), torch.randn(3, 4)
    expected = [[math.tanh(value) for value in affine(head.linear, row)] for row in x.tolist()]
    torch.testing.assert_close(head(x), torch.tensor(expected, dtype=torch.float64))
    assert shapes(head) == [(4, 4), (4,)]
    torch.manual_seed(1)
    expected = nn.Linear(4, 4).weight
    torch.manual_seed(1)
    assert torch.equal(TanhHead(4).linear.weight, expected)


def test_projection_head_by_hand():
    torch.manual_seed(0)
    head, x = ProjectionHead(4, 6, std=0.5).double(), torch.randn(2, 3, 4)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1)
    first, second = (layer for layer in head.modules() if isinstance(layer, nn.Linear))
    expected = [[[*map(gelu, affine(second, [*map(gelu, affine(first, v))]))] for v in row] for row in x.tolist()]
    torch.testing.assert_close(head(x), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(head(x[0]), head(x)[0])


@pytest.mark.long
def test_initial_weights_of_the_projection_head():
    torch.manual_seed(0)
    head = ProjectionHead(8)
    assert shapes(head) == [(4096, 8), (4096,), (4096, 4096), (4096,)]
    for parameter in head.parameters():
        if parameter.ndim == 1:
            assert not parameter.any()
        else:
            assert abs(parameter.mean()) < 5e-4
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02)
            assert parameter.abs().max() > 0.06  # a uniform distribution with that deviation ends at 0.035
    assert ProjectionHead(8, 64, std=0.5).layers[2].weight.std().item() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("width", [8, 3])
def test_masked_lm_head_by_hand(width):
    torch.manual_seed(0)
    embeddings = nn.Embedding(11, width).double()
    head, states = MaskedLmHead(8, embeddings).double(), torch.randn(5, 8, dtype=torch.float64)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    rows = []
    for state in states.tolist():
        x = [*map(gelu, affine(head.dense, state))]
        mean = sum(x) / width
        deviation = math.sqrt(sum((value - mean) ** 2 for value in x) / width)
        scales, shifts = head.norm.weight.tolist(), head.norm.bias.tolist()
        x = [(v - mean) / deviation * g + b for v, g, b in zip(x, scales, shifts, strict=True)]
        words = zip(embeddings.weight.tolist(), head.bias.tolist(), strict=True)
        rows.append([sum(e * v for e, v in zip(word, x, strict=True)) + bias for word, bias in words])
    torch.testing.assert_close(head(states), torch.tensor(rows, dtype=torch.float64))


def test_masked_lm_head_trains_the_word_embeddings_without_registering_them():
    torch.manual_seed(0)
    embeddings = nn.Embedding(11, 4)
    head = MaskedLmHead(8, embeddings)
    assert head.state_dict().keys() == {"bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias"}
    assert shapes(head) == [(11,), (4, 8), (4,), (4,), (4,)]
    assert not head.dense.bias.any()
    states = torch.randn(5, 8, requires_grad=True)
    nn.functional.cross_entropy(head(states), torch.arange(5)).backward()
    for tensor in (states, embeddings.weight, *head.parameters()):
        assert tensor.grad.abs().max() > 0
    before = head(states)
    with torch.no_grad():
        embeddings.weight.mul_(2)
    torch.testing.assert_close(head(states), 2 * before)  # the bias is still 0
    assert embeddings.to(torch.bfloat16) is embeddings
    assert head(states).dtype == torch.float32


def test_regression_head_is_one_linear_layer():
    torch.manual_seed(0)
    head, features = RegressionHead(4).double(), torch.randn(6, 8)
    expected = [affine(head.linear, row)[0] for row in features.tolist()]
    torch.testing.assert_close(head(features), torch.tensor(expected, dtype=torch.float64))
    assert shapes(head) == [(1, 8), (1,)]


@pytest.mark.parametrize(
    ("head", "width"),
    [
        *((SoftmaxHead(4), 12), (TanhHead(8), 8), (ProjectionHead(8, 16), 8)),
        *((MaskedLmHead(8, nn.Embedding(5, 8)), 8), (RegressionHead(4), 8)),
    ],
)
def test_heads_compute_in_their_own_precision(head, width):
    features = torch.randn(3, width, dtype=torch.bfloat16, requires_grad=True)
    out = head(features)
    out.square().sum().backward()
    assert out.dtype == torch.float32
    assert features.grad.abs().max() > 0
