"""The rows of fine-tuning: loads a task, draws a sample of it, and adds noise to its training texts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from nearfar.config import FinetuneConfig
from nearfar.data.classification import ClassificationTask, load_classification
from nearfar.data.finetuning_splits import default_splits, draw
from nearfar.data.labelled import Split
from nearfar.data.noise import add_noise, load_translations
from nearfar.data.paths import as_path, status
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.types import NearfarError, Splits

NOISES = ("word-dropout", "word-swap", "characters")
"""Kinds of generated noise; any other value of ``--noise`` is a file of back-translations."""


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
