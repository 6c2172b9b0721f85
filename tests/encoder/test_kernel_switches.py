"""With the kernels on or off, results are equal up to rounding."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nearfar.encoder import kernels
from nearfar.encoder.dropout import use_fast_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.kernels import Kernels
from tests.encoder.kernel_helpers import needs_kernels
from tests.tiny import sentences

CALLS = ("attend", "attend_backward", "drop")


@pytest.fixture(autouse=True)
def _clear_caches() -> Iterator[None]:
    yield
    kernels.kernels.cache_clear()


def step(folder: Path) -> list[torch.Tensor]:
    """Embeddings and gradients of a step with dropout, always with the same masks."""
    encoder = Encoder.from_pretrained(folder)
    use_fast_dropout(encoder)
    encoder.train()
    torch.manual_seed(3)
    found = encoder(encoder.tokenize(sentences(12, seed=1))[0])
    (found * torch.linspace(-1, 1, found.numel()).view(found.shape)).sum().backward()
    return [found.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)]


@pytest.mark.long
@needs_kernels
def test_they_do_not_change_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    for name in CALLS:
        original = getattr(Kernels, name)
        monkeypatch.setattr(Kernels, name, lambda *args, n=name, call=original: called.add(n) or call(*args))
    results = []
    for requested, expected in (("1", set(CALLS)), ("0", set())):
        monkeypatch.setenv("NEARFAR_KERNELS", requested)
        kernels.kernels.cache_clear()
        called.clear()
        results.append(step(folder))
        assert called == expected
    assert len(results[0]) == len(results[1]) > 20
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-7)
