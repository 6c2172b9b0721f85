"""Synthetic transfer tasks with known answers, and an encoder whose vectors depend on the first word of a text."""

import numpy as np

from nearfar.data.labelled import Split, TransferTask
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.transfer import evaluate_transfer

DIM = 40
FAST_SETTINGS = {"probe": Probe(folds=3), "resamples": 50}
EXACT_SETTINGS = {"probe": Probe(protocol="exact", folds=3), "resamples": 50}


def vectors(texts):
    """Return for a text such as "c17 word word" a vector that depends only on its class and its number."""
    rows = []
    for text in texts:
        kind, number = text.split()[0][0], int(text.split()[0][1:])
        centre = np.random.default_rng(ord(kind)).normal(size=DIM)
        rows.append(centre + np.random.default_rng(number).normal(size=DIM))
    return np.array(rows, dtype=np.float32)


def texts_of(rows, classes=2, *, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows).tolist()
    texts = [
        f"{'abcdef'[label]}{1000 * seed + row}" + " word" * int(rng.integers(0, 4)) for row, label in enumerate(labels)
    ]
    return texts, labels


def split_of(rows, classes=2, *, seed=0):
    texts, labels = texts_of(rows, classes, seed=seed)
    return Split([(text,) for text in texts], labels)


def task(*sizes, classes=2, seed=0):
    names = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}[len(sizes)]
    splits = {split: split_of(sizes[k], classes, seed=10 * seed + k) for k, split in enumerate(names)}
    return TransferTask(name="mine", splits=splits, label_names=tuple("uvwxyz"[:classes]))


def pairs(*sizes, scored=False, seed=0):
    """Return a task of pairs, labelled by whether both texts have the same class, or ``scored`` from 1 to 5."""
    names = {2: ("train", "test"), 3: ("train", "dev", "test")}[len(sizes)]
    splits = {}
    for k, (split, size) in enumerate(zip(names, sizes, strict=True)):
        first, a = texts_of(size, seed=20 * seed + 2 * k + 50)
        second, b = texts_of(size, seed=20 * seed + 2 * k + 51)
        same = [x == y for x, y in zip(a, b, strict=True)]
        targets = [2 + 3 * x - n % 10 / 10 for n, x in enumerate(same)] if scored else [int(x) for x in same]
        splits[split] = Split(list(zip(first, second, strict=True)), targets)
    return TransferTask(name="pairs", splits=splits, label_names=() if scored else ("0", "1"))


def evaluate(one, encode=vectors, **settings):
    return evaluate_transfer(encode, {"mine": one}, **FAST_SETTINGS | settings).tasks["mine"]


def sort_as_senteval(rows):
    order = sorted(range(len(rows.texts)), key=lambda k: (*(len(t.split()) for t in rows.texts[k]), rows.targets[k]))
    sides = [vectors([rows.texts[k][side] for k in order]) for side in range(len(rows.texts[0]))]
    x = sides[0] if len(sides) == 1 else np.concatenate([np.abs(sides[0] - sides[1]), sides[0] * sides[1]], axis=1)
    return order, x, np.array([rows.targets[k] for k in order])
