"""The training of a classifier, as a run: its rows, with samples and noise, what it trains, and its scores."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.config.training import FinetuneConfig
from nearfar.data.batching import TextBatches
from nearfar.data.classification import ClassificationTask, default_splits, draw, load_classification
from nearfar.data.labelled import Split
from nearfar.data.noise import add_noise, load_translations
from nearfar.data.paths import as_path, status
from nearfar.data.sources import skipping_empty
from nearfar.disk.model_folder import write_seen
from nearfar.encoder.backbone import learning_rate_factors
from nearfar.encoder.classifier import Classifier, read_classifier
from nearfar.encoder.precision import resolve
from nearfar.encoder.training_encoder import TrainingClassifier
from nearfar.evaluation.finetuned import (
    finetuned_entry,
    finetuned_result,
    main_metric,
    validation_scores,
)
from nearfar.evaluation.results import EvaluationResult, FinetuningSummary
from nearfar.evaluation.tables import save_with_tables
from nearfar.methods.gunel import scl_finetune
from nearfar.methods.mixture import Mixture
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.runs.folder import RunFolder
from nearfar.runs.run import Prepared, ProcessContext, Run, count_steps
from nearfar.training import Evaluation
from nearfar.training.gradients import seed_rng
from nearfar.types import NearfarError, Splits

NOISES = ("word-dropout", "word-swap", "characters")
"""Kinds of generated noise; any other value of ``--noise`` is a file of back-translations."""


def load_task(config: FinetuneConfig) -> ClassificationTask:
    """The task of a config: its training rows sampled, and with noise in their texts.

    Raises:
        NearfarError: rows that cannot be read, sampled or trained on; a metric that the task does not have.
    """
    with skipping_empty(config.skip_empty):
        task = load_classification(
            config.task,
            validation=config.validation,
            test=config.test,
            splits=resolve_splits(config),
            validation_rows=config.validation_rows,
            text_columns=config.text_columns or None,
            label_column=config.label_column,
            limit=config.limit,
        )
    main_metric(task.metric, config.metric, labels=len(task.label_names), pairs=task.pairs)
    return apply_noise(config, draw_sample(config, task))


def resolve_splits(config: FinetuneConfig) -> Splits:
    """The splits of a config, with ``auto`` resolved; files of validation or test rows mean held-out splits."""
    if config.splits != "auto":
        return config.splits
    if config.validation is not None or config.test is not None:
        return "held-out"
    return default_splits(config.task, sampled=config.sample_size is not None)


def draw_sample(config: FinetuneConfig, task: ClassificationTask) -> ClassificationTask:
    """The task with a sample of its training rows, as ``config.sample_size`` and its seed say."""
    if config.sample_size is None:
        return task
    texts, targets = task.train
    if not task.label_names:
        raise NearfarError("--sample-size samples rows by label, but these rows have scores; use --limit.")
    rows = draw(
        [int(target) for target in targets],
        config.sample_size,
        balanced=config.sample_balanced,
        seed=config.sample_seed,
        label_names=task.label_names,
    )
    kind = "balanced over labels" if config.sample_balanced else "in the labels' proportions"
    note = f"{len(rows)} of {len(texts)} training rows drawn, {kind}, sample {config.sample_seed}"
    train = Split([texts[row] for row in rows], [targets[row] for row in rows])
    return replace(task, train=train, sources=(*task.sources, note))


def apply_noise(config: FinetuneConfig, task: ClassificationTask) -> ClassificationTask:
    """The task with noise in its training texts; validation and test rows do not change.

    With ``noise_mode`` add, the original rows come first, then a noisy copy of each.
    """
    if config.noise == "none":
        return task
    texts, targets = task.train
    flat = [text for row in texts for text in row]
    if config.noise in NOISES:
        changed = add_noise(flat, config.noise, config.noise_rate, seed=config.sample_seed)  # type: ignore[arg-type]
        kind = f"{config.noise} at {config.noise_rate:g}"
    elif status(as_path(config.noise)) is None:
        raise NearfarError(f"--noise {config.noise}: is none of {', '.join(NOISES)}, and there is no such file.")
    else:
        translations = load_translations(config.noise)
        changed = [translations[text] for text in flat]
        kind = f"back-translations from {config.noise}"
    width = len(texts[0])
    rows = [tuple(changed[start : start + width]) for start in range(0, len(changed), width)]
    if config.noise_mode == "add":
        train = Split([*texts, *rows], [*targets, *targets])
        note = f"noise: {kind}, as copies beside the originals: {len(train.texts):,} training rows"
    else:
        train = Split(rows, targets)
        note = f"noise: {kind}, in place of the original training texts"
    return replace(task, train=train, sources=(*task.sources, note))


def training_texts(config: FinetuneConfig, task: ClassificationTask) -> list[list[tuple[str, ...]]]:
    """The texts of the training rows, and with noise also the texts before it: the model has seen both."""
    if config.noise == "none":
        return [task.train.texts]
    return [task.train.texts, load_task(replace(config, noise="none")).train.texts]


def fingerprints(config: FinetuneConfig, task: ClassificationTask) -> dict[str, Callable[[], str]]:
    """Functions that fingerprint the rows of each split, by the description of the split in messages."""
    noise = "" if config.noise in ("none", *NOISES) else f" with --noise {config.noise}"
    splits = {
        f"{config.task} (the training rows{noise})": task.train,
        f"--validation {config.validation}"
        if config.validation
        else f"{config.task} (validation rows)": task.validation,
        f"--test {config.test}" if config.test else f"{config.task} (test rows)": task.test,
    }

    def of(part: Split) -> str:
        return fingerprint_rows(part.texts, part.targets, task.label_names)

    return {what: partial(of, part) for what, part in splits.items()}


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
    start_is_candidate = False

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
        read_classifier(folder, label_names=None, regression=False, dropout=None)  # a finished run's model opens

    def conclude(self) -> dict[str, Any]:
        """Test the kept weights; write the result and the hashes into the run folder."""
        save_with_tables(self._test(), self.folder.path / "result.json")
        write_seen(self.folder.path, self.classifier.seen)
        return {"dev": f"{self.config.task}, validation", "metric": self.metric}

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
            seed=[config.seed, *task.name.encode()],
        )
        return finetuned_result(
            entry,
            texts,
            model=config.output or config.model,
            task=task.name,
            settings=asdict(config) | {"splits": task.splits},
            facts=[*task.sources, *task.labels],
            dim=classifier.backbone.config.hidden_size,
            seen=classifier.seen,
            training=self._summary(validation[self.metric]),
        )

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
