"""The heads: shapes, formulas in NumPy, initial weights and precision; a tied weight is registered once."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import nn

from nearfar.encoder.heads import LinearHead, MaskedLmHead, ProjectionHead, RegressionHead, SoftmaxHead, TanhHead

Matrix = NDArray[np.float64]


def gelu(x: Matrix) -> Matrix:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def affine(linear: nn.Linear, x: Matrix) -> Matrix:
    weight, bias = (parameter.detach().numpy() for parameter in (linear.weight, linear.bias))
    return np.einsum("oi,...i->...o", weight, x) + bias


def masked_lm(head: MaskedLmHead, x: Matrix) -> Matrix:
    features = gelu(affine(head.dense, x))
    centred = features - features.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    words = head._tied[0].weight.detach().numpy()
    scaled = unit * head.norm.weight.detach().numpy() + head.norm.bias.detach().numpy()
    return scaled @ words.T + head.bias.detach().numpy()


HEADS = {
    "softmax of one layer": (SoftmaxHead(4, classes=5, layers=1), lambda head, x: affine(head.linears[0], x)),
    "softmax": (SoftmaxHead(4, classes=5), lambda head, x: affine(head.linears[1], affine(head.linears[0], x))),
    "tanh": (TanhHead(12), lambda head, x: np.tanh(affine(head.linear, x))),
    "linear": (LinearHead(12, 5), lambda head, x: affine(head.linear, x)),
    "projection": (
        ProjectionHead(12, 6, std=0.5),
        lambda head, x: gelu(affine(head.layers[2], gelu(affine(head.layers[0], x)))),
    ),
    "masked lm": (MaskedLmHead(12, nn.Embedding(11, 12).double()), masked_lm),
    "masked lm, narrow": (MaskedLmHead(12, nn.Embedding(11, 3).double()), masked_lm),
    "regression": (RegressionHead(6), lambda head, x: affine(head.linear, x)[..., 0]),
}


@pytest.mark.parametrize("name", HEADS)
def test_formulas_in_float64(name: str) -> None:
    head, formula = HEADS[name]
    head, x = head.double(), torch.randn(6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    np.testing.assert_allclose(head(x).detach().numpy(), formula(head, x.numpy()), rtol=1e-9, atol=1e-9)
    if name == "projection":
        torch.testing.assert_close(head(x.view(2, 3, 12)).view(6, 6), head(x))


@pytest.mark.parametrize("name", HEADS)
def test_heads_compute_in_their_own_precision(name: str) -> None:
    features = torch.randn(3, 12, dtype=torch.bfloat16, requires_grad=True)
    out = HEADS[name][0].float()(features)
    out.square().sum().backward()
    assert out.dtype == torch.float32
    assert features.grad is not None
    assert features.grad.abs().max() > 0


@pytest.mark.long
def test_initial_weights_of_the_projection_head() -> None:
    torch.manual_seed(0)
    head = ProjectionHead(8)
    assert [tuple(weights.shape) for weights in head.parameters()] == [(4096, 8), (4096,), (4096, 4096), (4096,)]
    for linear in (head.layers[0], head.layers[2]):
        assert not linear.bias.any()
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert linear.weight.abs().max() > 0.06  # a uniform distribution with that deviation ends at 0.035


def test_masked_lm_head_trains_the_word_embeddings_without_registering_them() -> None:
    embeddings = nn.Embedding(11, 4)
    head = MaskedLmHead(8, embeddings)
    assert head.state_dict().keys() == {"bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias"}
    nn.functional.cross_entropy(head(torch.randn(5, 8)), torch.arange(5)).backward()
    for tensor in (embeddings.weight, *head.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().max() > 0
