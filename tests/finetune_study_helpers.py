"""Small fine-tuning studies: labelled files, a config, and simulated runs."""

import random
from collections.abc import Callable
from pathlib import Path

from nearfar.commands.finetune.command import FinetuneResult
from nearfar.commands.finetune.plan import plan_runs
from nearfar.config import FinetuneConfig, FinetuneStudyConfig
from nearfar.data.classification import ClassificationTask
from nearfar.evaluation.results import (
    ClassificationScores,
    Estimate,
    EvaluationResult,
    FinetuningSummary,
    Provenance,
    TransferResults,
)
from nearfar.training.loop import Interrupted
from tests.tiny import sentences

LABELS = ("cat", "dog")
Score = Callable[[FinetuneConfig], tuple[float, float]]
"""Config of a run -> its scores x 100 on validation and test rows."""


def write(file: Path, rows: int, *, seed: int, labels: tuple[str, ...] = LABELS, shares: tuple[int, ...] = ()) -> str:
    """Texts that contain their label; ``shares`` rows of each label, or the same number of each."""
    row_labels = [label for label, share in zip(labels, shares, strict=False) for _ in range(share)]
    row_labels = row_labels or [labels[number % len(labels)] for number in range(rows)]
    random.Random(seed).shuffle(row_labels)
    texts = sentences(len(row_labels), seed=seed, longest=6)
    lines = [
        f"{label}\t{label} {text} {number} {label}"
        for number, (label, text) in enumerate(zip(row_labels, texts, strict=True))
    ]
    file.write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def study_config(tmp_path: Path, tiny: str) -> FinetuneStudyConfig:
    """A study of two settings, two variants and two samples."""
    return FinetuneStudyConfig(
        output=str(tmp_path / "study"),
        model=tiny,
        task=write(tmp_path / "train.tsv", 40, seed=1),
        validation=write(tmp_path / "validation.tsv", 12, seed=2),
        test=write(tmp_path / "test.tsv", 20, seed=3),
        learning_rate=3e-3,
        device="cpu",
        few_shot="4,8",
        samples=2,
    )


class Runs:
    """Replaces the training: records its arguments and returns given scores."""

    def __init__(self) -> None:
        self.configs: list[FinetuneConfig] = []
        self.tasks: list[ClassificationTask] = []
        self.scores: Score = lambda config: (50.0, 60.0)
        self.stop_after: int | None = None
        self.stop: BaseException = Interrupted()

    def __call__(self, config: FinetuneConfig, task: ClassificationTask) -> FinetuneResult:
        if len(self.configs) == self.stop_after:
            raise self.stop
        self.configs.append(config)
        self.tasks.append(task)
        validation, test = self.scores(config)
        entry = ClassificationScores(
            protocol="finetune",
            rows=20,
            accuracy=Estimate(test, None, None),
            matthews=Estimate(None, None, None, "why"),
            digest="0",
        )
        transfer = TransferResults(protocol="finetune", averages={}, tasks={task.name: entry})
        provenance = Provenance(commit="abc")
        training = FinetuningSummary(
            validation=validation, metric="accuracy", steps=8, best_step=4, seconds=2.0, updates_per_second=4.0
        )
        result = EvaluationResult(
            model="m", config={}, provenance=provenance, tasks={}, transfer=transfer, training=training
        )
        return FinetuneResult(steps=8, best_step=4, start_score=0.0, best_score=0.99, seconds=2.0, result=result)


def keys(config: FinetuneStudyConfig) -> list[tuple[str, str, int]]:
    return [one.key for one in plan_runs(config)]


def lines_of(config: FinetuneStudyConfig) -> list[str]:
    return (Path(config.output) / "cells.jsonl").read_text().splitlines()
