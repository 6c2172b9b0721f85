"""Attention on a GPU: each backend gives the formula's values and gradients, and correct dropout."""

import pytest
import torch
from torch import Tensor

from nearfar.encoder import attention
from nearfar.encoder.attention import attend
from nearfar.encoder.tokens import LengthGroup
from tests.encoder.attention_formula import formula, groups_of
from tests.gpu.devices import on_each_device

HALF, WHOLE = torch.bfloat16, torch.float32
HEADS = 2
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""Relative to the norm of the formula's result in float64."""
DROPPED = 0.25


GROUPS = groups_of((1, 2), (5, 3), (16, 1), (33, 2), (64, 1), (130, 2))


def random_inputs(groups: list[LengthGroup], head_dim: int, dtype: torch.dtype) -> list[Tensor]:
    """Query, key, value and an output gradient, all representable in ``dtype``."""
    shape = (4, groups[-1].span.stop, HEADS, head_dim)
    return list(torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).unbind())


def needs_varlen() -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("This GPU's compute capability is below 8.0, which varlen attention needs.")


def values_and_gradients_on(device: str, tensors: list[Tensor], groups: list[LengthGroup], **settings) -> list[Tensor]:
    *given, grad_output = torch.stack(tensors).to(device).unbind()  # views of one tensor, as a backbone's may be
    query, key, value = (tensor.requires_grad_() for tensor in given)
    out = attend(query, key, value, groups, **settings)
    return [t.detach().double().cpu() for t in (out, *torch.autograd.grad(out, (query, key, value), grad_output))]


def assert_near(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for name, ours, right in zip(("output", "query", "key", "value"), found, expected, strict=True):
        error = float((ours - right).norm() / right.norm())
        assert error <= tolerance, f"{name}: off by {error:.2g}"


@on_each_device(
    "backend, dtype, head_dim, window",
    small=[("groups", WHOLE, 32, 4), ("tiles", WHOLE, 32, None), ("tiles", WHOLE, 20, 4)],
    whole=[
        *(("varlen", dtype, dim, w) for dtype in (HALF, torch.float16) for dim in (16, 32, 64, 128) for w in (None, 4)),
        *(("groups", dtype, dim, w) for dtype in (HALF, WHOLE) for dim in (16, 32, 64) for w in (None, 4)),
        *(("tiles", dtype, dim, w) for dtype in (HALF, WHOLE) for dim in (16, 20, 32, 64) for w in (None, 4)),
    ],
)
def test_values_and_gradients(device: str, backend: str, dtype: torch.dtype, head_dim: int, window: int | None) -> None:
    if backend == "varlen":
        needs_varlen()
    tensors = random_inputs(GROUPS, head_dim, dtype)
    for causal in (False, True):
        how = {"backend": backend, "sliding_window": window, "causal": causal}
        found = values_and_gradients_on(device, tensors, GROUPS, **how)
        assert_near(found, formula(tensors, GROUPS, window=window, causal=causal), TOLERANCES[dtype])


@on_each_device(
    "backend, dtype",
    small=[("groups", WHOLE), ("tiles", WHOLE)],
    whole=[(backend, dtype) for backend in ("groups", "tiles") for dtype in (HALF, WHOLE)],
)
def test_dropout_of_attention_weights(device: str, backend: str, dtype: torch.dtype) -> None:
    """Values are unit vectors, so that the output is the attention weights, which show the mask."""
    head_dim = 64
    groups = groups_of((8, 40), (40, 3), (64, 3))
    query, key, _, grad_output = random_inputs(groups, head_dim, dtype)
    unit = torch.eye(head_dim, dtype=dtype)
    value = torch.cat([unit[: group.length].repeat(group.num_texts, 1) for group in groups])
    value = value[:, None].expand(-1, HEADS, -1).contiguous()
    tensors = [0.3 * query, key, value, grad_output]  # no attention weight is so small that it rounds to 0
    torch.manual_seed(0)
    found = values_and_gradients_on(device, tensors, groups, backend=backend, dropout=DROPPED)
    seen = torch.cat([torch.full((group.span.stop - group.start,), group.length) for group in groups])
    inside = (torch.arange(head_dim) < seen[:, None])[:, None].expand(-1, HEADS, -1)
    assert (found[0][~inside] == 0).all()
    kept = found[0] != 0
    count = int(inside.sum())
    assert abs(1 - float(kept[inside].double().mean()) - DROPPED) < 5 * (DROPPED * (1 - DROPPED) / count) ** 0.5
    expected = formula(tensors, groups, factors=kept / (1 - DROPPED))
    assert_near(found, expected, TOLERANCES[dtype])
    assert float((found[0] - formula(tensors, groups)[0]).norm()) > 0.1 * float(found[0].norm())
    again = values_and_gradients_on(device, tensors, groups, backend=backend, dropout=DROPPED)
    assert not torch.equal(again[0], found[0])
    torch.manual_seed(0)
    again = values_and_gradients_on(device, tensors, groups, backend=backend, dropout=DROPPED)
    assert torch.equal(again[0], found[0])


@on_each_device("dtype, head_dim", small=[], whole=[(dtype, d) for dtype in (HALF, torch.float16) for d in (32, 64)])
def test_varlen_is_the_default_for_long_texts_on_a_gpu(
    device: str, dtype: torch.dtype, head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without attention dropout."""
    needs_varlen()
    backends_used: list[str] = []
    real = attention.varlen
    monkeypatch.setattr(
        attention, "varlen", lambda *args, **settings: backends_used.append("varlen") or real(*args, **settings)
    )
    tensors = random_inputs(GROUPS, head_dim, dtype)
    values_and_gradients_on(device, tensors, GROUPS)
    values_and_gradients_on(device, tensors, GROUPS, dropout=0.1)
    values_and_gradients_on(device, [tensor.float() for tensor in tensors], GROUPS)
    assert backends_used == ["varlen"]
