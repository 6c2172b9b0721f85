"""Scores of encoders with known cosines, against scipy; and invalid encoders and data."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.results import Estimate
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tasks import SIMILARITY_AVERAGES as AVERAGES
from nearfar.types import ScoredPair

SEVEN = AVERAGES["seven tasks, SICK-R test"]


def angles(texts):
    """Return for a text "x 30" the unit vector at 30 degrees: the cosine of a pair depends on the difference."""
    angle = np.radians([float(text.split()[1]) for text in texts])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def subset(pairs: int, *, seed: int = 0) -> list[ScoredPair]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 6, pairs)
    angles_ = np.clip(90 - 15 * gold + 20 * rng.normal(size=pairs), 0, 179)
    rows = enumerate(zip(gold, angles_, strict=True))
    return [ScoredPair(f"{seed} 0 a{n}", f"{seed} {angle:.3f} b{n}", float(g)) for n, (g, angle) in rows]


def columns(pairs):
    gold = [pair.score for pair in pairs]
    return gold, [round(math.cos(math.radians(float(pair.second.split()[1]))), 6) for pair in pairs]


def test_aggregates_equal_scipy():
    a, b = subset(30), subset(50, seed=1)
    scored = evaluate_sts(angles, {"mine": {"a": a, "b": b}}, resamples=100).tasks["mine"]
    for metric, reference in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        rho = [100 * reference(*columns(pairs)).statistic for pairs in (a, b, a + b)]
        expected = {"all": rho[2], "mean": (rho[0] + rho[1]) / 2, "wmean": (30 * rho[0] + 50 * rho[1]) / 80}
        for kind, score in expected.items():
            found = scored.metric(metric).of(kind)
            assert found.score == pytest.approx(score, abs=2e-3)
            assert found.low < found.score < found.high
        assert scored.subsets["a"].metric(metric).score == pytest.approx(rho[0], abs=2e-3)
        assert scored.subsets["b"].metric(metric).score == pytest.approx(rho[1], abs=2e-3)
    assert scored.pairs == 80
    assert [scored.subsets[name].pairs for name in "ab"] == [30, 50]


def test_intervals_depend_on_the_seed_and_not_on_other_tasks():
    task, other = {"a": subset(30)}, {"b": subset(40, seed=1)}
    separate = evaluate_sts(angles, {"mine": task}, resamples=50).tasks["mine"]
    assert evaluate_sts(angles, {"other": other, "mine": task}, resamples=50).tasks["mine"] == separate
    assert evaluate_sts(angles, {"mine": task}, resamples=50, seed=1).tasks["mine"] != separate


def test_averages_over_the_seven_tasks():
    tasks = {name: {"a": subset(20, seed=n), "b": subset(30, seed=n + 50)} for n, name in enumerate(SEVEN)}
    result = evaluate_sts(angles, tasks, resamples=200)
    assert {name: average.tasks for name, average in result.averages.items()} == {
        "seven tasks, SICK-R test": list(SEVEN),
        "STS12 to STS16": ["sts12", "sts13", "sts14", "sts15", "sts16"],
    }
    for average, metric, kind in product(result.averages.values(), ("spearman", "pearson"), ("all", "mean", "wmean")):
        each = [result.tasks[task].metric(metric).of(kind) for task in average.tasks]
        found = average.metric(metric).of(kind)
        assert found.score == pytest.approx(np.mean([one.score for one in each]), abs=1e-3)
        # n independent tasks: the interval of the average is narrower by about the square root of n
        width = np.sqrt(np.sum([(one.high - one.low) ** 2 for one in each])) / len(each)
        assert found.high - found.low == pytest.approx(width, rel=0.3)
    del tasks["sts13"]
    assert evaluate_sts(angles, tasks, resamples=0).averages == {}


def test_semeval_tasks_without_subsets_have_no_mean():
    tasks = {name: {"all": subset(20, seed=n)} for n, name in enumerate(SEVEN)}
    result = evaluate_sts(angles, tasks, resamples=10)
    assert result.tasks["sts12"].spearman.all.score is not None
    reason = "this copy of the data does not separate the subsets"
    for kind in ("mean", "wmean"):
        assert result.tasks["sts12"].spearman.of(kind) == Estimate(None, None, None, reason)
        average = result.averages["seven tasks, SICK-R test"].spearman.of(kind)
        assert average == Estimate(None, None, None, f"undefined on sts12: {reason}")
    spearman = result.tasks["stsb"].spearman
    assert spearman.mean == spearman.all  # STS-B has one subset, so its mean is its score


def test_a_constant_encoder_has_no_correlation_and_the_reason_is_given():
    def constant(texts):
        # one direction and many lengths: cosines are 1 up to float32 rounding
        lengths = np.random.default_rng(0).uniform(1, 2, size=(len(texts), 1))
        return np.float32(lengths) * np.float32([0.1, 0.7, 0.3])

    spearman = evaluate_sts(constant, {"mine": {"a": subset(30)}}, resamples=10).tasks["mine"].spearman
    assert {estimate.reason for _, estimate in spearman.items()} == {"all cosines are equal"}
    assert {estimate.score for _, estimate in spearman.items()} == {None}


def test_a_zero_vector_has_cosine_zero_and_is_counted():
    pairs = [ScoredPair("x 0", "x 10", 5), ScoredPair("x 0", "x 90", 1), ScoredPair("x 0", "x 60", 3)]

    def encode(texts):
        return angles(texts) * np.array([[text != "x 10"] for text in texts])

    scored = evaluate_sts(encode, {"mine": {"a": pairs}}, resamples=0).tasks["mine"]
    assert scored.zero_vectors == 1
    assert scored.subsets["a"].cosines_e6 == [0, 0, 500_000]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_leaves_out_only_its_tasks(value):
    tasks = {"one": {"a": subset(5)}, "two": {"b": [ScoredPair("bad 1", "x 2", 3)] * 3}}

    def encode(texts):
        vectors = angles(texts)
        vectors[[text == "bad 1" for text in texts], 1] = value
        return vectors

    scored = evaluate_sts(encode, tasks, resamples=0)
    assert list(scored.tasks) == ["one"]
    assert scored.tasks == evaluate_sts(angles, {"one": tasks["one"]}, resamples=0).tasks
    assert list(scored.unavailable) == ["two"]
    assert "1 of its texts hold NaN or infinity; the first is that of 'bad 1'" in scored.unavailable["two"]
    assert evaluate_sts(encode, {"two": tasks["two"]}).tasks == {}
