"""Small runs of studies for tests: similarity tasks, classifiers and geometry with chosen quality."""

from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from nearfar.evaluation.results import (
    EvaluationResult,
    GeometryResult,
    Provenance,
    SimilarityAverage,
    StudyCell,
    StudyTable,
    TransferAverage,
    TransferResults,
)
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.transfer import classification
from nearfar.studies.scores import Run
from nearfar.studies.spec import read_recorded
from nearfar.studies.table import build_table
from nearfar.types import ScoredPair

RESAMPLES = 300
PROVENANCE = Provenance.from_dict(
    {
        "date": "2024-01-02T03:04:05+00:00",
        "command": "nearfar evaluate m",
        "commit": "abc1234",
        "versions": {"python": "3.11.2", "torch": "2.9.0", "usearch": None},
        "hardware": {"machine": "x86_64", "processor": "fast", "instruction_sets": "avx2 avx512f", "cores": 2},
    }
)


def pairs(number: int, seed: int) -> list[ScoredPair]:
    gold = np.random.default_rng(seed).integers(0, 11, number) / 2
    return [ScoredPair(f"{seed} left {n}", f"{seed} right {n} {g}", float(g)) for n, g in enumerate(gold)]


DATA = {"sts12": {"a": pairs(60, 1), "b.c": pairs(40, 2)}, "stsb": {"test": pairs(80, 3)}}


def similarity(noise: float, seed: int, *, data: Any = DATA) -> EvaluationResult:
    """An evaluation of an encoder whose cosines are the gold scores plus noise."""
    rng = np.random.default_rng([seed, int(1000 * noise)])

    def encode(texts: Any) -> Any:
        angle = [0.0 if "left" in text else 80 - 16 * float(text.split()[3]) for text in texts]
        angle = np.radians(angle + noise * 16 * rng.normal(size=len(texts)))
        return np.stack([np.cos(angle), np.sin(angle), np.full_like(angle, 0.5)], axis=1)

    scored = evaluate_sts(encode, data, resamples=100)
    averages = {}
    if len(scored.tasks) > 1:
        metrics = [next(iter(scored.tasks.values())).spearman, next(iter(scored.tasks.values())).pearson]
        averages = {"both": SimilarityAverage(tasks=list(data), spearman=metrics[0], pearson=metrics[1])}
    return EvaluationResult(
        model="m", config={"training_seed": seed}, provenance=PROVENANCE, tasks=scored.tasks, averages=averages
    )


def classified(accuracy: float, seed: int, *, task: str = "mrpc", rows: int = 90) -> EvaluationResult:
    """A classifier of pairs with two labels that is right with this probability."""
    rng = np.random.default_rng([seed, int(1000 * accuracy)])
    gold = np.random.default_rng(9).integers(0, 2, rows)
    predicted = np.where(rng.random(rows) < accuracy, gold, 1 - gold)
    settings = {"protocol": "finetune", "names": ["no", "yes"], "pairs": True, "resamples": 100, "seed": [0]}
    texts = [(f"left {row}", f"right {row}") for row in range(rows)]
    entry, _ = classification(gold, predicted, texts=texts, **settings)
    entry = replace(entry, digest=f"{task} {rows}", dev_accuracy=77.5)
    averages = {"one": TransferAverage(tasks=[task], accuracy=entry.accuracy)}
    transfer = TransferResults(protocol="finetune", averages=averages, tasks={task: entry})
    return EvaluationResult(
        model="m", config={"training_seed": seed}, provenance=PROVENANCE, tasks={}, transfer=transfer
    )


def geometry(seed: int, *, uniformity: float = -1.5) -> GeometryResult:
    spectrum = (1 / np.arange(1, 101) ** (0.5 + 0.01 * seed)).tolist()
    model = {"model": "m", "pooling": "cls", "alignment": 0.2, "uniformity": uniformity - 0.1 * seed, "warning": None}
    model |= {"mean_cosine": 0.3, "effective_rank": 20.0, "isotropy": 0.4, "spectrum": spectrum}
    model |= {"layers": {"cls": [None, 20.0 + seed, 30.0], "mean": [40.0, 50.0, 60.0 + seed]}}
    model |= {"projection": {"similar": [[0, 0, 1, seed]], "dissimilar": [], "labelled": {"x": [[0, seed], [1, 1]]}}}
    return GeometryResult.from_dict(
        {
            "schema": 1,
            "kind": "geometry",
            "config": {"positive_above": 4.0},
            "provenance": PROVENANCE.to_dict(),
            "pairs": {"spec": "stsb", "instead_of": None, "positives": 10, "texts": 100},
            "task": None,
            "unavailable": {},
            "models": {"m": model},
        }
    )


STUDY: dict[str, Any] = {
    "title": "A study",
    "source": "Somebody 2020, Table 1",
    "columns": ["sts12", "stsb", "average"],
    "aggregate": "wmean",
    "replicates": {"seed": [1, 2, 3]},
    "compare": [["good", "bad"]],
    "rows": [
        {"id": "bad", "name": "Bad | <row>", "paper": {"sts12": 60.0, "stsb": [61.5, 0.4], "average": 60.75}},
        {"id": "good", "paper": {"sts12": 70.0, "stsb": 71.0, "average": 70.5}, "note": "A good one."},
        {"id": "fixed", "name": "A baseline"},
    ],
}


def run(
    row: str,
    coordinates: dict[str, str] | None = None,
    replicate: dict[str, Any] | None = None,
    measured: Any = (),
    *,
    key: str = "",
    missing: str | None = None,
    curves: Any = None,
    **values: float | None,
) -> Run:
    """A run with its results; ``values`` are its validation and seconds."""
    known = {name: value for name, value in values.items() if value is not None}
    cell = StudyCell(
        row=row, coordinates=coordinates or {}, replicate=replicate or {}, key=key, missing=missing, values=known
    )
    return Run(cell, measured, curves or {})


def build(
    study: dict[str, Any], runs: list[Run], *, base: Any = None, scale: str | None = None, **how: Any
) -> StudyTable:
    """The table of a study without settings: its axes get one, and it has the replicates of its best ones."""
    study = {"replicates": {"seed": [1, 2, 3]}, **study} if "best" in study else study
    axes = [{"setting": f"train.setting{number}", **axis} for number, axis in enumerate(study.get("axes", []))]
    loaded = read_recorded({**study, **({"axes": axes} if axes else {})})
    return build_table(structs.replace(loaded, base=base or {}, scale=scale), runs, **how)


def cells(*, seeds: tuple[int, ...] = (1, 2, 3)) -> list[Run]:
    """The runs of :data:`STUDY`."""
    found = []
    for row, noise in (("bad", 4.0), ("good", 2.0), ("fixed", 6.0)):
        fixed = similarity(noise, 0)
        for seed in seeds:
            results = [fixed if row == "fixed" else similarity(noise, seed)]
            key = row if row == "fixed" else f"{row}{seed}"
            found.append(run(row, {}, {"seed": seed}, results, seconds=1.5, key=key))
    return found
