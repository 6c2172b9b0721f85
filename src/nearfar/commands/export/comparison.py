"""Compares an exported graph with the original in one run: differences of outputs, scores and speed, on which rows."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.evaluate import evaluate
from nearfar.commands.evaluate.tasks import run_of
from nearfar.commands.export.graphs import outputs_of
from nearfar.commands.finetune import load_task as load_finetuning_task
from nearfar.config.training import FinetuneConfig
from nearfar.config.verbs import EvaluateConfig, ExportConfig
from nearfar.data.classification import ClassificationTask
from nearfar.data.hold_out import DEV, TEST
from nearfar.data.labelled import Split, infer_reader
from nearfar.data.rows import load_pairs, load_sentences, load_task
from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.exported import Outputs
from nearfar.evaluation.finetuned import validation_scores
from nearfar.evaluation.render import Table, to_text
from nearfar.evaluation.results import ExportResult, ExportSide, SimilarityScores
from nearfar.runs.folder import CONFIG
from nearfar.runs.held_out import has_held_out, load_held_out
from nearfar.settings import build, load_toml
from nearfar.types import NearfarError

DEFAULT_TASK, GENERATED = "stsb:dev", "microworld:dev"
CALIBRATION_TEXTS = 300
"""Maximum number of calibration texts."""
MIN_COSINE = 0.9999
"""Smallest cosine to the original that a graph in fp32 may have."""
MAX_LOGIT_DIFFERENCE = 1e-3
"""Largest difference of a logit in fp32, relative to the original's largest logit."""
MAX_LOSS = 1.0
"""Points of the score that a graph in int8 may lose."""
TIMED_TEXTS = 128
"""Maximum number of texts in a timed round."""
ROUNDS = 3
"""Number of timed rounds."""
Compute = Callable[[Sequence[Item]], Outputs]
Model: TypeAlias = Encoder | Classifier


class Rows(NamedTuple):
    """Rows that are scored."""

    source: str
    """Where they are from."""
    metric: str
    score: Callable[[Compute], float | None]
    """The score x 100 of a function from items to outputs; None where it is undefined."""


def comparison_rows(model: str | Path, opened: Model, config: ExportConfig) -> Rows:
    """The rows of ``--evaluate-on``, else those that the model's run tests on, else STS-B dev, else generated ones.

    Raises:
        NearfarError: rows that cannot be read.
    """
    if isinstance(opened, Classifier):
        return _classifier_rows(model, opened, config)
    run, metric = run_of(model), "spearman"
    if config.evaluate_on is not None:
        load_pairs(config.evaluate_on)  # an error is reported before the export
        name, settings = config.evaluate_on, EvaluateConfig(pairs=(config.evaluate_on,), resamples=0)
    elif run is not None and has_held_out(run) and not (held_out := load_held_out(run)).folds:
        name, settings = f"the test rows that {run} held out", EvaluateConfig(held_out_of=str(run), resamples=0)
        metric = held_out.metric
    else:
        name = GENERATED
        with suppress(NearfarError):  # of the data folder alone: nothing is downloaded for a comparison
            name = DEFAULT_TASK if os.environ.get("NEARFAR_DATA") and load_task(DEFAULT_TASK) else GENERATED
        settings = EvaluateConfig(tasks=(name,), resamples=0)

    def score(compute: Compute) -> float | None:
        result = evaluate(lambda texts: compute([(text,) for text in texts]), settings, progress=False)
        (task,) = result.all_tasks.values()
        return task.spearman.all.score if isinstance(task, SimilarityScores) else task.compared.score

    return Rows(name, metric, score)


def _classifier_rows(model: str | Path, classifier: Classifier, config: ExportConfig) -> Rows:
    labels = classifier.label_names
    metric = "accuracy" if labels else "spearman"
    if (name := config.evaluate_on) is not None:
        reader = infer_reader(name, None, "label")
        rows = replace(reader, label_names=labels, label_source="the classifier's labels").read(name)[0]
    elif (task := _finetuning_task(run_of(model))) is not None:
        name, rows = f"the test rows of {run_of(model)}", task.test
    else:
        name = f"{GENERATED}, with the original's own predictions as labels"
        texts: list[Item] = [(text,) for pair in load_pairs(GENERATED) for text in pair[:2]]
        expected = outputs_of(classifier, texts)
        rows = Split(texts, expected.argmax(axis=1).tolist() if labels else expected[:, 0].tolist())

    def score(compute: Compute) -> float:
        pairs = len(rows.texts[0]) == 2
        return 100 * validation_scores(rows.targets, compute(rows.texts), labels=len(labels), pairs=pairs)[metric]

    return Rows(name, metric, score)


def _finetuning_task(run: Path | None) -> ClassificationTask | None:
    """The rows of the fine-tuning run of a classifier; None if it has no run or they are not there."""
    if run is not None:
        kind, values = load_toml(run / CONFIG)
        with suppress(NearfarError):
            if issubclass(kind, FinetuneConfig):
                return load_finetuning_task(build(kind, values, source=run / CONFIG))
    return None


def calibration_items(model: str | Path, opened: Model, config: ExportConfig) -> tuple[list[Item], str]:
    """Up to :data:`CALIBRATION_TEXTS` items to calibrate on, evenly from all, and a description of their source.

    Raises:
        NearfarError: the file cannot be read; there is none, and the model's run holds out no rows.
    """
    run = run_of(model)
    items: list[Item]
    if config.calibrate is not None:
        items, name = [(row[0],) for row in load_sentences(config.calibrate).rows], config.calibrate
    elif isinstance(opened, Classifier) and (task := _finetuning_task(run)) is not None:
        items, name = task.validation.texts, f"the validation rows of {run}"
    elif run is not None and has_held_out(run):
        held_out = load_held_out(run)
        items = [(text,) for row in held_out.text_rows(TEST if held_out.folds else DEV) for text in row]
        name = f"the rows of {run}" if held_out.folds else f"the dev rows that {run} held out"
    else:
        raise NearfarError(
            "--format openvino --quantize int8: needs texts to calibrate on, and the model has no held-out rows. "
            "Name a file of typical texts with --calibrate FILE."
        )
    chosen = items[:: -(-len(items) // CALIBRATION_TEXTS)]
    return chosen, f"{name}, {len(chosen)} texts"


def compare(original: Model, graph: Model, rows: Rows, result: ExportResult, config: ExportConfig) -> ExportResult:
    """The ``result`` with the comparison of a model in fp32 with its opened graph on ``rows``.

    Raises:
        NearfarError: they differ too much, and ``config.force`` is not set; the message has the numbers.
    """
    functions = [partial(outputs_of, model) for model in (original, graph)]
    (outputs, score), (graph_outputs, graph_score) = (_outputs(function, rows) for function in functions)
    items, expected, found = list(outputs), np.stack(list(outputs.values())), np.stack(list(graph_outputs.values()))
    speed, graph_speed = _speeds(functions, items) if config.timing else (None, None)
    difference, is_finite, cosine = float(np.abs(found - expected).max()), bool(np.isfinite(found).all()), None
    if is_finite and expected.shape[1] > 1:
        unit, graph_unit = (
            vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
            for vectors in (expected, found)
        )
        cosine = 1 - float(np.square(graph_unit - unit).sum(axis=1).max()) / 2  # 1 for two zero vectors
    problem, limit = None, MAX_LOGIT_DIFFERENCE * max(1.0, float(np.abs(expected).max()))
    if not is_finite:
        problem = "some outputs are not finite"
    elif config.quantize == "int8":
        if score is not None and (graph_score is None or score - graph_score > MAX_LOSS):
            problem = f"the score is over {MAX_LOSS:g} points lower"
    elif isinstance(original, Classifier) and difference > limit:
        problem = f"a logit differs by {difference:.2g}, more than {limit:.2g}"
    elif isinstance(original, Encoder) and cosine is not None and cosine < MIN_COSINE:
        problem = f"the smallest cosine is {cosine:.6f}, below {MIN_COSINE}"
    name = f"{config.format} {config.quantize.replace('none', 'fp32')}"
    of_graph = {"difference": difference, "cosine": cosine, "score": graph_score, "texts_per_second": graph_speed}
    sides = [ExportSide(name="nearfar fp32", score=score, texts_per_second=speed), ExportSide(name=name, **of_graph)]
    if problem is not None and not config.force:
        table = to_text(comparison_table(sides))
        raise NearfarError(f"{name}: {problem}. Nothing is written; --force keeps the graph.\n{table}")
    return replace(result, sides=sides, texts=len(items), problems=[problem] if problem else [])


def _outputs(compute: Compute, rows: Rows) -> tuple[dict[Item, NDArray[Any]], float | None]:
    """The outputs of each distinct item of ``rows``, in the order in which they are asked for, and the score."""
    outputs: dict[Item, NDArray[Any]] = {}

    def computed_once(items: Sequence[Item]) -> Outputs:
        if new := [item for item in dict.fromkeys(items) if item not in outputs]:
            outputs.update(zip(new, compute(new), strict=True))
        return np.stack([outputs[item] for item in items])

    score = rows.score(computed_once)
    return outputs, score


def _speeds(functions: Sequence[Compute], items: Sequence[Item]) -> list[float]:
    """Texts per second of each function, best of some interleaved rounds on texts evenly from all."""
    sample = items[:: -(-len(items) // TIMED_TEXTS)]
    rounds = [[timeit(partial(compute, sample), number=1) for compute in functions] for _ in range(ROUNDS)]
    return [len(sample) / min(seconds) for seconds in zip(*rounds, strict=True)]


def comparison_table(sides: Sequence[ExportSide]) -> Table:
    """What differs, the score and the speed of each side."""
    rows = []
    for side in sides:
        cells = (side.difference, ".1e"), (side.cosine, ".6f"), (side.score, ".2f"), (side.texts_per_second, ",.0f")
        rows.append([side.name, *("" if value is None else format(value, style) for value, style in cells)])
    return Table(columns=["", "largest difference", "smallest cosine", "score", "texts/s"], rows=rows)
