"""The GPU attention backends, tested on a CPU: their results, the choice of backend, and the self-check."""

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import varlen as torch_varlen

from nearfar.encoder import cuda_attention
from nearfar.encoder.attention import attend
from nearfar.encoder.cuda_attention import (
    JaggedLayout,
    choose_backend,
    has_varlen,
    jagged_layout,
    passes_self_check,
    varlen,
)
from nearfar.encoder.padded_attention import LengthGroup, group_by_length, padded_blocks
from nearfar.types import NearfarError

CPU = torch.device("cpu")
GROUPS = [LengthGroup(0, 2, 1), LengthGroup(2, 3, 5), LengthGroup(17, 1, 16), LengthGroup(33, 2, 33)]
TOKENS, HEADS, HEAD_DIM = 99, 2, 16


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Clear cached checks and layouts of other tests."""
    for cached_function in (passes_self_check, has_varlen, jagged_layout):
        cached_function.cache_clear()
    yield
    for cached_function in (passes_self_check, has_varlen, jagged_layout):
        cached_function.cache_clear()


def documented_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> Tensor:
    """A CPU implementation of varlen_attn, which needs CUDA, according to its documentation."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    lengths = cu_seq_q.diff().tolist()
    assert max_q == max_k == max(lengths)
    mixed = []
    for q, k, v in zip(*(t.transpose(0, 1).split(lengths, dim=1) for t in (query, key, value)), strict=True):
        scores = q @ k.transpose(1, 2) * scale
        positions = torch.arange(q.shape[1])
        before = positions[:, None] - positions
        left, right = window_size
        unseen = torch.zeros_like(before, dtype=torch.bool)
        unseen |= (before > left) if left >= 0 else unseen
        unseen |= (-before > right) if right >= 0 else unseen
        mixed.append((scores.masked_fill(unseen, -torch.inf).softmax(2) @ v).transpose(0, 1))
    return torch.cat(mixed)


def heads(dtype: torch.dtype = torch.float32, head_dim: int = HEAD_DIM) -> list[Tensor]:
    return list(torch.randn(4, TOKENS, HEADS, head_dim, generator=torch.Generator().manual_seed(0)).to(dtype).unbind())


def with_gradients(**settings) -> list[Tensor]:
    query, key, value, grad_output = (tensor.requires_grad_() for tensor in heads())
    out = attend(query, key, value, GROUPS, **settings)
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), grad_output)]


@pytest.mark.parametrize("backend", ["varlen", "padded"])
@pytest.mark.parametrize("window", [None, 4, 33])
def test_each_backend_equals_attention_within_each_text(
    backend: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_varlen, "varlen_attn", documented_varlen)
    found = with_gradients(backend=backend, sliding_window=window, scaling=0.3)
    expected = with_gradients(backend="groups", sliding_window=window, scaling=0.3)
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs.norm() > 1
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_blocks_of_padded_attention() -> None:
    """Each block has texts of up to twice the length; blocks of one length are not padded."""
    lengths = [*range(1, 33), 33, 34, 64, 65, 300, 300]
    groups = tuple(group_by_length(lengths))
    blocks = padded_blocks(groups, None, CPU, torch.float32)
    assert [(block.num_texts, block.length, block.num_tokens) for block in blocks] == [
        (32, 32, sum(range(33))),
        (3, 64, 131),
        (1, 65, 65),
        (2, 300, 600),
    ]
    assert [block.slots is None for block in blocks] == [False, False, True, True]
    assert padded_blocks(groups, 64, CPU, torch.float32)[2].mask.shape == (1, 1, 72, 72)
    assert padded_blocks(groups, None, CPU, torch.float32) is blocks  # all layers share them


def test_padding_with_a_window_gives_no_nan() -> None:
    """Padding beyond the window of all tokens attends to tokens all the same."""
    query, key, value, grad_output = (tensor.requires_grad_() for tensor in heads())
    groups = [LengthGroup(0, 2, 1), LengthGroup(2, 1, 31), LengthGroup(33, 2, 33)]
    out = attend(query, key, value, groups, sliding_window=2, backend="padded")
    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out, (query, key, value), grad_output))


def test_torch_accepts_the_call() -> None:
    """Calls torch's own function with fake CUDA tensors."""
    with FakeTensorMode(), torch.no_grad():
        query = torch.empty(TOKENS, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        layout = JaggedLayout(torch.empty(9, device="cuda", dtype=torch.int32), 33)
        for window in (None, 4):
            out = varlen(query, query, query, layout, scaling=0.3, window=window)
            assert (out.shape, out.dtype, out.device) == (query.shape, query.dtype, query.device)


@pytest.mark.parametrize(
    ("requested", "inputs", "backend"),
    [
        (None, {}, "varlen"),
        ("auto", {}, "varlen"),
        (None, {"dtype": torch.float16}, "varlen"),
        (None, {"dropout": 0.1}, "padded"),
        (None, {"dtype": torch.float32}, "padded"),
        (None, {"head_dim": 12}, "padded"),
        (None, {"head_dim": 264}, "padded"),
        (None, {"capability": (7, 5)}, "padded"),
        (None, {"old torch": True}, "padded"),
        (None, {"broken": True}, "padded"),
        (None, {"device": "cpu"}, "groups"),
        ("padded", {"device": "cpu"}, "groups"),
        ("groups", {}, "groups"),
        ("padded", {}, "padded"),
        ("padded", {"dropout": 0.1, "dtype": torch.float32}, "padded"),
        ("groups", {"dropout": 0.1}, "groups"),
    ],
)
def test_choice_of_backend(requested: str | None, inputs: dict, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cuda_attention.VARIABLE, raising=False)
    if requested is not None:
        monkeypatch.setenv(cuda_attention.VARIABLE, requested)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: inputs.get("capability", (9, 0)))
    if inputs.get("old torch"):
        monkeypatch.setattr(torch_varlen, "varlen_attn", older)
    monkeypatch.setattr(cuda_attention, "passes_self_check", lambda *_: not inputs.get("broken"))
    with FakeTensorMode():
        query = torch.empty(
            TOKENS,
            HEADS,
            inputs.get("head_dim", 32),
            device=inputs.get("device", "cuda"),
            dtype=inputs.get("dtype", torch.bfloat16),
        )
        assert choose_backend(query, query, query, dropout=inputs.get("dropout", 0.0)) == backend


def test_an_unknown_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda_attention.VARIABLE, "flex")
    with FakeTensorMode():
        query = torch.empty(TOKENS, HEADS, 32, device="cuda")
        with pytest.raises(NearfarError, match="NEARFAR_CUDA_ATTENTION=flex: must be auto, groups or padded"):
            choose_backend(query, query, query, dropout=0.0)


def test_a_correct_backend_passes_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_varlen, "varlen_attn", documented_varlen)
    state = torch.get_rng_state()
    with torch.inference_mode():
        assert passes_self_check(CPU, torch.float32, HEAD_DIM)
    assert torch.equal(torch.get_rng_state(), state)


def one_text(query: Tensor, key: Tensor, value: Tensor, *_: object, scale: float, **__: object) -> Tensor:
    """Attention across texts."""
    scores = torch.einsum("ihd,jhd->hij", query, key) * scale
    return torch.einsum("hij,jhd->ihd", scores.softmax(2), value)


def windowless(*arguments, window_size: tuple[int, int], **settings) -> Tensor:
    return documented_varlen(*arguments, window_size=(-1, -1), **settings)


def not_finite(*arguments, **settings) -> Tensor:
    return documented_varlen(*arguments, **settings) * torch.nan


def refuses(*_: object, **__: object) -> Tensor:
    raise RuntimeError("no kernel image is available\nfor this device")


def older(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int) -> Tensor:
    return query


def wrong_gradient(*arguments, **settings) -> Tensor:
    out = documented_varlen(*arguments, **settings)
    return out.detach() + 0.5 * (out - out.detach())


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (one_text, "relative error"),
        (windowless, "relative error"),
        (not_finite, "relative error inf"),
        (wrong_gradient, "relative error 0.5"),
        (refuses, "RuntimeError: no kernel image is available[)]"),
        (older, "TypeError: "),
    ],
)
def test_a_wrong_backend_fails_its_check_with_one_warning(
    attention, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_varlen, "varlen_attn", attention)
    with pytest.warns(
        UserWarning, match=f"varlen attention of torch .*{reason}.*Attention uses the backend 'padded'"
    ) as warned:
        assert [passes_self_check(CPU, torch.float32, HEAD_DIM) for _ in range(2)] == [False, False]
    assert len(warned) == 1


def test_a_torch_without_varlen_attention_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_varlen()
    has_varlen.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    assert not has_varlen()


def test_a_layout_cached_in_inference_mode_can_be_used_in_training() -> None:
    """Encoding before training runs in inference mode and may cache the layout of the same lengths."""
    with torch.inference_mode():
        layout = jagged_layout(tuple(GROUPS), CPU)
    assert jagged_layout(tuple(GROUPS), CPU) is layout
    assert not layout.cu_seqlens.is_inference()
    assert layout.cu_seqlens.tolist() == [0, 1, 2, 7, 12, 17, 33, 66, 99]
    assert layout.max_seqlen == 33
