"""Comparisons of evaluations against scipy and plain loops, and evaluations that cannot be compared."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.comparison import EvaluationRun, compare_pairwise, compare_runs
from nearfar.evaluation.results import ComparisonResult, Estimate, EvaluationResult, PairwiseResult
from nearfar.evaluation.statistics import holm, mcnemar, permutation_test
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tables import result_markdown
from nearfar.evaluation.tables.comparison import pairwise_table
from nearfar.types import NearfarError, ScoredPair
from tests.evaluation.report.cases import ranked
from tests.evaluation.test_statistics import paired_bootstrap


def task(pairs: int, seed: int) -> list[ScoredPair]:
    gold = np.random.default_rng(seed).integers(0, 11, pairs) / 2
    return [ScoredPair(f"{seed} left {n}", f"{seed} right {n} {g}", float(g)) for n, g in enumerate(gold)]


DATA = {
    "sts12": {"a": task(60, 1), "b": task(40, 2)},
    "stsb": {"test": task(80, 3)},
    "sickr": {"test": task(70, 4)},
    "sickr-full": {"all": task(90, 5)},
}


def run(
    noise: float, *, seed: int = 0, data=DATA, training_seed: int | None = None, name: str = "model"
) -> EvaluationRun:
    """An evaluation of an encoder whose cosines are the gold scores plus ``noise``."""
    rng = np.random.default_rng(seed)

    def encode(texts):
        angle = [0.0 if "left" in text else 80 - 16 * float(text.split()[3]) for text in texts]
        angle = np.radians(angle + noise * 16 * rng.normal(size=len(texts)))
        return np.stack([np.cos(angle), np.sin(angle), np.full_like(angle, 0.5)], axis=1)

    config = {"training_seed": training_seed}
    result = EvaluationResult(model=name, config=config, tasks=evaluate_sts(encode, data, resamples=0).tasks)
    return EvaluationRun(f"{name}-{seed}.json", result)


def score(one: EvaluationRun, name: str, kind: str = "all") -> float:
    return one.result.tasks[name].spearman.of(kind).score


def test_each_task_is_compared_by_a_paired_bootstrap():
    first, second = run(1.0), run(2.0, seed=1)
    row = compare_runs([first], [second], resamples=500).tasks["stsb"]
    subsets = [one.result.tasks["stsb"].subsets["test"] for one in (first, second)]
    expected = paired_bootstrap(
        subsets[0].gold, subsets[0].cosines_e6, subsets[1].cosines_e6, resamples=500, seed=[0, *b"stsb"]
    )
    for key in ("difference", "low", "high"):
        assert getattr(row, key) == pytest.approx(100 * getattr(expected, key), abs=1e-4)
    assert row.p == pytest.approx(expected.p, abs=1e-6)
    assert (row.first, row.second) == (score(first, "stsb"), score(second, "stsb"))
    assert row.pairs == 80
    assert row.seeds is None


@pytest.mark.long
def test_aggregates_equal_those_of_the_evaluations():
    first, second = run(1.0), run(1.5, seed=1)
    for aggregate in ("all", "mean", "wmean"):
        comparison = compare_runs([first], [second], aggregate=aggregate, resamples=200)
        row = comparison.tasks["sts12"]
        assert (row.first, row.second) == (score(first, "sts12", aggregate), score(second, "sts12", aggregate))
        assert row.low < row.difference < row.high
        assert comparison.config.aggregate == aggregate


def test_overall_is_the_average_with_sick_counted_once():
    first, second = run(1.0), run(2.0, seed=1)
    comparison = compare_runs([first], [second], resamples=300)
    overall, names = comparison.overall, ["sts12", "stsb", "sickr"]
    assert overall.tasks == names
    assert list(comparison.tasks) == [*names, "sickr-full"]
    assert overall.first == pytest.approx(np.mean([score(first, name) for name in names]), abs=1e-3)
    assert overall.difference == pytest.approx(np.mean([comparison.tasks[name].difference for name in names]), abs=1e-3)
    # tasks are resampled independently: the interval of the average is narrower by about the square root of 3
    rows = [comparison.tasks[name] for name in names]
    width = np.sqrt(np.sum([(row.high - row.low) ** 2 for row in rows])) / 3
    assert overall.high - overall.low == pytest.approx(width, rel=0.25)
    averaged = {name: DATA[name] for name in ("stsb", "sickr-full")}
    comparison = compare_runs([run(1.0, data=averaged)], [run(2.0, data=averaged)], resamples=10)
    assert comparison.overall.tasks == ["stsb", "sickr-full"]


@pytest.mark.long
def test_separability_is_determined_after_holm_correction():
    comparison = compare_runs([run(1.0)], [run(1.25, seed=1)], resamples=400)
    rows = comparison.tasks.values()
    assert [row.p_holm for row in rows] == pytest.approx(holm([row.p for row in rows]), abs=1e-6)
    assert [row.separable for row in rows] == [row.p_holm < 0.05 for row in rows]
    assert compare_runs([run(0.5)], [run(4.0, seed=1)], resamples=400).overall.separable is True
    same = compare_runs([run(1.0)], [run(1.0)], resamples=400)
    assert {row.p for row in same.tasks.values()} == {1.0}
    assert same.overall.separable is False


@pytest.mark.long
def test_several_runs_are_averaged_and_tested_over_seeds():
    first = [run(1.0, seed=n) for n in range(3)]
    second = [run(1.6, seed=n + 10) for n in range(4)]
    comparison = compare_runs(first, second, resamples=100)
    row = comparison.tasks["stsb"]
    a, b = ([score(one, "stsb") for one in side] for side in (first, second))
    assert row.first == pytest.approx(np.mean(a), abs=1e-3)
    assert row.difference == pytest.approx(np.mean(a) - np.mean(b), abs=1e-3)
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert row.seeds.p == pytest.approx(welch.pvalue, rel=1e-3)
    assert row.seeds.low == pytest.approx(welch.confidence_interval().low, abs=1e-2)
    names = comparison.overall.tasks
    a, b = ([np.mean([score(one, name) for name in names]) for one in side] for side in (first, second))
    assert comparison.overall.seeds.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-2)
    assert comparison.first.sources == ["model-0.json", "model-1.json", "model-2.json"]


@pytest.mark.long
def test_runs_with_the_same_training_seeds_are_paired_in_any_order():
    first = [run(1.0, seed=n, training_seed=n) for n in (1, 2, 3)]
    second = [run(1.4, seed=n, training_seed=n) for n in (3, 1, 2)]
    row = compare_runs(first, second, resamples=50).tasks["stsb"]
    a, b = ([score(side[n], "stsb") for n in order] for side, order in ((first, (0, 1, 2)), (second, (1, 2, 0))))
    assert row.seeds.test == "paired t-test over seeds"
    assert row.seeds.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-2)
    second[0].result.config["training_seed"] = 4
    row = compare_runs(first, second, resamples=50).tasks["stsb"]
    assert row.seeds.test == "Welch's t-test over seeds"


def test_an_undefined_task_is_reported_and_the_others_are_compared():
    good, flat = run(1.0), run(1.0, seed=1)
    constant = evaluate_sts(lambda texts: np.ones((len(texts), 2)), {"stsb": DATA["stsb"]}, resamples=0)
    flat.result.tasks["stsb"] = constant.tasks["stsb"]
    comparison = compare_runs([good], [flat], resamples=50)
    row = comparison.tasks["stsb"]
    assert row.reason == "undefined for model-1.json: all cosines are equal"
    assert row.first == score(good, "stsb")
    assert {getattr(row, key) for key in ("second", "difference", "low", "high", "p", "separable", "seeds")} == {None}
    assert comparison.tasks["sts12"].p_holm <= 1
    assert comparison.overall.difference is None
    assert comparison.overall.reason == f"stsb: {row.reason}"


def test_different_data_are_refused_with_their_location():
    other = DATA | {
        "sts12": {"a": DATA["sts12"]["a"], "b": [*DATA["sts12"]["b"][:-1], ScoredPair("left", "x y z 1", 2)]}
    }
    with pytest.raises(NearfarError, match=r"model-0\.json and model-1\.json .* \(task sts12, subset b\)"):
        compare_runs([run(1.0)], [run(1.0, seed=1, data=other)])
    fewer = DATA | {"sts12": {"a": DATA["sts12"]["a"]}}
    with pytest.raises(NearfarError, match=r"task sts12, subset b"):
        compare_runs([run(1.0, data=fewer)], [run(1.0, seed=1)])


def test_tasks_missing_on_a_side_are_listed_and_requested_ones_are_required():
    first, second = run(1.0), run(1.0, seed=1, data={"stsb": DATA["stsb"], "sickr": DATA["sickr"]})
    comparison = compare_runs([first], [second], resamples=10)
    assert list(comparison.tasks) == ["stsb", "sickr"]
    assert comparison.not_compared == ["sts12", "sickr-full"]
    chosen = compare_runs([first], [second], tasks=["sickr", "sickr"], resamples=10)
    assert list(chosen.tasks) == chosen.overall.tasks == ["sickr"]
    with pytest.raises(NearfarError, match=r"model-1\.json: has no task sts12, only stsb, sickr"):
        compare_runs([first], [second], tasks=["sts12"])
    with pytest.raises(NearfarError, match=r"the sides have no task in common \(model-0\.json: sts12; model-1"):
        compare_runs([run(1.0, data={"sts12": DATA["sts12"]})], [second])


SEMEVAL = {
    f"sts{year}": {"a": task(60, year), "b": task(30, year + 100), "c": task(40, year + 200)} for year in range(12, 17)
}


@pytest.mark.long
def test_averages_of_papers_are_compared_by_name():
    data = {**SEMEVAL, "stsb": DATA["stsb"]}
    runs = [run(noise, seed=seed, data=data, name=f"m{seed}") for seed, noise in enumerate((1.0, 2.0, 3.0))]
    comparison = compare_runs(runs[:1], runs[1:2], aggregate="wmean", resamples=300)
    assert list(comparison.named_averages) == ["STS12 to STS16"]
    five = comparison.named_averages["STS12 to STS16"]
    assert five.tasks == list(SEMEVAL)
    assert five.first == pytest.approx(np.mean([score(runs[0], name, "wmean") for name in SEMEVAL]), abs=1e-3)
    assert five.difference == pytest.approx(np.mean([comparison.tasks[name].difference for name in SEMEVAL]), abs=1e-3)
    assert five.low < five.difference < five.high
    assert ComparisonResult.from_dict(comparison.to_dict()) == comparison
    page = result_markdown(comparison)
    assert "| average of STS12 to STS16 |" in page
    assert "average of STS12 to STS16: mean over sts12, sts13, sts14, sts15, sts16." in page
    several = compare_pairwise([[one] for one in runs], resamples=300)
    tests = [one.named_averages["STS12 to STS16"] for one in several.comparisons]
    assert [one.p_holm for one in tests] == pytest.approx(holm([one.p for one in tests]), abs=1e-6)
    assert tests[0].first == tests[1].first
    assert PairwiseResult.from_dict(several.to_dict()) == several
    rows = {row[0]: row[1:] for row in pairwise_table(several).rows}
    assert rows["average of STS12 to STS16"][0].endswith("*")
    assert several.between(several.comparisons[1]).named_averages == several.comparisons[1].named_averages
    only = [run(noise, data=SEMEVAL) for noise in (1.0, 2.0)]
    comparison = compare_runs(only[:1], only[1:], resamples=50)
    assert "named_averages" not in comparison.to_dict(), "an average over all tasks is not repeated by its name"
    assert comparison.overall.tasks == list(SEMEVAL)


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


def test_other_protocols_rows_or_queries_are_refused():
    with pytest.raises(NearfarError, match=r"differently on task mr \(senteval, 0 hidden units, 10 folds; exact"):
        compare_runs([probed(0.8, 1)], [probed(0.8, 2, protocol="exact")])
    other, queries = probed(0.8, 2), ranked({"t": [0.1, 0.2]})
    for tasks in (other.result.transfer.tasks, queries.result.retrieval):
        name = next(iter(tasks))
        tasks[name] = replace(tasks[name], digest="x")
    for first, second in ((probed(0.8, 1), other), (ranked({"t": [0.1, 0.2]}), queries)):
        with pytest.raises(NearfarError, match="were scored on different data"):
            compare_runs([first], [second])


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


VALUES = np.random.default_rng(5).random((2, 60)).round(6)


def test_retrieval_is_compared_by_flipping_signs_over_queries():
    better = np.minimum(VALUES[0] + 0.1, 1)
    first, second = ranked({"beir": better}), ranked({"beir": VALUES[0]})
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
    first = ranked({"a": VALUES[0], "b": VALUES[1]})
    second = ranked({"a": VALUES[1], "b": VALUES[0]})
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
