"""Tests between groups of a study, against ``nearfar compare``, scipy and plain loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.studies.columns import Run
from tests.studies.cases import DATA, RESAMPLES, STUDY, build, cells, classified, pairs, similarity


def compared(study, some):
    table = build(study, some, resamples=RESAMPLES)
    return {(row.first, row.second, row.column): row for row in table.comparisons}


def side(name, results):
    return [EvaluationRun(f"{name}{number}", result) for number, result in enumerate(results)]


@pytest.mark.long
def test_correlations_are_compared_as_by_nearfar_compare():
    found = compared(STUDY, cells())
    good, bad = (side(row, [similarity(noise, seed) for seed in (1, 2, 3)]) for row, noise in (("g", 2.0), ("b", 4.0)))
    expected = compare_runs(good, bad, aggregate="wmean", resamples=RESAMPLES)
    for column in ("sts12", "stsb", "average"):
        row, theirs = found["good", "bad", column], expected.tasks.get(column, expected.overall)
        assert row.difference == pytest.approx(theirs.difference, abs=2e-4)
        assert (row.pairs.low, row.pairs.high) == pytest.approx((theirs.low, theirs.high), abs=1e-3)
        assert (row.pairs.p, row.pairs.test) == (theirs.p, theirs.test)
        assert row.seeds.p == pytest.approx(theirs.seeds.p, abs=1e-4)
        assert (row.seeds.low, row.seeds.high) == pytest.approx((theirs.seeds.low, theirs.seeds.high), abs=1e-3)
        assert row.seeds.test == "paired t-test over seeds"


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_accuracies_are_compared_as_by_nearfar_compare(seeds):
    study = {"title": "t", "columns": ["accuracy"], "rows": [{"id": "a"}, {"id": "b"}], "compare": [["a", "b"]]}
    results = {row: [classified(rate, seed) for seed in seeds] for row, rate in (("a", 0.9), ("b", 0.7))}
    some = [
        Run(row, {}, {"seed": seed}, [result], key=f"{row}{seed}")
        for row, both in results.items()
        for seed, result in zip(seeds, both, strict=True)
    ]
    row = compared(study, some)["a", "b", "accuracy"]
    theirs = compare_runs(side("a", results["a"]), side("b", results["b"]), resamples=RESAMPLES).tasks["mrpc"]
    assert row.difference == pytest.approx(theirs.difference, abs=2e-4)
    assert (row.pairs.p, row.pairs.test) == (theirs.p, theirs.test)
    assert (row.pairs.low, row.pairs.high) == pytest.approx((theirs.low, theirs.high), abs=1e-3)
    assert (row.seeds is None) == (len(seeds) == 1)


def plain_holm(p):
    order = sorted(range(len(p)), key=lambda place: p[place])
    adjusted, highest = [0.0] * len(p), 0.0
    for number, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - number) * p[place]))
        adjusted[place] = highest
    return adjusted


@pytest.mark.parametrize("sort", ["pairs", "seeds"])
def test_p_is_corrected_over_all_comparisons_of_the_table(sort):
    study = {**STUDY, "compare": [["good", "bad"], ["good", "fixed"], ["bad", "fixed"]]}
    tested = [test for row in compared(study, cells()).values() if (test := getattr(row, sort)) is not None]
    assert len(tested) == 9
    assert [test.p_holm for test in tested] == pytest.approx(plain_holm([test.p for test in tested]), abs=1e-5)
    assert any(test.p < test.p_holm < 1 for test in tested)


@pytest.mark.long
def test_a_fixed_run_is_compared_by_a_one_sample_test():
    study = {**STUDY, "compare": [["good", "fixed"], ["fixed", "good"]]}
    found = compared(study, cells())
    values = [similarity(2.0, seed).tasks["stsb"].spearman.wmean.score for seed in (1, 2, 3)]
    constant = similarity(6.0, 0).tasks["stsb"].spearman.wmean.score
    row = found["good", "fixed", "stsb"]
    assert row.seeds.p == pytest.approx(stats.ttest_1samp(values, constant).pvalue, abs=1e-5)
    assert row.seeds.test == "one-sample t-test over seeds"
    mirrored = found["fixed", "good", "stsb"]
    assert mirrored.difference == pytest.approx(-row.difference)
    assert mirrored.seeds.p == row.seeds.p


def test_a_single_run_of_a_trained_row_has_no_test_over_seeds():
    some = [one for one in cells() if one.row != "bad" or one.replicate["seed"] == 1]
    found = compared(STUDY, some)["good", "bad", "stsb"]
    assert found.seeds is None
    assert found.pairs is not None


@pytest.mark.long
def test_other_replicates_are_compared_unpaired():
    some = [
        replace(one, results=[], missing="not run") if (one.row, one.replicate) == ("bad", {"seed": 2}) else one
        for one in cells()
    ]
    row = compared(STUDY, some)["good", "bad", "stsb"]
    good, bad = (
        [similarity(noise, seed).tasks["stsb"].spearman.wmean.score for seed in seeds]
        for noise, seeds in ((2.0, (1, 2, 3)), (4.0, (1, 3)))
    )
    assert row.seeds.test == "Welch's t-test over seeds"
    assert row.seeds.p == pytest.approx(stats.ttest_ind(good, bad, equal_var=False).pvalue, abs=1e-5)
    assert row.difference == pytest.approx(np.mean(good) - np.mean(bad), abs=1e-4)


@pytest.mark.long
def test_pairing_is_by_replicate_and_not_by_order():
    some = cells()
    turned = [*some[:3], *some[3:6][::-1], *some[6:]]
    assert compared(STUDY, turned)["good", "bad", "stsb"].seeds == compared(STUDY, some)["good", "bad", "stsb"].seeds


def test_the_best_replicates_are_the_tested_ones():
    rows = [{"id": "a"}, {"id": "b"}]
    study = {"title": "t", "columns": ["mrpc"], "rows": rows, "compare": [["a", "b"]], "best": {"count": 2}}
    some = [
        Run(row, {}, {"seed": seed}, [classified(rate, seed)], key=f"{row}{seed}", validation=float(score))
        for row, rate, scores in (("a", 0.9, (3, 1, 2)), ("b", 0.7, (1, 2, 3)))
        for seed, score in enumerate(scores)
    ]
    row = compared(study, some)["a", "b", "mrpc"]
    kept = {
        name: [classified(rate, seed) for seed in seeds]
        for name, rate, seeds in (("a", 0.9, (0, 2)), ("b", 0.7, (1, 2)))
    }
    theirs = compare_runs(side("a", kept["a"]), side("b", kept["b"]), resamples=RESAMPLES).tasks["mrpc"]
    assert row.difference == pytest.approx(theirs.difference, abs=2e-4)
    assert row.pairs.p == theirs.p
    assert row.seeds.test == "Welch's t-test over seeds"


@pytest.mark.long
def test_runs_on_different_data_are_tested_over_seeds_alone():
    other = {"sts12": DATA["sts12"], "stsb": {"test": pairs(80, 9)}}
    some = [
        replace(one, results=[similarity(4.0, one.replicate["seed"], data=other)]) if one.row == "bad" else one
        for one in cells()
    ]
    found = compared(STUDY, some)
    row = found["good", "bad", "stsb"]
    assert row.pairs is None
    assert row.seeds is not None
    assert row.reason == "no test over pairs: the runs were tested on different data"
    assert found["good", "bad", "sts12"].pairs is not None
    assert found["good", "bad", "average"].pairs is None


def grid(rows=("ce", "scl"), **changes):
    study = {
        "title": "t",
        "columns": ["mrpc", "seconds", "rate"],
        "axes": [
            {"name": "lambda", "values": [0, 0.3, 1.0], "labels": ["0", "0.3", "1.0"], "compare_with": "0"},
            {"name": "task", "values": ["x", "y"], "average": True},
        ],
        "rows": [{"id": row} for row in rows],
        **changes,
    }
    some = [
        Run(
            row,
            {"lambda": label, "task": task},
            {"seed": seed},
            [classified(0.6 + 0.3 * float(label), seed), {"rate": 1}],
        )
        for row, label, task, seed in product(rows, ("0", "0.3", "1.0"), ("x", "y"), (1, 2))
    ]
    some = [replace(one, key=one.name, seconds=1.0) for one in some]
    return study, some


def test_labels_of_an_axis_are_compared_with_one_of_them():
    study, some = grid()
    table = build(study, some, resamples=RESAMPLES)
    places = [
        (row.first, row.first_coordinates["lambda"], row.second_coordinates["lambda"], row.first_coordinates["task"])
        for row in table.comparisons
    ]
    assert sorted(places) == sorted(
        (row, label, "0", task) for row in ("ce", "scl") for label in ("0.3", "1.0") for task in ("x", "y", "average")
    )
    assert all(row.first_coordinates["task"] == row.second_coordinates["task"] for row in table.comparisons)
    assert {row.column for row in table.comparisons} == {"mrpc"}  # neither seconds nor what the run measured


def test_a_row_without_an_axis_is_compared_at_each_of_its_labels():
    study, some = grid(compare=[["scl", "ce"]])
    study["axes"] = [{"name": "lambda", "values": [0, 0.3, 1.0], "labels": ["0", "0.3", "1.0"]}]
    some = [
        replace(one, coordinates={"lambda": one.coordinates["lambda"]})
        for one in some
        if one.coordinates["task"] == "x"
    ]
    some = [one if one.row == "scl" else replace(one, coordinates={}) for one in some]
    some = [one for one in some if one.row == "scl" or "lambda = 0;" in one.key]
    found = build(study, some, resamples=RESAMPLES).comparisons
    places = [(row.first_coordinates, row.second_coordinates) for row in found]
    assert places == [({"lambda": label}, {}) for label in ("0", "0.3", "1.0")]


def test_an_undefined_score_says_why():
    result = similarity(2.0, 1)
    undefined = replace(result, tasks={"sts12": result.tasks["sts12"]}, unavailable={"stsb": "the file is missing"})
    some = [replace(one, results=[undefined]) if one.key == "bad1" else one for one in cells()]
    row = compared(STUDY, some)["good", "bad", "stsb"]
    assert (row.difference, row.pairs, row.seeds) == (None, None, None)
    assert row.reason == "bad: the file is missing"
