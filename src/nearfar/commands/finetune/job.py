"""What one fine-tuning run trains: the classifier, its loss and batches, and its score on the validation rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nearfar.config import FinetuneConfig, dump_toml
from nearfar.data.batching import TextBatches
from nearfar.data.classification import ClassificationTask
from nearfar.encoder.precision import resolve
from nearfar.runs.execute import Job
from nearfar.types import Precision

if TYPE_CHECKING:
    from nearfar.encoder.classifier import Classifier
    from nearfar.training.loop import Evaluation


def open_classifier(config: FinetuneConfig, task: "ClassificationTask", *, device: str | None) -> "Classifier":
    """The pretrained encoder with a new head for the task; the head depends only on ``config.seed``."""
    from nearfar.encoder.classifier import Classifier
    from nearfar.training.gradients import seed_rng

    seed_rng(config.seed)
    return Classifier.from_pretrained(
        config.model,
        label_names=task.label_names or None,
        regression=not task.label_names,
        dropout=config.dropout,
        max_length=config.max_length,
        device=device,
    )


def make_job(
    config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier", *, processes: int = 1
) -> Job:
    """The job of one run, ready for its first step.

    Raises:
        NearfarError: rows that cannot be trained on.
    """
    from nearfar.encoder.layer_decay import learning_rate_factors
    from nearfar.encoder.training_encoder import TrainingClassifier
    from nearfar.evaluation.finetuned import main_metric
    from nearfar.methods.gunel.scl_finetune import scl_finetune
    from nearfar.methods.mixture import Mixture

    metric = main_metric(task.metric, config.metric, labels=len(task.label_names), pairs=task.pairs)
    texts, targets = task.train
    size = min(config.batch_size * processes, len(texts))  # a few-shot sample may be smaller than a batch
    batches = TextBatches(texts, size, config.seed, targets, balanced=config.balanced, min_batch_size=1)
    config = replace(config, precision=resolve(config.precision, classifier.device))
    training_classifier = TrainingClassifier(
        classifier, max_length=config.train_max_length, bf16=config.precision == "bf16"
    )
    training_classifier.read(texts)
    method = scl_finetune(
        config, training_classifier.states, training_classifier.head, batches, label_names=task.label_names
    )
    facts = [*task.sources, *task.labels]
    if training_classifier.truncated:
        length = min(config.train_max_length or classifier.max_length, classifier.max_length)
        facts.append(
            f"{training_classifier.truncated} of {len(texts)} training rows have over {length} tokens and are truncated"
        )
    mixture = Mixture(((replace(method, count_tokens=training_classifier.lengths), 1.0),))
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    return Job(
        mixture=mixture,
        encoder=classifier.backbone,
        total_steps=min(steps, config.max_steps or steps),
        facts=facts,
        evaluate=_evaluation(classifier, task, metric, config.precision),
        metric=metric,
        evaluated_on="the validation rows",
        settings={"config.toml": dump_toml(config)},
        save=classifier.save_pretrained,
        run_info=lambda _: {"dev": f"{task.name}, validation", "metric": metric},
        rate_factors=learning_rate_factors(classifier.backbone, config.layer_decay),
    )


def _evaluation(
    classifier: "Classifier", task: "ClassificationTask", metric: str, precision: Precision
) -> "Callable[[], Evaluation]":
    from nearfar.evaluation.finetuned import validation_scores
    from nearfar.training.loop import Evaluation

    def evaluate() -> Evaluation:
        outputs = classifier.predict(task.validation.texts, precision=precision)
        return Evaluation(
            validation_scores(task.validation.targets, outputs, labels=len(task.label_names), pairs=task.pairs)[metric],
            {},
        )

    return evaluate
