"""Measures of rankings against pytrec_eval and against formulas in numbers."""

from math import log2

import numpy as np
import pytest

from nearfar.data.retrieval_task import MEASURES
from nearfar.evaluation.retrieval import measure_rankings

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


def test_ranks_beyond_the_depth_do_not_count():
    ranked = [list(range(200))]
    first_at = {rank: measure_rankings(ranked, [{rank - 1: 1}]) for rank in (10, 11, 100, 101)}
    assert [first_at[rank]["mrr@10"][0] for rank in (10, 11)] == [1 / 10, 0]
    assert [first_at[rank]["ndcg@10"][0] for rank in (10, 11)] == [pytest.approx(1 / log2(11)), 0]
    assert [first_at[rank]["map@100"][0] for rank in (100, 101)] == [1 / 100, 0]
    assert [first_at[rank]["recall@100"][0] for rank in (100, 101)] == [1, 0]


def test_grades_below_one_are_not_relevant():
    values = measure_rankings([[0, 1, 2], [0, 1, 2]], [{0: 0, 1: -2, 2: 1}, {0: 0, 1: -1}])
    assert values["mrr@10"].tolist() == [1 / 3, 0]
    assert values["recall@1"].tolist() == [0, 0]
    assert {name: value[1] for name, value in values.items()} == dict.fromkeys(MEASURES, 0)


@pytest.mark.parametrize("seed", range(20))
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
