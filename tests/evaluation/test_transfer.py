"""Transfer evaluations of an encoder with known predictions, against the reference; invalid encoders and data."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from nearfar.data.labelled import Split, TransferTask
from nearfar.data.named_sets import suite_tasks
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.results import Estimate
from nearfar.evaluation.tasks import TRANSFER_AVERAGES as AVERAGES
from nearfar.evaluation.transfer import evaluate_transfer, neighbour_vote
from nearfar.types import NearfarError
from tests import reference_senteval as reference
from tests.transfer_tasks import EXACT_SETTINGS, FAST_SETTINGS, evaluate, pairs, sort_as_senteval, task, vectors


@pytest.mark.long
def test_a_pool_matches_the_reference_on_rows_in_the_order_of_senteval():
    one = task(120)
    order, x, y = sort_as_senteval(one.splits["all"])
    assert order != sorted(order)
    accuracy, dev, predicted, chosen = reference.inner_kfold(x, y, folds=3)
    found = evaluate(one)
    assert found.accuracy.score == accuracy
    assert accuracy > 60
    assert found.accuracy.low < accuracy < found.accuracy.high
    assert (found.dev_accuracy, found.chosen) == (dev, chosen)
    assert found.gold == one.splits["all"].targets  # in the order of the file
    assert [found.predicted[k] for k in order] == predicted.tolist()
    assert np.mean(found.fold_accuracies) == pytest.approx(accuracy, abs=0.01)


@pytest.mark.long
def test_a_text_that_is_not_finite_leaves_out_only_its_tasks():
    bad, good, scored = task(60), task(60, seed=2), pairs(60, 40, 40, scored=True)
    text = bad.splits["all"].texts[7][0]
    other = scored.splits["test"].texts[3][1]
    for value in (np.nan, np.inf, 1e300):

        def encode(texts, value=value):
            found = vectors(texts).astype(np.float64)
            found[[row for row, one in enumerate(texts) if one in (text, other)], 1] = value
            return found

        entries = evaluate_transfer(encode, {"bad": bad, "good": good, "scored": scored}, **EXACT_SETTINGS).tasks
        assert entries["good"].accuracy.score > 55
        assert entries["good"].grid.c == [0.25, 0.5, 1, 2, 4, 8]
        undefined = entries["bad"].accuracy
        assert (undefined.score, undefined.low, undefined.high) == (None, None, None)
        assert repr(text) in undefined.reason
        assert (entries["bad"].predicted, entries["bad"].dev_accuracy, entries["bad"].rows) == ([], None, 60)
        assert repr(other) in entries["scored"].pearson.reason
        assert repr(other) in entries["scored"].spearman.reason
        assert entries["scored"].mse is None


def refuse(texts):
    raise AssertionError("nothing should be encoded")


def test_invalid_own_data_is_refused_before_encoding():
    rows = Split([(f"a{k}",) for k in range(60)], [0] * 60)
    own = TransferTask(name="mine", splits={"all": rows}, label_names=("u", "v"), source="mine.tsv")
    with pytest.raises(NearfarError, match=r"mine\.tsv: every row has the label 'u'; a classifier needs two"):
        evaluate_transfer(refuse, {"mr": task(60), "mine": own})


@pytest.mark.long
def test_an_invalid_named_set_is_reported_with_its_reason_and_the_others_are_scored():
    rows = Split([(f"a{k}",) for k in range(20)], [0] * 20)
    few = TransferTask(name="few", splits={"all": rows}, label_names=("u", "v"))
    result = evaluate_transfer(vectors, {"few": few, "mine": task(60)}, **EXACT_SETTINGS)
    entries = result.tasks
    assert entries["few"].accuracy.reason.startswith("every row has the label 'u'")
    assert entries["mine"].accuracy.score > 60
    assert evaluate_transfer(refuse, {"few": few}, **FAST_SETTINGS).dim is None


@pytest.mark.long
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


@pytest.mark.long
def test_the_averages_of_the_papers():
    # SentEval's SST-2 is the phrases; only then an average has a paper's name
    tasks = {name: task(60, 40, 50, seed=k + 1) for k, name in enumerate(suite_tasks("transfer"))}
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
def test_a_constant_encoder_has_the_majority():
    def constant(texts):
        return np.ones((len(texts), 4))

    one = task(90)
    found = evaluate(one, constant, probe=Probe(protocol="exact", folds=3))
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


def test_the_vote_equals_a_loop() -> None:
    draw = np.random.default_rng(0)
    texts, training = draw.normal(size=(40, 8)).astype(np.float32), draw.normal(size=(90, 8)).astype(np.float32)
    labels = draw.choice(["a", "b", "c"], size=90).tolist()
    expected = []
    for text in texts:
        cosines = training @ text / np.linalg.norm(training, axis=1) / np.linalg.norm(text)
        nearest = np.argsort(-cosines)[:10]
        votes = Counter(labels[place] for place in nearest)
        weights = {label: sum(cosines[place] for place in nearest if labels[place] == label) for label in votes}
        expected.append(max(votes, key=lambda label: (votes[label], weights[label])))
    assert neighbour_vote(texts, training, labels) == expected
    assert neighbour_vote(3 * texts, training / 7, labels) == expected  # cosines: lengths do not matter


def test_ties_go_to_the_higher_cosines_then_to_the_first_label() -> None:
    text = np.array([[1, 0]], dtype=np.float32)
    training = np.array([[1, 0], [0, 1]], dtype=np.float32)
    assert neighbour_vote(text, training, ["z", "a"]) == ["z"]
    assert neighbour_vote(text, training[[0, 0]], ["z", "a"]) == ["a"]


def test_embeddings_with_infinite_products():
    def encode(texts):
        return 1e30 * vectors(texts)

    assert "products of them are infinite" in evaluate(pairs(60, 40), encode).accuracy.reason
