"""Comparisons of evaluations against scipy and plain loops, and evaluations that cannot be compared."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation import correlation
from nearfar.evaluation.comparison import EvaluationRun, compare_pairwise, compare_runs, with_verdicts
from nearfar.evaluation.results import EvaluationResult, PairwiseResult, record
from nearfar.evaluation.statistics import crossed_difference, holm
from nearfar.evaluation.sts import evaluate_sts
from nearfar.types import NearfarError, ScoredPair
from tests.evaluation.report.cases import ranked


def task(pairs: int, seed: int) -> list[ScoredPair]:
    gold = np.random.default_rng(seed).integers(0, 11, pairs) / 2
    return [ScoredPair(f"{seed} left {n}", f"{seed} right {n} {g}", float(g)) for n, g in enumerate(gold)]


DATA = {
    "sts12": {"a": task(60, 1), "b": task(40, 2)},
    "stsb": {"test": task(80, 3)},
    "sickr": {"test": task(70, 4)},
    "sickr-full": {"all": task(90, 5)},
}
SHARED = [*range(60), *range(40, 80)]
"""Units of the pairs of sts12: some are of both subsets."""
PARTS = slice(0, 60), slice(60, 100)


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


@pytest.mark.long
@pytest.mark.parametrize(("aggregate", "units"), [("all", None), ("wmean", None), ("all", SHARED), ("mean", SHARED)])
def test_correlations_have_the_interval_of_written_out_resamples(aggregate, units):
    sides = [[run(noise, seed=seed) for seed in seeds] for noise, seeds in ((1.0, (0, 1)), (1.6, (2, 3, 4)))]
    for one in [*sides[0], *sides[1]]:
        one.result.tasks["sts12"] = replace(one.result.tasks["sts12"], units=units)
    row = compare_runs(*sides, tasks=["sts12"], aggregate=aggregate, resamples=40).tasks["sts12"]
    rng = np.random.default_rng([0, *b"sts12"])
    counts = np.concatenate(list(correlation._multiplicities([60, 40], 40, rng, units))).astype(int)

    def rho(one, count):
        subsets = one.result.tasks["sts12"].subsets.values()
        gold, cosines = (np.concatenate([getattr(x, key) for x in subsets]) for key in ("gold", "cosines_e6"))
        both = [np.repeat(np.stack([gold, cosines])[:, part], count[part], axis=1) for part in PARTS]
        a, b = (stats.spearmanr(*part).statistic for part in both)
        whole = stats.spearmanr(*np.concatenate(both, axis=1)).statistic
        return {"all": whole, "mean": (a + b) / 2, "wmean": 0.6 * a + 0.4 * b}[aggregate]

    scores = [
        (
            np.array([rho(one, np.ones(100, dtype=int)) for one in side]),
            np.array([[rho(one, c) for c in counts] for one in side]),
        )
        for side in sides
    ]
    expected = crossed_difference(*scores, units=100 if units is None else 80)
    assert (row.difference, row.low, row.high) == pytest.approx(100 * np.array(expected[:3]), abs=1e-4)
    assert row.p == pytest.approx(expected.p, abs=1e-6)
    assert (row.first, row.second) == pytest.approx([100 * points.mean() for points, _ in scores], abs=1e-4)
    assert (row.pairs, row.units) == (100, 100 if units is None else 80)


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
    assert overall.units == sum(row.units for row in rows) == 250


@pytest.mark.long
def test_runs_are_averaged_and_paired_by_their_training_seeds_in_any_order():
    first = [run(1.0, seed=n, training_seed=n) for n in (1, 2, 3)]
    second = [run(1.4, seed=n, training_seed=n) for n in (3, 1, 2)]
    paired, in_order = (compare_runs(first, side, resamples=50).tasks["stsb"] for side in (second, sorted(second)))
    assert paired == in_order
    means = [np.mean([score(one, "stsb") for one in side]) for side in (first, second)]
    assert [paired.first, paired.second] == pytest.approx(means, abs=1e-3)
    second[0].result.config["training_seed"] = 4
    independent = compare_runs(first, second, resamples=50)
    row = independent.tasks["stsb"]
    assert row.difference == paired.difference
    assert row.high - row.low > 1.01 * (paired.high - paired.low), "the runs of a seed go up and down together"
    assert independent.first.sources == ["model-1.json", "model-2.json", "model-3.json"]


@pytest.mark.parametrize(
    ("rows", "margin", "expected"),
    [
        ([(0.1, 2.0, 0.04)], 0.5, ["better"]),
        ([(-0.6, 0.4, 0.5)], 1.0, ["level"]),
        # of two tests p is doubled at most: what was better or worse is then what the margin says
        ([(0.1, 2.0, 0.04), (-2.0, -0.1, 0.03)], 0.5, ["no worse", "cannot tell"]),
        ([(0.1, 0.4, 0.04), (1.0, 3.0, 0.001)], 0.5, ["better", "better"]),
        ([(0.1, 0.4, 0.04), (-1.0, 3.0, 0.4), (0.0, 0.0, 1.0)], 0.5, ["level", "cannot tell", "level"]),
    ],
)
def test_verdicts_of_families(rows, margin, expected):
    family = [record.TestedDifference(difference=1.0, low=low, high=high, p=p, more_units=9) for low, high, p in rows]
    told = with_verdicts([*family, record.TestedDifference(reason="no score")], margin)
    assert [row.verdict for row in told] == [*expected, None]
    assert [row.p_holm for row in told[:-1]] == holm([p for *_, p in rows])
    assert [row.more_units for row in told[:-1]] == [9 if says == "cannot tell" else None for says in expected]


def test_an_undefined_task_is_reported_and_the_others_are_compared():
    good, flat = run(1.0), run(1.0, seed=1)
    constant = evaluate_sts(lambda texts: np.ones((len(texts), 2)), {"stsb": DATA["stsb"]}, resamples=0)
    flat.result.tasks["stsb"] = constant.tasks["stsb"]
    comparison = compare_runs([good], [flat], resamples=50)
    row = comparison.tasks["stsb"]
    assert row.reason == "undefined for model-1.json: all cosines are equal"
    assert row.first == score(good, "stsb")
    assert {getattr(row, key) for key in ("second", "difference", "low", "high", "p", "p_holm", "verdict")} == {None}
    assert comparison.tasks["sts12"].p_holm <= 1
    assert comparison.overall.difference is None
    assert comparison.overall.reason == f"stsb: {row.reason}"


def test_different_data_are_refused_with_their_location():
    other = DATA | {
        "sts12": {"a": DATA["sts12"]["a"], "b": [*DATA["sts12"]["b"][:-1], ScoredPair("left", "x y z 1", 2)]}
    }
    with pytest.raises(NearfarError, match=r"model-0\.json and model-1\.json .* \(task sts12, b: "):
        compare_runs([run(1.0)], [run(1.0, seed=1, data=other)])


def test_tasks_missing_on_a_side_are_listed_and_requested_ones_are_required():
    first, second = run(1.0), run(1.0, seed=1, data={"stsb": DATA["stsb"], "sickr": DATA["sickr"]})
    comparison = compare_runs([first], [second], resamples=10)
    assert list(comparison.tasks) == ["stsb", "sickr"]
    assert comparison.not_compared == ["sts12", "sickr-full"]
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
    five = comparison.named_averages["STS12 to STS16"]
    assert five.tasks == list(SEMEVAL)
    assert five.first == pytest.approx(np.mean([score(runs[0], name, "wmean") for name in SEMEVAL]), abs=1e-3)
    assert five.difference == pytest.approx(np.mean([comparison.tasks[name].difference for name in SEMEVAL]), abs=1e-3)
    several = compare_pairwise([[one] for one in runs], resamples=300)
    tests = [one.named_averages["STS12 to STS16"] for one in several.comparisons]
    assert [one.p_holm for one in tests] == pytest.approx(holm([one.p for one in tests]), abs=1e-6)
    assert PairwiseResult.from_dict(several.to_dict()) == several
    only = [run(noise, data=SEMEVAL) for noise in (1.0, 2.0)]
    comparison = compare_runs(only[:1], only[1:], resamples=50)
    assert "named_averages" not in comparison.to_dict(), "an average over all tasks is not repeated by its name"


ROWS = 200
GOLD = np.random.default_rng(9).integers(0, 3, ROWS)


def probed(share: float, seed: int, *, luck: float = 0.0, protocol: str = "senteval") -> EvaluationRun:
    """An evaluation whose probe is correct on about ``share`` of its rows, and a regression."""
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(ROWS) + luck < share, GOLD, (GOLD + 1) % 3)
    scores = np.linspace(1, 5, 80)
    accuracy = {"kind": "classification", "protocol": protocol, "rows": ROWS, "digest": "d"}
    accuracy |= {"accuracy": {"score": 100 * float(np.mean(predicted == GOLD)), "low": None, "high": None}}
    accuracy |= {"gold": GOLD.tolist(), "predicted": predicted.tolist()}
    learned = {"kind": "relatedness", "pairs": 80, "digest": "e", "gold": scores.tolist()}
    learned |= {key: {"score": 1.0, "low": None, "high": None} for key in ("pearson", "spearman")}
    learned |= {"predicted_e6": [int(1e6 * x) for x in scores + rng.normal(size=80)]}
    transfer = {"protocol": protocol, "averages": {}, "tasks": {"mr": accuracy, "learned": learned}}
    result = {"schema": 1, "kind": "evaluation", "model": f"m{share}", "tasks": {}, "transfer": transfer}
    result |= {"config": {}}
    return EvaluationRun(f"{share}-{seed}.json", EvaluationResult.from_dict(result))


@pytest.mark.parametrize("units", [None, np.repeat(np.arange(50), 4).tolist()], ids=["rows", "units"])
@pytest.mark.parametrize("kind", ["accuracy", "retrieval"])
def test_means_have_the_interval_of_the_differences_of_their_units(kind, units):
    """Of one run each: the standard error is that of the sums over units, with two units more, and t."""
    rng = np.random.default_rng(7)
    luck = 0.3 * rng.normal(size=50).repeat(4)  # rows of a unit are alike
    if kind == "accuracy":
        sides = probed(0.9, 1), probed(0.75, 2, luck=luck)
        tasks, name = [one.result.transfer.tasks for one in sides], "mr"
        values = [np.equal(one["mr"].gold, one["mr"].predicted).astype(float) for one in tasks]
    else:
        values = [np.clip(rng.random(ROWS) + shift, 0, 1).round(6) for shift in (0.1, luck)]
        sides = [ranked({"beir": of_queries}) for of_queries in values]
        tasks, name = [one.result.retrieval for one in sides], "beir"
    for of_side in tasks:
        of_side[name] = replace(of_side[name], units=units)
    row = compare_runs(*([one] for one in sides), tasks=[name], resamples=4000).tasks[name]
    differences = values[0] - values[1]
    sums = (differences - differences.mean()).reshape(-1, 1 if units is None else 4).sum(axis=1)
    count = len(sums)
    error = np.sqrt(sums @ sums * (count / ROWS) ** 2 + 1) / (count + 2) * np.sqrt(count / (count - 1))
    t = stats.t.ppf(0.975, count - 1)
    assert row.difference == pytest.approx(100 * differences.mean(), abs=1e-3)
    assert row.high - row.low == pytest.approx(100 * 2 * t * error, rel=0.05)
    assert (row.pairs, row.units) == (ROWS, count)
    if kind == "retrieval":
        assert (row.kind, row.measure) == ("retrieval", "ndcg@10")


def test_other_protocols_rows_or_queries_are_refused():
    with pytest.raises(
        NearfarError, match=r"in different ways \(task mr, probe: senteval, 0 hidden units, 10 folds; exact"
    ):
        compare_runs([probed(0.8, 1)], [probed(0.8, 2, protocol="exact")])
    other, queries = probed(0.8, 2), ranked({"t": [0.1, 0.2]})
    for tasks in (other.result.transfer.tasks, queries.result.retrieval):
        name = next(iter(tasks))
        tasks[name] = replace(tasks[name], digest="x")
    for first, second in ((probed(0.8, 1), other), (ranked({"t": [0.1, 0.2]}), queries)):
        with pytest.raises(NearfarError, match="were scored on different data"):
            compare_runs([first], [second])


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
    assert several.comparisons[1].tasks["mr"].verdict == "better"
    assert several.comparisons[0].tasks["mr"].verdict == "cannot tell"


VALUES = np.random.default_rng(5).random((2, 60)).round(6)


def test_a_measure_can_be_chosen_for_all_retrieval_tasks():
    first = ranked({"a": VALUES[0], "b": VALUES[1]})
    second = ranked({"a": VALUES[1], "b": VALUES[0]})
    by_main = compare_runs([first], [second], resamples=50)
    by_mrr = compare_runs([first], [second], measure="mrr@10", resamples=50)
    assert by_mrr.tasks["a"].measure == "mrr@10"
    assert by_mrr.tasks["a"].difference == pytest.approx(by_main.tasks["a"].difference / 2, abs=1e-4)
    assert by_mrr.overall_retrieval.tasks == ["a", "b"]
    assert by_mrr.overall_retrieval.difference == pytest.approx(0, abs=1e-4)
    with pytest.raises(NearfarError, match=r"m.json: task a has no measure recall@1, only ndcg@10, mrr@10"):
        compare_runs([first], [second], measure="recall@1")


@pytest.mark.long
def test_an_evaluation_knows_which_pairs_share_a_text_and_a_comparison_resamples_them_together():
    gold = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] * 10
    pairs = [ScoredPair(f"left {n // 3}", f"right {n} x {g}", g) for n, g in enumerate(gold)]
    shared, apart = (
        [run(noise, data={"t": {"t": data}}) for noise in (1.0, 1.5)] for data in (pairs, DATA["stsb"]["test"])
    )
    assert [one.result.tasks["t"].units for one in shared] == 2 * [[n // 3 for n in range(60)]]
    assert "units" not in apart[0].result.tasks["t"].to_dict()
    row = compare_runs(shared[:1], shared[1:], resamples=20).tasks["t"]
    assert (row.pairs, row.units) == (60, 20)
    older = replace(shared[0].result, tasks={"t": replace(shared[0].result.tasks["t"], units=None)})
    assert compare_runs([EvaluationRun("older", older)], shared[1:], resamples=20).tasks["t"] == row
