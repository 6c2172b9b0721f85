"""Results of fine-tuned classifiers: scores against sklearn and scipy, comparable entries, invalid outputs."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from nearfar.evaluation import results
from nearfar.evaluation.finetuned import finetuned_entry, validation_scores

TWO, THREE = ("no", "yes"), ("left", "middle", "right")


def outputs_of(predicted: np.ndarray, classes: int, *, seed: int = 0) -> np.ndarray:
    """Return logits that are largest for the predicted class."""
    noise = np.random.default_rng(seed).uniform(-1, 1, (len(predicted), classes))
    return (noise + 2.5 * np.eye(classes)[predicted] - 10).astype(np.float32)


def make_predictions(count: int, classes: int, *, seed: int, right: float = 0.6) -> tuple[list[int], np.ndarray]:
    """Return gold labels and predictions; a share ``right`` is copied from gold, the others are random."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, classes, count)
    return gold.tolist(), np.where(rng.random(count) < right, gold, rng.integers(0, classes, count))


def entry_of(gold: list[Any], outputs: np.ndarray, names: tuple[str, ...] = TWO, **changes: Any) -> dict[str, Any]:
    """Return the entry; for pairs unless other texts are given."""
    texts = [(f"a {number}", f"b {number}") for number in range(len(gold))]
    validation = {"accuracy" if names else "pearson": 0.25}
    settings = {"texts": texts, "label_names": names, "validation": validation, "resamples": 200, "seed": [1]} | changes
    return finetuned_entry(settings.pop("texts"), gold, outputs, **settings)


def test_validation_scores_equal_sklearn_and_scipy() -> None:
    gold, predicted = make_predictions(80, 2, seed=3)
    outputs = outputs_of(predicted, 2)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(gold, predicted),
        "f1": sklearn.metrics.f1_score(gold, predicted),
        "matthews": sklearn.metrics.matthews_corrcoef(gold, predicted),
    }
    assert len({0.5, 1.0, *expected.values()}) == 5
    assert validation_scores(gold, outputs, labels=2, pairs=True) == pytest.approx(expected)
    del expected["f1"]
    assert validation_scores(gold, outputs, labels=2, pairs=False) == pytest.approx(expected)
    three, several = make_predictions(50, 3, seed=4)
    expected = {"accuracy": np.mean(np.array(three) == several)}
    assert validation_scores(three, outputs_of(several, 3), labels=3, pairs=True) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 11, 60) / 2
    written = (scores + rng.normal(0, 1.5, 60)).astype(np.float32)
    exact = written.astype(np.float64)
    expected = {
        "pearson": scipy.stats.pearsonr(scores, exact).statistic,
        "spearman": scipy.stats.spearmanr(scores, exact).statistic,
    }
    assert abs(expected["pearson"] - expected["spearman"]) > 1e-4
    for sign in (1, -1):
        found = validation_scores(scores.tolist(), sign * written[:, None], labels=0, pairs=True)
        assert found == pytest.approx({key: sign * value for key, value in expected.items()}, abs=1e-12)


def test_an_undefined_score_counts_as_0() -> None:
    flat = np.full((3, 1), 0.1, dtype=np.float32)
    both = {"pearson": 0, "spearman": 0}
    assert validation_scores([1.0, 2.0, 3.5], flat, labels=0, pairs=True) == both
    assert validation_scores([2.0, 2.0], np.array([[0.1], [0.3]], dtype=np.float32), labels=0, pairs=True) == both
    found = validation_scores([0, 1, 1], outputs_of(np.array([1, 1, 1]), 2), labels=2, pairs=True)
    assert found == pytest.approx({"accuracy": 2 / 3, "f1": 0.8, "matthews": 0})
    found = validation_scores([0, 0], outputs_of(np.array([0, 0]), 2), labels=2, pairs=True)
    assert found == {"accuracy": 1, "f1": 0, "matthews": 0}


def test_an_entry_of_two_labels() -> None:
    gold, predicted = make_predictions(120, 2, seed=5)
    several = {"accuracy": 0.75, "f1": 0.5, "matthews": 0.25}
    entry = entry_of(gold, outputs_of(predicted, 2), validation=several)
    for key, expected in validation_scores(gold, outputs_of(predicted, 2), labels=2, pairs=True).items():
        estimate = entry.metric(key)
        assert estimate.score == pytest.approx(100 * expected, abs=6e-3), key
        assert estimate.low < estimate.score < estimate.high < estimate.low + 45, key
    assert (entry.gold, entry.predicted, entry.classes) == (gold, predicted.tolist(), ["no", "yes"])
    assert (entry.kind, entry.protocol, entry.rows) == ("classification", "finetune", 120)
    assert (entry.dev_accuracy, entry.dev_f1, entry.dev_matthews) == (75.0, 50.0, 25.0)
    single = entry_of(gold, outputs_of(predicted, 2), texts=[(f"a {number}",) for number in range(120)])
    assert (single.f1, single.matthews) == (None, entry.matthews)
    gold, predicted = make_predictions(60, 3, seed=7)
    assert not {"f1", "matthews"} & entry_of(gold, outputs_of(predicted, 3), THREE).to_dict().keys()


def test_an_entry_of_scores() -> None:
    rng = np.random.default_rng(0)
    gold = (rng.integers(0, 11, 90) / 2).tolist()
    written = (np.array(gold) + rng.normal(0, 1, 90)).astype(np.float32)
    dev = {"validation": {"pearson": 0.25, "spearman": 0.125}}
    entry = entry_of(gold, written[:, None], (), **dev)
    exact = written.astype(np.float64)
    assert entry.kind == "relatedness"
    assert entry.pearson.score == pytest.approx(100 * scipy.stats.pearsonr(gold, exact).statistic, abs=1e-3)
    assert entry.spearman.score == pytest.approx(100 * scipy.stats.spearmanr(gold, exact).statistic, abs=1e-3)
    assert entry.pearson.low < entry.pearson.score < entry.pearson.high
    assert entry.mse == pytest.approx(np.mean((exact - gold) ** 2), abs=1e-5)
    assert (entry.dev_pearson, entry.dev_spearman) == (25.0, 12.5)
    flat = entry_of(gold, np.full((90, 1), 2.5, dtype=np.float32), (), **dev)
    assert flat.pearson == results.Estimate(None, None, None, "all predicted scores are equal")
