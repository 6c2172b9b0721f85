"""Ragged attention by compiled kernels and by plain torch equals the formula for each text, including dropout."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar.encoder import attention
from nearfar.encoder.attention import attend
from nearfar.encoder.dropout import DropoutMask
from nearfar.encoder.kernels import HEAD_DIMS
from nearfar.encoder.tokens import LengthGroup
from tests.encoder.attention_formula import formula, groups_of
from tests.encoder.kernel_helpers import implementations, needs_kernels

HEADS = 4
SEED = 3
pytestmark = pytest.mark.usefixtures("use_kernels")


EVERY_WIDTH = groups_of((1, 2), (5, 3), (16, 1), (17, 2), (33, 1), (64, 1), (65, 2), (128, 1), (131, 2))


def inputs(groups: list[LengthGroup], head_dim: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query, key, value and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    shape = (4, groups[-1].span.stop, HEADS, head_dim)
    return list(torch.randn(shape, generator=generator).to(dtype).unbind())


def values_and_gradients(tensors: list[Tensor], groups: list[LengthGroup], **settings: Any) -> list[Tensor]:
    query, key, value = (tensor.clone().requires_grad_() for tensor in tensors[:3])
    torch.manual_seed(SEED)
    out = attend(query, key, value, groups, **settings)
    out.backward(tensors[3])
    found = [out.detach(), query.grad, key.grad, value.grad]
    assert all(one is not None and one.norm() > 0 for one in found)
    return found  # type: ignore[return-value]


def factors_of(mask: DropoutMask, groups: list[LengthGroup]) -> Tensor:
    """What the mask multiplies the attention weights by, [tokens, heads, longest]."""
    tokens, longest = groups[-1].span.stop, groups[-1].length
    words = -(-longest // 4)
    kept = mask.keep_mask(torch.arange(tokens * HEADS)[:, None] * words + torch.arange(words))
    return kept.view(tokens, HEADS, -1)[:, :, :longest].double() * mask.scale


@implementations
@pytest.mark.parametrize("head_dim", [*HEAD_DIMS, 24])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("window", "causal"), [(None, False), (16, False), (None, True), (16, True)])
def test_equals_the_formula(
    implementation: str, head_dim: int, dropout: float, window: int | None, causal: bool
) -> None:
    tensors = inputs(EVERY_WIDTH, head_dim)
    found = values_and_gradients(tensors, EVERY_WIDTH, dropout=dropout, sliding_window=window, causal=causal)
    torch.manual_seed(SEED)
    factors = factors_of(DropoutMask.draw(dropout), EVERY_WIDTH)
    expected = formula(tensors, EVERY_WIDTH, factors=factors, window=window, causal=causal)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-6


@needs_kernels
def test_bfloat16_error_is_below_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain torch rounds scores and attention weights too."""
    tensors = inputs(EVERY_WIDTH, 32, torch.bfloat16)
    expected = values_and_gradients([tensor.float() for tensor in tensors], EVERY_WIDTH, dropout=0.1)
    found = values_and_gradients(tensors, EVERY_WIDTH, dropout=0.1)
    monkeypatch.setattr(attention, "kernels", lambda: None)
    plain = values_and_gradients(tensors, EVERY_WIDTH, dropout=0.1)
    for one, other, exact in zip(found, plain, expected, strict=True):
        assert one.dtype == torch.bfloat16
        error = float((one.float() - exact).norm() / exact.norm())
        assert error < 4e-3
        assert error <= float((other.float() - exact).norm() / exact.norm())


@needs_kernels
@pytest.mark.parametrize("input_index", [0, 1, 2])
def test_nan_propagates(input_index: int) -> None:
    groups = groups_of((5, 1), (20, 2))
    tensors = inputs(groups, 32)
    tensors[input_index][7] = math.nan  # in the first text of length 20
    out = attend(*tensors[:3], groups)
    assert out[5:25].isnan().any(dim=(1, 2)).sum() >= 1
    assert not out[:5].isnan().any()
    assert not out[25:].isnan().any()


@needs_kernels
def test_large_scores_do_not_overflow() -> None:
    groups = groups_of((5, 1), (20, 2))
    tensors = [30 * tensor for tensor in inputs(groups, 32)]
    found, expected = values_and_gradients(tensors, groups), formula(tensors, groups)
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-3, atol=1e-2)
