"""Exported folders in fastembed and in sentence-transformers' backends, where these are installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from nearfar import Encoder, export

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (find_spec("onnx") and find_spec("onnxscript")),
        reason="needs the extra export: pip install 'nearfar[export]'",
    ),
]

TEXTS = ["a dog runs in the park", "the cat", "a bird is not by the big red house"]


def expected(model: Path) -> np.ndarray:
    return Encoder.from_pretrained(model).encode(TEXTS, precision="fp32")


@pytest.mark.filterwarnings("default")
def test_fastembed(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra export: pip install 'nearfar[export]'")
    fastembed = pytest.importorskip("fastembed", reason="needs fastembed")
    from fastembed.common.model_description import ModelSource, PoolingType

    export(models / "plain", output=tmp_path / "out", evaluate_on=models / "pairs.tsv")
    fastembed.TextEmbedding.add_custom_model(
        model="tiny",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(hf="tiny"),
        dim=32,
        model_file="model.onnx",
    )
    opened = fastembed.TextEmbedding("tiny", specific_model_path=str(tmp_path / "out"))
    np.testing.assert_allclose(np.array(list(opened.embed(TEXTS))), expected(models / "plain"), atol=1e-5)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("backend", "module", "runtime"),
    [("onnx", "optimum.onnxruntime", "onnxruntime"), ("openvino", "optimum.intel.openvino", "openvino")],
)
def test_sentence_transformers(models: Path, tmp_path: Path, backend: str, module: str, runtime: str) -> None:
    pytest.importorskip(runtime, reason="needs the extra export: pip install 'nearfar[export]'")
    pytest.importorskip(module, reason=f"needs sentence-transformers[{backend}]; onnx needs transformers 4 yet")
    from sentence_transformers import SentenceTransformer

    export(models / "normalized", format=backend, output=tmp_path / "out", evaluate_on=models / "pairs.tsv")
    opened = SentenceTransformer(str(tmp_path / "out"), backend=backend, device="cpu")
    np.testing.assert_allclose(opened.encode(TEXTS), expected(models / "normalized"), atol=0.02)  # OpenVINO uses bf16
