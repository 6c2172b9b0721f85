"""Each kind of column is the number of the result that it names."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.evaluation.correlation import bootstrap_scores, weighted_pearson
from nearfar.evaluation.results import (
    Estimate,
    EvaluationResult,
    FinetuningSummary,
    RelatednessScores,
    RetrievalScores,
    TransferResults,
)
from nearfar.studies.columns import Run, available_columns, column_value
from nearfar.studies.resampling import Resampler, TestData
from tests.studies.cases import DATA, classified, geometry, similarity

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


def test_a_metric_of_the_only_task_needs_a_single_task():
    assert column_value("spearman", Run("a", results=[SIMILAR]), "all") is None
    only = similarity(1.0, 1, data={"stsb": DATA["stsb"]})
    assert column_value("spearman", Run("a", results=[only]), "all").value is not None


def test_the_last_result_with_a_column_counts():
    cell = Run("a", results=[similarity(3.0, 1), similarity(1.0, 2)])
    assert column_value("stsb", cell, "all").value == similarity(1.0, 2).tasks["stsb"].spearman.all.score


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


def test_f1_and_matthews_of_resamples_against_plain_loops(monkeypatch):
    gold, predicted = [1, 1, 0, 0, 1, 0, 1], [1, 0, 0, 1, 1, 0, 1]
    counts = np.random.default_rng(0).multinomial(7, [1 / 7] * 7, size=20)

    def fixed(values, *, resamples, seed):
        return values @ counts.T / 7

    monkeypatch.setattr("nearfar.studies.resampling.bootstrap_means", fixed)
    for metric in ("f1", "matthews"):
        found = draws(TestData("t", metric, ("d",), gold, predicted, 1))
        for number, weights in enumerate(counts):
            tp = sum(w for w, g, p in zip(weights, gold, predicted, strict=True) if g == p == 1)
            tn = sum(w for w, g, p in zip(weights, gold, predicted, strict=True) if g == p == 0)
            fp = sum(w for w, g, p in zip(weights, gold, predicted, strict=True) if (g, p) == (0, 1))
            fn = sum(w for w, g, p in zip(weights, gold, predicted, strict=True) if (g, p) == (1, 0))
            if metric == "f1":
                expected = 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else np.nan
            else:
                product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
                expected = (tp * tn - fp * fn) / product**0.5 if product else np.nan
            assert found[number] == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_the_same_result_in_two_columns_is_resampled_once():
    one, other = column_value("mrpc", CELL, "all"), column_value("average:one", CELL, "all")
    resampler = Resampler([*one.data, *other.data], resamples=10, seed=0)
    assert len(resampler._draws) == 1
    assert resampler.of(one.data).tolist() == resampler.of(other.data).tolist()
