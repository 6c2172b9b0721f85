"""Fine-tuning a classifier: config -> rows, classifier, loss -> :mod:`nearfar.runs.execute` -> scores on test rows.

What ``nearfar finetune`` calls, and a notebook can call too. In the run folder, ``model/`` is a transformers folder for
sequence classification, and ``result.json`` a result file with the test rows' predictions.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.config import FinetuneConfig, dump_toml
from nearfar.disk import path_errors
from nearfar.evaluation import results
from nearfar.runs.execute import Job, execute, execute_in_memory, join_processes
from nearfar.runs.folder import RunFolder, fingerprint_model, fingerprint_rows, read_run_info
from nearfar.runs.precision import resolve_run_precision
from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.data.classification import ClassificationTask
    from nearfar.data.labelled import Split
    from nearfar.encoder.classifier import Classifier
    from nearfar.training.checkpoint import Progress
    from nearfar.training.loop import Evaluation

NOISES = ("word-dropout", "word-swap", "characters")
RESAMPLES = 1000


@dataclass(frozen=True)
class FinetuneResult:
    """What came out of fine-tuning."""

    steps: int
    best_step: int
    start_score: float
    """The task's one number on the validation rows before training, in [-1, 1]."""
    best_score: float
    seconds: float
    """Of the training steps alone."""
    result: results.Result
    """Scores on the test rows, as in a result file."""


@path_errors()
def finetune(config: FinetuneConfig, *, resume: bool = False, console: "Console | None" = None) -> FinetuneResult:
    """Fine-tune, test, and leave the classifier in ``config.output``/model.

    Steps are chosen by the validation rows alone. ``resume`` and several processes are as in
    :func:`nearfar.train`.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is in the way or in use; data that changed since
            the run began; a loss that is not finite; a disk that refuses.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.evaluation.tables import evaluation_markdown

    processes, device, console = join_processes(config, console)
    with RunFolder(config, processes) as run_dir:
        if run_dir.acquire(resume=resume) == "finished":
            done = processes.broadcast_from_first(lambda: load_finetune_result(run_dir.path))
            console.print(
                f"{run_dir.path}: this run was finished before; nothing to do.", markup=False, highlight=False
            )
            return done
        settings = {"config.toml": dump_toml(config)}
        config = replace(config, precision=resolve_run_precision(config, run_dir, processes, device))
        task = load_task(config)
        for what, fingerprint in fingerprints(config, task).items():
            run_dir.verify_input(what, fingerprint)
        run_dir.verify_input(f"--model {config.model}", lambda: fingerprint_model(config.model))
        classifier = open_classifier(config, task, device=device)
        job = replace(make_job(config, task, classifier, processes=processes.size), settings=settings)
        test_results: list[results.Result] = []

        def run_info(progress: "Progress") -> dict[str, Any]:
            result = evaluate_test_rows(config, task, classifier, validation=_validation(config, progress))
            results.write_result(result, Path(config.output) / "result.json", markdown=evaluation_markdown(result))
            test_results.append(result)
            return job.run_info(progress)

        progress = execute(
            config, replace(job, run_info=run_info), run_dir=run_dir, processes=processes, console=console
        )
        return _finetune_result(progress, processes.broadcast_from_first(lambda: test_results[0]))


def load_finetune_result(folder: Path) -> FinetuneResult:
    """What came out of the finished run in ``folder``.

    Raises:
        NearfarError: its run.json or result.json is missing or damaged.
    """
    run_info = read_run_info(folder)
    steps, best_step = (int(run_info.get(key) or 0) for key in ("step", "best_step"))
    start, best, seconds = (float(run_info.get(key) or 0) for key in ("start_score", "best_score", "seconds"))
    return FinetuneResult(steps, best_step, start, best, seconds, results.read_result(folder / "result.json"))


def fingerprints(config: FinetuneConfig, task: "ClassificationTask") -> dict[str, Callable[[], str]]:
    """How to fingerprint the rows of each part of a task, by the words for them."""
    noise = "" if config.noise in ("none", *NOISES) else f" with --noise {config.noise}"
    words = {
        f"{config.task} (the training rows{noise})": task.train,
        f"--validation {config.validation}"
        if config.validation
        else f"{config.task} (validation rows)": task.validation,
        f"--test {config.test}" if config.test else f"{config.task} (test rows)": task.test,
    }

    def of(part: "Split") -> str:
        return fingerprint_rows(part.texts, part.targets, task.label_names)

    return {what: partial(of, part) for what, part in words.items()}


def finetune_in_memory(config: FinetuneConfig, task: "ClassificationTask") -> FinetuneResult:
    """Fine-tune and test without a run folder, for studies of many short runs; ``config.output`` is a name only.

    Raises:
        NearfarError: as :func:`finetune`.
    """
    from nearfar.encoder.precision import resolve

    config = replace(config, precision=resolve(config.precision, config.device))
    classifier = open_classifier(config, task, device=config.device)
    progress = execute_in_memory(config, make_job(config, task, classifier))
    return _finetune_result(
        progress, evaluate_test_rows(config, task, classifier, validation=_validation(config, progress))
    )


def load_task(config: FinetuneConfig) -> "ClassificationTask":
    """The rows that the config asks for: sampled, and with noise in the training texts.

    Raises:
        NearfarError: rows that cannot be had, sampled or trained on.
    """
    from nearfar.data.classification import load_classification

    task = load_classification(
        config.task,
        validation=config.validation,
        test=config.test,
        validation_rows=config.validation_rows,
        text_columns=config.text_columns or None,
        label_column=config.label_column,
        limit=config.limit,
    )
    return apply_noise(config, draw_sample(config, task))


def draw_sample(config: FinetuneConfig, task: "ClassificationTask") -> "ClassificationTask":
    """The task with the training rows that the config draws."""
    from nearfar.data.labelled import Split
    from nearfar.data.sampling import draw

    if config.sample_size is None:
        return task
    texts, targets = task.train
    if not task.label_names:
        raise NearfarError("--sample-size draws rows by their labels, and these rows have scores; use --limit.")
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
    """The task with noise in its training texts; validation and test rows stay as they are."""
    from nearfar.data.labelled import Split
    from nearfar.data.noise import add_noise, load_translations
    from nearfar.data.paths import as_path, status

    if config.noise == "none":
        return task
    texts, targets = task.train
    flat = [text for row in texts for text in row]
    if config.noise in NOISES:
        changed = add_noise(flat, config.noise, config.noise_rate, seed=config.sample_seed)  # type: ignore[arg-type]
        note = f"training texts with {config.noise} at {config.noise_rate:g}"
    elif status(as_path(config.noise)) is None:
        raise NearfarError(f"--noise {config.noise}: is none of {', '.join(NOISES)}, and no such file is there.")
    else:
        translations = load_translations(config.noise)
        changed = [translations[text] for text in flat]
        note = f"training texts replaced by those of {config.noise}"
    width = len(texts[0])
    rows = [tuple(changed[start : start + width]) for start in range(0, len(changed), width)]
    return replace(task, train=Split(rows, targets), sources=(*task.sources, note))


def open_classifier(config: FinetuneConfig, task: "ClassificationTask", *, device: str | None) -> "Classifier":
    """The encoder to start from with a head for the task, which depends on the seed alone."""
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
    """What is to be done, ready for its first step.

    Raises:
        NearfarError: rows that cannot be trained on.
    """
    from nearfar.data.batching import TextBatches
    from nearfar.encoder.precision import resolve
    from nearfar.encoder.training_encoder import TrainingClassifier
    from nearfar.evaluation.finetuned import PRIMARY
    from nearfar.methods.gunel.scl_finetune import scl_finetune
    from nearfar.methods.mixture import Mixture

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
            f"{training_classifier.truncated} of {len(texts)} training rows are over {length} tokens and cut there"
        )
    mixture = Mixture(((replace(method, count_tokens=training_classifier.lengths), 1.0),))
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    return Job(
        mixture=mixture,
        encoder=classifier.backbone,
        total_steps=min(steps, config.max_steps or steps),
        facts=facts,
        evaluate=_evaluation(classifier, task, config.precision),
        metric=PRIMARY[task.metric],
        evaluated_on="the validation rows",
        settings={"config.toml": dump_toml(config)},
        save=classifier.save_pretrained,
        run_info=lambda _: {"dev": f"{task.name}, validation", "metric": PRIMARY[task.metric]},
    )


def _evaluation(
    classifier: "Classifier", task: "ClassificationTask", precision: Precision
) -> "Callable[[], Evaluation]":
    from nearfar.evaluation.finetuned import primary_metric
    from nearfar.training.loop import Evaluation

    def evaluate() -> Evaluation:
        outputs = classifier.predict(task.validation.texts, precision=precision)
        return Evaluation(primary_metric(task.metric, task.validation.targets, outputs), {})

    return evaluate


def evaluate_test_rows(
    config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier", *, validation: float
) -> results.Result:
    """Scores on the test rows, as in a result file."""
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
    return {
        "schema": results.SCHEMA,
        "kind": "evaluation",
        "model": config.output or config.model,
        "config": settings
        | {
            "training_seed": config.seed,
            "tasks": [task.name],
            "data": [*task.sources, *task.labels],
            "resamples": RESAMPLES,
        },
        "provenance": results.provenance(),
        "unavailable": {},
        "averages": {},
        "tasks": {},
        "texts": len({text for row in texts for text in row}),
        "dim": classifier.backbone.config.hidden_size,
        "transfer": {"protocol": "finetune", "nhid": 0, "folds": 0, "averages": {}, "tasks": {task.name: entry}},
    }


def _validation(config: FinetuneConfig, progress: "Progress") -> float:
    """The score on the validation rows of the weights that are kept."""
    return (progress.best_score or 0.0) if config.keep == "best" else progress.history[-1][1]


def _finetune_result(progress: "Progress", result: results.Result) -> FinetuneResult:
    return FinetuneResult(
        progress.step,
        progress.best_step or 0,
        progress.start_score or 0.0,
        progress.best_score or 0.0,
        progress.seconds,
        result,
    )
