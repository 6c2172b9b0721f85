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

    loss = staticmethod(nn.functional.cross_entropy)

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
            loss = self.loss(self.model(torch.tensor(x[rows])), torch.tensor(y[rows]))
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


def best_of(scores):
    """Return the first of the best, with scores rounded to two decimals."""
    rounded = [round(100 * score, 2) for score in scores]
    return rounded.index(max(rounded)), max(rounded)


def choose(x, y, folds, params):
    """Return the best penalty of a cross-validation, and its accuracy."""
    scores, penalties, seed = [], params.get("penalties", PENALTIES), params.get("fold_seed", SEED)
    for penalty in penalties:
        each = []
        for kept, check in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
            one = Classifier(x.shape[1], y.max() + 1, penalty, params)
            one.fit(x[kept], y[kept], x[check], y[check])
            each.append(one.score(x[check], y[check]))
        scores.append(np.mean(each))
    best, accuracy = best_of(scores)
    return penalties[best], accuracy


def kfold(x, y, test_x, test_y, *, folds, params=None):
    """Return test accuracy, dev accuracy, predictions and penalties of a training and a test set."""
    penalty, accuracy = choose(x, y, folds, params or {})
    last = Classifier(x.shape[1], y.max() + 1, penalty, params)
    last.fit_held_out(x, y)
    return round(100 * last.score(test_x, test_y), 2), accuracy, last.predict(test_x), [penalty]


def inner_kfold(x, y, *, folds, params=None):
    """Return the same for a cross-validated pool."""
    predicted, parts = np.full(len(y), -1), []
    seed = (params or {}).get("fold_seed", SEED)
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
        tested, dev, predicted[test], chosen = kfold(x[train], y[train], x[test], y[test], folds=folds, params=params)
        parts.append((tested, dev, *chosen))
    tested, developed, chosen = zip(*parts, strict=True)
    return round(np.mean(tested), 2), round(np.mean(developed), 2), predicted, list(chosen)


def split(x, y, dev_x, dev_y, test_x, test_y, *, params=None):
    """Return the same for a training, a dev and a test set."""
    scores, penalties = [], (params or {}).get("penalties", PENALTIES)
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


def relatedness(x, scores, dev_x, dev_scores, test_x):
    """Return the predicted scores of test, and the best Pearson on dev."""
    one = Classifier(x.shape[1], 5, 0.0, {"epoch_size": 50, "max_epoch": 1000, "tenacity": 3})

    def predict(rows):
        with torch.no_grad():
            return torch.softmax(one.model(torch.tensor(rows)), dim=1).numpy() @ np.arange(1, 6)

    one.loss = lambda logits, targets: nn.functional.mse_loss(torch.softmax(logits, dim=1), targets)
    one.score = lambda rows, gold: stats.pearsonr(predict(rows), gold)[0]
    best = one.fit(x, soft_labels(scores), dev_x, dev_scores)
    return predict(test_x), best
