"""Scores of transfer tasks, their intervals and averages, against scipy, scikit-learn and plain resampling."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from nearfar.data.named_sets import PROBE_TASKS, suite_tasks
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.results import Estimate
from nearfar.evaluation.tasks import TRANSFER_AVERAGES as AVERAGES
from nearfar.evaluation.transfer import evaluate_transfer
from tests import reference_senteval as reference
from tests.transfer_tasks import EXACT_SETTINGS, evaluate, pairs, sort_as_senteval, task, vectors


def test_train_and_test_of_pairs_with_f1():
    one = pairs(90, 60)
    _, x, y = sort_as_senteval(one.splits["train"])
    order, test_x, test_y = sort_as_senteval(one.splits["test"])
    accuracy, dev, predicted, chosen = reference.kfold(x, y, test_x, test_y, folds=2)
    found = evaluate(one, resamples=400, probe=Probe(folds=2))
    assert (found.accuracy.score, found.dev_accuracy, found.chosen) == (accuracy, dev, chosen)
    assert [found.predicted[k] for k in order] == predicted.tolist()
    assert found.gold == one.splits["test"].targets
    gold, predicted = np.array(found.gold), np.array(found.predicted)
    assert found.f1.score == pytest.approx(100 * f1_score(gold, predicted), abs=0.006)
    assert found.rows == 60
    # the intervals equal those of resampled rows
    rng = np.random.default_rng(0)
    drawn = rng.integers(60, size=(2000, 60))
    a, b = gold[drawn], predicted[drawn]
    values = {"accuracy": (a == b).mean(axis=1), "f1": 2 * (a * b).sum(axis=1) / (a + b).sum(axis=1)}
    for metric, of_draws in values.items():
        low, high = np.quantile(of_draws, [0.025, 0.975])
        assert found.metric(metric).low == pytest.approx(100 * low, abs=3)
        assert found.metric(metric).high == pytest.approx(100 * high, abs=3)


@pytest.mark.long
def test_learned_relatedness():
    one = pairs(80, 40, 50, scored=True)
    (_, *train), (_, *dev), (order, *test) = (sort_as_senteval(rows) for rows in one.splits.values())
    expected, _ = reference.relatedness(*train, *dev, test[0])
    found = evaluate(one)
    predicted = np.array(found.predicted_e6) / 1e6
    np.testing.assert_allclose(predicted[order], expected, atol=2e-3)
    assert found.gold == one.splits["test"].targets
    for metric, of in {"pearson": stats.pearsonr, "spearman": stats.spearmanr}.items():
        assert found.metric(metric).score == pytest.approx(100 * of(predicted, found.gold).statistic, abs=1e-3)
        assert 30 < found.metric(metric).low < found.metric(metric).score < found.metric(metric).high
    assert found.mse == pytest.approx(np.mean((predicted - found.gold) ** 2), abs=1e-5)
    assert found.dev_pearson > 50
    assert (found.kind, found.pairs) == ("relatedness", 50)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.long
def test_the_averages_of_the_papers():
    # SentEval's SST-2 is the phrases; only then an average has a paper's name
    assert set(suite_tasks("transfer")) <= set(PROBE_TASKS)
    for name, members in AVERAGES.items():
        assert set(members) <= {*suite_tasks("transfer"), "sst2-phrases"}
        assert ("sst2" in members, "sst2-phrases" in members) == ("sentences" in name, "sentences" not in name)
        assert len(members) == {"seven": 7, "eight": 8}[next(word for word in ("seven", "eight") if word in name)]
    tasks = {
        name: task(60, 40, 50, seed=k + 1) for k, name in enumerate(PROBE_TASKS) if name in suite_tasks("transfer")
    }
    tasks = {name: one for name, one in tasks.items() if "learned" not in name}
    result = evaluate_transfer(vectors, tasks, probe=Probe(protocol="exact"), resamples=0)
    assert list(result.averages) == ["seven tasks, SST-2 sentences", "eight tasks, SST-2 sentences"]
    tasks["sst2-phrases"] = task(60, 40, 50, seed=99)
    result = evaluate_transfer(vectors, tasks, probe=Probe(protocol="exact"), resamples=0)
    assert list(result.averages) == list(AVERAGES)
    eight = result.averages["Liao's eight"]
    mean = np.mean([result.tasks[name].accuracy.score for name in eight.tasks])
    assert eight.accuracy.score == pytest.approx(mean, abs=1e-3)


@pytest.mark.long
def test_the_average_of_the_seven():
    seven = AVERAGES["SimCSE's seven"]
    tasks = {name: task(60, 40, 50, seed=k + 1) for k, name in enumerate(seven)}
    result = evaluate_transfer(vectors, tasks, probe=Probe(protocol="exact"), resamples=400)
    average = result.averages["SimCSE's seven"]
    each = [result.tasks[name].accuracy for name in seven]
    assert average.tasks == list(seven)
    assert average.accuracy.score == pytest.approx(np.mean([one.score for one in each]), abs=1e-3)
    width = np.sqrt(np.sum([(one.high - one.low) ** 2 for one in each])) / 7
    assert average.accuracy.high - average.accuracy.low == pytest.approx(width, rel=0.25)
    del tasks["mr"]
    assert evaluate_transfer(vectors, tasks, probe=Probe(protocol="exact"), resamples=0).averages == {}


@pytest.mark.long
def test_without_resamples_there_are_no_intervals():
    for one in (task(60), pairs(60, 40), pairs(60, 40, 40, scored=True)):
        found = evaluate(one, resamples=0)
        metrics = [name for name in ("accuracy", "f1", "pearson", "spearman") if found.metric(name) is not None]
        assert metrics
        for metric in metrics:
            assert found.metric(metric).score is not None
            assert (found.metric(metric).low, found.metric(metric).high) == (None, None)


@pytest.mark.long
def test_an_undefined_task_leaves_the_average_undefined():
    seven = AVERAGES["SimCSE's seven"]
    tasks = {name: task(60, 40, 50, seed=k + 1) for k, name in enumerate(seven)}
    text = tasks["trec"].splits["dev"].texts[0][0]

    def encode(texts):
        found = vectors(texts)
        found[texts.index(text)] = np.nan
        return found

    result = evaluate_transfer(encode, tasks, probe=Probe(protocol="exact"), resamples=20)
    accuracy = result.averages["SimCSE's seven"].accuracy
    assert accuracy.score is None
    assert accuracy.reason.startswith("undefined on trec: ")


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["senteval", "exact"])
def test_a_constant_encoder_has_the_majority(protocol):
    def constant(texts):
        return np.ones((len(texts), 4))

    one = task(90)
    found = evaluate(one, constant, probe=Probe(protocol=protocol, folds=3))
    share = np.bincount(found.gold).max() / 90
    assert found.accuracy.score == pytest.approx(100 * share, abs=0.01)
    assert len(set(found.predicted)) == 1
    found = evaluate(pairs(60, 40, 40, scored=True), constant)
    assert found.pearson == Estimate(None, None, None, "all predicted scores are equal")
    assert found.mse > 0
    assert found.dev_pearson is None


def test_f1_without_the_second_label():
    one = pairs(60, 40)
    one.splits["test"].targets[:] = [0] * 40

    def constant(texts):
        return np.zeros((len(texts), 2))

    one.splits["train"].targets[:] = [0] * 50 + [1] * 10
    found = evaluate(one, constant, **EXACT_SETTINGS)
    assert found.accuracy.score == 100
    assert found.f1.reason == "no row has the second label, and none is predicted to have it"
