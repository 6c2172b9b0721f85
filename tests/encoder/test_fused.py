"""Fused dropout + residual + LayerNorm equals the separate modules, in both precisions, with and without kernels."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nearfar.encoder import dropout
from nearfar.encoder.dropout import DropoutMask, Output, add_norm, apply_dropout_mask
from nearfar.encoder.encoder import Encoder
from tests.encoder.kernel_helpers import implementations, needs_kernels
from tests.tiny import save_tiny

SEED = 5
pytestmark = pytest.mark.usefixtures("use_kernels")


def given(dim: int, tokens: int = 150) -> tuple[list[Tensor], nn.LayerNorm]:
    """Input, residual and output gradient, all representable in bfloat16; and a LayerNorm."""
    generator = torch.Generator().manual_seed(0)
    tensors = torch.randn(3, tokens, dim, generator=generator).add_(0.5).bfloat16().float()
    norm = nn.LayerNorm(dim, eps=1e-3)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(dim, generator=generator) + 0.5)
        norm.bias.copy_(torch.randn(dim, generator=generator))
    return list(tensors.unbind()), norm


def values_and_gradients(tensors: list[Tensor], norm: nn.LayerNorm, p: float) -> list[Tensor]:
    x, residual = (tensor.clone().requires_grad_() for tensor in tensors[:2])
    norm.zero_grad()
    torch.manual_seed(SEED)
    out = add_norm(x, residual, norm, p=p)
    assert out.dtype == x.dtype
    out.backward(tensors[2])
    return [out.detach(), x.grad, residual.grad, norm.weight.grad, norm.bias.grad]  # type: ignore[list-item]


def formula(tensors: list[Tensor], norm: nn.LayerNorm, p: float) -> list[Tensor]:
    """The reference in float64, with torch's LayerNorm."""
    x, residual = (tensor.double().requires_grad_() for tensor in tensors[:2])
    exact = nn.LayerNorm(norm.normalized_shape, eps=norm.eps).double()
    exact.load_state_dict(norm.state_dict())
    torch.manual_seed(SEED)
    mask = DropoutMask.draw(p)
    factors = apply_dropout_mask(mask, torch.ones(tensors[0].shape)).double()
    assert (factors.unique().tolist() == [1.0]) == (p == 0)
    out = exact(x * factors + residual)
    out.backward(tensors[2].double())
    return [out.detach(), x.grad, residual.grad, exact.weight.grad, exact.bias.grad]  # type: ignore[list-item]


@implementations
@pytest.mark.parametrize("dim", [16, 48, 384, 40])
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_equals_the_formula(implementation: str, dim: int, p: float) -> None:
    tensors, norm = given(dim)
    for ours, exact in zip(values_and_gradients(tensors, norm, p), formula(tensors, norm, p), strict=True):
        assert exact.norm() > 0
        assert float((ours - exact).norm() / exact.norm()) < 1e-6


@implementations
def test_in_bfloat16_only_inputs_and_outputs_are_rounded(implementation: str) -> None:
    """Gradients of the weights, which are sums over tokens, have float32 precision."""
    tensors, norm = given(48, tokens=5000)
    found = values_and_gradients([tensor.bfloat16() for tensor in tensors], norm, 0.1)
    for index, (ours, exact) in enumerate(zip(found, formula(tensors, norm, 0.1), strict=True)):
        assert ours.dtype == (torch.bfloat16 if index < 3 else torch.float32)
        assert float((ours - exact).norm() / exact.norm()) < (3e-3 if index < 3 else 1e-5)


@needs_kernels
def test_kernel_and_plain_torch_drop_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, norm = given(384)
    found = values_and_gradients(tensors, norm, 0.1)
    monkeypatch.setattr(dropout, "kernels", lambda: None)
    for ours, plain in zip(found, values_and_gradients(tensors, norm, 0.1), strict=True):
        torch.testing.assert_close(ours, plain)


def test_a_float32_residual_is_cast_to_the_dtype_of_the_input() -> None:
    (x, residual, _), norm = given(16)
    out = add_norm(x.bfloat16(), residual, norm)
    torch.testing.assert_close(out, add_norm(x.bfloat16(), residual.bfloat16(), norm))


@implementations
@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_a_backbone_gives_the_same_hidden_states(
    implementation: str,
    architecture: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = save_tiny(tmp_path, architecture)
    encoder = Encoder.from_pretrained(folder)
    assert sum(isinstance(part, Output) for part in encoder.modules()) == 4  # two layers with two sublayers each
    monkeypatch.setattr("nearfar.encoder.encoder.use_fused", lambda module: None)
    before = Encoder.from_pretrained(folder)
    assert not any(isinstance(part, Output) for part in before.modules())
    texts = ["a man sees a dog", "red house", "no"]
    torch.testing.assert_close(
        torch.from_numpy(encoder.encode(texts)), torch.from_numpy(before.encode(texts)), rtol=0, atol=1e-6
    )
