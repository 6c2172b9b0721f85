"""Retrieval from texts to scores, with encode functions that make the ranking known; measures against pytrec_eval."""

from dataclasses import replace
from functools import partial
from math import log2

import numpy as np
import pytest

from nearfar.data.retrieval import MEASURES, RetrievalTask
from nearfar.evaluation.retrieval import COPIES, best_hits, evaluate_retrieval, measure_rankings, retrieval_digest
from nearfar.evaluation.statistics import bootstrap_means, percentile_interval
from nearfar.types import NearfarError


def letters(texts):
    """Counts of the letters a to z."""
    return np.array([[text.count(chr(97 + n)) for n in range(26)] for text in texts], dtype=np.float32)


def letters_again(texts):
    """Another function with the same vectors."""
    return letters(texts)


def make_task(queries, documents, relevant, **more):
    ids = {
        "query_ids": [f"q{n}" for n in range(len(queries))],
        "document_ids": [f"d{n}" for n in range(len(documents))],
    }
    return RetrievalTask(queries, documents, relevant, **{**ids, **more})


TASK = make_task(["ab", "cd", "xyz"], ["abc", "cde", "ab", "x", "zzz"], [{0: 1, 2: 2}, {1: 1}, {4: 1}])


def naive(task, encode_query, encode_document):
    """Every document ranked by float64 cosine; of equals the last identifier first."""
    ranked = []
    queries, documents = encode_query(task.queries).astype(float), encode_document(task.documents).astype(float)
    for query in queries:
        cosines = []
        for document in documents:
            length = np.linalg.norm(query) * np.linalg.norm(document)
            cosines.append(round(float(query @ document / length), 6) if length else 0.0)
        by_id = sorted(range(len(documents)), key=task.document_ids.__getitem__, reverse=True)
        ranked.append(sorted(by_id, key=lambda document, of=cosines: -of[document]))
    return ranked


def reciprocal_ranks(ranked, relevant):
    return [
        next((1 / rank for rank, document in enumerate(documents, 1) if document in grades), 0)
        for documents, grades in zip(ranked, relevant, strict=True)
    ]


def test_scores_are_means_over_queries_with_bootstrap_intervals():
    found = evaluate_retrieval(letters, letters, {"mine": TASK}, resamples=200, seed=3)
    scored = found.tasks["mine"]
    assert (found.dim, found.unavailable) == (26, {})
    assert (scored.queries, scored.documents, scored.main) == (3, 5, "ndcg@10")
    assert list(scored.measures) == list(scored.per_query) == list(MEASURES)
    ranks = reciprocal_ranks(naive(TASK, letters, letters), TASK.relevant)
    assert scored.per_query["mrr@10"] == pytest.approx(ranks, abs=1e-6)
    assert scored.measures["mrr@10"].score == pytest.approx(100 * np.mean(scored.per_query["mrr@10"]), abs=1e-4)
    draws = bootstrap_means(np.array(list(scored.per_query.values())), resamples=200, seed=[3, *b"mine"])
    for measure, drawn in zip(MEASURES, draws, strict=True):
        low, high = percentile_interval(drawn)
        assert scored.measures[measure].low == pytest.approx(100 * low, abs=1e-4)
        assert scored.measures[measure].high == pytest.approx(100 * high, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_random_texts_with_repeated_documents_and_ties_equal_the_naive_ranking(seed):
    rng = np.random.default_rng(seed)

    def text():
        return "".join(rng.choice(list("abc"), size=rng.integers(0, 4)))

    documents = [text() for _ in range(130)]  # 40 distinct texts at most
    queries = [text() for _ in range(9)]
    relevant = [{int(rng.integers(130)): int(rng.integers(1, 3)) for _ in range(3)} for _ in queries]
    task = make_task(queries, documents, relevant, document_ids=[str(n) for n in rng.permutation(130)])
    ranked = naive(task, letters, letters)
    scored = evaluate_retrieval(letters, letters_again, {"t": task}, resamples=0).tasks["t"]
    expected = [rank if rank >= 1 / 10 else 0 for rank in reciprocal_ranks(ranked, relevant)]
    assert scored.per_query["mrr@10"] == pytest.approx(expected, abs=1e-6)
    recall = [len(set(top[:100]) & set(grades)) / len(grades) for top, grades in zip(ranked, relevant, strict=True)]
    assert scored.per_query["recall@100"] == pytest.approx(recall, abs=1e-6)


def test_each_distinct_text_is_encoded_once_in_blocks(monkeypatch):
    monkeypatch.setattr("nearfar.evaluation.retrieval.TEXTS_PER_CALL", 2)
    calls = []

    def encode(texts):
        calls.append(list(texts))
        return letters(texts)

    task = make_task(["ab", "ab", "cd"], ["ab", "cd", "ab", "e", "f"], [{0: 1}, {0: 1}, {1: 1}])
    blocked = evaluate_retrieval(encode, encode, {"t": task}, resamples=0).tasks["t"]
    encoded = [text for call in calls for text in call]
    assert sorted(encoded) == ["ab", "cd", "e", "f"]
    calls.clear()
    two = evaluate_retrieval(encode, partial(encode), {"t": task}, resamples=0).tasks["t"]
    assert sorted(text for call in calls for text in call) == ["ab", "ab", "cd", "cd", "e", "f"]
    assert blocked == two


def test_an_excluded_document_is_not_ranked_for_its_query():
    task = make_task(["ab", "ab"], ["ab", "abb"], [{1: 1}, {1: 1}], excluded={1: 0})
    scored = evaluate_retrieval(letters, letters, {"t": task}, resamples=0).tasks["t"]
    assert scored.per_query["mrr@10"] == [0.5, 1]


def test_with_per_task_queries_and_documents_are_encoded_together():
    calls = []

    def fitted(texts):
        calls.append(sorted(texts))
        if "fails" in texts:
            raise NearfarError("cannot be fitted.")
        vectors = letters(texts)
        return vectors - vectors.mean(axis=0)

    tasks = {
        "one": TASK,
        "two": make_task(["ab"], ["ab", "cd"], [{0: 1}]),
        "bad": make_task(["fails"], ["a"], [{0: 1}]),
    }
    found = evaluate_retrieval(fitted, fitted, tasks, per_task=True, resamples=0)
    assert calls == [sorted({*TASK.queries, *TASK.documents}), ["ab", "cd"], ["a", "fails"]]
    assert list(found.tasks) == ["one", "two"]
    assert found.unavailable == {"bad": "cannot be fitted"}


def test_a_vector_that_is_not_finite_makes_only_its_task_unavailable():
    def encode(texts):
        vectors = letters(texts)
        vectors[[text == "x" for text in texts]] = np.nan
        return vectors

    tasks = {"bad": TASK, "good": make_task(["ab"], ["ab", "cd"], [{0: 1}])}
    found = evaluate_retrieval(encode, encode, tasks, resamples=0)
    assert list(found.tasks) == ["good"]
    assert found.unavailable == {"bad": "the vectors of 1 of its texts hold NaN or infinity; the first is that of 'x'"}


def test_the_digest_depends_on_texts_identifiers_relevance_and_exclusions():
    changes = [
        {},
        {"queries": ["ab", "cd", "xy"]},
        {"documents": ["abc", "cde", "ab", "zzz", "x"]},
        {"relevant": [{0: 1, 2: 1}, {1: 1}, {4: 1}]},
        {"document_ids": list("vwxyz")},
        {"excluded": {0: 2}},
    ]
    assert len({retrieval_digest(replace(TASK, **change)) for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lambda texts: letters(texts)[:, :5], letters), "vectors of queries have 5 numbers and .* 26"),
        ((letters, lambda texts: letters(texts)[1:]), r"encode returned float32 of shape \(4, 26\) for 5"),
    ],
)
def test_what_cannot_be_searched(arguments, message):
    with pytest.raises(NearfarError, match=message):
        evaluate_retrieval(*arguments, {"t": TASK})


TREC_NAMES = {
    "ndcg@10": "ndcg_cut_10",
    "map@100": "map_cut_100",
    "recall@1": "recall_1",
    "recall@10": "recall_10",
    "recall@100": "recall_100",
}


def test_one_ranking_in_numbers():
    values = measure_rankings([[7, 3, 9, 5]], [{3: 2, 5: 1, 8: 3}])
    assert list(values) == list(MEASURES)
    gained = 2 / log2(3) + 1 / log2(5)
    assert values["ndcg@10"][0] == pytest.approx(gained / (3 / log2(2) + 2 / log2(3) + 1 / log2(4)))
    assert values["mrr@10"][0] == 1 / 2
    assert values["map@100"][0] == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert (values["recall@1"][0], values["recall@10"][0], values["recall@100"][0]) == (0, 2 / 3, 2 / 3)


@pytest.mark.parametrize("seed", range(8))
def test_equal_to_trec_eval_with_ties_grades_and_many_relevant(seed):
    trec = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(seed)
    number = int(rng.choice([3, 12, 150, 400]))
    ids = [f"d{name}" for name in rng.permutation(number)]
    qrels, run, ranked, relevant = {}, {}, [], []
    for query in range(7):
        scores = rng.integers(0, rng.choice([2, 5, 1000]), number) / 8  # few levels: many ties
        judged = rng.permutation(number)[: max(2, int(number * rng.choice([0.02, 0.3, 0.9])))]
        grades = {int(document): int(rng.integers(-1, 4)) for document in judged} | {int(judged[0]): 1}
        qrels[f"q{query}"] = {ids[document]: grade for document, grade in grades.items()}
        run[f"q{query}"] = {name: float(score) for name, score in zip(ids, scores, strict=True)}
        by_id = sorted(range(number), key=ids.__getitem__, reverse=True)
        ranked.append(sorted(by_id, key=lambda document, of=scores: -of[document]))
        relevant.append(grades)
    values = measure_rankings(ranked, relevant)
    expected = trec.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map_cut.100", "recall.1,10,100"}).evaluate(run)
    top = {
        f"q{query}": {ids[document]: run[f"q{query}"][ids[document]] for document in documents[:10]}
        for query, documents in enumerate(ranked)
    }
    first_ten = trec.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(top)
    for query in range(7):
        for name, trec_name in TREC_NAMES.items():
            assert values[name][query] == pytest.approx(expected[f"q{query}"][trec_name], abs=1e-9)
        assert values["mrr@10"][query] == pytest.approx(first_ten[f"q{query}"]["recip_rank"], abs=1e-9)


def test_unjudged_copies_of_relevant_documents_are_counted():
    """Their identifiers alone decide whether the relevant one is first, so the score of such a task means little."""
    documents = ["abc", "abc", "abc", "x", "x", "zz"]
    task = make_task(["ab", "x", "z"], documents, [{0: 1, 2: 1}, {3: 1}, {5: 1}])
    counted = evaluate_retrieval(letters, letters, {"t": task}, resamples=0).tasks["t"].counts
    assert counted == {COPIES: 2}  # document 1 for ab, document 4 for x; document 2 is judged
    itself = make_task(["x"], documents, [{3: 1}], excluded={0: 4})
    assert evaluate_retrieval(letters, letters, {"t": itself}, resamples=0).tasks["t"].counts == {}


def test_best_hits_have_the_order_and_the_ranks_that_are_measured():
    hits = best_hits(letters, letters_again, TASK, depth=2)
    ranked = naive(TASK, letters, letters)
    assert [[text for text, _ in of_query] for of_query in hits] == [
        [TASK.documents[place] for place in places[:2]] for places in ranked
    ]
    assert hits[0][0] == ("ab", pytest.approx(1.0))
    assert hits[0][1][1] == pytest.approx(2 / 6**0.5)
    with pytest.raises(
        NearfarError, match=r"the queries cannot be searched for: the vectors of 3 of its texts hold NaN"
    ):
        best_hits(lambda texts: letters(texts) * np.nan, letters, TASK)
