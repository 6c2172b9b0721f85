"""A small run of every method, on generated rows and a tiny encoder."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearfar import TrainConfig
from nearfar.registry import METHODS
from tests.tiny import save_tiny, sentences, write_nli, write_pairs

FILES = {
    "premise_column": "nli.tsv",
    "translation_column": "translated.tsv",
    "score_column": "scored.tsv",
    "anchor_column": "triplets.tsv",
    "label_column": "labelled.tsv",
    "title_column": "documents.tsv",
    "text_column": "sentences.txt",
}
"""A setting that tells what rows a method reads -> the file of such rows; the first that a method has."""
DATA = {
    name: next((file for setting, file in FILES.items() if hasattr(kind, setting)), "nli.tsv")
    for name, kind in METHODS.items()
}
DATA["teacher-scores"] = "teacher.tsv"
"""Method -> the file of its rows."""


def by_night(methods: Iterable[str], day: Sequence[str]) -> list[Any]:
    """Parameters: the methods, those that are not among ``day`` at night."""
    return [name if name in day else pytest.param(name, marks=pytest.mark.nightly) for name in methods]


def write_data(folder: Path, *, rows: int = 31) -> Path:
    """Write a file of each type of rows; the encoders ``tiny`` without dropout, ``noisy`` with dropout, ``teacher``."""
    draw = random.Random(0)
    texts = list(dict.fromkeys(f"{text} {number}" for number, text in enumerate(sentences(3 * rows, longest=8))))
    first, second, third = texts[:rows], texts[rows : 2 * rows], texts[2 * rows :]
    write_nli(folder / "nli.tsv", rows)
    (folder / "sentences.txt").write_text("\n".join(first) + "\n")
    both = "".join(f"{one}\t{two}\n" for one, two in zip(first, second, strict=True))
    (folder / "translated.tsv").write_text("sentence\ttranslation\n" + both)
    all_three = "".join("\t".join(row) + "\n" for row in zip(first, second, third, strict=True))
    (folder / "triplets.tsv").write_text("anchor\tpositive\tnegative\n" + all_three)
    lists = "".join(
        f"{one}\t{two}\t{three}\t{four}\t{draw.gauss(3, 1):.3f}\t{draw.gauss(0, 2):.3f}\t{draw.gauss(0, 2):.3f}\n"
        for one, two, three, four in zip(first, second, third, [*third[1:], third[0]], strict=True)
    )
    names = ("anchor", "positive", "negative_1", "negative_2", "score", "negative_score_1", "negative_score_2")
    (folder / "teacher.tsv").write_text("\t".join(names) + "\n" + lists)
    labelled = "".join(f"{draw.choice(('dogs', 'cats', 'birds'))}\t{text}\n" for text in first)
    (folder / "labelled.tsv").write_text("label\ttext\n" + labelled)
    documents = "".join(
        f"about {one}\t{one} and what follows. {two} in the middle. {one} at the end.\n"
        for one, two in zip(first, second, strict=True)
    )
    (folder / "documents.tsv").write_text("title\ttext\n" + documents)
    write_pairs(folder / "scored.tsv", rows)
    write_pairs(folder / "dev.tsv", 30)
    save_tiny(folder / "tiny", dropout=0.0)
    save_tiny(folder / "noisy", dropout=0.3)
    save_tiny(folder / "teacher", seed=1)
    return folder


def config(method: str, folder: Path, **settings: Any) -> TrainConfig:
    """The method's config on the data of :func:`write_data`: batches of 10, evaluated every 4 steps."""
    values: dict[str, Any] = {
        "output": str(folder / "run"),
        "model": str(folder / "noisy"),
        "data": (str(folder / DATA[method]),),
        "evaluate_on": str(folder / "dev.tsv"),
        "batch_size": 10,
        "epochs": 1,
        "learning_rate": 1e-3,
        "evaluate_every": 4,
        "checkpoint_every": 3,
    }
    if hasattr(METHODS[method], "projection"):
        values["projection"] = 24
    if hasattr(METHODS[method], "teacher"):
        values["teacher"] = str(folder / "teacher")
    if method == "info-nce":
        values["negative_column"] = "negative"
    return METHODS[method](**{**values, **settings})


def further_set(kind: str, folder: Path, **settings: object) -> dict[str, object]:
    """A further set of rows: ``labels``, ``sentences`` (a method with a head), ``nli`` or ``order``."""
    method, data = {
        "labels": ("supcon-text", "labelled.tsv"),
        "sentences": ("simcse-unsup", "sentences.txt"),
        "nli": ("scl", "nli.tsv"),
        "order": ("nli-order", "nli.tsv"),
    }[kind]
    return {"method": method, "data": [str(folder / data)], "batch_size": 6, **settings}
