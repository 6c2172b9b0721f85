"""The training of a classifier, as a run: what it trains, and its scores on validation and test rows."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nearfar.commands.finetune.command import training_texts
from nearfar.config import FinetuneConfig
from nearfar.data.batching import TextBatches
from nearfar.data.classification import ClassificationTask
from nearfar.disk import write_seen
from nearfar.encoder.backbone import learning_rate_factors
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.precision import resolve
from nearfar.encoder.training_encoder import TrainingClassifier
from nearfar.evaluation.finetuned import finetuned_entry, main_metric, validation_scores
from nearfar.evaluation.results import EvaluationResult, FinetuningSummary, TransferResults, provenance
from nearfar.evaluation.seen import add_seen
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.methods.gunel import scl_finetune
from nearfar.methods.mixture import Mixture
from nearfar.runs.folder import RunFolder
from nearfar.runs.run import Prepared, ProcessContext, Run, count_steps
from nearfar.training.gradients import seed_rng
from nearfar.training.trainer import Evaluation

RESAMPLES = 1000
"""Bootstrap resamples of the confidence intervals."""


def open_classifier(config: FinetuneConfig, task: ClassificationTask, *, device: str | None) -> Classifier:
    """The pretrained encoder with a new head for the task; the head depends only on ``config.seed``."""
    seed_rng(config.seed)
    return Classifier.from_pretrained(
        config.model,
        label_names=task.label_names or None,
        regression=not task.label_names,
        dropout=config.dropout,
        max_length=config.max_length,
        device=device,
    )


def prepare(
    config: FinetuneConfig, task: ClassificationTask, classifier: Classifier, *, processes: int = 1
) -> Prepared:
    """What a run trains, ready for its first step.

    Raises:
        NearfarError: rows that cannot be trained on.
    """
    texts, targets = task.train
    size = min(config.batch_size * processes, len(texts))  # a few-shot sample may be smaller than a batch
    batches = TextBatches(texts, size, config.seed, targets, balanced=config.balanced, min_batch_size=1)
    bf16 = resolve(config.precision, classifier.device) == "bf16"
    training_classifier = TrainingClassifier(classifier, max_length=config.train_max_length, bf16=bf16)
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
    return Prepared(
        encoder=classifier.backbone,
        mixture=mixture,
        total_steps=count_steps(config, mixture),
        facts=facts,
        rate_factors=learning_rate_factors(classifier.backbone, config.layer_decay),
    )


class ClassifierRun(Run):
    """Trains a classifier on the training rows of a task, and tests it with the kept weights."""

    config: FinetuneConfig

    def __init__(
        self,
        config: FinetuneConfig,
        task: ClassificationTask,
        classifier: Classifier,
        *,
        folder: RunFolder,
        context: ProcessContext,
    ) -> None:
        self.task, self.classifier = task, classifier
        super().__init__(
            config,
            prepare(config, task, classifier, processes=context.processes.size),
            folder=folder,
            context=context,
            metric=main_metric(task.metric, config.metric, labels=len(task.label_names), pairs=task.pairs),
            evaluated_on="the validation rows",
        )
        classifier.seen = self.seen_with(classifier.seen, training_texts(config, task), task.validation.texts)

    def evaluate(self) -> Evaluation:
        """Score the classifier on the validation rows."""
        return Evaluation(self._validation_scores()[self.metric], {})

    def save_model(self, folder: Path) -> None:
        """Write the classifier, with the hashes of the texts that it has seen."""
        self.classifier.save_pretrained(folder)

    def conclude(self) -> dict[str, Any]:
        """Test the kept weights; write the result and the hashes into the run folder."""
        save_with_tables(self._test(), self.folder.path / "result.json")
        write_seen(self.folder.path, self.classifier.seen)
        return {"dev": f"{self.task.name}, validation", "metric": self.metric}

    def _validation_scores(self) -> Mapping[str, float]:
        task = self.task
        outputs = self.classifier.predict(task.validation.texts, precision=self.config.precision)
        return validation_scores(task.validation.targets, outputs, labels=len(task.label_names), pairs=task.pairs)

    def _test(self) -> EvaluationResult:
        """Scores of the kept weights on the test rows, and their validation scores."""
        config, task, classifier = self.config, self.task, self.classifier
        validation = self._validation_scores()
        texts, gold = task.test
        entry = finetuned_entry(
            texts,
            gold,
            classifier.predict(texts, precision=config.precision),
            label_names=task.label_names,
            validation=validation,
            resamples=RESAMPLES,
            seed=[config.seed, *task.name.encode()],
        )
        settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
        result = EvaluationResult(
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
            training=self._summary(validation[self.metric]),
        )
        return result if classifier.seen is None else add_seen(result, classifier.seen, tested={task.name: texts})

    def _summary(self, score: float) -> FinetuningSummary:
        progress = self.progress
        return FinetuningSummary(
            validation=round(100 * score, 4),
            metric=self.metric,
            steps=progress.step,
            best_step=progress.best_step or 0,
            seconds=round(progress.seconds, 3),
            updates_per_second=round(progress.step / progress.seconds, 4) if progress.seconds > 0 else None,
        )
