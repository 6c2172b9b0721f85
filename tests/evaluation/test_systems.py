"""Systems that any tool scored: tests of pairs, ranks, means over tasks, and run files measured as trec_eval does."""

import numpy as np
import pytest
from scipy import stats

from nearfar.data.unit_scores import Systems, UnitScores
from nearfar.evaluation.systems import NO_DOCUMENTS, NOT_JUDGED, compare_systems, score_runs
from nearfar.evaluation.tables.comparison import comparison_tables
from nearfar.types import NearfarError

RNG = np.random.default_rng(5)
BASE = RNG.normal(0.5, 0.2, 200)


FEW_POINTS = 0.1
"""A range of scores with which the interval is that of a t-test: no unit that was not seen can differ by much."""


def given(tasks, points=100.0):
    """Task -> system -> scores [runs, units], as a table has them; ``clusters`` are those of the units."""
    read = {}
    for task, systems in tasks.items():
        clusters = np.arange(200) if "clusters" not in systems else systems["clusters"]
        scores = {name: np.atleast_2d(values) for name, values in systems.items() if name != "clusters"}
        runs = [(name, str(seed)) for name, values in scores.items() for seed in range(len(values))]
        read[task] = UnitScores(runs, np.concatenate(list(scores.values())), clusters, "score x 100")
    names = dict.fromkeys(name for one in read.values() for name, _ in one.runs)
    return Systems(read, dict.fromkeys(names, "board.tsv"), {}, points)


def noisy(shift, spread=0.05, runs=None, units=200):
    return BASE[:units] + shift + RNG.normal(0, spread, (runs, units) if runs else units)


def only(result):
    (tests,) = result.comparisons
    return next(iter(tests.tasks.values()))


@pytest.mark.long
def test_units_of_a_cluster_are_drawn_together():
    together = np.repeat(RNG.normal(0, 0.1, 40), 5)  # what the five units of a cluster share
    a, b = BASE + together + RNG.normal(0, 0.02, 200), BASE
    apart = only(compare_systems(given({"t": {"a": a, "b": b}}, FEW_POINTS)))
    row = only(compare_systems(given({"t": {"a": a, "b": b, "clusters": np.arange(200) // 5}}, FEW_POINTS)))
    expected = stats.ttest_1samp((a - b).reshape(40, 5).mean(axis=1), 0).confidence_interval(0.95)
    assert (row.low, row.high) == pytest.approx((100 * expected.low, 100 * expected.high), rel=0.08, abs=0.1)
    assert (row.units, row.pairs) == (40, 200)
    assert row.high - row.low > 1.5 * (apart.high - apart.low)


def test_systems_that_are_not_told_apart_share_ranks_and_the_best_side_comes_first():
    shifts = {"low": -0.1, "top": 0.1, "peak": 0.101, "base": -0.099, "middle": 0}
    result = compare_systems(given({"t": {name: noisy(shift) for name, shift in shifts.items()}}), resamples=2000)
    names = [side.name for side in result.sides]
    ranks = {side.name: (side.ranks["t"].best_rank, side.ranks["t"].worst_rank) for side in result.sides}
    assert ranks == {"top": (1, 2), "peak": (1, 2), "middle": (3, 3), "low": (4, 5), "base": (4, 5)}
    assert {*names[:2]} == {"top", "peak"}
    assert names[2] == "middle"
    scores = [side.ranks["t"] for side in result.sides]
    assert all(one.low < one.score < one.high for one in scores)
    rows = comparison_tables(result)[0].rows
    assert [row[2] for row in rows] == ["1 to 2", "1 to 2", "3", "4 to 5", "4 to 5"]


@pytest.mark.long
def test_the_mean_over_tasks_is_of_systems_that_have_all():
    a, b, c = ({task: noisy(shift) for task in "xy"} for shift in (0.2, 0.1, 0))
    result = compare_systems(given({"x": {"a": a["x"], "b": b["x"], "c": c["x"]}, "y": {"a": a["y"], "b": b["y"]}}))
    assert [side.name for side in result.sides] == ["a", "b", "c"]
    first, second, third = result.comparisons
    expected = np.mean([a[task].mean() - b[task].mean() for task in "xy"])
    assert first.overall.difference == pytest.approx(100 * expected, abs=1e-4)
    assert first.overall.tasks == ["x", "y"]
    assert first.overall.high - first.overall.low < first.tasks["x"].high - first.tasks["x"].low
    assert second.tasks["x"].verdict == "better"
    assert second.tasks["y"].difference is second.overall.difference is third.overall.difference is None
    assert "c, seed 0, has no scores on y" in second.overall.reason
    assert result.sides[2].overall_rank.best_rank is None
    assert (result.sides[2].ranks["x"].best_rank, result.sides[1].overall_rank.worst_rank) == (3, 2)


@pytest.mark.parametrize(
    ("tasks", "settings", "message"),
    [
        ({"t": {"a": BASE}}, {}, "board.tsv: has scores of one system only, a"),
        ({"t": {"a": BASE, "b": BASE, "clusters": np.zeros(200, int)}}, {}, "task t has a single unit, or cluster"),
        ({"t": {"a": BASE, "b": BASE}}, {"tasks": ["u"]}, "--tasks: there is no task u, only t"),
    ],
)
def test_what_cannot_be_compared(tasks, settings, message):
    with pytest.raises(NearfarError, match=message):
        compare_systems(given(tasks), **settings)


def write_run(file, rankings, tag="t"):
    lines = [f"{query} Q0 {name} 0 {score} {tag}" for query, scores in rankings.items() for name, score in scores]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def ranked(tmp_path):
    """Two runs with ties on six queries, one of which the second lacks and one of which is not judged."""
    rng = np.random.default_rng(3)
    runs = [
        {f"q{q}": [(f"d{d}", round(float(rng.normal()), 1)) for d in rng.permutation(300)[:150]] for q in range(6)}
        for _ in range(2)
    ]
    del runs[1]["q2"]
    grades = {f"q{q}": {f"d{d}": int(rng.integers(-1, 4)) for d in rng.permutation(300)[:40]} for q in range(5)}
    qrels = tmp_path / "qrels.txt"
    qrels.write_text(
        "".join(f"{q} 0 {d} {grade}\n" for q, judged in grades.items() for d, grade in judged.items()), encoding="utf-8"
    )
    files = [write_run(tmp_path / f"{name}.run", run, tag) for run, name, tag in zip(runs, "ab", "AB", strict=True)]
    return runs, grades, files, qrels


TREC_NAMES = {"ndcg@10": "ndcg_cut.10", "map@100": "map_cut.100", "recall@10": "recall.10"}


@pytest.mark.parametrize("measure", TREC_NAMES)
def test_run_files_are_measured_query_by_query_as_trec_eval_does(ranked, measure):
    trec = pytest.importorskip("pytrec_eval")
    runs, grades, files, qrels = ranked
    found = score_runs(files, qrels, measure)
    (scores,) = found.tasks.values()
    judge, name = trec.RelevanceEvaluator(grades, {TREC_NAMES[measure]}), TREC_NAMES[measure].replace(".", "_")
    evaluated = [judge.evaluate({query: dict(hits) for query, hits in run.items()}) for run in runs]
    expected = [[of_run[query][name] if query in of_run else 0 for query in sorted(grades)] for of_run in evaluated]
    np.testing.assert_allclose(scores.values, expected, atol=1e-9)
    assert [name for name, _ in scores.runs] == ["A", "B"]
    assert found.counts == {"A": {NOT_JUDGED: 1}, "B": {NO_DOCUMENTS: 1, NOT_JUDGED: 1}}
    result = compare_systems(found, measure=measure, resamples=500)
    assert only(result).difference == pytest.approx(100 * abs(np.mean(expected[0]) - np.mean(expected[1])), abs=1e-4)
    assert only(result).kind == "retrieval"


def test_run_files_and_judgements_that_do_not_belong_together(ranked, tmp_path):
    runs, _, (first, second), qrels = ranked
    other = write_run(tmp_path / "other.run", {f"x{query}": found for query, found in runs[0].items()})
    with pytest.raises(NearfarError, match=r"other.run: .*qrels.txt has relevant documents for none of its queries"):
        score_runs([first, other], qrels, "ndcg@10")
    with pytest.raises(NearfarError, match=r"a.run: is given twice"):
        score_runs([first, second, first], qrels, "ndcg@10")
    qrels.write_text("q1 0 d1 0\n", encoding="utf-8")
    with pytest.raises(NearfarError, match="no query has a relevant document, one with a grade above 0"):
        score_runs([first, second], qrels, "ndcg@10")
