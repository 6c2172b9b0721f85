"""``nearfar finetune``: trains a classifier and tests it.

In the run folder, ``model/`` is a transformers folder for sequence classification, and ``result.json`` is a result file
with the predictions for the test rows.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from nearfar.commands.model_card import write_card
from nearfar.commands.train.choose import count_rows, read_start
from nearfar.commands.train.recipes import RECIPE_WIDTH
from nearfar.config.calls import accepts_settings
from nearfar.config.training import FinetuneConfig
from nearfar.data.batching import TextBatches
from nearfar.data.classification import ClassificationTask, load_classification
from nearfar.data.draws import default_splits, draw
from nearfar.data.labelled import Split
from nearfar.data.memory import takes_rows
from nearfar.data.named_sets import FINETUNING_TASKS
from nearfar.data.noise import add_noise, load_translations
from nearfar.data.paths import as_path
from nearfar.data.sources import skipping_empty
from nearfar.disk.checks import path_errors
from nearfar.encoder.backbone import recompute_layers
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.classifier_folder import read_classifier
from nearfar.encoder.precision import resolve
from nearfar.encoder.training_encoder import TrainingClassifier
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result, main_metric, validation_scores
from nearfar.evaluation.results import EvaluationResult, FinetuningSummary
from nearfar.evaluation.tables import save_with_tables
from nearfar.methods.gunel import scl_finetune
from nearfar.methods.mixture import Mixture
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import RunFolder, read_run_info
from nearfar.runs.run import Prepared, ProcessContext, Run, join_processes
from nearfar.training import Evaluation
from nearfar.training.gradients import seed_rng
from nearfar.training.processes import lost_process_errors
from nearfar.types import NearfarError, Splits

NOISES = ("word-dropout", "word-swap", "characters")
"""Kinds of generated noise; any other value of ``--noise`` is a file of back-translations."""
STEPS, MOST_EPOCHS = 150, 60
"""Steps that :func:`recommended_settings` gives few rows, in at most so many epochs."""


@dataclass(frozen=True)
class FinetuneResult:
    """Result of :func:`finetune`."""

    steps: int
    best_step: int
    start_score: float
    """The metric that chooses the step, on the validation rows before training, in [-1, 1]."""
    best_score: float
    seconds: float
    """Duration of the training steps, without evaluation."""
    result: EvaluationResult
    """Scores on the test rows, in the format of a result file."""


def recommended_settings(config: FinetuneConfig) -> dict[str, Any]:
    """Epochs, learning rate and the weight of SCL for the number of rows and the kind of encoder of ``config``.

    An encoder as narrow as all-MiniLM-L6-v2 gets a higher rate than the paper's, which is for RoBERTa-large; few rows
    get as many epochs as :data:`STEPS` steps take, at most :data:`MOST_EPOCHS`. They were tried on SUBJ.
    """
    name, _, split = config.task.partition(":")
    named = FINETUNING_TASKS.get(name)
    spec = config.task if named is None else f"{named.source}:{split or 'train'}"
    column = config.label_column if named is None else named.label_column
    limits = [number for number in (config.sample_size, config.limit) if number is not None]
    rows = min([count_rows([spec], column, STEPS * config.batch_size), *limits])
    _, width, _ = read_start(config.model)
    return {
        "epochs": max(FinetuneConfig.epochs, min(MOST_EPOCHS, -(-STEPS * config.batch_size // rows))),
        "learning_rate": 1e-4 if width is not None and width <= RECIPE_WIDTH else 2e-5,
        "scl_weight": 0.5,
        "scl_reduction": "mean",
    }


@takes_rows
@accepts_settings(FinetuneConfig, recommended_settings)
@path_errors()
@lost_process_errors()
def finetune(config: FinetuneConfig, *, resume: bool = False, console: Console | None = None) -> FinetuneResult:
    """Fine-tune a classifier, test it, and write it to ``config.output``/model.

    Settings can be given by name: ``finetune(task="sst2", output="runs/sst2")``; see :class:`nearfar.FinetuneConfig`.
    ``task``, ``validation`` and ``test`` take rows in memory too, as :func:`nearfar.train` does.
    Epochs, learning rate, lambda and the reduction of SCL are then those of :func:`recommended_settings` unless they
    are given. The best step is chosen on the validation rows only.

    Args:
        config: the settings.
        resume: continue an interrupted run in ``config.output``, as in :func:`nearfar.train`.
        console: where to print progress; by default it is printed in notebooks only.

    Raises:
        NearfarError: invalid data, model or settings; a run folder that holds something else or is in use; data that
            changed since the run started; a loss that is not finite; a file that cannot be written.
        nearfar.training.Interrupted: after Ctrl-C, with everything saved.
    """
    context = join_processes(config, console)
    processes, run = context.processes, Path(config.output)
    with RunFolder(config, processes) as folder:
        finished = folder.acquire(resume=resume) == "finished"
        if not finished:
            config = replace(config, precision=folder.resolve_precision(config.precision, context.device))
            with processes.joint_errors():
                task = load_task(config)
                for split, rows in (("training", task.train), ("validation", task.validation), ("test", task.test)):
                    fingerprint = partial(fingerprint_rows, rows.texts, rows.targets, task.label_names)
                    folder.verify_input(f"{config.task} (the {split} rows)", fingerprint)
                folder.verify_input(f"--model {config.model}", partial(fingerprint_model, config.model))
            classifier = open_classifier(config, task, device=context.device)
            ClassifierRun(config, task, classifier, folder=folder, context=context).execute()
        result = processes.broadcast_from_first(partial(load_finetune_result, run))
    if finished:
        context.say(f"{run}: this run is already finished; nothing to do.")
    processes.broadcast_from_first(partial(write_card, run))
    return result


def load_finetune_result(folder: Path) -> FinetuneResult:
    """The result of the finished run in ``folder``.

    Raises:
        NearfarError: its run.json or result.json is missing or damaged.
    """
    info = read_run_info(folder)
    numbers = {name: info.get(name) or 0 for name in ("best_step", "start_score", "best_score", "seconds")}
    return FinetuneResult(info.get("step") or 0, **numbers, result=EvaluationResult.load(folder / "result.json"))


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
    main_metric(task, config.metric)
    return _add_noise(config, _draw_sample(config, task))


def resolve_splits(config: FinetuneConfig) -> Splits:
    """The splits of a config, with ``auto`` resolved; files of validation or test rows mean held-out splits."""
    if config.splits != "auto":
        return config.splits
    of_files = config.validation is not None or config.test is not None
    return "held-out" if of_files else default_splits(config.task, sampled=config.sample_size is not None)


def _draw_sample(config: FinetuneConfig, task: ClassificationTask) -> ClassificationTask:
    """The task with a sample of its training rows, as ``config.sample_size`` and its seed say."""
    if config.sample_size is None:
        return task
    texts, targets = task.train
    if not task.label_names:
        raise NearfarError("--sample-size samples rows by label, but these rows have scores; use --limit.")
    how: dict[str, Any] = {"balanced": config.sample_balanced, "seed": config.sample_seed}
    rows = draw([int(target) for target in targets], config.sample_size, label_names=task.label_names, **how)
    kind = "balanced over labels" if config.sample_balanced else "in the labels' proportions"
    note = f"{len(rows)} of {len(texts)} training rows drawn, {kind}, sample {config.sample_seed}"
    train = Split([texts[row] for row in rows], [targets[row] for row in rows])
    return replace(task, train=train, sources=(*task.sources, note))


def _add_noise(config: FinetuneConfig, task: ClassificationTask) -> ClassificationTask:
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
    elif not as_path(config.noise).exists():
        raise NearfarError(f"--noise {config.noise}: is none of {', '.join(NOISES)}, and there is no such file.")
    else:
        changed = load_translations(config.noise, flat)
        kind = f"back-translations from {config.noise}"
    width = len(texts[0])
    train = Split([tuple(changed[at : at + width]) for at in range(0, len(changed), width)], targets)
    how = "in place of the original training texts"
    if config.noise_mode == "add":
        train = Split([*texts, *train.texts], [*targets, *targets])
        how = f"as copies beside the originals: {len(train.texts):,} training rows"
    return replace(task, train=train, sources=(*task.sources, f"noise: {kind}, {how}"))


def open_classifier(config: FinetuneConfig, task: ClassificationTask, *, device: str | None) -> Classifier:
    """The pretrained encoder with a new head for the task; the head depends only on ``config.seed``."""
    seed_rng(config.seed)
    classifier = Classifier.from_pretrained(
        config.model,
        label_names=task.label_names,
        dropout=config.dropout,
        max_length=config.max_length,
        device=device,
    )
    if config.gradient_checkpointing:
        recompute_layers(classifier.backbone)
    return classifier


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
    trained = TrainingClassifier(classifier, texts, max_length=config.train_max_length, bf16=bf16)
    method = scl_finetune(config, trained.states, trained.head, batches, label_names=task.label_names)
    facts = [*task.sources, *task.labels]
    if trained.truncated:
        length = min(config.train_max_length or classifier.max_length, classifier.max_length)
        facts.append(f"{trained.truncated} of {len(texts)} training rows have over {length} tokens and are truncated")
    mixture = Mixture((((replace(method, count_tokens=trained.lengths), 1.0),),))
    return Prepared(encoder=classifier.backbone, mixture=mixture, facts=facts)


class ClassifierRun(Run):
    """Trains a classifier on the training rows of a task, and tests it with the kept weights."""

    config: FinetuneConfig
    metric: str
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
        prepared = prepare(config, task, classifier, processes=context.processes.size)
        super().__init__(config, prepared, folder=folder, context=context)
        self.metric, self.evaluated_on = main_metric(task, config.metric), f"{config.task}, validation"
        trained = [task.train.texts]
        if config.noise != "none":  # the texts before it are what the model has seen too
            trained.append(load_task(replace(config, noise="none")).train.texts)
        classifier.seen = self.seen = self.seen_with(classifier.seen, trained, task.validation.texts)

    def evaluate(self) -> Evaluation:
        """Score the classifier on the validation rows."""
        return Evaluation(self._validation_scores()[self.metric], {})

    def save_model(self, folder: Path) -> None:
        """Write the classifier, with the hashes of the texts that it has seen."""
        self.classifier.save_pretrained(folder)
        read_classifier(folder)  # a finished run's model opens

    def conclude(self) -> None:
        """Test the kept weights, and write the result into the run folder."""
        save_with_tables(self._test(), self.folder.path / "result.json")

    def _validation_scores(self) -> Mapping[str, float]:
        task = self.task
        outputs = self.classifier.predict(task.validation.texts, precision=self.config.precision)
        return validation_scores(task.validation.targets, outputs, labels=len(task.label_names), pairs=task.pairs)

    def _test(self) -> EvaluationResult:
        """Scores of the kept weights on the test rows, and their validation scores."""
        config, task, classifier, progress = self.config, self.task, self.classifier, self.progress
        validation = self._validation_scores()
        texts, gold = task.test
        outputs, seed = classifier.predict(texts, precision=config.precision), [config.seed, *task.name.encode()]
        entry = finetuned_entry(texts, gold, outputs, label_names=task.label_names, validation=validation, seed=seed)
        summary = FinetuningSummary(
            validation=round(100 * validation[self.metric], 4),
            metric=self.metric,
            steps=progress.step,
            best_step=progress.best_step or 0,
            seconds=round(progress.seconds, 3),
            updates_per_second=round(progress.step / progress.seconds, 4) if progress.seconds > 0 else None,
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
            training=summary,
        )
