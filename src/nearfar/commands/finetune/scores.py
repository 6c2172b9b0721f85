"""Scores of a fine-tuned classifier on the validation and test rows."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from nearfar.config import FinetuneConfig
from nearfar.evaluation.results import EvaluationResult, FinetuningSummary, TransferResults, provenance

if TYPE_CHECKING:
    from nearfar.data.classification import ClassificationTask
    from nearfar.encoder.classifier import Classifier
    from nearfar.training.checkpoint import Progress

RESAMPLES = 1000
"""Bootstrap resamples of the confidence intervals."""


def evaluate_test_rows(
    config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier", progress: "Progress"
) -> EvaluationResult:
    """Scores of the kept weights, which ``classifier`` has, on the test rows, and their validation scores."""
    from nearfar.evaluation.finetuned import finetuned_entry, main_metric, validation_scores

    labels = len(task.label_names)
    outputs = classifier.predict(task.validation.texts, precision=config.precision)
    validation = validation_scores(task.validation.targets, outputs, labels=labels, pairs=task.pairs)
    texts, gold = task.test
    outputs = classifier.predict(texts, precision=config.precision)
    entry = finetuned_entry(
        texts,
        gold,
        outputs,
        label_names=task.label_names,
        validation=validation,
        resamples=RESAMPLES,
        seed=[config.seed, *task.name.encode()],
    )
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    return EvaluationResult(
        model=config.output or config.model,
        config=settings
        | {
            "splits": task.splits,
            "training_seed": config.seed,
            "tasks": [task.name],
            "data": [*task.sources, *task.labels],
            "resamples": RESAMPLES,
        },
        provenance=provenance(),
        tasks={},
        texts=len({text for row in texts for text in row}),
        dim=classifier.backbone.config.hidden_size,
        transfer=TransferResults(protocol="finetune", nhid=0, folds=0, averages={}, tasks={task.name: entry}),
        training=_summary(
            progress, validation, main_metric(task.metric, config.metric, labels=labels, pairs=task.pairs)
        ),
    )


def _summary(progress: "Progress", validation: Mapping[str, float], metric: str) -> FinetuningSummary:
    seconds = progress.seconds
    return FinetuningSummary(
        validation=round(100 * validation[metric], 4),
        metric=metric,
        steps=progress.step,
        best_step=progress.best_step or 0,
        seconds=round(seconds, 3),
        updates_per_second=round(progress.step / seconds, 4) if seconds > 0 else None,
    )
