"""Reference implementation of SentEval's transfer protocol (Conneau & Kiela 2018), with plain loops over folds.

It is slow and short: torch's layers, losses, gradients and Adam; scikit-learn's folds; loops for everything else.
Tasks are arrays of features and labels. Accuracies are x 100.
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

    def __init__(self, dim, classes, penalty, *, nhid=0, seed=SEED):
        torch.manual_seed(seed)
        self.draws = np.random.RandomState(seed)
        if nhid:
            self.model = nn.Sequential(nn.Linear(dim, nhid), nn.Sigmoid(), nn.Linear(nhid, classes))
        else:
            self.model = nn.Sequential(nn.Linear(dim, classes))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=penalty)
        self.steps = 0

    def epoch(self, x, y, *, batch=64):
        order = self.draws.permutation(len(x))
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            loss = nn.functional.cross_entropy(self.model(torch.tensor(x[rows])), torch.tensor(y[rows]))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.steps += 1

    def fit(self, x, y, check_x, check_y):
        """Evaluate every four epochs; stop at the sixth evaluation without improvement."""
        epochs, misses, best = 0, 0, -1.0
        while epochs <= 200:
            for _ in range(4):
                self.epoch(x, y)
            epochs += 4
            accuracy = self.score(check_x, check_y)
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(self.model.state_dict())
                continue
            misses += 1
            if misses == 6:
                break
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


def best_of(scores):
    """Return the first of the best, with scores rounded to two decimals."""
    rounded = [round(100 * score, 2) for score in scores]
    return rounded.index(max(rounded)), max(rounded)


def inner_kfold(x, y, *, folds, nhid=0):
    """Return test accuracy, dev accuracy, predictions and penalties of a cross-validated task."""
    classes, predicted = y.max() + 1, np.full(len(y), -1)
    tested, developed, chosen = [], [], []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=SEED).split(x, y):
        scores = []
        for penalty in PENALTIES:
            each = []
            inner = StratifiedKFold(folds, shuffle=True, random_state=SEED)
            for kept, check in inner.split(x[train], y[train]):
                one = Classifier(x.shape[1], classes, penalty, nhid=nhid)
                one.fit(x[train][kept], y[train][kept], x[train][check], y[train][check])
                each.append(one.score(x[train][check], y[train][check]))
            scores.append(np.mean(each))
        best, accuracy = best_of(scores)
        developed.append(accuracy)
        chosen.append(PENALTIES[best])
        last = Classifier(x.shape[1], classes, PENALTIES[best], nhid=nhid)
        last.fit_held_out(x[train], y[train])
        predicted[test] = last.predict(x[test])
        tested.append(round(100 * last.score(x[test], y[test]), 2))
    return round(np.mean(tested), 2), round(np.mean(developed), 2), predicted, chosen


def kfold(x, y, test_x, test_y, *, folds, nhid=0):
    """Return the same for a training and a test set."""
    classes, scores = y.max() + 1, []
    for penalty in PENALTIES:
        each = []
        for kept, check in StratifiedKFold(folds, shuffle=True, random_state=SEED).split(x, y):
            one = Classifier(x.shape[1], classes, penalty, nhid=nhid)
            one.fit(x[kept], y[kept], x[check], y[check])
            each.append(one.score(x[check], y[check]))
        scores.append(np.mean(each))
    best, accuracy = best_of(scores)
    last = Classifier(x.shape[1], classes, PENALTIES[best], nhid=nhid)
    last.fit_held_out(x, y)
    return round(100 * last.score(test_x, test_y), 2), accuracy, last.predict(test_x), [PENALTIES[best]]


def split(x, y, dev_x, dev_y, test_x, test_y, *, nhid=0):
    """Return the same for a training, a dev and a test set."""
    scores = []
    for penalty in PENALTIES:
        one = Classifier(x.shape[1], y.max() + 1, penalty, nhid=nhid)
        one.fit(x, y, dev_x, dev_y)
        scores.append(one.score(dev_x, dev_y))
    best, accuracy = best_of(scores)
    last = Classifier(x.shape[1], y.max() + 1, PENALTIES[best], nhid=nhid)
    last.fit(x, y, dev_x, dev_y)
    return round(100 * last.score(test_x, test_y), 2), accuracy, last.predict(test_x), [PENALTIES[best]]


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
