"""Scores of a fine-tuned classifier on the test rows."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from nearfar.config import FinetuneConfig
from nearfar.evaluation.results import EvaluationResult, TransferResults, provenance

if TYPE_CHECKING:
    from nearfar.data.classification import ClassificationTask
    from nearfar.encoder.classifier import Classifier

RESAMPLES = 1000
"""Bootstrap resamples of the confidence intervals."""


def evaluate_test_rows(
    config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier", *, validation: float
) -> EvaluationResult:
    """Scores on the test rows.

    ``validation`` is the validation score of the kept weights, in [-1, 1].
    """
    from nearfar.evaluation.finetuned import finetuned_entry

    texts, gold = task.test
    outputs = classifier.predict(texts, precision=config.precision)
    entry = finetuned_entry(
        texts,
        gold,
        outputs,
        label_names=task.label_names,
        metric=task.metric,
        validation=validation,
        resamples=RESAMPLES,
        seed=[config.seed, *task.name.encode()],
    )
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    return EvaluationResult(
        model=config.output or config.model,
        config=settings
        | {
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
    )
