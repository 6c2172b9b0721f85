"""Retrieval in reports: a column for each task, marks by comparisons of the same measure, the headline."""

from dataclasses import replace

import numpy as np

from nearfar.evaluation.comparison import compare_runs
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import Details
from nearfar.evaluation.report.columns import SignificanceLookup
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs
from nearfar.evaluation.report.page import summary
from nearfar.evaluation.report.scores import retrieval
from nearfar.evaluation.results import EvaluationResult
from tests.evaluation.report.cases import ranked

QUERIES = np.random.default_rng(0).random(50).round(6)


def side(name, values, *, main="ndcg@10"):
    return EvaluatedModel(name, (ranked(values, name=name, main=main),))


GOOD = side("good", {"a": np.minimum(QUERIES + 0.2, 1), "b": QUERIES})
BAD = side("bad", {"a": QUERIES, "b": QUERIES[::-1]})


def lookup(*sides, measure=None):
    computed = compare_runs(*(one.runs for one in sides), measure=measure, resamples=200)
    return SignificanceLookup(sides, computed=computed)


def test_a_column_for_each_task_and_the_average():
    main, more = retrieval([GOOD, BAD], lookup(GOOD, BAD))
    assert isinstance(main, Table)
    assert main.columns == ["model", "a, ndcg@10", "b, ndcg@10", "average of these 2"]
    score = GOOD.runs[0].result.retrieval["a"].compared.score
    assert main.rows[0][1] == Cell(f"{score:.2f}", f"[{score - 1:.1f}, {score + 1:.1f}]", "best")
    assert main.rows[1][1].mark == ""  # significantly worse
    assert [row[2].mark for row in main.rows] == ["best", "best"]  # the same mean
    assert isinstance(more, Details)


def test_a_comparison_of_another_measure_marks_nothing():
    table = retrieval([GOOD, BAD], lookup(GOOD, BAD, measure="mrr@10"))[0]
    assert any("no comparison tests whether the difference is significant" in note for note in table.notes)
    by_mrr = [side("good", {"a": QUERIES}, main="mrr@10"), side("bad", {"a": QUERIES - 0.001}, main="mrr@10")]
    noisy = [by_mrr[0], side("bad", {"a": np.roll(QUERIES, 1) - 0.001}, main="mrr@10")]
    assert retrieval(noisy, lookup(*noisy))[0].rows[1][1].mark == "near"


def test_the_headline_and_models_without_retrieval():
    other = EvaluatedModel("other", (EvaluationRun("o.json", EvaluationResult(model="o", config={}, tasks={})),))
    lines = summary(ReportInputs(sides=[GOOD, BAD, other]), lookup(GOOD, BAD), "all")
    assert lines[0].startswith("Retrieval, average of these 2 (means over queries × 100): the best of 2 is good with")
    assert "It is significantly better than bad" in lines[0]
    assert retrieval([other], SignificanceLookup([other])) == []


def test_tasks_of_different_measures_have_no_average():
    first, second = side("m", {"a": QUERIES}), side("m", {"b": QUERIES}, main="mrr@10")
    tasks = first.runs[0].result.retrieval | second.runs[0].result.retrieval
    both = EvaluationRun("m.json", replace(first.runs[0].result, retrieval=tasks))
    table = retrieval([EvaluatedModel("m", (both,))], SignificanceLookup([]))[0]
    assert table.columns == ["model", "a, ndcg@10", "b, mrr@10"]
