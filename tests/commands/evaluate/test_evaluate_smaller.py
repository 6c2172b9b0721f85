"""``nearfar evaluate --dimensions --quantize``: scores of smaller embeddings equal those computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from nearfar import Encoder, NearfarError
from nearfar.cli import main
from nearfar.commands.evaluate import model
from nearfar.commands.evaluate.command import evaluate
from nearfar.evaluation.results import EvaluationResult
from nearfar.evaluation.tables.evaluation import stored_bytes
from nearfar.quantization import dequantize, int8_ranges, quantize
from tests.tiny import save_tiny, write_pairs, write_queries


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_pairs(Path("pairs.tsv"), 40)
    write_queries(Path("ranked.tsv"))
    return tmp_path


def evaluated(**settings: Any) -> EvaluationResult:
    return evaluate("tiny", **{"resamples": 0, "progress": False, **settings})


def read(file: str) -> list[list[str]]:
    return [line.split("\t") for line in Path(file).read_text().splitlines()[1:]]


def stored(vectors: np.ndarray, kind: Any, texts: list[str]) -> np.ndarray:
    """Decoded codes; the ranges of int8 are those of all texts."""
    if kind is None:
        return vectors
    ranges = None
    if kind == "int8":
        encoder = Encoder.from_pretrained("tiny")
        ranges = int8_ranges([encoder.encode(texts, dimensions=vectors.shape[1], precision="fp32")])
    return dequantize(quantize(vectors, kind, ranges), kind, ranges, dim=vectors.shape[1])


@pytest.mark.long
@pytest.mark.parametrize("kind", [None, "float16", "int8", "binary"])
@pytest.mark.parametrize("dimensions", [None, 12])
def test_correlations(workspace: Path, dimensions: int | None, kind: Any) -> None:
    result = evaluated(tasks="pairs.tsv", dimensions=dimensions, quantize=kind)
    rows = read("pairs.tsv")
    encoder = Encoder.from_pretrained("tiny")
    texts = sorted({text for row in rows for text in row[1:]})
    sides = []
    for side in (1, 2):
        vectors = encoder.encode([row[side] for row in rows], precision="fp32")[:, : dimensions or 32]
        vectors = stored(vectors, kind, texts)
        sides.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    cosines = np.round((sides[0] * sides[1]).sum(axis=1), 6)
    expected = spearmanr([float(row[0]) for row in rows], cosines).statistic
    score = result.tasks["pairs.tsv"].spearman.all.score
    assert score is not None
    assert score / 100 == pytest.approx(expected, abs=2e-3)
    assert result.dim == (dimensions or 32)
    assert ("dimensions" in result.config, "quantize" in result.config) == (dimensions is not None, kind is not None)


@pytest.mark.parametrize("kind", [None, "binary"])
def test_retrieval_ranks_stored_documents_by_the_queries_as_they_are(workspace: Path, kind: Any) -> None:
    result = evaluated(retrieval=["ranked.tsv"], dimensions=12, quantize=kind)
    encoder = Encoder.from_pretrained("tiny")
    rows = read("ranked.tsv")
    queries = encoder.encode([row[0] for row in rows], dimensions=12, normalize=True, precision="fp32")
    documents = stored(encoder.encode([row[1] for row in rows], dimensions=12, precision="fp32"), kind, [])
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    scores = queries @ documents.T
    own = np.diag(scores)[:, None]
    above, equal = (scores > own + 1e-6).sum(axis=1), (np.abs(scores - own) <= 1e-6).sum(axis=1) - 1
    best, worst = (np.where(ranks <= 10, 1 / ranks, 0).mean() for ranks in (1 + above, 1 + above + equal))
    score = result.retrieval["ranked.tsv"].measures["mrr@10"].score
    assert score is not None
    assert worst - 1e-4 <= score / 100 <= best + 1e-4  # binary documents may have equal scores
    assert (equal.max() > 0) == (kind == "binary")


@pytest.mark.long
def test_the_ranges_of_int8_are_those_of_a_fixed_sample(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(model, "CALIBRATION_TEXTS", 5)
        one, other = (evaluated(tasks="pairs.tsv", quantize="int8") for _ in range(2))
    assert one.tasks == other.tasks
    assert evaluated(tasks="pairs.tsv", quantize="int8").tasks != one.tasks


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 128),
        ({"dimensions": 12}, 48),
        ({"quantize": "float16"}, 64),
        ({"dimensions": 12, "quantize": "int8"}, 12),
        ({"dimensions": 12, "quantize": "binary"}, 2),
    ],
)
def test_the_bytes_of_a_stored_vector(workspace: Path, settings: dict[str, Any], size: int) -> None:
    result = evaluated(tasks="pairs.tsv", **settings)
    assert stored_bytes(result) == size
    assert {key: result.config[key] for key in settings} == settings


def test_the_verb_prints_a_note(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "evaluate tiny --tasks pairs.tsv --resamples 0 --dimensions 12 --quantize binary".split()
    assert main(flags) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Embeddings: the first 12 dimensions, stored as binary; 2 bytes each." in printed


def test_what_is_refused(workspace: Path) -> None:
    with pytest.raises(NearfarError, match=r"--dimensions 33: must be from 1 to 32, the model's width"):
        evaluated(tasks="pairs.tsv", dimensions=33)
    with pytest.raises(NearfarError, match=r"dimensions is a setting of a model folder or hub name; a function has"):
        evaluate(lambda texts: np.ones((len(texts), 4)), tasks="pairs.tsv", dimensions=2, progress=False)
    with pytest.raises(NearfarError, match=r"quantize is a setting of a model folder or hub name"):
        evaluate(lambda texts: np.ones((len(texts), 4)), tasks="pairs.tsv", quantize="int8", progress=False)
    for settings, flag in (({"dimensions": 2}, "--dimensions 2"), ({"quantize": "int8"}, "--quantize int8")):
        with pytest.raises(NearfarError, match=f"{flag}: is for encoders; bow is a baseline. Leave it out."):
            evaluate("bow", tasks="pairs.tsv", progress=False, **settings)
