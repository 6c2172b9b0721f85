"""The rows on which an exported graph is compared with the original, and the texts it is calibrated on."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from nearfar.commands.evaluate.command import evaluate
from nearfar.commands.evaluate.held_out import run_of
from nearfar.commands.export.source import Outputs, Source
from nearfar.config.export import ExportConfig
from nearfar.config.files import build, load_toml
from nearfar.config.finetune import FinetuneConfig
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.held_out import DEV
from nearfar.data.labelled import Split, infer_reader
from nearfar.data.rows import load_sentences
from nearfar.data.sts import load_pairs, load_task
from nearfar.encoder.classifier import Item
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.folder import CONFIG
from nearfar.runs.held_out import has_held_out, load_held_out
from nearfar.types import NearfarError

DEFAULT_TASK, GENERATED = "stsb:dev", "microworld:dev"
CALIBRATION_TEXTS = 300
"""Maximum number of calibration texts."""
Compute = Callable[[Sequence[Item]], Outputs]


class Rows(NamedTuple):
    """Rows that are scored."""

    source: str
    """Where they are from."""
    metric: str
    score: Callable[[Compute], float | None]
    """The score x 100 of a function from items to outputs; None where it is undefined."""


def comparison_rows(model: str | Path, source: Source, config: ExportConfig) -> Rows:
    """The rows of ``--evaluate-on``, else those that the model's run tests on, else STS-B dev, else generated ones.

    Raises:
        NearfarError: rows that cannot be read.
    """
    return _encoder_rows(model, config) if source.labels is None else _classifier_rows(model, source, config)


def calibration_items(model: str | Path, source: Source, config: ExportConfig) -> tuple[list[Item], str]:
    """Up to :data:`CALIBRATION_TEXTS` items to calibrate on, evenly from all, and a description of their source.

    Raises:
        NearfarError: the file cannot be read; there is none, and the model's run holds out no rows.
    """
    run = run_of(model)
    items: list[Item] = []
    if config.calibrate is not None:
        items, name = [(row[0],) for row in load_sentences(config.calibrate).rows], config.calibrate
    elif source.labels is not None and (task := _finetuning_task(model)) is not None:
        items, name = task[0].texts, f"the validation rows of {run}"
    elif run is not None and has_held_out(run):
        items = [(text,) for row in load_held_out(run).text_rows(DEV) for text in row]
        name = f"the dev rows that {run} held out"
    if not items:
        raise NearfarError(
            "--format openvino --quantize int8: needs texts to calibrate on, and the model has no held-out rows. "
            "Name a file of typical texts with --calibrate FILE."
        )
    step = -(-len(items) // CALIBRATION_TEXTS)
    chosen = items[::step]
    return chosen, f"{name}, {len(chosen)} texts"


def _encoder_rows(model: str | Path, config: ExportConfig) -> Rows:
    run = run_of(model)
    if config.evaluate_on is not None:
        load_pairs(config.evaluate_on)  # an error is reported before the export
        name, settings = config.evaluate_on, EvaluateConfig(pairs=(config.evaluate_on,), resamples=0)
    elif run is not None and has_held_out(run):
        name, settings = f"the test rows that {run} held out", EvaluateConfig(held_out_of=str(run), resamples=0)
    else:
        name = DEFAULT_TASK if _has_default_task() else GENERATED
        settings = EvaluateConfig(tasks=(name,), resamples=0)

    def score(compute: Compute) -> float | None:
        return _main_score(evaluate(lambda texts: compute([(text,) for text in texts]), settings, progress=False))[1]

    metric = load_held_out(run).metric if settings.held_out_of and run is not None else "spearman"
    return Rows(name, metric, score)


def _has_default_task() -> bool:
    """Whether the data folder has STS-B dev; it is never downloaded for a comparison."""
    if not os.environ.get("NEARFAR_DATA"):
        return False
    try:
        return bool(load_task(DEFAULT_TASK))
    except NearfarError:
        return False


def _main_score(result: EvaluationResult) -> tuple[str, float | None]:
    """Name and main score of the only task of a result."""
    for name, similarity in result.tasks.items():
        return name, similarity.spearman.all.score
    for name, ranked in result.retrieval.items():
        return name, ranked.compared.score
    assert result.transfer is not None
    name, scores = next(iter(result.transfer.tasks.items()))
    return name, scores.compared.score


def _classifier_rows(model: str | Path, source: Source, config: ExportConfig) -> Rows:
    labels = source.labels or ()
    if config.evaluate_on is not None:
        name, rows = config.evaluate_on, _labelled_rows(config.evaluate_on, labels)
    elif (task := _finetuning_task(model)) is not None:
        name, rows = f"the test rows of {run_of(model)}", task[1]
    else:
        texts: list[Item] = [(text,) for pair in load_pairs(GENERATED) for text in pair[:2]]
        expected = source.compute(texts, "fp32")
        agreed = expected.argmax(axis=1).tolist() if labels else expected[:, 0].tolist()
        name, rows = f"{GENERATED}, with the original's own predictions as labels", Split(texts, agreed)
    metric = "accuracy" if labels else "spearman"

    def score(compute: Compute) -> float:
        from nearfar.evaluation.finetuned import validation_scores

        outputs = compute(rows.texts)
        pairs = len(rows.texts[0]) == 2
        return 100 * validation_scores(rows.targets, outputs, labels=len(labels), pairs=pairs)[metric]

    return Rows(name, metric, score)


def _labelled_rows(spec: str, labels: tuple[str, ...]) -> Split:
    reader = infer_reader(spec, None, "label")
    if bool(labels) != bool(reader.label_names):
        kind = "labels" if labels else "scores"
        raise NearfarError(f"--evaluate-on {spec}: the classifier predicts {kind}, and these rows have none.")
    if labels:
        numbers: dict[str, int | None] = {name: number for number, name in enumerate(labels)}
        reader = replace(reader, label_names=labels, labels=numbers, label_source="the classifier's labels")
    return reader.read(spec)[0]


def _finetuning_task(model: str | Path) -> tuple[Split, Split] | None:
    """Validation and test rows of the fine-tuning run of a classifier; None if it has no run or they are not there."""
    from nearfar.commands.finetune.rows import load_task as load_finetuning_task

    run = run_of(model)
    if run is None:
        return None
    kind, values = load_toml(run / CONFIG)
    if not issubclass(kind, FinetuneConfig):
        return None
    try:
        config = build(kind, values, source=run / CONFIG)
        assert isinstance(config, FinetuneConfig)
        task = load_finetuning_task(config)
    except NearfarError:
        return None
    return task.validation, task.test
