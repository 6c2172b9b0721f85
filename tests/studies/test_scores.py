"""Each kind of column is the number of the result that it names; those on unseen pairs, against these pairs alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nearfar.data.fingerprints import row_hashes
from nearfar.disk.model_folder import SeenHashes
from nearfar.evaluation.correlation import bootstrap_scores, weighted_pearson
from nearfar.evaluation.results import (
    Estimate,
    EvaluationResult,
    FinetuningSummary,
    RelatednessScores,
    RetrievalScores,
    TransferResults,
    parse_result,
)
from nearfar.evaluation.seen import add_seen
from nearfar.studies.page import study_markdown
from nearfar.studies.scores import Resampler, Run, TestData, UnseenByAll, available_columns, column_values
from nearfar.types import NearfarError
from tests.studies.cases import DATA, RESAMPLES, build, classified, geometry, similarity

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
CELL = Run(
    "a",
    results=[
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


def column_value(column, run, aggregate):
    return column_values(run, [column], aggregate)[column]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("sts12", STS12.spearman.wmean.score),
        ("sts12.all", STS12.spearman.all.score),
        ("sts12.spearman.mean", STS12.spearman.mean.score),
        ("sts12.pearson", STS12.pearson.wmean.score),
        ("sts12.pearson.all", STS12.pearson.all.score),
        ("sts12.a", STS12.subsets["a"].spearman.score),
        ("sts12.b.c", STS12.subsets["b.c"].spearman.score),
        ("sts12.b.c.pearson", STS12.subsets["b.c"].pearson.score),
        ("average:both", SIMILAR.averages["both"].spearman.wmean.score),
        ("average:both.pearson", SIMILAR.averages["both"].pearson.wmean.score),
        ("average:one", MRPC.accuracy.score),
        ("mrpc", MRPC.accuracy.score),
        ("mrpc.f1", MRPC.f1.score),
        ("mrpc.dev", 77.5),
        ("mrpc.dev_accuracy", 77.5),
        ("learned", 60.0),
        ("learned.spearman", 55.0),
        ("learned.dev", 81.5),
        ("ranked", 50.0),
        ("ranked.mrr@10", 40.0),
        ("accuracy", MRPC.accuracy.score),
        ("f1", MRPC.f1.score),
        ("score", MRPC.accuracy.score),
        ("uniformity", -1.7),
        ("alignment", 0.2),
        ("layer.2.mean", 62.0),
        ("layer.0.cls", None),
        ("updates_per_second", 2.5),
        ("validation", 77.0),
        ("seconds", 12.5),
        ("sickr", None),
        ("sickr.pearson", None),
    ],
)
def test_value_of_a_column(column, expected):
    found = column_value(column, CELL, "wmean")
    assert found is not None
    assert found.value == (expected if expected is None else pytest.approx(expected))
    assert (found.reason is None) == (expected is not None)


UNKNOWN = """dog sts12.dog sts12.pearson.median sts12.a.f1 mrpc.spearman layer.3.mean layer.1.max average:no name flag
nothing stsb.test ranked.map@7 learned.f1 layer.x.mean"""


@pytest.mark.parametrize("column", UNKNOWN.split())
def test_columns_that_are_not_there(column):
    assert column_value(column, CELL, "all") is None


def test_the_score_of_cola_is_matthews():
    entry = replace(MRPC, matthews=Estimate(40.0, 30.0, 50.0), dev_accuracy=None, dev_matthews=41.0)
    transfer = replace(CLASSIFIED.transfer, tasks={"cola": entry})
    summary = FinetuningSummary(
        validation=41.0, metric="matthews", steps=20, best_step=10, seconds=2.0, updates_per_second=7.5
    )
    cell = Run("a", results=[replace(CLASSIFIED, transfer=transfer, training=summary)])
    assert column_value("score", cell, "all").value == 40.0
    assert column_value("cola.dev", cell, "all").value == 41.0
    assert column_value("updates_per_second", cell, "all").value == 7.5
    assert column_value("best_step", cell, "all").value == 10
    by_accuracy = replace(CLASSIFIED, transfer=transfer, training=replace(summary, metric="accuracy"))
    assert column_value("score", Run("a", results=[by_accuracy]), "all").value == MRPC.accuracy.score


def test_a_metric_of_the_only_task_needs_a_single_task_and_the_last_result_counts():
    assert column_value("spearman", Run("a", results=[SIMILAR]), "all") is None
    only = similarity(1.0, 1, data={"stsb": DATA["stsb"]})
    assert column_value("spearman", Run("a", results=[SIMILAR, only]), "all").value is not None
    assert column_value("stsb", Run("a", results=[SIMILAR, only]), "all").value == only.tasks["stsb"].spearman.all.score


def test_available_columns_are_columns():
    names = available_columns([CELL])
    assert {"sts12", "stsb", "mrpc", "average:both", "average:one", "uniformity", "updates_per_second"} <= set(names)
    assert not {"name", "flag", "nothing"} & set(names)
    assert all(name == "average" or column_value(name, CELL, "all") is not None for name in names)


def draws(data: TestData, *others: TestData) -> np.ndarray:
    return Resampler([data, *others], resamples=200, seed=0).of([data])


def test_draws_of_a_correlation_are_those_of_the_bootstrap():
    (data,) = column_value("sts12.pearson.wmean", CELL, "all").data
    subsets = STS12.subsets.values()
    gold = np.array([score for one in subsets for score in one.gold])
    cosines = np.array([[cosine for one in subsets for cosine in one.cosines_e6]], dtype=float)
    expected = bootstrap_scores(weighted_pearson, gold, cosines, sizes=[60, 40], resamples=200, seed=[0, *b"sts12"])
    assert draws(data) == pytest.approx(expected.aggregate("wmean")[0], abs=1e-6)


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_f1_and_matthews_of_resamples_against_plain_loops(metric, monkeypatch):
    gold, predicted = [1, 1, 0, 0, 1, 0, 1], [1, 0, 0, 1, 1, 0, 1]
    counts = np.random.default_rng(0).multinomial(7, [1 / 7] * 7, size=20)
    monkeypatch.setattr("nearfar.studies.scores.bootstrap_means", lambda values, **_: values @ counts.T / 7)
    drawn = draws(TestData("t", metric, ("d",), [gold], [predicted], 1))
    for number, weights in enumerate(counts):
        confusion = {(g, p): 0 for g in (0, 1) for p in (0, 1)}
        for weight, g, p in zip(weights, gold, predicted, strict=True):
            confusion[g, p] += weight
        tn, fp, fn, tp = confusion.values()
        if metric == "f1":
            expected = 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else np.nan
        else:
            product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
            expected = (tp * tn - fp * fn) / product**0.5 if product else np.nan
        assert drawn[number] == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_the_same_result_in_two_columns_is_resampled_once():
    one, other = column_value("mrpc", CELL, "all"), column_value("average:one", CELL, "all")
    resampler = Resampler([*one.data, *other.data], resamples=10, seed=0)
    assert len(resampler._draws) == 1
    assert resampler.of(one.data).tolist() == resampler.of(other.data).tolist()


STUDY = {
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
    return [Run(row, {}, {"seed": n}, [one], key=f"{row}{n}") for n, one in enumerate(results)]


UNSEEN_RUNS = [cell for row in ("a", "b", "plain") for cell in cells_of(row, runs(row))]


def unseen_spearman(result, task):
    gold, cosines = (
        np.array([x for subset in result.tasks[task].subsets.values() for x in getattr(subset, name)])[UNSEEN[task]]
        for name in ("gold", "cosines_e6")
    )
    return 100 * stats.spearmanr(gold, cosines).statistic


@pytest.mark.long
def test_all_rows_are_scored_and_compared_on_the_same_pairs():
    table = build(STUDY, UNSEEN_RUNS, resamples=RESAMPLES)
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
    assert row.pairs.low < row.difference < row.pairs.high
    assert row.seeds.test == "paired t-test over seeds"


def test_the_unseen_pairs_are_what_is_resampled():
    unseen = UnseenByAll(UNSEEN_RUNS)
    data = [unseen.column("sts12.unseen_by_all", UNSEEN_RUNS[place]).data[0] for place in (0, 3)]
    for name in ("gold", "cosines_e6"):
        subsets = [getattr(one, name) for one in UNSEEN_RUNS[0].results[0].tasks["sts12"].subsets.values()]
        assert getattr(data[0], {"gold": "gold"}.get(name, "predicted")) == [subsets[0][8:], subsets[1][:30]]
    assert data[0].group == data[1].group
    assert data[0].group != column_value("sts12.spearman.all", UNSEEN_RUNS[0], "all").data[0].group


def test_one_task_is_a_column_too_and_stays_out_of_the_average():
    study = {**STUDY, "columns": ["stsb", "stsb.unseen_by_all", "average"], "compare": []}
    table = build(study, UNSEEN_RUNS, resamples=RESAMPLES)
    for cell in table.cells:
        assert cell.values["average"] == cell.values["stsb"] != cell.values["stsb.unseen_by_all"]
    single = next(group for group in table.groups if group.row == "plain").scores["stsb.unseen_by_all"]
    assert single.low < single.mean < single.high


def test_the_column_needs_a_similarity_task():
    study = {"title": "t", "columns": ["sts12.pearson", "average.unseen_by_all"], "rows": [{"id": "plain"}]}
    with pytest.raises(NearfarError, match="has no column that is a similarity task"):
        build(study, cells_of("plain", runs("plain")), resamples=RESAMPLES)


@pytest.mark.parametrize("wrong", [[3, 2], [1, 1], [-1], [100]])
def test_wrong_positions_are_refused(wrong):
    content = runs("a")[0].to_dict()
    content["tasks"]["sts12"]["unseen"]["seen_pairs"] = wrong
    with pytest.raises(NearfarError, match="seen_pairs"):
        parse_result(content, source="old.json")
