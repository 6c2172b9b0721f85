"""Fixtures of all GPU tests: data, and deterministic arithmetic."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nearfar.encoder import training_encoder
from nearfar.runtime import gpu
from tests.gpu.devices import GPU, Repeater
from tests.method_configs import write_data

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, with the first product: see deterministic


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_data(tmp_path_factory.mktemp("gpu"))
    for part in ("validation", "test"):
        (folder / f"{part}.tsv").write_text((folder / "labelled.tsv").read_text())
    return folder


@pytest.fixture(autouse=True)
def _no_tf32() -> Iterator[None]:
    """Disable TF32, so that float32 products have full precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Make torch refuse operations that are not deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device of a test; on a CPU there are graphs, too."""
    if request.param == "cpu":
        monkeypatch.setattr(gpu, "Recorder", Repeater)
        monkeypatch.setattr(training_encoder, "uses_graphs", lambda _: True)
        monkeypatch.setattr(training_encoder, "add_gradients_in_place", lambda _: None)
    return request.param
