"""Columns on the pairs that no run of a study has seen, against evaluations and comparisons of these pairs alone."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.data.fingerprints import row_hashes
from nearfar.disk import SeenHashes
from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.correlation import scores, weighted_spearman
from nearfar.evaluation.results import AggregateEstimates, Estimate, EvaluationResult, digest, parse_result
from nearfar.evaluation.seen import add_seen
from nearfar.studies.columns import Run
from nearfar.studies.page import study_markdown
from nearfar.types import NearfarError
from tests.studies.cases import DATA, RESAMPLES, build, similarity

STUDY = {
    "title": "A study",
    "columns": ["sts12", "stsb", "average", "average.unseen_by_all"],
    "compare": [["a", "b"]],
    "rows": [{"id": "a"}, {"id": "b"}, {"id": "plain"}],
}
KNOWN = {"a": DATA["sts12"]["a"][:8], "b": DATA["sts12"]["b.c"][30:]}
"""Row -> the pairs that its models were trained on. Both have the first 20 pairs of stsb as dev set."""
REST = {
    "sts12": {"a": DATA["sts12"]["a"][8:], "b.c": DATA["sts12"]["b.c"][:30]},
    "stsb": {"test": DATA["stsb"]["test"][20:]},
}


def trained(row: str, result: EvaluationResult) -> EvaluationResult:
    parts = (*row_hashes(KNOWN[row]), *row_hashes(DATA["stsb"]["test"][:20]))
    return add_seen(result, SeenHashes(*(np.unique(one) for one in parts)), similarity=DATA)


def runs(row: str) -> list[EvaluationResult]:
    if row == "plain":
        return [similarity(6.0, 0)]
    return [trained(row, similarity({"a": 2.0, "b": 4.0}[row], seed)) for seed in (1, 2, 3)]


def cells_of(row: str, results: list[EvaluationResult]) -> list[Run]:
    return [Run(row, {}, {"seed": n}, [one], key=f"{row}{n}") for n, one in enumerate(results)]


CELLS = [cell for row in ("a", "b", "plain") for cell in cells_of(row, runs(row))]


def without_known(result: EvaluationResult) -> EvaluationResult:
    """The scores on the rest of the pairs, from the stored cosines."""
    kept = {"sts12": {"a": slice(8, None), "b.c": slice(0, 30)}, "stsb": {"test": slice(20, None)}}
    tasks = {}
    for task, scored in result.tasks.items():
        subsets = {
            name: replace(
                one,
                pairs=len(REST[task][name]),
                digest=digest(REST[task][name]),
                gold=one.gold[kept[task][name]],
                cosines_e6=one.cosines_e6[kept[task][name]],
            )
            for name, one in scored.subsets.items()
        }
        gold = np.array([x for one in subsets.values() for x in one.gold])
        cosines = np.array([x for one in subsets.values() for x in one.cosines_e6], dtype=np.float64)
        point = 100 * float(scores(weighted_spearman, gold, cosines[None], sizes=[len(gold)]).all[0, 0])
        estimate = Estimate(round(point, 4), None, None)
        whole = AggregateEstimates(all=estimate, mean=estimate, wmean=estimate)
        tasks[task] = replace(scored, pairs=len(gold), spearman=whole, subsets=subsets, seen=None, unseen=None)
    return replace(result, tasks=tasks, averages={})


@pytest.mark.long
def test_all_rows_are_scored_on_the_same_pairs() -> None:
    table = build(STUDY, CELLS, resamples=RESAMPLES)
    assert table.unseen_pairs == {"sts12": [82, 100], "stsb": [60, 80]}
    for row in ("a", "b", "plain"):
        expected = [
            np.mean([scored.spearman.all.score for scored in without_known(one).tasks.values()]) for one in runs(row)
        ]
        found = [cell.values["average.unseen_by_all"] for cell in table.cells if cell.row == row]
        assert found == pytest.approx(expected, abs=2e-4)
        assert found != pytest.approx([cell.values["average"] for cell in table.cells if cell.row == row], abs=0.01)
    page = study_markdown(table)
    assert "Average, unseen pairs" in page
    assert "no run was trained on them or chosen by them, sts12 82 of 100, stsb 60 of 80." in page


@pytest.mark.long
def test_rows_are_compared_over_the_same_pairs() -> None:
    table = build(STUDY, CELLS, resamples=RESAMPLES)
    (row,) = [one for one in table.comparisons if one.column == "average.unseen_by_all"]
    sides = [[EvaluationRun(name, without_known(one)) for one in runs(name)] for name in ("a", "b")]
    expected = compare_runs(*sides, resamples=RESAMPLES).overall
    assert expected is not None
    assert row.difference == pytest.approx(expected.difference, abs=2e-4)
    assert row.pairs is not None
    assert (row.pairs.low, row.pairs.high) == pytest.approx((expected.low, expected.high), abs=1e-3)
    assert row.pairs.p == expected.p
    assert row.seeds is not None
    assert row.seeds.p == pytest.approx(expected.seeds.p, abs=1e-4)


def test_one_task_is_a_column_too_and_stays_out_of_the_average() -> None:
    study = {**STUDY, "columns": ["stsb", "stsb.unseen_by_all", "average"], "compare": []}
    table = build(study, CELLS, resamples=RESAMPLES)
    for cell in table.cells:
        assert cell.values["average"] == cell.values["stsb"] != cell.values["stsb.unseen_by_all"]
    single = next(group for group in table.groups if group.row == "plain").scores["stsb.unseen_by_all"]
    assert single.low < single.mean < single.high


def test_the_column_needs_a_similarity_task() -> None:
    study = {"title": "t", "columns": ["sts12.pearson", "average.unseen_by_all"], "rows": [{"id": "plain"}]}
    with pytest.raises(NearfarError, match="has no column that is a similarity task"):
        build(study, cells_of("plain", runs("plain")), resamples=RESAMPLES)


@pytest.mark.parametrize("wrong", [[3, 2], [1, 1], [-1], [100]])
def test_wrong_positions_are_refused(wrong: list[int]) -> None:
    content = runs("a")[0].to_dict()
    content["tasks"]["sts12"]["unseen"]["seen_pairs"] = wrong
    with pytest.raises(NearfarError, match="seen_pairs"):
        parse_result(content, source="old.json")
