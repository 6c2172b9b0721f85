"""Compares an exported graph with the original in one run: differences of outputs, scores and speed, on which rows."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

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
"""Number of timed rounds, and about how long all of them may take together; a round has one text or more."""
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
        name = DEFAULT_TASK if _has_default_task() else GENERATED
        settings = EvaluateConfig(tasks=(name,), resamples=0)

    def score(compute: Compute) -> float | None:
        result = evaluate(lambda texts: compute([(text,) for text in texts]), settings, progress=False)
        (task,) = result.all_tasks.values()
        return task.spearman.all.score if isinstance(task, SimilarityScores) else task.compared.score

    return Rows(name, metric, score)


def _has_default_task() -> bool:
    """Whether the data folder has STS-B dev; it is never downloaded for a comparison."""
    with suppress(NearfarError):
        return bool(os.environ.get("NEARFAR_DATA") and load_task(DEFAULT_TASK))
    return False


def _classifier_rows(model: str | Path, classifier: Classifier, config: ExportConfig) -> Rows:
    labels = classifier.label_names
    metric = "accuracy" if labels else "spearman"
    if config.evaluate_on is not None:
        name, rows = config.evaluate_on, _labelled_rows(config.evaluate_on, labels)
    elif (task := _finetuning_task(model)) is not None:
        name, rows = f"the test rows of {run_of(model)}", task[1]
    else:
        texts: list[Item] = [(text,) for pair in load_pairs(GENERATED) for text in pair[:2]]
        expected = outputs_of(classifier, texts)
        agreed = expected.argmax(axis=1).tolist() if labels else expected[:, 0].tolist()
        name, rows = f"{GENERATED}, with the original's own predictions as labels", Split(texts, agreed)

    def score(compute: Compute) -> float:
        pairs = len(rows.texts[0]) == 2
        return 100 * validation_scores(rows.targets, compute(rows.texts), labels=len(labels), pairs=pairs)[metric]

    return Rows(name, metric, score)


def _labelled_rows(spec: str, labels: tuple[str, ...]) -> Split:
    reader = infer_reader(spec, None, "label")
    if bool(labels) != bool(reader.label_names):
        kind = "labels" if labels else "scores"
        raise NearfarError(f"--evaluate-on {spec}: the classifier predicts {kind}, and these rows have none.")
    if labels:
        reader = replace(reader, label_names=labels, label_source="the classifier's labels")
    return reader.read(spec)[0]


def _finetuning_task(model: str | Path) -> tuple[Split, Split] | None:
    """Validation and test rows of the fine-tuning run of a classifier; None if it has no run or they are not there."""
    if (run := run_of(model)) is None:
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
    elif isinstance(source.model, Classifier) and (task := _finetuning_task(model)) is not None:
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


class Comparison(NamedTuple):
    """The sides of a comparison, the number of distinct texts, and why the graph is refused."""

    sides: list[ExportSide]
    texts: int
    problems: list[str]


def compare_outputs(functions: dict[str, Compute], rows: Rows, *, kind: str, timing: bool = True) -> Comparison:
    """Compare the outputs of all functions on ``rows``.

    Args:
        functions: name -> function: the original in fp32, the graph in its own precision, which is checked, and further
            ones, which are compared only.
        rows: what is scored.
        kind: what the limits depend on: ``embedding fp32``, ``logits fp32`` or ``int8``.
        timing: whether to measure texts per second.
    """
    recorded = [_Recorded(compute) for compute in functions.values()]
    scores = [rows.score(function) for function in recorded]
    items = list(recorded[0].outputs)
    expected = recorded[0](items)
    speeds = _speeds(recorded, items) if timing else [None] * len(recorded)
    sides = []
    for name, function, score, speed in zip(functions, recorded, scores, speeds, strict=True):
        outputs, is_original = function(items), function is recorded[0]
        sides.append(
            ExportSide(
                name=name,
                difference=None if is_original else float(np.abs(outputs - expected).max()),
                cosine=None if is_original or outputs.shape[1] == 1 else float(_cosines(outputs, expected).min()),
                score=score,
                texts_per_second=speed,
            )
        )
    largest = float(np.abs(expected).max())
    return Comparison(sides, len(items), _problems(sides[0], sides[1], kind, largest=largest))


class _Recorded:
    """A function from items to outputs that computes each distinct item once and keeps its outputs."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.outputs: dict[Item, Outputs] = {}
        self.seconds = 0.0

    def __call__(self, items: Sequence[Item]) -> Outputs:
        new = [item for item in dict.fromkeys(items) if item not in self.outputs]
        if new:
            started = time.perf_counter()
            self.outputs |= zip(new, self.compute(new), strict=True)
            self.seconds += time.perf_counter() - started
        return np.stack([self.outputs[item] for item in items])


def _cosines(first: Outputs, second: Outputs) -> Outputs:
    """The cosine of each row; 1 for two zero vectors."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    both_zero = ~first.any(axis=1) & ~second.any(axis=1)
    cosines = np.divide((first * second).sum(axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.where(both_zero, 1, cosines)


def _speeds(recorded: Sequence[_Recorded], items: Sequence[Item]) -> list[float]:
    """Texts per second of each function, best of some interleaved rounds on texts evenly from all.

    There are as many texts as :data:`SECONDS` allow, by the time that the outputs took, and at most
    :data:`TIMED_TEXTS`.
    """
    of_a_text = sum(function.seconds for function in recorded) / len(items)
    count = max(1, int(min(TIMED_TEXTS, SECONDS / ROUNDS / max(of_a_text, 1e-9))))
    sample = items[:: -(-len(items) // count)]
    fastest = [float("inf")] * len(recorded)
    for _ in range(ROUNDS):
        for number, function in enumerate(recorded):
            started = time.perf_counter()
            function.compute(sample)
            fastest[number] = min(fastest[number], time.perf_counter() - started)
    return [len(sample) / seconds for seconds in fastest]


def _problems(original: ExportSide, exported: ExportSide, kind: str, *, largest: float) -> list[str]:
    """Why the outputs of the graph differ too much from the original's."""
    difference, cosine = exported.difference, exported.cosine
    assert difference is not None
    limit, loss = MAX_LOGIT_DIFFERENCE * max(1.0, largest), (original.score or 0) - (exported.score or 0)
    undefined = (original.score is None) != (exported.score is None)
    problems = {
        "some outputs are not finite": not np.isfinite(difference),
        "the score is undefined": kind == "int8" and undefined,
        f"the score is {loss:.2f} points lower, more than {MAX_LOSS:g}": kind == "int8" and loss > MAX_LOSS,
        f"a logit differs by {difference:.2g}, more than {limit:.2g}": kind == "logits fp32" and difference > limit,
        f"the smallest cosine is {cosine or 0:.6f}, below {MIN_COSINE}": kind == "embedding fp32"
        and cosine is not None
        and cosine < MIN_COSINE,
    }
    return [problem for problem, is_there in problems.items() if is_there][:1]


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
