"""SentEval's three protocols and learned relatedness against reference loops; presets; and invalid data."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from nearfar.evaluation.probe_settings import PRESETS, Probe, preset_probe
from nearfar.evaluation.probes import C_KFOLD, C_SPLIT, check_labels, inner_kfold, kfold, soft_labels, split
from nearfar.types import NearfarError
from tests import reference_senteval as reference

EXACT = Probe(protocol="exact", folds=3)


def problem(rows=150, dim=60, classes=2, *, noise=3.0, seed=0):
    """Return features and labels that are partly predictable, small enough to need only tens of steps."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    features = noise * rng.normal(size=(rows, dim)) + rng.normal(size=(classes, dim))[labels]
    return features.astype(np.float32), labels


def majority(labels):
    return 100 * np.bincount(labels).max() / len(labels)


@pytest.mark.long
def test_split_matches_the_reference():
    x, y = problem(300, classes=3)
    train, dev, test = np.split(np.arange(300), [150, 225])
    expected = reference.split(x[train], y[train], x[dev], y[dev], x[test], y[test])
    found = split(x, y, train, dev, test, classes=3, probe=Probe())
    assert expected[0] > majority(y) + 10
    np.testing.assert_array_equal(found.predicted, expected[2])
    assert (found.accuracy, found.dev_accuracy, found.chosen) == (expected[0], expected[1], expected[3])


def test_the_presets_are_those_of_the_papers():
    found = {name: (one.folds, one.nhid, one.optimiser, one.batch_size) for name, one in PRESETS.items()}
    assert found == {"senteval": (10, 0, "adam", 64), "liao": (5, 0, "rmsprop", 128), "kim": (10, 50, "adam", 64)}
    checks = {name: (one.tenacity, one.epoch_size) for name, one in PRESETS.items()}
    assert checks == {"senteval": (5, 4), "liao": (3, 2), "kim": (5, 4)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "params"),
    [
        ({"optimiser": "rmsprop"}, {"optim": "rmsprop"}),
        ({"fold_seed": 3}, {"fold_seed": 3}),
        *(
            pytest.param({name: value}, {key: value}, marks=pytest.mark.nightly)
            for name, key, value in (
                ("learning_rate", "lr", 0.02),
                ("batch_size", "batch_size", 30),
                ("tenacity", "tenacity", 0),
                ("epoch_size", "epoch_size", 1),
                ("max_epochs", "max_epoch", 3),
                ("l2", "penalties", (0.1, 0.0)),
                ("seed", "seed", 3),
            )
        ),
    ],
)
def test_each_setting_matches_the_reference_and_changes_the_result(given, params):
    x, y = problem(classes=4)
    expected = reference.kfold(x[:100], y[:100], x[100:], y[100:], folds=3, params=params)
    rows = np.arange(100), np.arange(100, 150)
    found = kfold(x, y, *rows, classes=4, probe=preset_probe("senteval", folds=3, **given))
    np.testing.assert_array_equal(found.predicted, expected[2])
    assert (found.accuracy, found.dev_accuracy, found.chosen) == (expected[0], expected[1], expected[3])
    usual = kfold(x, y, *rows, classes=4, probe=Probe(folds=3))
    assert (found.grid, found.grid_accuracies) != (usual.grid, usual.grid_accuracies)


def test_settings_that_contradict_the_protocol_or_the_preset():
    with pytest.raises(NearfarError, match="--probe-batch-size is a setting of SentEval's classifier; remove it"):
        preset_probe("senteval", "exact", batch_size=3)
    with pytest.raises(NearfarError, match="nhid 50: the protocol exact is logistic regression"):
        preset_probe("senteval", "exact", nhid=50)
    for penalties, shown in (((), "l2 .none."), ((0.1, 0.1), "l2 0.1, 0.1")):
        with pytest.raises(NearfarError, match=f"{shown}: must be penalties of 0 or more, each once"):
            preset_probe("senteval", l2=penalties)


def scikit(penalty, x, y):
    return LogisticRegression(C=penalty, tol=1e-8, max_iter=100_000).fit(x.astype(np.float64), y)


def folds_of(y):
    return list(StratifiedKFold(3, shuffle=True, random_state=1111).split(y, y))


@pytest.mark.long
def test_exact_inner_kfold_equals_scikit_learn():
    x, y = problem(120, 5, noise=2.0)
    found = inner_kfold(x, y, classes=2, probe=EXACT)
    accuracies = []
    for (train, test), chosen, row in zip(folds_of(y), found.chosen, found.grid_accuracies, strict=True):
        scores = []
        for penalty in C_SPLIT:
            inner = folds_of(y[train])
            each = [scikit(penalty, x[train][a], y[train][a]).score(x[train][b], y[train][b]) for a, b in inner]
            scores.append(round(100 * np.mean(each), 2))
        assert row == scores
        assert chosen == C_SPLIT[scores.index(max(scores))]
        last = scikit(chosen, x[train], y[train])
        np.testing.assert_array_equal(found.predicted[test], last.predict(x[test]))
        accuracies.append(round(100 * last.score(x[test], y[test]), 2))
    assert found.accuracy == round(np.mean(accuracies), 2)
    assert found.fold_accuracies == accuracies


@pytest.mark.long
def test_exact_split_equals_scikit_learn():
    x, y = problem(150, 5, classes=3, noise=2.0)
    train, dev, test = np.split(np.arange(150), [90, 120])
    assert kfold(x, y, train, test, classes=3, probe=EXACT).grid == C_KFOLD
    found = split(x, y, train, dev, test, classes=3, probe=EXACT)
    scores = [round(100 * scikit(c, x[train], y[train]).score(x[dev], y[dev]), 2) for c in C_SPLIT]
    assert found.grid_accuracies == [scores]
    assert found.chosen == [C_SPLIT[scores.index(max(scores))]]
    np.testing.assert_array_equal(found.predicted, scikit(found.chosen[0], x[train], y[train]).predict(x[test]))


@pytest.mark.parametrize(
    ("splits", "problem"),
    [
        ({"all": []}, "no rows in all"),
        ({"all": [1] * 50}, "every row has the label 'b'; a classifier needs two labels"),
        ({"all": [0] * 50 + [1]}, "the label 'b' has 1 row, but 10 folds within 10 folds need 12 of each label"),
        ({"train": [0] * 9 + [1] * 50, "test": [1]}, "the label 'a' has 9 rows, but 10 folds need 10 of each label"),
    ],
)
def test_invalid_labels_are_refused(splits, problem):
    with pytest.raises(NearfarError, match=problem):
        check_labels(splits, "ab", Probe())


def test_too_few_rows_for_a_held_out_set():
    few = {"all": [0, 1] * 12}
    check_labels(few, "ab", Probe())
    fewer = {"all": [0, 1] * 10}
    with pytest.raises(NearfarError, match="20 rows are too few: 5% of the 13 training rows, held out"):
        check_labels(fewer, "ab", Probe(folds=3))
    check_labels(fewer, "ab", EXACT)


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_soft_labels_match_the_reference(low):
    scores = np.round(np.arange(low, 5.01, 0.1), 1)
    np.testing.assert_allclose(soft_labels(scores), reference.soft_labels(scores), atol=1e-6)
