"""The GPU attention backends, tested on a CPU: their results, and the choice of backend."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import varlen as torch_varlen

from nearfar.encoder import attention
from nearfar.encoder.attention import attend, choose_backend, has_varlen, varlen
from nearfar.encoder.tiles import tiles_of
from nearfar.encoder.tokens import LengthGroup

CPU = torch.device("cpu")
GROUPS = [LengthGroup(0, 2, 1), LengthGroup(2, 3, 5), LengthGroup(17, 1, 16), LengthGroup(33, 2, 33)]
TOKENS, HEADS, HEAD_DIM = 99, 2, 16


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Clear cached answers and layouts of other tests."""
    caches = (has_varlen, attention._starts)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def documented_varlen(*tensors: Tensor | int, scale: float, window_size: tuple[int, int]) -> Tensor:
    """A CPU implementation of varlen_attn, which needs CUDA, according to its documentation."""
    query, key, value, starts, key_starts, longest, longest_key = tensors
    lengths = starts.diff().tolist()
    assert starts.dtype == torch.int32
    assert torch.equal(starts, key_starts)
    assert longest == longest_key == max(lengths)
    left, right = (reach if reach >= 0 else longest for reach in window_size)
    outputs = []
    for q, k, v in zip(*(t.transpose(0, 1).split(lengths, dim=1) for t in (query, key, value)), strict=True):
        positions = torch.arange(q.shape[1])
        before = positions[:, None] - positions
        scores = (q @ k.transpose(1, 2) * scale).masked_fill((before > left) | (-before > right), -torch.inf)
        outputs.append((scores.softmax(2) @ v).transpose(0, 1))
    return torch.cat(outputs)


def heads(dtype: torch.dtype = torch.float32, head_dim: int = HEAD_DIM) -> list[Tensor]:
    return list(torch.randn(4, TOKENS, HEADS, head_dim, generator=torch.Generator().manual_seed(0)).to(dtype).unbind())


def with_gradients(**settings) -> list[Tensor]:
    query, key, value, grad_output = (tensor.requires_grad_() for tensor in heads())
    out = attend(query, key, value, GROUPS, **settings)
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), grad_output)]


@pytest.mark.parametrize("backend", ["varlen", "tiles"])
@pytest.mark.parametrize("window", [None, 4, 33])
@pytest.mark.parametrize("causal", [False, True])
def test_each_backend_equals_attention_within_each_text(
    backend: str, window: int | None, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_varlen, "varlen_attn", documented_varlen)
    how = {"sliding_window": window, "scaling": 0.3, "causal": causal}
    found = with_gradients(backend=backend, **how)
    expected = with_gradients(backend="groups", **how)
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs.norm() > 1
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_torch_accepts_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls torch's own function with fake CUDA tensors, which have no pinned memory."""
    monkeypatch.setattr(attention, "to_device", torch.Tensor.to)
    with FakeTensorMode(), torch.no_grad():
        query = torch.empty(TOKENS, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        for window, causal in product((None, 4), (False, True)):
            out = varlen(query, query, query, tuple(GROUPS), scaling=0.3, window=window, causal=causal)
            assert (out.shape, out.dtype, out.device) == (query.shape, query.dtype, query.device)


@pytest.mark.parametrize(
    ("inputs", "backend"),
    [
        ({}, "varlen"),
        ({"dtype": torch.float16}, "varlen"),
        ({"longest": 128}, "tiles"),
        ({"dropout": 0.1}, "tiles"),
        ({"dropout": 0.1, "longest": 513}, "groups"),
        ({"dtype": torch.float32}, "tiles"),
        ({"head_dim": 12}, "tiles"),
        ({"head_dim": 264}, "tiles"),
        ({"capability": (7, 5)}, "tiles"),
        ({"missing": True}, "tiles"),
        ({"windowless": True}, "tiles"),
        ({"missing": True, "longest": 513}, "groups"),
        ({"device": "cpu"}, "groups"),
    ],
)
def test_choice_of_backend(inputs: dict, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: inputs.get("capability", (9, 0)))
    monkeypatch.setattr(attention, "find_spec", lambda _: None if inputs.get("missing") else "found")
    if inputs.get("windowless"):  # torch 2.10
        monkeypatch.setattr(torch_varlen, "varlen_attn", lambda query, key, value, is_causal: query)
    with FakeTensorMode():
        settings = {"device": inputs.get("device", "cuda"), "dtype": inputs.get("dtype", torch.bfloat16)}
        query = torch.empty(TOKENS, HEADS, inputs.get("head_dim", 32), **settings)
        how = {"longest": inputs.get("longest", 129), "dropout": inputs.get("dropout", 0.0)}
        assert choose_backend(query, query, query, **how) == backend


def test_what_is_cached_in_inference_mode_can_be_used_in_training() -> None:
    """Encoding before training runs in inference mode and may cache the starts of texts of the same lengths."""
    with torch.inference_mode():
        starts = attention._starts(tuple(GROUPS), CPU)
        tiles = tiles_of(tuple(GROUPS), 3, CPU)
    assert attention._starts(tuple(GROUPS), CPU) is starts
    assert starts.tolist() == [0, 1, 2, 7, 12, 17, 33, 66, 99]
    assert tiles_of(tuple(GROUPS), 3, CPU) is tiles  # all layers share them
    assert not any(tensor.is_inference() for tensor in (starts, *tiles))
