"""Reference implementation of SentEval's transfer protocol (Conneau & Kiela 2018), with plain loops over folds.

It is slow and short: torch's layers, losses, gradients and optimisers; scikit-learn's folds; loops for all the rest.
Tasks are arrays of features and labels. Accuracies are x 100.

``params`` is SentEval's dictionary ``classifier``: ``nhid``, ``optim`` (adam, or rmsprop with torch's defaults),
``batch_size``, ``tenacity``, ``epoch_size``, ``max_epoch``. Here also ``lr``, ``penalties``, ``seed``, ``fold_seed``.
"""

import copy

import numpy as np
import torch
from scipy import stats
from sklearn.model_selection import StratifiedKFold
from torch import nn

SEED = 1111
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)


class Classifier:
    """One linear layer, or two with a sigmoid between; all randomness comes from one seed."""

    def __init__(self, dim, classes, penalty, params=None):
        self.params = params or {}
        seed, nhid = self.params.get("seed", SEED), self.params.get("nhid", 0)
        torch.manual_seed(seed)
        self.draws = np.random.RandomState(seed)
        if nhid:
            self.model = nn.Sequential(nn.Linear(dim, nhid), nn.Sigmoid(), nn.Linear(nhid, classes))
        else:
            self.model = nn.Sequential(nn.Linear(dim, classes))
        known = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
        rate = {"lr": self.params["lr"]} if "lr" in self.params else {}
        self.optimiser = known[self.params.get("optim", "adam")](self.model.parameters(), **rate)
        self.optimiser.param_groups[0]["weight_decay"] = penalty
        self.steps = 0

    def epoch(self, x, y):
        order, batch = self.draws.permutation(len(x)), self.params.get("batch_size", 64)
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            loss = nn.functional.cross_entropy(self.model(torch.tensor(x[rows])), torch.tensor(y[rows]))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.steps += 1

    def fit(self, x, y, check_x, check_y):
        """Evaluate every ``epoch_size`` epochs; stop at the evaluation after ``tenacity`` without improvement."""
        epochs, misses, best, stop = 0, 0, -1.0, False
        while not stop and epochs <= self.params.get("max_epoch", 200):
            for _ in range(self.params.get("epoch_size", 4)):
                self.epoch(x, y)
                epochs += 1
            accuracy = self.score(check_x, check_y)
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(self.model.state_dict())
            else:
                stop = misses >= self.params.get("tenacity", 5)
                misses += 1
        self.model.load_state_dict(kept)
        return best

    def fit_held_out(self, x, y):
        """Early stopping on a random twentieth of the rows."""
        order = self.draws.permutation(len(x))
        held, remaining = order[: int(0.05 * len(x))], order[int(0.05 * len(x)) :]
        return self.fit(x[remaining], y[remaining], x[held], y[held])

    def predict(self, x):
        with torch.no_grad():
            return self.model(torch.tensor(x)).max(1)[1].numpy()

    def score(self, x, y):
        return int((self.predict(x) == y).sum()) / len(y)


def grid_of(params):
    return (params or {}).get("penalties", PENALTIES)


def fold_seed_of(params):
    return (params or {}).get("fold_seed", SEED)


def best_of(scores):
    """Return the first of the best, with scores rounded to two decimals."""
    rounded = [round(100 * score, 2) for score in scores]
    return rounded.index(max(rounded)), max(rounded)


def inner_kfold(x, y, *, folds, params=None):
    """Return test accuracy, dev accuracy, predictions and penalties of a cross-validated task."""
    classes, predicted = y.max() + 1, np.full(len(y), -1)
    penalties, seed = grid_of(params), fold_seed_of(params)
    tested, developed, chosen = [], [], []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
        scores = []
        for penalty in penalties:
            each = []
            inner = StratifiedKFold(folds, shuffle=True, random_state=seed)
            for kept, check in inner.split(x[train], y[train]):
                one = Classifier(x.shape[1], classes, penalty, params)
                one.fit(x[train][kept], y[train][kept], x[train][check], y[train][check])
                each.append(one.score(x[train][check], y[train][check]))
            scores.append(np.mean(each))
        best, accuracy = best_of(scores)
        developed.append(accuracy)
        chosen.append(penalties[best])
        last = Classifier(x.shape[1], classes, penalties[best], params)
        last.fit_held_out(x[train], y[train])
        predicted[test] = last.predict(x[test])
        tested.append(round(100 * last.score(x[test], y[test]), 2))
    return round(np.mean(tested), 2), round(np.mean(developed), 2), predicted, chosen


def kfold(x, y, test_x, test_y, *, folds, params=None):
    """Return the same for a training and a test set."""
    classes, scores = y.max() + 1, []
    penalties, seed = grid_of(params), fold_seed_of(params)
    for penalty in penalties:
        each = []
        for kept, check in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
            one = Classifier(x.shape[1], classes, penalty, params)
            one.fit(x[kept], y[kept], x[check], y[check])
            each.append(one.score(x[check], y[check]))
        scores.append(np.mean(each))
    best, accuracy = best_of(scores)
    last = Classifier(x.shape[1], classes, penalties[best], params)
    last.fit_held_out(x, y)
    return round(100 * last.score(test_x, test_y), 2), accuracy, last.predict(test_x), [penalties[best]]


def split(x, y, dev_x, dev_y, test_x, test_y, *, params=None):
    """Return the same for a training, a dev and a test set."""
    scores, penalties = [], grid_of(params)
    for penalty in penalties:
        one = Classifier(x.shape[1], y.max() + 1, penalty, params)
        one.fit(x, y, dev_x, dev_y)
        scores.append(one.score(dev_x, dev_y))
    best, accuracy = best_of(scores)
    last = Classifier(x.shape[1], y.max() + 1, penalties[best], params)
    last.fit(x, y, dev_x, dev_y)
    return round(100 * last.score(test_x, test_y), 2), accuracy, last.predict(test_x), [penalties[best]]


def soft_labels(scores, classes=5):
    """Distribute each score over the two nearest of the classes 1, 2, ... (Tai et al. 2015)."""
    shares = np.zeros((len(scores), classes), dtype=np.float32)
    for row, score in zip(shares, scores, strict=True):
        below = int(np.floor(score))
        if 1 <= below <= classes:
            row[below - 1] = below + 1 - score
        if 1 <= below + 1 <= classes:
            row[below] = score - below
    return shares


def relatedness(x, scores, dev_x, dev_scores, test_x, *, epochs=50, max_epochs=1000):
    """Return the predicted scores of test, and the best Pearson on dev."""
    one = Classifier(x.shape[1], 5, 0.0)
    targets, grades = soft_labels(scores), np.arange(1, 6)

    def predict(rows):
        with torch.no_grad():
            return torch.softmax(one.model(torch.tensor(rows)), dim=1).numpy() @ grades

    done, misses, best = 0, 0, -1.0
    while done <= max_epochs:
        for _ in range(epochs):
            order = one.draws.permutation(len(x))
            for start in range(0, len(x), 64):
                rows = order[start : start + 64]
                found = torch.softmax(one.model(torch.tensor(x[rows])), dim=1)
                loss = nn.functional.mse_loss(found, torch.tensor(targets[rows]))
                one.optimiser.zero_grad()
                loss.backward()
                one.optimiser.step()
        done += epochs
        pearson = stats.pearsonr(predict(dev_x), dev_scores)[0]
        if pearson > best:
            best, kept = pearson, copy.deepcopy(one.model.state_dict())
            continue
        misses += 1
        if misses == 4:
            break
    one.model.load_state_dict(kept)
    return predict(test_x), best
