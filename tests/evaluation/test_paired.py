"""Comparisons of probes: McNemar, permutations over seeds, learned relatedness, several sides at once."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.evaluation.comparison import compare_pairwise, compare_runs
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.results import Estimate, EvaluationResult
from nearfar.evaluation.statistics import holm, mcnemar, permutation_test
from nearfar.types import NearfarError

ROWS = 200
GOLD = np.random.default_rng(9).integers(0, 3, ROWS)


def probed(
    share: float, seed: int, *, noise: float = 1.0, protocol: str = "senteval", training_seed=None
) -> EvaluationRun:
    """An evaluation whose probe is correct on about ``share`` of its rows, and a regression with ``noise``."""
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(ROWS) < share, GOLD, (GOLD + 1) % 3)
    scores = np.linspace(1, 5, 80)
    accuracy = {"kind": "classification", "protocol": protocol, "rows": ROWS, "digest": "d"}
    accuracy |= {"accuracy": {"score": 100 * float(np.mean(predicted == GOLD)), "low": None, "high": None}}
    accuracy |= {"gold": GOLD.tolist(), "predicted": predicted.tolist()}
    learned = {"kind": "relatedness", "pairs": 80, "digest": "e", "gold": scores.tolist()}
    learned |= {key: {"score": 1.0, "low": None, "high": None} for key in ("pearson", "spearman")}
    learned |= {"predicted_e6": [int(1e6 * x) for x in scores + noise * rng.normal(size=80)]}
    transfer = {"protocol": protocol, "averages": {}, "tasks": {"mr": accuracy, "learned": learned}}
    result = {"schema": 1, "kind": "evaluation", "model": f"m{share}", "tasks": {}, "transfer": transfer}
    result |= {"config": {"training_seed": training_seed}}
    return EvaluationRun(f"{share}-{seed}.json", EvaluationResult.from_dict(result))


def correct_rows(run: EvaluationRun) -> np.ndarray:
    entry = run.result.transfer.tasks["mr"]
    return np.equal(entry.gold, entry.predicted)


def test_two_probes_are_compared_by_mcnemar():
    first, second = probed(0.9, 1), probed(0.75, 2)
    comparison = compare_runs([first], [second], resamples=2000)
    row = comparison.tasks["mr"]
    assert row.p == pytest.approx(mcnemar(correct_rows(first), correct_rows(second)), abs=1e-6)
    assert row.test == "McNemar's exact test over rows"
    assert row.difference == pytest.approx(100 * (correct_rows(first).mean() - correct_rows(second).mean()), abs=1e-3)
    assert row.low < row.difference < row.high
    deviation = np.std(correct_rows(first).astype(float) - correct_rows(second)) / np.sqrt(ROWS)
    assert row.high - row.low == pytest.approx(100 * 2 * 1.96 * deviation, rel=0.1)
    assert row.pairs == ROWS
    assert comparison.overall is None
    assert comparison.overall_transfer.tasks == ["mr"]
    assert comparison.overall_transfer.separable is True
    assert (comparison.overall_transfer.p, comparison.overall_transfer.test) == (row.p, row.test), (
        "one difference, one p"
    )


def test_several_seeds_are_compared_by_permutation_and_ranks():
    first = [probed(0.85, n, training_seed=n) for n in (1, 2, 3)]
    second = [probed(0.8, n + 10, training_seed=n) for n in (1, 2, 3)]
    row = compare_runs(first, second, resamples=500).tasks["mr"]
    shares = np.mean([correct_rows(run) for run in first], axis=0) - np.mean(
        [correct_rows(run) for run in second], axis=0
    )
    assert row.p == pytest.approx(permutation_test(shares, resamples=500, seed=[0, *b"mr"]), abs=1e-6)
    assert row.test == "permutation test over rows"
    assert row.seeds.rank_test == "Wilcoxon's signed-rank test over seeds"
    assert row.seeds.p_rank >= 0.25


def test_learned_relatedness_is_a_correlation():
    better, worse = probed(0.8, 1, noise=0.2), probed(0.8, 2, noise=3.0)
    row = compare_runs([better], [worse], resamples=300).tasks["learned"]
    assert row.kind == "relatedness"
    assert row.difference > 0
    assert row.separable is True


def test_other_protocols_or_rows_are_refused():
    with pytest.raises(NearfarError, match=r"differently on task mr \(senteval, 0 hidden units, 10 folds; exact"):
        compare_runs([probed(0.8, 1)], [probed(0.8, 2, protocol="exact")])
    other = probed(0.8, 2)
    tasks = other.result.transfer.tasks
    tasks["mr"] = replace(tasks["mr"], digest="x")
    with pytest.raises(NearfarError, match="different data"):
        compare_runs([probed(0.8, 1)], [other])


@pytest.mark.parametrize("task", ["mr", "learned"])
def test_a_probe_without_a_result_is_reported(task):
    broken = probed(0.8, 2)
    undefined = Estimate(None, None, None, "NaN in 'x'")
    tasks = broken.result.transfer.tasks
    if task == "mr":
        tasks[task] = replace(tasks[task], accuracy=undefined, gold=[], predicted=[])
    else:
        tasks[task] = replace(tasks[task], spearman=undefined, gold=[], predicted_e6=[])
    rows = compare_runs([probed(0.8, 1)], [broken], resamples=50).tasks
    assert rows[task].reason == "undefined for 0.8-2.json: NaN in 'x'"
    assert rows[task].p is None
    assert rows[task].first is not None
    assert rows["learned" if task == "mr" else "mr"].p is not None


def test_three_sides_are_compared_pairwise_and_corrected_together():
    sides = [[probed(share, n)] for n, share in enumerate((0.9, 0.88, 0.6))]
    several = compare_pairwise(sides, resamples=300)
    assert [one.pair for one in several.comparisons] == [[0, 1], [0, 2], [1, 2]]
    assert [side.name for side in several.sides] == ["m0.9", "m0.88", "m0.6"]
    pairwise = compare_runs(sides[0], sides[2], resamples=300).tasks["mr"]
    rows = [one.tasks[task] for one in several.comparisons for task in ("mr", "learned")]
    corrected = holm([row.p for row in rows])
    assert [row.p_holm for row in rows] == pytest.approx(corrected, abs=1e-6)
    assert several.comparisons[1].tasks["mr"].p == pairwise.p
    assert several.comparisons[1].tasks["mr"].separable is True
    assert several.comparisons[0].tasks["mr"].separable is False


def ranked(values: dict[str, list[float]], *, name: str = "m", seed: int | None = None) -> EvaluationRun:
    """An evaluation on retrieval tasks: the values of each query, for nDCG and half of them for MRR."""
    tasks = {}
    for task, of_queries in values.items():
        per_query = {"ndcg@10": list(of_queries), "mrr@10": [value / 2 for value in of_queries]}
        tasks[task] = {
            "queries": len(of_queries),
            "documents": 9,
            "main": "ndcg@10",
            "digest": task,
            "measures": {
                key: {"score": 100 * float(np.mean(v)), "low": None, "high": None} for key, v in per_query.items()
            },
            "per_query": per_query,
        }
    content = {
        "schema": 1,
        "kind": "evaluation",
        "model": name,
        "tasks": {},
        "retrieval": tasks,
        "config": {"training_seed": seed},
    }
    return EvaluationRun(f"{name}.json", EvaluationResult.from_dict(content))


VALUES = np.random.default_rng(5).random((2, 60)).round(6)


def test_retrieval_is_compared_by_flipping_signs_over_queries():
    better = np.minimum(VALUES[0] + 0.1, 1)
    first, second = ranked({"beir": better.tolist()}), ranked({"beir": VALUES[0].tolist()})
    row = compare_runs([first], [second], resamples=999).tasks["beir"]
    assert (row.kind, row.measure, row.pairs) == ("retrieval", "ndcg@10", 60)
    assert row.test == "randomization test over queries"
    assert row.difference == pytest.approx(100 * (better - VALUES[0]).mean(), abs=1e-3)
    assert row.p == permutation_test(better - VALUES[0], resamples=999, seed=[0, *b"beir"])
    assert row.low < row.difference < row.high
    deviation = np.std(better - VALUES[0]) / np.sqrt(60)
    assert row.high - row.low == pytest.approx(100 * 2 * 1.96 * deviation, rel=0.2)
    assert row.separable is True
    same = compare_runs([first], [first], resamples=99).tasks["beir"]
    assert (same.difference, same.p, same.separable) == (0, 1, False)


def test_a_measure_can_be_chosen_for_all_retrieval_tasks():
    first = ranked({"a": VALUES[0].tolist(), "b": VALUES[1].tolist()})
    second = ranked({"a": VALUES[1].tolist(), "b": VALUES[0].tolist()})
    by_main = compare_runs([first], [second], resamples=50)
    by_mrr = compare_runs([first], [second], measure="mrr@10", resamples=50)
    assert by_mrr.tasks["a"].measure == "mrr@10"
    assert by_mrr.tasks["a"].difference == pytest.approx(by_main.tasks["a"].difference / 2, abs=1e-4)
    assert by_mrr.overall_retrieval.tasks == ["a", "b"]
    assert by_mrr.overall_retrieval.difference == pytest.approx(0, abs=1e-4)
    assert (by_mrr.overall, by_mrr.overall_transfer) == (None, None)
    assert (by_main.config.measure, by_mrr.config.measure) == (None, "mrr@10")
    with pytest.raises(NearfarError, match=r"m.json: task a has no measure recall@1, only ndcg@10, mrr@10"):
        compare_runs([first], [second], measure="recall@1")


def test_retrieval_over_seeds_and_several_sides():
    rng = np.random.default_rng(6)
    sides = [
        [ranked({"t": np.clip(VALUES[0] + gain + rng.normal(0, 0.05, 60), 0, 1).tolist()}, seed=n) for n in (1, 2, 3)]
        for gain in (0.2, 0.1, 0.0)
    ]
    several = compare_pairwise(sides, resamples=200)
    assert several.comparisons[0].overall_retrieval.p_holm is not None
    tested = compare_runs(sides[0], sides[2], resamples=200)
    row = tested.tasks["t"]
    assert row.seeds.test == "paired t-test over seeds"
    means = [np.mean([run.result.retrieval["t"].per_query["ndcg@10"] for run in side], axis=0) for side in sides]
    assert row.p == round(permutation_test(means[0] - means[2], resamples=200, seed=[0, *b"t"]), 6)
    assert several.comparisons[1].tasks["t"].difference == row.difference


def test_retrieval_on_other_data_is_not_compared():
    first, second = ranked({"t": [0.1, 0.2]}), ranked({"t": [0.1, 0.2]})
    scored = replace(second.result.retrieval["t"], digest="other")
    other = second._replace(result=replace(second.result, retrieval={"t": scored}))
    with pytest.raises(NearfarError, match="were scored on different data"):
        compare_runs([first], [other])
