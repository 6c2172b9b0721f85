"""Values, means and intervals of a study's table, against plain loops."""

import json
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.results import StudyTable, parse_result
from nearfar.studies.columns import Run
from nearfar.types import NearfarError
from tests.studies.cases import RESAMPLES, STUDY, build, cells, classified, geometry, similarity


@pytest.fixture(scope="module")
def table() -> StudyTable:
    return build(STUDY, cells(), resamples=RESAMPLES)


def group(table, row, **coordinates):
    (found,) = (one for one in table.groups if (one.row, one.coordinates) == (row, coordinates))
    return found


def scores_of(row, task, *, seeds=(1, 2, 3)):
    noise = {"bad": 4.0, "good": 2.0}[row]
    return [similarity(noise, seed).tasks[task].spearman.wmean.score for seed in seeds]


@pytest.mark.long
@pytest.mark.parametrize("row", ["bad", "good"])
def test_means_and_t_intervals_of_replicates(table, row):
    for task in ("sts12", "stsb"):
        values = scores_of(row, task)
        found = group(table, row).scores[task]
        assert found.mean == pytest.approx(sum(values) / 3, abs=1e-4)
        spread = (sum((value - sum(values) / 3) ** 2 for value in values) / 2) ** 0.5
        assert found.sd == pytest.approx(spread, abs=1e-4)
        half = stats.t.ppf(0.975, 2) * spread / 3**0.5
        assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half), abs=1e-3)
        assert (found.n, found.interval) == (3, "t over replicates")


def test_average_is_that_of_each_run(table):
    averages = [mean(pair) for pair in zip(scores_of("good", "sts12"), scores_of("good", "stsb"), strict=True)]
    found = group(table, "good").scores["average"]
    assert found.mean == pytest.approx(mean(averages), abs=1e-4)
    assert found.sd == pytest.approx(stdev(averages), abs=1e-4)
    values = [cell.values["average"] for cell in table.cells if cell.row == "good"]
    assert values == pytest.approx(averages, abs=1e-4)


def test_a_row_without_replicates_counts_once(table):
    found = group(table, "fixed")
    assert (found.runs, found.scores["stsb"].n, found.scores["stsb"].sd) == (1, 1, None)
    estimate = similarity(6.0, 0).tasks["stsb"].spearman.wmean
    score = found.scores["stsb"]
    assert (score.mean, score.low, score.high) == (estimate.score, estimate.low, estimate.high)
    assert score.interval == "bootstrap over pairs"
    assert [cell.chosen for cell in table.cells if cell.row == "fixed"] == [True, False, False]


def test_interval_of_the_average_of_a_single_run_resamples_each_task(table):
    score = group(table, "fixed").scores["average"]
    assert score.low < score.mean < score.high
    tasks = [group(table, "fixed").scores[task] for task in ("sts12", "stsb")]
    # independent tasks: the width is about that of the mean of two independent numbers
    expected = sum((one.high - one.low) ** 2 for one in tasks) ** 0.5 / 2
    assert score.high - score.low == pytest.approx(expected, rel=0.35)


def test_a_table_survives_its_file(table, tmp_path):
    table.save(tmp_path / "study.json")
    assert StudyTable.load(tmp_path / "study.json") == table
    assert parse_result(table.to_dict(), source="f") == table
    assert len(table.to_json()) < 10_000  # no cosines


def test_provenance_lists_all_distinct_values():
    changed = cells()[:2]
    other = replace(changed[0].results[0].provenance, commit="def", versions={"torch": "2.8.0"}, date="2023-05-06")
    changed[0] = replace(changed[0], results=[replace(changed[0].results[0], provenance=other)])
    runs = build(STUDY, changed, resamples=1).runs
    assert runs.commits == {"abc1234": 1, "def": 1}
    assert runs.versions["torch"] == {"2.8.0": 1, "2.9.0": 1}
    assert (runs.first_date, runs.last_date) == ("2023-05-06", "2024-01-02T03:04:05+00:00")
    assert runs.hardware[0]["results"] == 2


@pytest.mark.long
def test_missing_runs_are_listed_and_left_out_of_means():
    some = cells()
    some[1] = Run("bad", {}, {"seed": 2}, missing="failed: out of memory")
    table = build(STUDY, some, resamples=RESAMPLES)
    assert [(one.row, one.replicate, one.reason) for one in table.missing] == [
        ("bad", {"seed": 2}, "failed: out of memory")
    ]
    found = group(table, "bad")
    assert (found.runs, found.missing) == (2, 1)
    assert found.scores["stsb"].mean == pytest.approx(mean(scores_of("bad", "stsb", seeds=(1, 3))), abs=1e-4)


def best_cells(**changes):
    study = {"title": "t", "columns": ["accuracy"], "rows": [{"id": "ce"}], "best": {"count": 2, "by": "validation"}}
    validation = [70.0, 90.0, 80.0, 60.0]
    some = [
        Run("ce", {}, {"seed": seed}, [classified(0.6 + 0.05 * seed, seed)], validation=score, key=f"{seed}")
        for seed, score in enumerate(validation)
    ]
    return study | changes, some


def test_only_the_best_replicates_by_validation_enter():
    study, some = best_cells()
    table = build(study, some, resamples=RESAMPLES)
    accuracies = [one.results[0].transfer.tasks["mrpc"].accuracy.score for one in some]
    found = table.groups[0].scores["accuracy"]
    assert found.mean == pytest.approx(mean([accuracies[1], accuracies[2]]), abs=1e-4)
    assert found.n == 2
    assert [cell.chosen for cell in table.cells] == [False, True, True, False]
    assert [cell.validation for cell in table.cells] == [70.0, 90.0, 80.0, 60.0]


def test_ties_on_validation_are_broken_by_the_first_replicates():
    study, some = best_cells()
    table = build(study, [replace(one, validation=50.0) for one in some], resamples=RESAMPLES)
    assert [cell.chosen for cell in table.cells] == [True, True, False, False]


def test_the_best_replicates_need_a_validation_score():
    study, some = best_cells()
    some[2] = replace(some[2], validation=None)
    with pytest.raises(NearfarError, match=r"row ce \(seed = 2\) has no validation score"):
        build(study, some, resamples=1)


AXES = [
    {"name": "noise", "values": ["none", "drop", "swap"], "as": "columns", "average": ["drop", "swap"]},
    {"name": "task", "labels": ["a", "b"], "values": ["x", "y"]},
]


def on_axes(**changes):
    study = {"title": "t", "columns": ["accuracy"], "axes": AXES, "rows": [{"id": "ce"}, {"id": "scl"}], **changes}
    some = [
        Run(
            row,
            {"noise": noise, "task": task},
            {"seed": seed},
            [classified(0.6 + 0.05 * place, 10 * seed + (row == "scl"))],
            validation=50.0 + (7 * seed + 3 * place) % 5,
            key=f"{row}{noise}{task}{seed}",
        )
        for row in ("ce", "scl")
        for place, noise in enumerate(("none", "drop", "swap"))
        for task in ("a", "b")
        for seed in (1, 2, 3)
    ]
    return study, some


def accuracy(cell):
    return cell.results[0].transfer.tasks["mrpc"].accuracy.score


def test_average_over_an_axis_is_that_of_each_replicate():
    study, some = on_axes()
    table = build(study, some, resamples=RESAMPLES)
    for row in ("ce", "scl"):
        for task in ("a", "b"):
            values = [
                mean(
                    accuracy(one)
                    for one in some
                    if (one.row, one.coordinates["task"], one.replicate["seed"]) == (row, task, seed)
                    and one.coordinates["noise"] != "none"
                )
                for seed in (1, 2, 3)
            ]
            found = group(table, row, noise="average", task=task).scores["accuracy"]
            assert found.mean == pytest.approx(mean(values), abs=1e-4)
            assert found.sd == pytest.approx(stdev(values), abs=1e-4)
    assert [one.coordinates["noise"] for one in table.groups[:8]] == ["none"] * 2 + ["drop"] * 2 + ["swap"] * 2 + [
        "average"
    ] * 2


def test_average_over_an_axis_without_one_of_its_labels_has_no_mean():
    study, some = on_axes()
    some = [
        replace(one, results=[], missing="not run") if one.coordinates["noise"] == "swap" and one.row == "ce" else one
        for one in some
    ]
    table = build(study, some, resamples=RESAMPLES)
    found = group(table, "ce", noise="average", task="a")
    assert (found.runs, found.missing, found.scores["accuracy"].mean) == (0, 3, None)
    assert group(table, "scl", noise="average", task="a").runs == 3


def test_paper_numbers_by_labels_and_for_all_labels():
    paper = [{"task": "a", "accuracy": 80.5}, {"task": "a", "noise": "drop", "accuracy": [79, 1.5]}]
    paper.append({"task": "b", "noise": "average", "accuracy": 70.0})
    study, some = on_axes(rows=[{"id": "ce", "paper": paper}, {"id": "scl"}])
    table = build(study, some, resamples=1)

    def number(noise, task):
        return group(table, "ce", noise=noise, task=task).scores["accuracy"].paper

    assert (number("none", "a"), number("drop", "a"), number("swap", "a")) == (80.5, 79.0, 80.5)
    assert (number("average", "a"), number("average", "b"), number("drop", "b")) == (None, 70.0, None)


def test_geometry_of_several_runs_is_averaged():
    study = {"title": "t", "columns": ["uniformity", "layer.2.mean"], "rows": [{"id": "a"}]}
    runs = [Run("a", {}, {"seed": seed}, [geometry(seed)], key=f"{seed}") for seed in (1, 2)]
    found = build(study, runs, resamples=1).groups[0]
    assert found.scores["uniformity"].mean == pytest.approx(-1.65)
    assert found.layers == {"cls": [None, 21.5, 30.0], "mean": [40.0, 50.0, 61.5]}
    expected = np.mean([geometry(seed).models["m"].spectrum for seed in (1, 2)], axis=0)
    indices = [index for index, _ in found.spectrum]
    assert indices == sorted(set(indices))
    assert (indices[0], indices[-1]) == (1, 100)
    assert 30 < len(indices) <= 60
    for index, value in found.spectrum:
        assert value == pytest.approx(expected[index - 1], rel=1e-3)


def test_curves_are_averaged_at_shared_steps():
    study = {"title": "t", "columns": ["uniformity"], "rows": [{"id": "a"}]}
    points = {1: [(0, 1.0), (10, 2.0), (20, 3.0)], 2: [(0, 2.0), (20, 5.0), (30, 6.0)]}
    runs = [
        Run("a", {}, {"seed": seed}, [geometry(seed)], key=f"{seed}", curves={"loss": points[seed]}) for seed in (1, 2)
    ]
    curve = build(study, runs, resamples=1).groups[0].curves["loss"]
    assert (curve.steps, curve.mean) == ([0, 20], [1.5, 4.0])
    assert curve.sd == pytest.approx([0.5**0.5, 2**0.5], abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns": ["stsb", "dog"]},
            r"column 'dog': no run of the study has it; there are sts12, stsb, average:both",
        ),
        ({"columns": ["average", "seconds"]}, "column 'average': the study has no column that is a task"),
    ],
)
def test_what_a_study_cannot_have(changes, message):
    with pytest.raises(NearfarError, match=message):
        build({**STUDY, **changes}, cells(seeds=(1,)), resamples=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["study"].pop("rows"), "study.rows is not a list of rows with ids"),
        (lambda content: content["study"]["rows"].pop(0), "study.rows lacks the row 'bad'"),
        (lambda content: content["groups"][1]["scores"].pop("stsb"), r"groups\[1\]\.scores lacks 'stsb'"),
        (lambda content: content["groups"][0].update(spectrum=[[1.0]]), "spectrum does not hold pairs"),
        (lambda content: content["comparisons"][0].update(first="cat"), "study.rows lacks the row 'cat'"),
        (lambda content: content.pop("cells"), "lacks 'cells'"),
    ],
)
def test_a_damaged_record_is_refused(table, change, message):
    content = json.loads(table.to_json())
    change(content)
    with pytest.raises(NearfarError, match=message):
        StudyTable.from_dict(content, source="study.json")
