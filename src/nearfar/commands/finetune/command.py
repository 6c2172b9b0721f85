"""``nearfar finetune``: trains a classifier and tests it.

In the run folder, ``model/`` is a transformers folder for sequence classification, and ``result.json`` is a result file
with the predictions for the test rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.model_card import write_card
from nearfar.config import FinetuneConfig
from nearfar.config.calls import accepts_settings
from nearfar.data.classification import ClassificationTask, load_classification
from nearfar.data.finetuning_splits import default_splits, draw
from nearfar.data.labelled import Split
from nearfar.data.noise import add_noise, load_translations
from nearfar.data.paths import as_path, status
from nearfar.disk import path_errors
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import RunFolder, read_run_info
from nearfar.types import NearfarError, Splits

if TYPE_CHECKING:
    from rich.console import Console

NOISES = ("word-dropout", "word-swap", "characters")
"""Kinds of generated noise; any other value of ``--noise`` is a file of back-translations."""


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


@accepts_settings(FinetuneConfig)
@path_errors()
def finetune(config: FinetuneConfig, *, resume: bool = False, console: "Console | None" = None) -> FinetuneResult:
    """Fine-tune a classifier, test it, and write it to ``config.output``/model.

    Settings can be given by name: ``finetune(task="sst2", output="runs/sst2")``; see :class:`nearfar.FinetuneConfig`.
    The best step is chosen on the validation rows only.

    Args:
        config: the settings.
        resume: continue an interrupted run in ``config.output``, as in :func:`nearfar.train`.
        console: where to print progress; by default nothing is printed.

    Raises:
        NearfarError: invalid data, model or settings; a run folder that holds something else or is in use; data that
            changed since the run started; a loss that is not finite; a file that cannot be written.
        nearfar.training.trainer.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.commands.finetune.run import ClassifierRun, open_classifier
    from nearfar.runs.run import join_processes, run_in_folder

    context = join_processes(config, console)
    processes = context.processes

    def start(config: FinetuneConfig, folder: RunFolder) -> ClassifierRun:
        with processes.joint_errors():
            task = load_task(config)
            for what, fingerprint in fingerprints(config, task).items():
                folder.verify_input(what, fingerprint)
            folder.verify_input(f"--model {config.model}", partial(fingerprint_model, config.model))
        classifier = open_classifier(config, task, device=context.device)
        return ClassifierRun(config, task, classifier, folder=folder, context=context)

    result = run_in_folder(config, context, start, load_finetune_result, resume=resume)
    processes.broadcast_from_first(partial(write_card, Path(config.output)))
    return result


def load_finetune_result(folder: Path) -> FinetuneResult:
    """The result of the finished run in ``folder``.

    Raises:
        NearfarError: its run.json or result.json is missing or damaged.
    """
    run_info = read_run_info(folder)
    steps, best_step = (int(run_info.get(key) or 0) for key in ("step", "best_step"))
    start, best, seconds = (float(run_info.get(key) or 0) for key in ("start_score", "best_score", "seconds"))
    return FinetuneResult(steps, best_step, start, best, seconds, EvaluationResult.load(folder / "result.json"))


def load_task(config: FinetuneConfig) -> "ClassificationTask":
    """The task of a config: its training rows sampled, and with noise in their texts.

    Raises:
        NearfarError: rows that cannot be read, sampled or trained on; a metric that the task does not have.
    """
    from nearfar.evaluation.finetuned import main_metric

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


def draw_sample(config: FinetuneConfig, task: "ClassificationTask") -> "ClassificationTask":
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


def apply_noise(config: FinetuneConfig, task: "ClassificationTask") -> "ClassificationTask":
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


def training_texts(config: FinetuneConfig, task: "ClassificationTask") -> list[list[tuple[str, ...]]]:
    """The texts of the training rows, and with noise also the texts before it: the model has seen both."""
    if config.noise == "none":
        return [task.train.texts]
    return [task.train.texts, load_task(replace(config, noise="none")).train.texts]


def fingerprints(config: FinetuneConfig, task: "ClassificationTask") -> dict[str, Callable[[], str]]:
    """Functions that fingerprint the rows of each split, by the description of the split in messages."""
    noise = "" if config.noise in ("none", *NOISES) else f" with --noise {config.noise}"
    splits = {
        f"{config.task} (the training rows{noise})": task.train,
        f"--validation {config.validation}"
        if config.validation
        else f"{config.task} (validation rows)": task.validation,
        f"--test {config.test}" if config.test else f"{config.task} (test rows)": task.test,
    }

    def of(part: "Split") -> str:
        return fingerprint_rows(part.texts, part.targets, task.label_names)

    return {what: partial(of, part) for what, part in splits.items()}
