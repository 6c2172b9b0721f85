"""The model of an evaluation: smaller embeddings score as by hand, and evaluations of one model share its vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from nearfar import Encoder, NearfarError
from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate, model
from nearfar.commands.evaluate.model import RecentVectors
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


@pytest.mark.long
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


def test_what_is_refused(workspace: Path) -> None:
    with pytest.raises(NearfarError, match=r"--dimensions 33: must be from 1 to 32, the model's width"):
        evaluated(tasks="pairs.tsv", dimensions=33)
    with pytest.raises(NearfarError, match=r"dimensions is a setting of a model folder or hub name; this function has"):
        evaluate(lambda texts: np.ones((len(texts), 4)), tasks="pairs.tsv", dimensions=2, progress=False)
    with pytest.raises(NearfarError, match=r"quantize is a setting of a model folder or hub name"):
        evaluate(lambda texts: np.ones((len(texts), 4)), tasks="pairs.tsv", quantize="int8", progress=False)
    for settings, flag in (({"dimensions": 2}, "--dimensions 2"), ({"quantize": "int8"}, "--quantize int8")):
        with pytest.raises(NearfarError, match=f"{flag}: is for encoders; bow is a baseline. Leave it out."):
            evaluate("bow", tasks="pairs.tsv", progress=False, **settings)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"dimensions": 12},
    {"quantize": "int8"},
    {"dimensions": 12, "quantize": "binary"},
    {"resamples": 20},
]


@pytest.fixture
def calls(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts of each call of an encoder."""
    found: list[int] = []
    encode = Encoder.encode

    def counted(self: Encoder, texts: Sequence[str], **settings: Any) -> NDArray[np.float32]:
        found.append(len(texts))
        return encode(self, texts, **settings)

    monkeypatch.setattr(Encoder, "encode", counted)
    return found


def scores(recent: RecentVectors | None = None, **settings: Any) -> list[float | None]:
    result = evaluated(**{"tasks": ["pairs.tsv"], "retrieval": ["ranked.tsv"], "recent": recent, **settings})
    found = [one.spearman.all.score for one in result.tasks.values()]
    return [*found, *(one.measures["ndcg@10"].score for one in result.retrieval.values())]


@pytest.mark.long
@pytest.mark.parametrize(
    "prompts", [pytest.param({}, marks=pytest.mark.nightly), {"query_prompt": "query: ", "document_prompt": "text: "}]
)
def test_scores_are_those_without_memory_and_texts_are_encoded_once(prompts: dict[str, str], calls: list[int]) -> None:
    recent = RecentVectors()
    for settings in SETTINGS:
        expected = scores(**settings, **prompts)
        calls.clear()
        assert scores(recent, **settings, **prompts) == pytest.approx(expected, abs=1e-3)
        assert bool(calls) == (settings in ({}, {"quantize": "int8"}))  # int8 takes its ranges from another list
        again = scores(recent, **settings, **prompts)
        assert again == scores(RecentVectors(), **settings, **prompts)


@pytest.mark.long
def test_another_model_or_setting_is_encoded_again(calls: list[int]) -> None:
    recent = RecentVectors()
    first = scores(recent)
    calls.clear()
    scores(recent)
    assert not calls
    scores(recent, pooling="cls")
    assert calls
    calls.clear()
    scores(recent, prompt="text: ")
    assert calls
    calls.clear()
    save_tiny(Path("tiny"), seed=1)  # in the same folder
    assert scores(recent) != first
    assert calls


def test_only_the_same_call_is_answered_from_memory_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MAX_BYTES", 40)
    calls: list[str] = []

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        calls.append("".join(texts))
        return np.full((len(texts), 2), len(calls), dtype=np.float32)

    recent = RecentVectors()
    remembered, other = recent.wrap(encode, "model"), recent.wrap(encode, "other")
    for texts in ("abc", "de", "abc", "fg", "abc", "ghijkl", "abc"):  # 24, 16, 24, 16, 24, 48, 24 bytes
        remembered(texts)
    assert calls == ["abc", "de", "fg", "ghijkl"]
    for texts in ("de", ["d", "e"], ["e", "d"], ["de"]):
        remembered(texts)
    other("de")
    assert calls[4:] == ["de", "ed", "de", "de"]


@pytest.mark.long
def test_open_models_score_as_their_folder(workspace: Path) -> None:
    """An Encoder, also one whose weights are no longer those of the folder, and a SentenceTransformer."""
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.from_pretrained("tiny")
    encoder.save_pretrained("saved")
    settings: dict[str, Any] = {"tasks": ["pairs.tsv"], "retrieval": ["ranked.tsv"], "resamples": 0, "progress": False}
    expected = evaluate("tiny", **settings)
    by_encoder = evaluate(encoder, **settings)
    assert (by_encoder.model, by_encoder.tasks, by_encoder.retrieval) == ("tiny", expected.tasks, expected.retrieval)
    assert by_encoder.fingerprint is None  # only a folder has one
    theirs = evaluate(SentenceTransformer("saved", device="cpu"), **settings)
    assert theirs.model == "saved"
    assert theirs.tasks["pairs.tsv"].spearman.all.score == pytest.approx(expected.tasks["pairs.tsv"].spearman.all.score)
    row = compare(encoder, SentenceTransformer("saved", device="cpu"), tasks="pairs.tsv", resamples=20, progress=False)
    assert row.tasks["pairs.tsv"].difference == pytest.approx(0, abs=1e-2)
    encoder.backbone.embeddings.word_embeddings.weight.data.zero_()
    assert evaluate(encoder, **settings).tasks != expected.tasks

    prompts = {"query": "which: ", "document": "text: "}
    prompted = SentenceTransformer("saved", device="cpu", prompts=prompts)
    own = evaluate("saved", query_prompt="which: ", document_prompt="text: ", **settings).retrieval
    assert evaluate(prompted, **settings).retrieval["ranked.tsv"].measures["mrr@10"].score == pytest.approx(
        own["ranked.tsv"].measures["mrr@10"].score
    )
    for taken, flag, kind in ((encoder, "pooling", "Encoder"), (prompted, "dimensions", "SentenceTransformer")):
        with pytest.raises(
            NearfarError, match=f"{flag} is a setting of a model folder or hub name; this {kind} has its own"
        ):
            evaluate(taken, **{**settings, flag: {"pooling": "cls", "dimensions": 4}[flag]})
    with pytest.raises(NearfarError, match="int: is no model; name a folder, or give an Encoder"):
        evaluate(3, **settings)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_result_is_shown_as_its_table_and_tells_the_bytes_of_a_vector(workspace: Path) -> None:
    sizes = ({}, 128), ({"quantize": "float16"}, 64), ({"dimensions": 12, "quantize": "binary"}, 2)
    for settings, size in sizes:
        result = evaluated(tasks="pairs.tsv", **settings)
        assert stored_bytes(result) == size
    assert "tiny: Spearman x 100 [95% interval]" in repr(result)
