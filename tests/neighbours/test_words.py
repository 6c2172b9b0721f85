"""BM25 by its formula in float64, and the fusion of its rankings with those of vectors, in retrieval and in search."""

import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nearfar import NearfarError, compare, evaluate, search
from nearfar.data.retrieval import RetrievalTask
from nearfar.evaluation.retrieval import evaluate_retrieval
from nearfar.neighbours.words import WordSearch
from tests.search_helpers import ROWS, write_rows
from tests.tiny import save_tiny

DOCUMENTS = ["The cat sat on the mat.", "a dog and a Cat", "dogs bark at night", "", "cat cat cat", "a DOG and a cat"]
QUERIES = ["cat", "the dog, the dog", "night on the mat", "zebra", "?", ""]


def ranked_by_formula(query: str, documents: list[str]) -> list[int]:
    """The documents with a word of the query, by BM25 in float64; of equals the first one first."""
    split: Callable[[str], list[str]] = re.compile(r"\w\w+").findall
    words = [split(document.lower()) for document in documents]
    mean = sum(map(len, words)) / len(words)
    scores = np.zeros(len(documents))
    for word in split(query.lower()):
        having = sum(word in own for own in words)
        weight = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        for position, own in enumerate(words):
            times = own.count(word)
            scores[position] += weight * times / (times + 1.5 * (0.25 + 0.75 * len(own) / mean))
    return [int(position) for position in np.argsort(-scores.round(5), kind="stable") if scores[position] > 0]


@pytest.mark.parametrize("query", QUERIES)
def test_words_rank_by_the_formula(query: str) -> None:
    assert WordSearch(DOCUMENTS).rank(query) == ranked_by_formula(query, DOCUMENTS)


def test_hybrid_retrieval_ranks_by_the_sum_of_reciprocal_ranks() -> None:
    """The last query is itself the document 4, which is not to be found; of equals the last identifier is first."""
    queries, ids = [*QUERIES, "cat cat cat"], [f"d{number}" for number in range(len(DOCUMENTS))]
    query_ids = [f"q{number}" for number in range(len(queries))]
    how = {"query_ids": query_ids, "document_ids": ids, "excluded": {6: 4}}
    task = RetrievalTask(queries, DOCUMENTS, [{2: 1}, {1: 1}, {0: 2, 2: 1}, {0: 1}, {3: 1}, {5: 1}, {3: 1}], **how)

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), 10.0] for text in texts], dtype=np.float32)

    vectors = lengths(DOCUMENTS).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    backwards, expected = range(len(DOCUMENTS) - 1, -1, -1), []
    for number, query in enumerate(queries):
        cosines = (vectors @ lengths([query])[0]).round(5)
        by_vectors = sorted(backwards, key=lambda document, cosines=cosines: -cosines[document])  # type: ignore[misc]
        by_words = [backwards[place] for place in ranked_by_formula(query, DOCUMENTS[::-1])]
        rankings = [[one for one in ranking if one != task.excluded.get(number)] for ranking in (by_vectors, by_words)]
        scores = {
            document: sum(1 / (61 + ranking.index(document)) for ranking in rankings if document in ranking)
            for document in rankings[0]
        }
        best = sorted(rankings[0], key=lambda document, scores=scores: -round(scores[document], 12))  # type: ignore[misc]
        expected.append(next((1 / rank for rank, one in enumerate(best, 1) if one in task.relevant[number]), 0))
    for hybrid, same in ((True, True), (False, False)):
        measured = evaluate_retrieval(lengths, lengths, {"t": task}, resamples=0, hybrid=hybrid).tasks["t"].per_query
        assert (measured["mrr@10"] == pytest.approx(expected, abs=1e-5)) is same


@pytest.mark.long
def test_search_and_evaluate_take_words_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_rows()
    how = {"model": "tiny", "input": "docs.tsv", "device": "cpu", "precision": "fp32"}
    texts, query = list(dict.fromkeys(text for _, text in ROWS)), ROWS[5][1]
    (plain,), (hits,) = (search(query, **how, top=top, hybrid=top == 3) for top in (100, 3))
    rankings = [[hit.text for hit in plain], [texts[place] for place in ranked_by_formula(query, texts)]]
    scores = {text: sum(1 / (61 + ranking.index(text)) for ranking in rankings if text in ranking) for text in texts}
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores.values(), reverse=True)[:3])
    assert [scores[hit.text] for hit in hits] == pytest.approx([hit.score for hit in hits])
    pairs = (f"{' '.join(text.split()[-3:])}\t{text}\n" for text in texts)
    Path("pairs.tsv").write_text("".join(["anchor\tpositive\n", *pairs]))
    results = [evaluate("tiny", retrieval=["pairs.tsv"], hybrid=hybrid) for hybrid in (False, True)]
    assert [result.config.get("hybrid") for result in results] == [None, True]
    assert compare([results[1]], [results[0]]).sides[0].name == "tiny (hybrid)"
    assert results[1].retrieval["pairs.tsv"].per_query != results[0].retrieval["pairs.tsv"].per_query
    Path("scored.tsv").write_text("".join(["score\tsentence1\tsentence2\n", "1\ta dog\ta cat\n", "0\ta dog\ta bird\n"]))
    with pytest.raises(NearfarError, match=r"--hybrid: .* no task is; name one with --retrieval"):
        evaluate("tiny", pairs=["scored.tsv"], hybrid=True)


def test_without_bm25s_or_words_there_is_no_search_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NearfarError, match="no document has a word"):
        WordSearch(["a", "?"])
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(NearfarError, match=r"pip install 'nearfar\[search\]'"):
        WordSearch(DOCUMENTS)
    for call in (partial(search, "a", input="missing.tsv"), partial(evaluate, retrieval=["missing.tsv"])):  # at once
        with pytest.raises(NearfarError, match=r"pip install 'nearfar\[search\]'"):
            call(model="missing", hybrid=True)
