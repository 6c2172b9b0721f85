"""A study's table: each kind of column is the number that it names, those on unseen pairs of these pairs alone; means
and intervals are those of plain loops and scipy, and can be computed again from the files."""

import json
from dataclasses import replace
from itertools import product
from statistics import mean, stdev

import numpy as np
import pytest
from scipy import stats

from nearfar.data.fingerprints import row_hashes
from nearfar.disk.model_folder import SeenHashes
from nearfar.evaluation.correlation import bootstrap_scores, weighted_spearman
from nearfar.evaluation.results import (
    Estimate,
    EvaluationResult,
    FinetuningSummary,
    RelatednessScores,
    Result,
    RetrievalScores,
    StudyTable,
    TransferResults,
)
from nearfar.evaluation.seen import add_seen
from nearfar.evaluation.statistics import bootstrap_means, crossed_difference, holm
from nearfar.studies.groups import scores_of
from nearfar.studies.page import Layout, study_markdown
from nearfar.studies.scores import ABSENT, column_value, seen_by_any
from nearfar.studies.table import compare_again
from nearfar.studies.units import UNITS, Resampler, TestData, read_units
from nearfar.types import NearfarError
from tests.studies.cases import DATA, RESAMPLES, STUDY, build, cells, classified, geometry, pairs, run, similarity


@pytest.fixture(scope="module")
def table() -> StudyTable:
    return build(STUDY, cells(), resamples=RESAMPLES)


def group(table, row, **coordinates):
    """Column -> the line of the table's frame."""
    frame = Layout(table).frame()
    for name, label in {"row": row, **coordinates}.items():
        frame = frame[frame[name] == label]
    lines = {line.column: line for line in frame.itertuples()}
    assert len(lines) == len(frame) > 0
    return lines


def chosen(table, row):
    """The replicates that enter means and comparisons."""
    scores = scores_of(table)
    return [json.loads(one.replicate) for one in scores.members[scores.number(row, {})]]


def interval_of(points, draws=None, units=1):
    """The interval of a mean over runs, whose draws are given for each run."""
    points = np.array(points)
    draws = points[:, None] if draws is None else np.array(draws)
    return crossed_difference((points, draws), (np.zeros(1), np.zeros((1, draws.shape[1]))), units=units)[1:3]


def of_task(row, task, *, seeds=(1, 2, 3)):
    noise = {"bad": 4.0, "good": 2.0}[row]
    return [similarity(noise, seed).tasks[task].spearman.wmean.score for seed in seeds]


@pytest.mark.long
@pytest.mark.parametrize("row", ["bad", "good"])
def test_the_interval_of_a_mean_is_over_pairs_and_runs(table, row):
    for task in ("sts12", "stsb"):
        results = [similarity({"bad": 4.0, "good": 2.0}[row], seed).tasks[task] for seed in (1, 2, 3)]
        values, score = of_task(row, task), group(table, row)[task]
        assert score.mean == pytest.approx(sum(values) / 3, abs=1e-4)
        spread = (sum((value - sum(values) / 3) ** 2 for value in values) / 2) ** 0.5
        assert score.sd == pytest.approx(spread, abs=1e-4)
        subsets = [one.subsets.values() for one in results]
        gold = np.array([g for one in subsets[0] for g in one.gold])
        cosines = np.array([[c for one in own for c in one.cosines_e6] for own in subsets], dtype=float)
        how = {"sizes": [len(one.gold) for one in subsets[0]], "resamples": RESAMPLES, "seed": [0, *task.encode()]}
        draws = 100 * bootstrap_scores(weighted_spearman, gold, cosines, **how).aggregate("wmean")
        assert (score.low, score.high) == pytest.approx(interval_of(values, draws, len(gold)), abs=1e-3)
        assert score.n == 3


@pytest.mark.long
def test_average_is_that_of_each_run(table):
    averages = [mean(pair) for pair in zip(of_task("good", "sts12"), of_task("good", "stsb"), strict=True)]
    score = group(table, "good")["average"]
    assert score.mean == pytest.approx(mean(averages), abs=1e-4)
    assert score.sd == pytest.approx(stdev(averages), abs=1e-4)
    values = [cell.values["average"] for cell in table.cells if cell.row == "good"]
    assert values == pytest.approx(averages, abs=1e-4)


def test_a_row_without_replicates_counts_once(table):
    score = group(table, "fixed")["stsb"]
    estimate = similarity(6.0, 0).tasks["stsb"].spearman.wmean
    assert (score.n, score.sd) == (1, None)
    assert (score.mean, score.low, score.high) == (estimate.score, estimate.low, estimate.high)
    assert chosen(table, "fixed") == [{"seed": 1}]


def test_a_table_survives_its_file(table, tmp_path):
    table.save(tmp_path / "study.json")
    assert StudyTable.load(tmp_path / "study.json") == table
    assert Result.from_dict(table.to_dict(), source="f") == table
    assert len(table.to_json()) < 10_000  # no cosines


@pytest.mark.long
def test_provenance_lists_all_distinct_values():
    changed = cells()[:2]
    other = replace(changed[0].measured[0].provenance, commit="def", versions={"torch": "2.8.0"}, date="2023-05-06")
    changed[0] = replace(changed[0], measured=[replace(changed[0].measured[0], provenance=other)])
    runs = build(STUDY, changed, resamples=1).runs
    assert runs.commits == {"abc1234": 1, "def": 1}
    assert runs.versions["torch"] == {"2.8.0": 1, "2.9.0": 1}
    assert (runs.first_date, runs.last_date) == ("2023-05-06", "2024-01-02T03:04:05+00:00")
    assert runs.hardware[0]["results"] == 2


def missing(one, why="not run"):
    return replace(one, measured=[], cell=replace(one.cell, missing=why))


@pytest.mark.long
def test_missing_runs_are_listed_left_out_of_means_and_not_paired():
    runs = [missing(one, "failed: out of memory") if one.cell.key == "bad2" else one for one in cells()]
    table = build(STUDY, runs, resamples=RESAMPLES)
    assert [(one.row, one.replicate, one.missing) for one in table.missing] == [
        ("bad", {"seed": 2}, "failed: out of memory")
    ]
    bad, good = of_task("bad", "stsb", seeds=(1, 3)), of_task("good", "stsb")
    score = group(table, "bad")["stsb"]
    assert (score.n, score.missing, score.mean) == (2, 1, pytest.approx(mean(bad), abs=1e-4))
    row = compared(table)["good", "bad", "stsb"]
    assert row.difference == pytest.approx(mean(good) - mean(bad), abs=1e-4)


def best_cells(row="ce", rate=0.6, validation=(70.0, 90.0, 80.0, 60.0)):
    return [
        run(row, {}, {"seed": seed}, [classified(rate + 0.05 * seed, seed)], validation=score, key=f"{row}{seed}")
        for seed, score in enumerate(validation)
    ]


BEST = {"title": "t", "columns": ["accuracy"], "rows": [{"id": "ce"}], "best": {"count": 2, "by": "validation"}}


@pytest.mark.parametrize(
    ("validation", "best"), [((70.0, 90.0, 80.0, 60.0), [1, 2]), ((50.0, 50.0, 50.0, 50.0), [0, 1])]
)
def test_only_the_best_replicates_by_validation_enter(validation, best):
    """Ties are broken by the order of the replicates."""
    runs = best_cells(validation=validation)
    table = build(BEST, runs, resamples=RESAMPLES)
    score = group(table, "ce")["accuracy"]
    assert score.mean == pytest.approx(mean(accuracy(runs[seed]) for seed in best), abs=1e-4)
    assert score.n == 2
    assert sorted(replicate["seed"] for replicate in chosen(table, "ce")) == best
    assert tuple(cell.values["validation"] for cell in table.cells) == validation


def test_the_best_replicates_need_a_validation_score():
    runs = best_cells(validation=(70.0, 90.0, None, 60.0))
    with pytest.raises(NearfarError, match="row ce: a run has no validation score"):
        build(BEST, runs, resamples=1)


AXES = [
    {"name": "noise", "values": ["none", "drop", "swap"], "as": "columns", "average": ["drop", "swap"]},
    {"name": "task", "labels": ["a", "b"], "values": ["x", "y"]},
]


def on_axes(**changes):
    study = {"title": "t", "columns": ["accuracy"], "axes": AXES, "rows": [{"id": "ce"}, {"id": "scl"}], **changes}
    runs = [
        run(
            row,
            {"noise": noise, "task": task},
            {"seed": seed},
            [classified(0.6 + 0.05 * place, 10 * seed + (row == "scl"))],
            key=f"{row}{noise}{task}{seed}",
        )
        for row in ("ce", "scl")
        for place, noise in enumerate(("none", "drop", "swap"))
        for task in ("a", "b")
        for seed in (1, 2, 3)
    ]
    return study, runs


def accuracy(cell):
    return cell.measured[0].transfer.tasks["mrpc"].accuracy.score


def test_average_over_an_axis_is_that_of_each_replicate():
    study, runs = on_axes()
    table = build(study, runs, resamples=RESAMPLES)
    for row, task in product(("ce", "scl"), ("a", "b")):
        own = [one for one in runs if (one.cell.row, one.cell.coordinates["task"]) == (row, task)]
        noisy = [one for one in own if one.cell.coordinates["noise"] != "none"]
        values = [mean(accuracy(one) for one in noisy if one.cell.replicate["seed"] == seed) for seed in (1, 2, 3)]
        score = group(table, row, noise="average", task=task)["accuracy"]
        assert score.mean == pytest.approx(mean(values), abs=1e-4)
        assert score.sd == pytest.approx(stdev(values), abs=1e-4)
    labels = ["none", "drop", "swap", "average"]
    assert [one.coordinates["noise"] for one in table.groups[:8]] == [label for label in labels for _ in range(2)]


def test_average_over_an_axis_without_one_of_its_labels_has_no_mean():
    study, runs = on_axes()
    runs = [missing(one) if one.cell.coordinates["noise"] == "swap" and one.cell.row == "ce" else one for one in runs]
    table = build(study, runs, resamples=RESAMPLES)
    average = group(table, "ce", noise="average", task="a")["accuracy"]
    assert (average.n, average.missing, average.mean) == (0, 3, None)
    assert group(table, "scl", noise="average", task="a")["accuracy"].n == 3


def test_paper_numbers_by_labels_and_for_all_labels():
    paper = [{"task": "a", "accuracy": 80.5}, {"task": "a", "noise": "drop", "accuracy": [79, 1.5]}]
    paper.append({"task": "b", "noise": "average", "accuracy": 70.0})
    study, runs = on_axes(rows=[{"id": "ce", "paper": paper}, {"id": "scl"}])
    table = build(study, runs, resamples=1)

    def number(noise, task):
        return group(table, "ce", noise=noise, task=task)["accuracy"].paper

    assert (number("none", "a"), number("drop", "a"), number("swap", "a")) == (80.5, 79.0, 80.5)
    assert (number("average", "a"), number("average", "b"), number("drop", "b")) == (None, 70.0, None)


def test_geometry_and_curves_of_several_runs_are_averaged():
    study = {"title": "t", "columns": ["uniformity", "layer.2.mean"], "rows": [{"id": "a"}]}
    points = {1: {0: 1.0, 10: 2.0, 20: 3.0}, 2: {0: 2.0, 20: 5.0, 30: 6.0}}
    runs = [
        run("a", {}, {"seed": seed}, [geometry(seed)], key=f"{seed}", curves={"loss": points[seed]}) for seed in (1, 2)
    ]
    table = build(study, runs, resamples=1)
    (only,) = table.groups
    assert group(table, "a")["uniformity"].mean == pytest.approx(-1.65)
    assert only.intervals["uniformity"] == pytest.approx(interval_of([-1.6, -1.7]), abs=1e-4)
    assert only.layers == {"cls": [None, 21.5, 30.0], "mean": [40.0, 50.0, 61.5]}
    expected = np.mean([geometry(seed).models["m"].spectrum for seed in (1, 2)], axis=0)
    indices = [index for index, _ in only.spectrum]
    assert indices == sorted(set(indices))
    assert (indices[0], indices[-1]) == (1, 100)
    assert 30 < len(indices) <= 60
    for index, value in only.spectrum:
        assert value == pytest.approx(expected[index - 1], rel=1e-3)
    curve = only.curves["loss"]  # at the steps that both have
    assert (curve.steps, curve.mean) == ([0, 20], [1.5, 4.0])
    assert curve.sd == pytest.approx([0.5**0.5, 2**0.5], abs=1e-4)


@pytest.mark.parametrize("columns", [["stsb", "dog"], ["average", "seconds"]])
def test_a_column_that_no_run_has_is_answered_with_those_there_are(columns):
    with pytest.raises(
        NearfarError, match=r"no column of the runs is called '(dog|average.*)'\. (There are|Did you mean)"
    ):
        build({**STUDY, "columns": columns}, cells(seeds=(1,)), resamples=1)


def compared(table):
    return {(row.first, row.second, row.column): row for row in table.comparisons}


def drawn(row, seeds=(1, 2, 3)):
    """The scores and draws of stsb of a row's runs, by a plain call of the bootstrap."""
    noise = {"bad": 4.0, "good": 2.0, "fixed": 6.0}[row]
    own = [similarity(noise, 0 if row == "fixed" else seed).tasks["stsb"].subsets["test"] for seed in seeds]
    cosines = np.array([one.cosines_e6 for one in own], dtype=float)
    how = {"sizes": [80], "resamples": RESAMPLES, "seed": [0, *b"stsb"]}
    points = np.array([one.spearman.score for one in own])
    return points, 100 * bootstrap_scores(weighted_spearman, np.array(own[0].gold), cosines, **how).aggregate("wmean")


PEER = {"script": {"file": "peer.py"}, "steps": ["script", "evaluate"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("bad", "seeds", "order"),
    [
        ({}, (1, 2, 3), [0, 1, 2]),
        ({}, (3, 2, 1), [2, 1, 0]),
        (PEER, (1, 2, 3), None),  # seeds of another library are other seeds
        ({}, (1, 3), None),
        ({}, (2,), None),
    ],
)
def test_a_difference_has_one_interval_over_pairs_and_runs(bad, seeds, order):
    """Runs of one seed and one program are paired."""
    study = {**STUDY, "rows": [{**row, **(bad if row["id"] == "bad" else {})} for row in STUDY["rows"]]}
    runs = [one for one in cells() if one.cell.row != "bad"]
    runs += [next(one for one in cells() if one.cell.key == f"bad{seed}") for seed in seeds]
    row = compared(build(study, runs, resamples=RESAMPLES))["good", "bad", "stsb"]
    good, other = drawn("good"), drawn("bad", seeds)
    expected = crossed_difference(good, other, units=80, order=order)
    assert row.difference == pytest.approx(good[0].mean() - other[0].mean(), abs=2e-4)
    assert (row.low, row.high, row.p) == pytest.approx((expected.low, expected.high, expected.p), abs=1e-3)
    assert (row.units, row.reason, row.verdict is None) == (80, None, False)


@pytest.mark.long
def test_the_comparisons_can_be_computed_again_from_the_files_alone(tmp_path):
    """Of correlations with subsets and units of two pairs, a fixed run, accuracies on an axis with an average, F1."""
    similar = []
    for known in cells():
        tasks = known.measured[0].tasks
        doubled = {name: replace(one, units=[n // 2 for n in range(one.pairs)]) for name, one in tasks.items()}
        similar.append(replace(known, measured=[replace(known.measured[0], tasks=doubled)]))
    files = {
        "similarity": ({**STUDY, "compare": [["good", "bad"], ["fixed", "good"]]}, similar),
        "accuracy": grid(compare=[["scl", "ce"]], columns=["mrpc", "mrpc.f1"], margin=2.0),
        "best": (
            A_AND_B | {"best": {"count": 2}},
            [*best_cells("a", 0.8), *best_cells("b", 0.6, (1.0, 2.0, 3.0, 0.0))],
        ),
    }
    for name, (study, runs) in files.items():
        table = build(study, runs, resamples=RESAMPLES, units=tmp_path / UNITS)
        table.save(tmp_path / "study.json")
        assert compare_again(StudyTable.load(tmp_path / "study.json"), tmp_path / UNITS) == table.comparisons, name
        units = {"similarity": {50, 40, 90}, "accuracy": {90, 180}, "best": {90}}  # 180 of an average over tasks
        assert {row.units for row in table.comparisons} == units[name]
    assert len(read_units(tmp_path / UNITS)) == 4  # of the best two runs of each row
    (tmp_path / UNITS).write_text("text", encoding="utf-8")
    with pytest.raises(NearfarError, match=r"units\.parquet: is damaged"):
        read_units(tmp_path / UNITS)


A_AND_B = {"title": "t", "columns": ["accuracy"], "rows": [{"id": "a"}, {"id": "b"}], "compare": [["a", "b"]]}


@pytest.mark.parametrize(
    ("seeds", "paired"), [(((0,), (0,)), True), (((0, 1), (0, 1)), True), (((0, 2), (1, 2)), False)]
)
def test_accuracies_of_rows_are_compared_on_the_same_resamples(seeds, paired):
    runs = [
        [best_cells(row, rate)[seed] for seed in own] for row, rate, own in zip("ab", (0.8, 0.6), seeds, strict=True)
    ]
    row = compared(build(A_AND_B, [*runs[0], *runs[1]], resamples=RESAMPLES))["a", "b", "accuracy"]
    tests = [[one.measured[0].transfer.tasks["mrpc"] for one in own] for own in runs]
    correct = np.array([np.equal(one.predicted, one.gold) for own in tests for one in own], dtype=float)
    draws = np.split(100 * bootstrap_means(correct, resamples=RESAMPLES, seed=[0, *b"mrpc"]), 2)
    points = [np.array([one.accuracy.score for one in own]) for own in tests]
    order = list(range(len(points[0]))) if paired else None
    expected = crossed_difference((points[0], draws[0]), (points[1], draws[1]), units=90, order=order, bound=100)
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high), abs=1e-2)


@pytest.mark.parametrize(
    ("margin", "values", "verdict"),
    [
        (0.5, ([0.1, 0.2, 0.3], [1.0, 1.2, 1.1]), "worse"),
        (0.5, ([1.0, 1.1, 1.2], [1.1, 1.0, 1.2]), "level"),
        (0.5, ([1.0, 1.2, 1.4], [1.0, 1.0, 1.0]), "no worse"),
    ],
)
def test_the_verdict_knows_the_margin_of_the_study(margin, values, verdict):
    study = {**A_AND_B, "columns": ["x", "seconds"], "compare_columns": ["x", "seconds"], "margin": margin}
    runs = [
        run(row, {}, {"seed": seed}, [{"x": value}], seconds=value)
        for row, own in zip("ab", values, strict=True)
        for seed, value in enumerate(own)
    ]
    x, seconds = build(study, runs, resamples=1).comparisons
    assert (x.verdict, x.reason) == (verdict, "interval over runs alone: the scores of single units are not stored")
    assert (seconds.verdict, seconds.low) == (None, x.low)  # longer is not better


def test_claims_are_a_family():
    """Differences of other columns have their interval and no verdict."""
    runs = [
        run(row, {}, {"seed": seed}, [{"x": value, "y": value, "z": value}])
        for row, own in {"a": [1.0, 1.1, 1.2], "b": [0.1, 0.2, 0.3]}.items()
        for seed, value in enumerate(own)
    ]
    study = {**A_AND_B, "columns": ["x", "y", "z"], "compare_columns": ["x", "y", "z"]}
    every = {row.column: row for row in build(study, runs, resamples=1).comparisons}
    claimed = {row.column: row for row in build(study | {"claims": ["y"]}, runs, resamples=1).comparisons}
    assert [(claimed[name].p_holm, claimed[name].verdict) for name in "xz"] == [(None, None)] * 2
    assert [claimed[name].low for name in "xyz"] == [every[name].low for name in "xyz"]
    assert claimed["y"].p_holm == claimed["y"].p
    assert every["y"].p_holm == pytest.approx(3 * every["y"].p, abs=1e-5)
    assert claimed["y"].verdict == "better"


@pytest.mark.long
def test_p_is_corrected_over_all_comparisons_and_one_side_may_be_a_fixed_run():
    study = {**STUDY, "compare": [["good", "bad"], ["good", "fixed"], ["fixed", "good"]]}
    rows = compared(build(study, cells(), resamples=RESAMPLES))
    p = [row.p for row in rows.values()]
    assert len(p) == 9
    assert [row.p_holm for row in rows.values()] == pytest.approx(holm(p), abs=1e-5)
    row, mirrored = rows["good", "fixed", "stsb"], rows["fixed", "good", "stsb"]
    expected = crossed_difference(drawn("good"), drawn("fixed", (0,)), units=80)
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high), abs=1e-3)
    assert (mirrored.difference, mirrored.low, mirrored.high) == pytest.approx((-row.difference, -row.high, -row.low))


@pytest.mark.long
def test_runs_on_different_data_have_an_interval_over_runs_alone():
    other = {"sts12": DATA["sts12"], "stsb": {"test": pairs(80, 9)}}
    runs = [
        replace(one, measured=[similarity(4.0, one.cell.replicate["seed"], data=other)])
        if one.cell.row == "bad"
        else one
        for one in cells()
    ]
    rows = compared(build(STUDY, runs, resamples=RESAMPLES))
    row, values = rows["good", "bad", "stsb"], [of_task("good", "stsb")]
    values.append([one.measured[0].tasks["stsb"].spearman.wmean.score for one in runs if one.cell.row == "bad"])
    assert (row.low, row.high) == pytest.approx(stats.ttest_rel(*values).confidence_interval(), abs=1e-3)
    assert (row.units, row.reason) == (None, "interval over runs alone: the runs were tested on different data")
    assert (rows["good", "bad", "sts12"].units, rows["good", "bad", "average"].units) == (100, None)
    single = compared(build(STUDY, [runs[0], *runs[3:4]], resamples=RESAMPLES))["good", "bad", "stsb"]
    assert (single.low, single.reason) == (None, "no interval: the runs were tested on different data")


def grid(rows=("ce", "scl"), tasks=("x", "y"), **changes):
    axes = [{"name": "lambda", "values": [0, 0.3, 1.0], "labels": ["0", "0.3", "1.0"], "compare_with": "0"}]
    axes += [{"name": "task", "values": list(tasks), "average": True}]
    study = {"title": "t", "columns": ["mrpc", "seconds", "rate"], "axes": axes, "rows": [{"id": row} for row in rows]}
    runs = [
        run(
            row,
            {"lambda": label, "task": task},
            {"seed": seed},
            [classified(0.6 + 0.3 * float(label), seed), {"rate": 1}],
            seconds=1.0,
            key=f"{row} {label} {task} {seed}",
        )
        for row, label, task, seed in product(rows, ("0", "0.3", "1.0"), tasks, (1, 2))
    ]
    return {**study, **changes}, runs


def test_labels_of_an_axis_are_compared_with_one_of_them():
    study, runs = grid()
    rows = build(study, runs, resamples=RESAMPLES).comparisons
    places = [
        (row.first, row.first_coordinates["lambda"], row.second_coordinates["lambda"], row.first_coordinates["task"])
        for row in rows
    ]
    assert sorted(places) == sorted(
        (row, label, "0", task) for row in ("ce", "scl") for label in ("0.3", "1.0") for task in ("x", "y", "average")
    )
    assert all(row.first_coordinates["task"] == row.second_coordinates["task"] for row in rows)
    assert {row.column for row in rows} == {"mrpc"}  # neither seconds nor what the run measured


def test_a_row_without_an_axis_is_compared_at_each_of_its_labels():
    axes = [{"name": "lambda", "values": [0, 0.3]}]
    study = {**A_AND_B, "columns": ["x"], "compare_columns": ["x"], "axes": axes}
    runs = [run("a", {"lambda": label}, {}, [{"x": 1.0}]) for label in ("0", "0.3")]
    rows = build(study, [*runs, run("b", {}, {}, [{"x": 2.0}])], resamples=1).comparisons
    places = [(row.first_coordinates, row.second_coordinates) for row in rows]
    assert places == [({"lambda": label}, {}) for label in ("0", "0.3")]


@pytest.mark.long
def test_an_undefined_score_says_why():
    result = similarity(2.0, 1)
    undefined = replace(result, tasks={"sts12": result.tasks["sts12"]}, unavailable={"stsb": "the file is missing"})
    runs = [replace(one, measured=[undefined]) if one.cell.key == "bad1" else one for one in cells()]
    row = compared(build(STUDY, runs, resamples=RESAMPLES))["good", "bad", "stsb"]
    assert (row.difference, row.low, row.p, row.verdict) == (None, None, None, None)
    assert row.reason == "bad: the file is missing"


SIMILAR, CLASSIFIED = similarity(2.0, 1), classified(0.8, 1)
STS12, MRPC = SIMILAR.tasks["sts12"], CLASSIFIED.transfer.tasks["mrpc"]
GEOMETRY = geometry(2)
LEARNED = RelatednessScores(
    pairs=4,
    pearson=Estimate(60.0, 50.0, 70.0),
    spearman=Estimate(55.0, 45.0, 65.0),
    dev_pearson=81.5,
    gold=[1.0, 2.0, 3.0, 4.0],
    predicted_e6=[1, 3, 2, 4],
    digest="d",
)
RANKED = RetrievalScores(
    queries=2,
    documents=5,
    main="ndcg@10",
    measures={"ndcg@10": Estimate(50.0, 40.0, 60.0), "mrr@10": Estimate(40.0, 30.0, 50.0)},
    per_query={"ndcg@10": [0.25, 0.75], "mrr@10": [0.2, 0.6]},
    digest="q",
)
CELL = run(
    "a",
    measured=[
        replace(SIMILAR, unavailable={"sickr": "no file"}),
        CLASSIFIED,
        EvaluationResult(
            model="m",
            config={},
            tasks={},
            transfer=TransferResults(protocol="finetune", averages={}, tasks={"learned": LEARNED}),
            retrieval={"ranked": RANKED},
        ),
        GEOMETRY,
        {"updates_per_second": 2.5, "name": "text", "flag": True, "nothing": None},
    ],
    validation=77.0,
    seconds=12.5,
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("sts12", STS12.spearman.wmean.score),
        ("sts12.all", STS12.spearman.all.score),
        ("sts12.pearson.all", STS12.pearson.all.score),
        ("sts12.a", STS12.subsets["a"].spearman.score),
        ("sts12.b.c.pearson", STS12.subsets["b.c"].pearson.score),
        ("average:both.pearson", SIMILAR.averages["both"].pearson.wmean.score),
        ("average:one", MRPC.accuracy.score),
        ("mrpc.f1", MRPC.f1.score),
        ("mrpc.dev", 77.5),
        ("learned.spearman", 55.0),
        ("learned.dev", 81.5),
        ("ranked.mrr@10", 40.0),
        ("f1", MRPC.f1.score),
        ("score", MRPC.accuracy.score),
        ("uniformity", -1.7),
        ("layer.2.mean", 62.0),
        ("layer.0.cls", None),
        ("updates_per_second", 2.5),
        ("seconds", 12.5),
        ("sickr.pearson", None),
    ],
)
def test_value_of_a_column(column, expected):
    found = column_value(column, CELL, "wmean", {})
    assert found.value == (expected if expected is None else pytest.approx(expected))
    assert (found.reason is None) == (expected is not None)


UNKNOWN = """dog sts12.dog sts12.pearson.median sts12.a.f1 mrpc.spearman layer.3.mean layer.1.max average:no name flag
nothing stsb.test ranked.map@7 learned.f1 layer.x.mean"""


@pytest.mark.parametrize("column", UNKNOWN.split())
def test_columns_that_are_not_there(column):
    assert column_value(column, CELL, "all", {}) is ABSENT


def test_the_score_of_cola_is_matthews():
    entry = replace(MRPC, matthews=Estimate(40.0, 30.0, 50.0), dev_accuracy=None, dev_matthews=41.0)
    summary = FinetuningSummary(
        validation=41.0, metric="matthews", steps=20, best_step=10, seconds=2.0, updates_per_second=7.5
    )
    transfer = replace(CLASSIFIED.transfer, tasks={"cola": entry})
    cell = run("a", measured=[replace(CLASSIFIED, transfer=transfer, training=summary)])
    expected = {"score": 40.0, "cola.dev": 41.0, "updates_per_second": 7.5, "best_step": 10}
    assert {name: column_value(name, cell, "all", {}).value for name in expected} == expected


def test_a_metric_of_the_only_task_needs_a_single_task_and_the_last_result_counts():
    assert column_value("spearman", run("a", measured=[SIMILAR]), "all", {}) is ABSENT
    only = similarity(1.0, 1, data={"stsb": DATA["stsb"]})
    assert column_value("spearman", run("a", measured=[SIMILAR, only]), "all", {}).value is not None
    assert (
        column_value("stsb", run("a", measured=[SIMILAR, only]), "all", {}).value
        == only.tasks["stsb"].spearman.all.score
    )


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_f1_and_matthews_of_resamples_against_plain_loops(metric, monkeypatch):
    gold, predicted = [1, 1, 0, 0, 1, 0, 1], [1, 0, 0, 1, 1, 0, 1]
    counts = np.random.default_rng(0).multinomial(7, [1 / 7] * 7, size=20)
    monkeypatch.setattr("nearfar.studies.units.bootstrap_means", lambda values, **_: values @ counts.T / 7)
    data = TestData("t", metric, ("d",), np.array(gold), np.array(predicted), 1)
    drawn = Resampler([data], resamples=200, seed=0).of([data])
    for number, weights in enumerate(counts):
        confusion = {(g, p): 0 for g in (0, 1) for p in (0, 1)}
        for weight, g, p in zip(weights, gold, predicted, strict=True):
            confusion[g, p] += weight
        tn, fp, fn, tp = confusion.values()
        if metric == "f1":
            expected = 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else np.nan
        else:
            product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
            expected = (tp * tn - fp * fn) / product**0.5 if product else 0.0
        assert drawn[number] == pytest.approx(expected, abs=1e-6, nan_ok=True)


UNSEEN_STUDY = {
    "title": "A study",
    "columns": ["sts12", "stsb", "average", "average.unseen_by_all"],
    "compare": [["a", "b"]],
    "rows": [{"id": "a"}, {"id": "b"}, {"id": "plain"}],
}
KNOWN = {"a": DATA["sts12"]["a"][:8], "b": DATA["sts12"]["b.c"][30:]}
"""Row -> the pairs that its models were trained on. Both have the first 20 pairs of stsb as dev set."""
UNSEEN = {"sts12": np.r_[8:90], "stsb": np.r_[20:80]}
"""Task -> positions of the pairs that no run has seen."""


def trained(row, result):
    parts = (*row_hashes(KNOWN[row]), *row_hashes(DATA["stsb"]["test"][:20]))
    return add_seen(result, SeenHashes(*(np.unique(one) for one in parts)), similarity=DATA)


def runs(row):
    if row == "plain":
        return [similarity(6.0, 0)]
    return [trained(row, similarity({"a": 2.0, "b": 4.0}[row], seed)) for seed in (1, 2, 3)]


def cells_of(row, results):
    return [run(row, {}, {"seed": n}, [one], key=f"{row}{n}") for n, one in enumerate(results)]


UNSEEN_RUNS = [cell for row in ("a", "b", "plain") for cell in cells_of(row, runs(row))]


def unseen_spearman(result, task):
    gold, cosines = (
        np.array([x for subset in result.tasks[task].subsets.values() for x in getattr(subset, name)])[UNSEEN[task]]
        for name in ("gold", "cosines_e6")
    )
    return 100 * stats.spearmanr(gold, cosines).statistic


@pytest.mark.long
def test_all_rows_are_scored_and_compared_on_the_same_pairs():
    table = build(UNSEEN_STUDY, UNSEEN_RUNS, resamples=RESAMPLES)
    assert table.unseen_pairs == {"sts12": [82, 100], "stsb": [60, 80]}
    means = {}
    for row in ("a", "b", "plain"):
        expected = [np.mean([unseen_spearman(one, task) for task in UNSEEN]) for one in runs(row)]
        values = [cell.values["average.unseen_by_all"] for cell in table.cells if cell.row == row]
        assert values == pytest.approx(expected, abs=2e-4)
        assert values != pytest.approx([cell.values["average"] for cell in table.cells if cell.row == row], abs=0.01)
        means[row] = np.mean(expected)
    page = study_markdown(table)
    assert "Average, unseen pairs" in page
    assert "no run was trained on them or chosen by them, sts12 82 of 100, stsb 60 of 80." in page
    (row,) = [one for one in table.comparisons if one.column == "average.unseen_by_all"]
    assert row.difference == pytest.approx(means["a"] - means["b"], abs=2e-4)
    assert row.low < row.difference < row.high


def test_a_column_on_unseen_pairs_that_repeats_another_is_not_shown():
    some = [one for one in cells() if one.cell.row == "good"]
    study = {**STUDY, "columns": [*UNSEEN_STUDY["columns"], "stsb.unseen_by_all"], "compare": []}
    table = build(study, some, resamples=1)
    assert (table.columns, table.unseen_pairs) == (
        ["sts12", "stsb", "average"],
        {"stsb": [80, 80], "sts12": [100, 100]},
    )
    assert "chosen by them, stsb 80 of 80, sts12 100 of 100." in study_markdown(table)
    assert build({**study, "columns": ["stsb.unseen_by_all"]}, some, resamples=1).columns == ["stsb.unseen_by_all"]


def test_the_unseen_pairs_are_what_is_resampled():
    masks = seen_by_any(UNSEEN_RUNS)
    data = [column_value("sts12.unseen_by_all", UNSEEN_RUNS[place], "all", masks).data[0] for place in (0, 3)]
    for name, values in {"gold": data[0].gold, "cosines_e6": data[0].predicted}.items():
        subsets = [getattr(one, name) for one in UNSEEN_RUNS[0].measured[0].tasks["sts12"].subsets.values()]
        assert values.tolist() == [*subsets[0][8:], *subsets[1][:30]]
    assert data[0].group == data[1].group
    assert data[0].group != column_value("sts12.spearman.all", UNSEEN_RUNS[0], "all", {}).data[0].group
