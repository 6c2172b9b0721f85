"""Classifiers trained together against each trained alone with torch's layers and Adam; and early stopping."""

import numpy as np
import pytest
import torch

from nearfar.evaluation import classifiers
from nearfar.evaluation.classifiers import Job, outputs, train
from nearfar.evaluation.probe_settings import Probe
from tests.reference_senteval import Classifier

SHORT = {"epoch_size": 2, "max_epochs": 4}


def problem(rows=200, dim=7, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    features = rng.normal(size=(rows, dim)) + 2 * rng.normal(size=(classes, dim))[labels]
    return features.astype(np.float32), labels


def jobs_of(sizes, penalties, rows=200):
    rng = np.random.default_rng(1)
    train_rows = [rng.permutation(rows)[:size] for size in sizes]
    return [Job(one, np.arange(5), penalties, np.random.RandomState(1111)) for one in train_rows]


def increasing_score():
    """Return a score function that increases at each check, so that the last weights are the best."""
    seen = iter(range(10_000))
    return lambda rows, logits: np.full(len(logits), float(next(seen)))


@pytest.mark.long
@pytest.mark.parametrize("nhid", [0, 5])
def test_classifiers_trained_together_equal_classifiers_trained_alone(nhid, monkeypatch):
    # Sizes of one, two and three minibatches per epoch, the last one full or not; more jobs than slots.
    monkeypatch.setattr(classifiers, "_MINIBATCHES", 1)
    x, y = problem()
    jobs = jobs_of([3, 64, 65, 100, 101, 101, 102, 103, 128, 129, 150], (1e-5, 1e-1))
    targets = torch.nn.functional.one_hot(torch.as_tensor(y), 3).float()
    trained = train(torch.as_tensor(x), targets, jobs, score=increasing_score(), probe=Probe(nhid=nhid, **SHORT))
    for job, found in zip(jobs, trained, strict=True):
        for number, penalty in enumerate(job.penalties):
            single = Classifier(x.shape[1], 3, penalty, {"nhid": nhid})
            before = [parameter.detach().clone() for parameter in single.model.parameters()]
            for _ in range(6):
                single.epoch(x[job.train], y[job.train])
            after = [parameter.detach() for parameter in single.model.parameters()]
            assert min((a - b).abs().max() for a, b in zip(after, before, strict=True)) > 1e-3
            layers = [layer for weight in found.weights for layer in (weight[number, :, :-1], weight[number, :, -1])]
            for ours, theirs in zip(layers, after, strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
            logits = outputs([weight[number : number + 1] for weight in found.weights], torch.as_tensor(x))[0].T
            torch.testing.assert_close(logits, single.model(torch.as_tensor(x)).detach(), atol=1e-4, rtol=0)


def checks(scores, *, probe):
    """Give one classifier these scores; return the number used, the best, and the check whose weights were kept."""
    x, y = problem(20)
    targets = torch.nn.functional.one_hot(torch.as_tensor(y), 3).float()
    used_scores, states = [], []

    def score(rows, logits):
        states.append(logits.clone())
        used_scores.append(scores[len(used_scores)])
        return np.array([used_scores[-1]])

    job = Job(np.arange(20), np.arange(20), (0.0,), np.random.RandomState(0))
    (found,) = train(torch.as_tensor(x), targets, [job], score=score, probe=probe)
    kept = outputs(found.weights, torch.as_tensor(x))
    return (
        len(used_scores),
        found.scores[0],
        [number for number, state in enumerate(states) if torch.equal(state, kept)],
    )


def test_misses_are_counted_in_total_and_the_best_weights_are_returned():
    # tenacity 2: with misses at checks 2, 4 and 6, training stops at 6; an equal score is a miss
    scores = [0.5, 0.5, 0.6, 0.1, 0.7, 0.7, 0.9, 1.0]
    assert checks(scores, probe=Probe(tenacity=2)) == (6, 0.7, [4])


def test_no_check_starts_after_the_last_epochs():
    rising_scores = list(np.linspace(0, 1, 100))
    count, best, kept = checks(rising_scores, probe=Probe(max_epochs=200))
    assert (count, kept) == (51, [50])  # SentEval: while epochs <= 200, hence 204 epochs
    assert best == rising_scores[50]


def test_undefined_scores_never_improve():
    count, best, kept = checks([np.nan] * 5 + [0.5] * 5, probe=Probe(tenacity=3))
    assert (count, best, kept) == (4, -1.0, [])
