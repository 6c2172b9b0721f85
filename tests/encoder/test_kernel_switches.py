"""With the kernels on or off, results are equal up to rounding."""

import importlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from nearfar.encoder import kernels
from nearfar.encoder.dropout import use_fast_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.kernels import Kernels
from tests.encoder.kernel_helpers import needs_kernels
from tests.tiny import save_tiny, sentences

pytestmark = [pytest.mark.long, needs_kernels]
CALLS = ("attend", "attend_backward", "drop")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _clear_caches() -> None:
    yield
    kernels.kernels.cache_clear()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of calls of the library's functions, by name."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        original = getattr(Kernels, name)

        def call(*arguments: object) -> object:
            calls[name] += 1
            return original(*arguments)

        monkeypatch.setattr(Kernels, name, call)

    for name in CALLS:
        counted(name)
    return calls


def switch(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", str(int(on)))
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


def test_they_do_not_change_results(tiny: Path, called: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    switch(True, monkeypatch)
    found = step(tiny)
    assert set(called) == set(CALLS)
    switch(False, monkeypatch)
    called.clear()
    plain = step(tiny)
    assert not called
    assert len(found) == len(plain) > 20
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-7)


@pytest.mark.nightly
def test_the_benchmark_switches_them(
    tiny: Path,
    called: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    monkeypatch.setenv("NEARFAR_KERNELS", "1")
    benchmark = importlib.import_module("compiled_kernels")
    used: list[bool] = []

    def record_use(on: bool) -> None:
        used.append(bool(called))
        called.clear()
        switch(on, monkeypatch)

    monkeypatch.setattr(benchmark, "switch", record_use)
    monkeypatch.setattr(benchmark, "native_bf16", lambda _: False)
    flags = ["measure", "--rounds", "1", "--steps", "1", "--batch-size", "8", "--model", str(tiny)]
    monkeypatch.setattr(sys, "argv", ["compiled_kernels.py", *flags])
    try:
        benchmark.main()
    finally:
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
    assert [*used[2:], bool(called)] == [True, False, False, True]  # the first round warms up
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    losses = measured["losses"]["fp32"]
    assert set(losses) == set(benchmark.SIDES)
    assert max(losses.values()) - min(losses.values()) < 1e-2
    assert all(len(seconds) == 1 for seconds in measured["seconds"]["fp32"].values())
    record = {"model": "tiny", "batch_size": 8, "rounds": 1, "steps": 1, "threads": 1, "kinds": {"as it is": measured}}
    page = "\n".join(benchmark.body({**record, "hardware": {"processor": "fast"}, "versions": {"torch": "2"}}))
    for side in benchmark.SIDES:
        assert f"| {side} |" in page
