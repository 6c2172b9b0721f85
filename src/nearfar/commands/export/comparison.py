"""Compares an exported graph with the original in one run: differences of outputs, scores and speed, on which rows."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.evaluate import evaluate
from nearfar.commands.evaluate.tasks import run_of
from nearfar.commands.export.graphs import Source, outputs_of
from nearfar.commands.finetune import load_task as load_finetuning_task
from nearfar.config.training import FinetuneConfig
from nearfar.config.verbs import EvaluateConfig, ExportConfig
from nearfar.data.hold_out import DEV, TEST
from nearfar.data.labelled import Split, infer_reader
from nearfar.data.rows import load_pairs, load_sentences, load_task
from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.exported import Outputs
from nearfar.evaluation.finetuned import validation_scores
from nearfar.evaluation.render import Table
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
TIMED_TEXTS = 256
"""Maximum number of texts in a timed round."""
ROUNDS, SECONDS = 3, 4.0
"""Number of timed rounds; the last that begins does so within these seconds."""
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
    if isinstance(source.model, Classifier):
        return _classifier_rows(model, source.model, config)
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
        if bool(labels) != bool(reader.label_names):
            kind = "labels" if labels else "scores"
            raise NearfarError(f"--evaluate-on {name}: the classifier predicts {kind}, and these rows have none.")
        if labels:
            reader = replace(reader, label_names=labels, label_source="the classifier's labels")
        rows = reader.read(name)[0]
    elif (task := _finetuning_task(run_of(model))) is not None:
        name, rows = f"the test rows of {run_of(model)}", task[1]
    else:
        name = f"{GENERATED}, with the original's own predictions as labels"
        texts: list[Item] = [(text,) for pair in load_pairs(GENERATED) for text in pair[:2]]
        expected = outputs_of(classifier, texts)
        rows = Split(texts, expected.argmax(axis=1).tolist() if labels else expected[:, 0].tolist())

    def score(compute: Compute) -> float:
        pairs = len(rows.texts[0]) == 2
        return 100 * validation_scores(rows.targets, compute(rows.texts), labels=len(labels), pairs=pairs)[metric]

    return Rows(name, metric, score)


def _finetuning_task(run: Path | None) -> tuple[Split, Split] | None:
    """Validation and test rows of the fine-tuning run of a classifier; None if it has no run or they are not there."""
    if run is None:
        return None
    kind, values = load_toml(run / CONFIG)
    with suppress(NearfarError):
        if issubclass(kind, FinetuneConfig):
            task = load_finetuning_task(build(kind, values, source=run / CONFIG))
            return task.validation, task.test
    return None


def calibration_items(model: str | Path, source: Source, config: ExportConfig) -> tuple[list[Item], str]:
    """Up to :data:`CALIBRATION_TEXTS` items to calibrate on, evenly from all, and a description of their source.

    Raises:
        NearfarError: the file cannot be read; there is none, and the model's run holds out no rows.
    """
    run = run_of(model)
    items: list[Item] = []
    if config.calibrate is not None:
        items, name = [(row[0],) for row in load_sentences(config.calibrate).rows], config.calibrate
    elif isinstance(source.model, Classifier) and (task := _finetuning_task(run)) is not None:
        items, name = task[0].texts, f"the validation rows of {run}"
    elif run is not None and has_held_out(run):
        held_out = load_held_out(run)
        items = [(text,) for row in held_out.text_rows(TEST if held_out.folds else DEV) for text in row]
        name = f"the rows of {run}" if held_out.folds else f"the dev rows that {run} held out"
    if not items:
        raise NearfarError(
            "--format openvino --quantize int8: needs texts to calibrate on, and the model has no held-out rows. "
            "Name a file of typical texts with --calibrate FILE."
        )
    chosen = items[:: -(-len(items) // CALIBRATION_TEXTS)]
    return chosen, f"{name}, {len(chosen)} texts"


def compare_outputs(functions: dict[str, Compute], rows: Rows, *, kind: str, timing: bool = True) -> dict[str, Any]:
    """Compare the outputs of all functions on ``rows``; returns the fields of :class:`ExportResult` that say how.

    Args:
        functions: name -> function: the original in fp32, the graph in its own precision, which is checked, and further
            ones, which are compared only.
        rows: what is scored.
        kind: what the limits depend on: ``embedding fp32``, ``logits fp32`` or ``int8``.
        timing: whether to measure texts per second.
    """
    outputs, scores = zip(*(_outputs(compute, rows) for compute in functions.values()), strict=True)
    items, expected = list(outputs[0]), np.stack(list(outputs[0].values()))
    speeds = _speeds(list(functions.values()), items) if timing else [None] * len(outputs)
    sides: list[ExportSide] = []
    for name, by_item, score, speed in zip(functions, outputs, scores, speeds, strict=True):
        side = ExportSide(name=name, score=score, texts_per_second=speed)
        if sides:
            vectors = np.stack(list(by_item.values()))
            cosine = float(_cosines(vectors, expected).min()) if vectors.shape[1] > 1 else None
            side = replace(side, difference=float(np.abs(vectors - expected).max()), cosine=cosine)
        sides.append(side)
    problem = _problem(sides[0], sides[1], kind, largest=float(np.abs(expected).max()))
    return {"sides": sides, "texts": len(items), "problems": [problem] if problem else []}


def _outputs(compute: Compute, rows: Rows) -> tuple[dict[Item, NDArray[Any]], float | None]:
    """The outputs of each distinct item of ``rows``, in the order in which they are asked for, and the score."""
    outputs: dict[Item, NDArray[Any]] = {}

    def computed_once(items: Sequence[Item]) -> Outputs:
        if new := [item for item in dict.fromkeys(items) if item not in outputs]:
            outputs.update(zip(new, compute(new), strict=True))
        return np.stack([outputs[item] for item in items])

    score = rows.score(computed_once)
    return outputs, score


def _cosines(first: Outputs, second: Outputs) -> Outputs:
    """The cosine of each row; 1 for two zero vectors."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    both_zero = ~first.any(axis=1) & ~second.any(axis=1)
    cosines = np.divide((first * second).sum(axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.where(both_zero, 1, cosines)


def _speeds(functions: Sequence[Compute], items: Sequence[Item]) -> list[float]:
    """Texts per second of each function, best of some interleaved rounds on texts evenly from all."""
    sample = items[:: -(-len(items) // TIMED_TEXTS)]
    fastest = [float("inf")] * len(functions)
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        for number, compute in enumerate(functions):
            started = time.perf_counter()
            compute(sample)
            fastest[number] = min(fastest[number], time.perf_counter() - started)
        if time.perf_counter() - begun > SECONDS:
            break
    return [len(sample) / seconds for seconds in fastest]


def _problem(original: ExportSide, exported: ExportSide, kind: str, *, largest: float) -> str | None:
    """Why the outputs of the graph differ too much from the original's; ``largest`` is the original's largest one."""
    difference, cosine = exported.difference, exported.cosine
    assert difference is not None
    if not np.isfinite(difference):
        return "some outputs are not finite"
    if kind == "int8":
        if (original.score is None) != (exported.score is None):
            return "the score is undefined"
        loss = (original.score or 0) - (exported.score or 0)
        return f"the score is {loss:.2f} points lower, more than {MAX_LOSS:g}" if loss > MAX_LOSS else None
    if kind == "logits fp32":
        limit = MAX_LOGIT_DIFFERENCE * max(1.0, largest)
        return f"a logit differs by {difference:.2g}, more than {limit:.2g}" if difference > limit else None
    if cosine is not None and cosine < MIN_COSINE:
        return f"the smallest cosine is {cosine:.6f}, below {MIN_COSINE}"
    return None


def comparison_table(sides: Sequence[ExportSide]) -> Table:
    """What differs, the score and the speed of each side."""
    rows = []
    for side in sides:
        cells = (side.difference, ".1e"), (side.cosine, ".6f"), (side.score, ".2f"), (side.texts_per_second, ",.0f")
        rows.append([side.name, *("" if value is None else format(value, style) for value, style in cells)])
    return Table(columns=["", "largest difference", "smallest cosine", "score", "texts/s"], rows=rows)


def refuse(result: ExportResult) -> None:
    """Raise an error with the numbers if the graph differs too much.

    Raises:
        NearfarError: there are problems.
    """
    if not result.problems:
        return
    table = comparison_table(result.sides)
    original, exported = table.rows[:2]
    numbers = ", ".join(f"{name} {cell}" for name, cell in zip(table.columns[1:4], exported[1:4], strict=True) if cell)
    raise NearfarError(
        f"{exported[0]}: {'; '.join(result.problems)} ({numbers}; score of the original {original[3] or 'undefined'}). "
        "Nothing is written; --force keeps the graph."
    )
