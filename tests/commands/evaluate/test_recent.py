"""Vectors that evaluations of one model share: the same scores, and each text is encoded once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearfar import Encoder
from nearfar.commands.evaluate.command import evaluate
from nearfar.commands.evaluate.model import RecentVectors
from nearfar.evaluation.results import EvaluationResult
from tests.tiny import save_tiny, write_colours, write_pairs, write_queries

SETTINGS: list[dict[str, Any]] = [
    {},
    {"dimensions": 12},
    {"quantize": "int8"},
    {"dimensions": 12, "quantize": "binary"},
    {"resamples": 20},
]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A folder with a model, pairs and queries, and the number of texts of each call of an encoder."""
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_pairs(Path("pairs.tsv"), 40)
    write_queries(Path("ranked.tsv"))
    found: list[int] = []
    encode = Encoder.encode

    def counted(self: Encoder, texts: Sequence[str], **settings: Any) -> NDArray[np.float32]:
        found.append(len(texts))
        return encode(self, texts, **settings)

    monkeypatch.setattr(Encoder, "encode", counted)
    return found


def evaluated(recent: RecentVectors | None = None, **settings: Any) -> EvaluationResult:
    given = {"tasks": ["pairs.tsv"], "retrieval": ["ranked.tsv"], "resamples": 0, "progress": False, **settings}
    return evaluate("tiny", recent=recent, **given)


def scores(result: EvaluationResult) -> list[float | None]:
    found = [one.spearman.all.score for one in result.tasks.values()]
    return [*found, *(one.measures["ndcg@10"].score for one in result.retrieval.values())]


@pytest.mark.long
@pytest.mark.parametrize(
    "prompts", [pytest.param({}, marks=pytest.mark.nightly), {"query_prompt": "query: ", "document_prompt": "text: "}]
)
def test_scores_are_those_without_memory_and_texts_are_encoded_once(prompts: dict[str, str], calls: list[int]) -> None:
    recent = RecentVectors()
    for settings in SETTINGS:
        expected = scores(evaluated(**settings, **prompts))
        calls.clear()
        assert scores(evaluated(recent, **settings, **prompts)) == pytest.approx(expected, abs=1e-3)
        assert bool(calls) == (settings in ({}, {"quantize": "int8"}))  # int8 takes its ranges from another list
        again = scores(evaluated(recent, **settings, **prompts))
        assert again == scores(evaluated(RecentVectors(), **settings, **prompts))


@pytest.mark.long
def test_evaluations_change_no_vectors(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    encode = Encoder.encode

    def kept(self: Encoder, texts: Sequence[str], **settings: Any) -> NDArray[np.float32]:
        vectors = encode(self, texts, **settings)
        returned.append((vectors, vectors.copy()))
        return vectors

    monkeypatch.setattr(Encoder, "encode", kept)
    write_colours(Path("train.tsv"), 20)
    write_colours(Path("test.tsv"), 10)
    evaluated(RecentVectors(), quantize="int8", labelled=["train.tsv"], protocol="exact", folds=2)
    assert returned
    for vectors, copy in returned:
        assert np.array_equal(vectors, copy)


@pytest.mark.long
def test_another_model_or_setting_is_encoded_again(calls: list[int]) -> None:
    recent = RecentVectors()
    first = scores(evaluated(recent))
    calls.clear()
    evaluated(recent)
    assert not calls
    evaluated(recent, pooling="cls")
    assert calls
    calls.clear()
    evaluated(recent, prompt="text: ")
    assert calls
    calls.clear()
    save_tiny(Path("tiny"), seed=1)  # in the same folder
    assert scores(evaluated(recent)) != first
    assert calls


def test_only_the_same_call_is_answered_from_memory() -> None:
    calls: list[list[str]] = []

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        calls.append(list(texts))
        return np.full((len(texts), 2), len(calls), dtype=np.float32)

    recent = RecentVectors()
    one, other = recent.wrap(encode, "one"), recent.wrap(encode, "other")
    for texts in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], []):
        first = one(texts)
        assert one(texts) is first
        assert other(texts) is not first
    assert len(calls) == 10


def test_the_oldest_call_is_dropped() -> None:
    calls: list[Sequence[str]] = []

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        calls.append(texts)
        return np.zeros((len(texts), 2), dtype=np.float32)

    remembered = RecentVectors(max_bytes=40).wrap(encode, "model")
    for texts in ("abc", "de", "abc", "fg", "abc", "ghijkl", "abc"):  # 24, 16, 24, 16, 24, 48, 24 bytes
        remembered(texts)
    assert calls == ["abc", "de", "fg", "ghijkl"]
    remembered("de")
    assert calls[-1] == "de"
