"""Runs of a study, read from the folders of their jobs, the value of each column, and what is resampled.

=============================  =====================================================================================
``TASK``                       the main score: Spearman of similarity (by the study's aggregate), accuracy, Pearson of
                               learned relatedness, the main measure of retrieval
``TASK.METRIC``                such as ``mrpc.f1``, ``sts12.pearson``, ``sts12.pearson.wmean``, ``sts12.all``
``TASK.SUBSET``                one subset of a similarity task, ``TASK.SUBSET.pearson``
``TASK.unseen``                Spearman on the pairs that the model of the run has not seen
``TASK.unseen_by_all``         Spearman on the pairs that no run of the study has seen, the same pairs for all runs
``TASK.dev``                   the validation score of a probe or a fine-tuned model; ``TASK.dev_spearman`` and others
``average``                    the mean over the columns of the study that are tasks
``average.unseen_by_all``      the mean over the columns that are similarity tasks, on those pairs
``average:NAME``               an average of the evaluation by name; ``average:NAME.pearson``
``accuracy``, ``spearman`` ..  the metric of the only task; ``score`` is the one that chose the step of fine-tuning
``validation``, ``seconds``    of the run
``bytes_per_vector``           of a stored embedding: 4 for each dimension, unless the evaluation quantizes
``uniformity``, ``alignment``  geometry; also ``isotropy``, ``mean_cosine``, ``effective_rank``
``layer.L.POOLING``            Spearman of layer L (0 are the embeddings) with a pooling
any other name                 a number that the steps of the run have measured, such as ``updates_per_second``
=============================  =====================================================================================
"""

import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import read_errors, read_json, read_text, write_text
from nearfar.evaluation.comparison import TaskScores
from nearfar.evaluation.correlation import AGGREGATES, CORRELATIONS, Aggregate, Floats, bootstrap_scores
from nearfar.evaluation.render import csv_lines
from nearfar.evaluation.results import (
    ClassificationScores,
    Estimate,
    EvaluationResult,
    GeometryResult,
    ModelGeometry,
    RetrievalScores,
    SimilarityScores,
    SubsetScores,
    load_result,
)
from nearfar.evaluation.results.record import is_number
from nearfar.evaluation.seen import unseen_scores
from nearfar.evaluation.statistics import bootstrap_means
from nearfar.evaluation.tables.evaluation import stored_bytes
from nearfar.jobs import Job, JobStore
from nearfar.jobs.job import ERROR_FILE
from nearfar.studies.cells import Cell
from nearfar.studies.spec import AVERAGE, BYTES, GEOMETRY, ONLY_TASK, Coordinates
from nearfar.studies.steps import NUMBERS, RESULT, RUN
from nearfar.types import NearfarError

MODELS = "models.csv"
MAX_SHOWN = 12
"""Largest number of models that the command prints."""
_MEASURES = ("uniformity", "alignment")
"""Measures of the training texts, or of the dev pairs, that are recorded at each evaluation during training."""
_AGAIN = "Remove its folder; the job is then run again."
NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
OF_RUNS = ("validation", "seconds")
"""Columns that any run may have or lack."""
UNSEEN_BY_ALL = ".unseen_by_all"
AVERAGE_UNSEEN = f"average{UNSEEN_BY_ALL}"
_DEV = ("dev_accuracy", "dev_matthews", "dev_f1", "dev_pearson", "dev_spearman")
_TRAINING = ("updates_per_second", "steps", "best_step")
"""Columns of a fine-tuned classifier's training."""


@dataclass(frozen=True, eq=False)
class TestData:
    """Predictions of one run on the rows of one task, with what computes a score of them."""

    __test__ = False  # no class of tests, whatever its name

    task: str
    statistic: str
    """``spearman.all`` and others with an aggregate, ``accuracy``, ``f1``, ``matthews``, ``mean``."""
    digest: tuple[str, ...]
    """Fingerprints of the test data; runs with equal ones can be paired row by row."""
    gold: Sequence[Sequence[float]]
    """The gold scores of each subset; one subset where a task has none."""
    predicted: Sequence[Any]
    """One number for each row of each subset: a cosine, a prediction, or the measure of a query."""
    run: int
    """The identity of the result; the same data of one result, in several columns, are resampled once."""

    @property
    def group(self) -> tuple[str, str, tuple[str, ...]]:
        """Runs of the same group share resamples."""
        return self.task, self.statistic, self.digest


@dataclass(frozen=True)
class ColumnValue:
    """A column of one run."""

    value: float | None
    reason: str | None = None
    """Why there is no value."""
    low: float | None = None
    high: float | None = None
    data: tuple[TestData, ...] | None = None
    """What is resampled; the mean over several. None where only replicates can be tested."""
    kind: Literal["task", "score", "number"] = "score"
    """``number`` is a measure of the run that is not compared unless the study asks for it, such as its time."""


Columns: TypeAlias = dict[str, ColumnValue]
"""Name of a column -> its value."""


@dataclass
class Run:
    """One run of a study and its results; a run without results says in ``missing`` why.

    ``results`` are the results of its last steps: evaluations (fine-tuning writes one too), geometry, or a mapping of
    names to numbers, each of which is a column (``updates_per_second``). An average over the labels of an axis has
    columns alone.
    """

    row: str
    coordinates: Coordinates = field(default_factory=dict)
    replicate: Mapping[str, Any] = field(default_factory=dict)
    """Setting -> its value."""
    results: Sequence[EvaluationResult | GeometryResult | Mapping[str, Any]] = ()
    validation: float | None = None
    """The score that chooses among replicates, x 100."""
    seconds: float | None = None
    key: str = ""
    """Runs with equal keys are the same run."""
    missing: str | None = None
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Measure over training -> points (step, value)."""
    columns: Mapping[str, ColumnValue] = field(default_factory=dict)
    """The columns of the study."""
    chosen: bool = True
    """Whether it enters means and tests."""

    @property
    def name(self) -> str:
        """The run in words, for messages: ``scl (lambda = 0.3; seed = 1)``."""
        parts = [f"{name} = {value}" for name, value in {**self.coordinates, **self.replicate}.items()]
        return f"{self.row} ({'; '.join(parts)})" if parts else self.row

    @property
    def evaluations(self) -> list[EvaluationResult]:
        """Its evaluations."""
        return [one for one in self.results if isinstance(one, EvaluationResult)]

    @property
    def geometry(self) -> ModelGeometry | None:
        """The last geometry."""
        last = next((one for one in reversed(self.results) if isinstance(one, GeometryResult)), None)
        return None if last is None else list(last.models.values())[-1]


@dataclass
class Group:
    """All replicates of a row at the same coordinates."""

    row: str
    coordinates: Coordinates
    kept: list[Run] = field(default_factory=list)
    """The different runs that enter means and tests; replicates with the same key are one run."""
    missing: list[Run] = field(default_factory=list)
    fixed: bool = False
    """Whether all replicates are the same run, such as a baseline without training."""

    @property
    def place(self) -> tuple[Any, ...]:
        """What no other group has."""
        return self.row, *sorted(self.coordinates.items())


def column_values(run: Run, columns: Iterable[str], aggregate: Aggregate) -> dict[str, ColumnValue | None]:
    """The values of any columns but ``average`` and those over unseen pairs; None where the run has no such column.

    The last result that has a column counts; a task that it could not evaluate is without a value.
    """
    every = [
        (columns_of(one, aggregate), one.unavailable if isinstance(one, EvaluationResult) else {})
        for one in reversed(run.results)
    ]

    def value(column: str) -> ColumnValue | None:
        if column in OF_RUNS:
            number = getattr(run, column)
            return ColumnValue(number, NOT_MEASURED if number is None else None, kind="number")
        for known, unavailable in every:
            if column in known:
                return known[column]
            for task, why in unavailable.items():
                if column == task or column.startswith(f"{task}."):
                    return ColumnValue(None, why, kind="task")
        return None

    return {column: value(column) for column in columns}


def available_columns(runs: Sequence[Run]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    tasks = [task for run in runs for one in run.evaluations for task in one.all_tasks]
    others = [name for run in runs for one in run.results for name in columns_of(one, "all") if "." not in name]
    return list(dict.fromkeys([*tasks, *others, AVERAGE, *OF_RUNS]))


def columns_of(result: EvaluationResult | GeometryResult | Mapping[str, Any], aggregate: Aggregate) -> Columns:
    """All columns of a result."""
    if isinstance(result, GeometryResult):
        model = list(result.models.values())[-1]
        layers = {
            f"layer.{layer}.{pooling}": ColumnValue(value, "undefined" if value is None else None)
            for pooling, scores in (model.layers or {}).items()
            for layer, value in enumerate(scores)
        }
        return {name: ColumnValue(getattr(model, name)) for name in GEOMETRY} | layers
    if not isinstance(result, EvaluationResult):
        return _measures({str(name): value for name, value in result.items() if is_number(value)})
    columns: Columns = {}
    for task in sorted(result.all_tasks, key=len):  # of names that begin alike, the longest is the task's
        own = _of_task(task, result.all_tasks[task], aggregate)
        columns |= {f"{task}.{name}" if name else task: value for name, value in own.items()}
        if len(result.all_tasks) == 1:
            chosen = own.get(result.training.metric) if result.training else None
            columns |= {name: own[name] for name in ONLY_TASK if name in own} | {"score": chosen or own[""]}
    for name, average in result.averages.items():
        for metric in ("pearson", "spearman"):
            estimate = average.metric(metric).of(aggregate)
            columns[f"average:{name}.{metric}"] = _averaged(estimate, average.tasks, metric, columns)
        columns[f"average:{name}"] = columns[f"average:{name}.spearman"]
    for name, accuracy in result.transfer.averages.items() if result.transfer else ():
        if name not in result.averages:
            columns[f"average:{name}"] = _averaged(accuracy.accuracy, accuracy.tasks, "accuracy", columns)
    return columns | _measures(
        {name: getattr(result.training, name, None) for name in _TRAINING} | {BYTES: stored_bytes(result)}
    )


def _measures(numbers: Mapping[str, Any]) -> Columns:
    return {name: ColumnValue(float(one), kind="number") for name, one in numbers.items() if one is not None}


def _of_task(task: str, scored: TaskScores, aggregate: Aggregate) -> Columns:
    """Metric -> its value; "" is the main one."""
    if isinstance(scored, SimilarityScores):
        return _of_similarity(task, scored, aggregate)
    if isinstance(scored, RetrievalScores):
        measures: Columns = {}
        for name, estimate in scored.measures.items():
            per_query = [scored.per_query[name]]
            data = TestData(task, "mean", (scored.digest, name), [[]], per_query, run=id(scored))
            measures[name] = _estimated(estimate, data)
        return {"": measures[scored.main], **measures}
    dev = {name: value for name in _DEV if (value := getattr(scored, name, None)) is not None}
    columns = {name: ColumnValue(dev.get(name), _lacks(task, name, dev), kind="task") for name in _DEV}
    columns["dev"] = columns[next(iter(dev))] if dev else ColumnValue(None, _lacks(task, "dev", dev), kind="task")
    digest: tuple[str, ...] = (scored.digest,)
    is_classified = isinstance(scored, ClassificationScores)
    if is_classified:
        digest = (*digest, str(len(scored.gold)))
    predicted = [getattr(scored, "predicted" if is_classified else "predicted_e6")]
    for name in ONLY_TASK:
        if (metric := scored.metric(name)) is not None:
            statistic = name if is_classified else f"{name}.all"
            columns[name] = _estimated(metric, TestData(task, statistic, digest, [scored.gold], predicted, id(scored)))
    return {"": columns["accuracy" if is_classified else "pearson"], **columns}


def _lacks(task: str, name: str, dev: Mapping[str, float]) -> str | None:
    return None if name in dev else f"{task} has no {name}"


def _of_similarity(task: str, scored: SimilarityScores, aggregate: Aggregate) -> Columns:
    columns: Columns = {}
    run = id(scored)
    for metric in ("spearman", "pearson"):
        every: Columns = {
            by: _estimated(scored.metric(metric).of(by), _pairs(task, f"{metric}.{by}", scored.subsets, run))
            for by in AGGREGATES
        }
        columns |= {f"{metric}.{by}": value for by, value in every.items()} | {metric: every[aggregate]}
        columns |= {"": every[aggregate], **every} if metric == "spearman" else {}
    if scored.unseen is not None:
        columns["unseen"] = _estimated(scored.unseen.spearman, None)
    for name, subset in scored.subsets.items() if len(scored.subsets) > 1 else ():
        for metric in ("spearman", "pearson"):
            data = _pairs(f"{task}/{name}", f"{metric}.all", {name: subset}, run)
            columns[f"{name}.{metric}"] = _estimated(subset.metric(metric), data)
        columns[name] = columns[f"{name}.spearman"]
    return columns


def _pairs(task: str, statistic: str, subsets: Mapping[str, SubsetScores], run: int) -> TestData:
    digest = tuple(f"{name}:{subset.digest}" for name, subset in subsets.items())
    gold, cosines = ([one.gold for one in subsets.values()], [one.cosines_e6 for one in subsets.values()])
    return TestData(task, statistic, digest, gold, cosines, run=run)


def _estimated(estimate: Estimate, data: TestData | None) -> ColumnValue:
    """A score with what is resampled, where predictions are stored and the score is defined."""
    known = None if estimate.score is None or data is None or not any(map(len, data.predicted)) else (data,)
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, known, "task")


def _averaged(estimate: Estimate, tasks: Sequence[str], metric: str, columns: Columns) -> ColumnValue:
    """An average of an evaluation, with the data of its tasks if they all have some."""
    known = [columns[name].data or () for task in tasks if (name := f"{task}.{metric}") in columns]
    parts = sum(known, ())
    data = parts if parts and len(parts) == len(tasks) else None
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, data)


def mean_value(members: Mapping[str, ColumnValue | None]) -> ColumnValue:
    """The mean of several columns or runs, by name; undefined where one of them is."""
    known = [one for one in members.values() if one is not None and one.value is not None]
    if not members:
        return ColumnValue(None, NOT_MEASURED)
    if len(known) < len(members):
        name, one = next((name, one) for name, one in members.items() if one is None or one.value is None)
        return ColumnValue(None, f"{name}: {one.reason if one and one.reason else NOT_MEASURED}")
    data = sum((one.data or () for one in known), ()) if all(one.data for one in known) else None
    return ColumnValue(sum(one.value for one in known if one.value is not None) / len(known), data=data)


class UnseenByAll:
    """The similarity tasks of the finished runs of a study, and which of their pairs any run has seen.

    A run has seen a pair if its model was trained on it, or if the pair is in the dev set that chose the training step.
    A model without a record of training has seen nothing.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._seen: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}
        """Name of a task and the digests of its subsets -> a mask of its pairs."""
        for result in (result for run in runs for result in run.evaluations):
            for task, scored in result.tasks.items():
                seen = self._seen.setdefault(_data_of(task, scored), np.zeros(scored.pairs, dtype=np.bool_))
                if scored.unseen is not None:
                    seen[scored.unseen.seen_pairs] = True

    def column(self, column: str, run: Run) -> ColumnValue | None:
        """``TASK.unseen_by_all`` of a run: Spearman x 100 over the unseen pairs of all subsets together."""
        task = column.removesuffix(UNSEEN_BY_ALL)
        scored = next((one.tasks[task] for one in reversed(run.evaluations) if task in one.tasks), None)
        if scored is None:
            return None
        seen = self._seen[_data_of(task, scored)]
        spearman = unseen_scores(task, scored, seen, resamples=0).spearman
        ends = np.cumsum([subset.pairs for subset in scored.subsets.values()])[:-1]
        subsets = {}  # what is resampled: the unseen pairs, within their subsets
        for (name, one), mask in zip(scored.subsets.items(), np.split(~seen, ends), strict=True):
            gold, cosines = (np.asarray(values)[mask].tolist() for values in (one.gold, one.cosines_e6))
            if gold:
                subsets[name] = replace(one, pairs=len(gold), gold=gold, cosines_e6=cosines)
        data = _pairs(task, "spearman.all", subsets, id(scored))
        if seen.any():
            data = replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
        return ColumnValue(spearman.score, spearman.reason, data=None if spearman.score is None else (data,))

    def counts(self, tasks: Iterable[str]) -> dict[str, list[int]]:
        """Task -> number of pairs that no run has seen, and of all pairs; without tasks whose data differ by run."""
        masks = {task: [mask for (name, _), mask in self._seen.items() if name == task] for task in tasks}
        return {task: [int((~mine[0]).sum()), len(mine[0])] for task, mine in masks.items() if len(mine) == 1}

    @property
    def tasks(self) -> set[str]:
        """The similarity tasks of all runs."""
        return {task for task, _ in self._seen}


def _data_of(task: str, scored: SimilarityScores) -> tuple[str, tuple[str, ...]]:
    return task, tuple(subset.digest for subset in scored.subsets.values())


class Resampler:
    """Bootstrap scores of all runs, computed once for each task and statistic.

    ``resamples`` drawn from ``seed`` and the task's name, as in ``nearfar compare``; runs with the same test data share
    them.
    """

    def __init__(self, data: Iterable[TestData], *, resamples: int, seed: int, progress: bool = False) -> None:
        from rich.console import Console
        from rich.progress import track

        self.resamples = resamples
        self.seed = seed
        self._draws: dict[tuple[Any, int], NDArray[np.float32]] = {}
        groups: dict[Any, dict[int, TestData]] = defaultdict(dict)
        for one in data:
            groups[one.group][one.run] = one
        shown = {"console": Console(stderr=True), "transient": True, "disable": not progress}
        for group in track([*groups], "resampling", **shown):  # type: ignore[arg-type]
            scores = self._scores([*groups[group].values()])
            self._draws |= {
                (group, run): row.astype(np.float32) for run, row in zip(groups[group], scores, strict=True)
            }

    def of(self, parts: Sequence[TestData]) -> Floats:
        """Scores on each resample [resamples], the mean over the parts; x 1, NaN where undefined."""
        return np.mean([self._draws[part.group, part.run] for part in parts], axis=0, dtype=np.float64)

    def _scores(self, members: Sequence[TestData]) -> Floats:
        first = members[0]
        settings: dict[str, Any] = {"resamples": self.resamples, "seed": [self.seed, *first.task.encode()]}
        metric, _, aggregate = first.statistic.partition(".")
        gold = np.concatenate(first.gold, dtype=np.float64)
        predicted = np.array([np.concatenate(one.predicted) for one in members], dtype=np.float64)
        if aggregate:
            settings |= {"only": aggregate}
            drawn = bootstrap_scores(CORRELATIONS[metric], gold, predicted, sizes=[*map(len, first.gold)], **settings)
            return drawn.aggregate(next(by for by in AGGREGATES if by == aggregate))
        if metric in ("mean", "accuracy"):
            values = predicted if metric == "mean" else (predicted == gold).astype(float)
            return bootstrap_means(values, **settings)
        # F1 of the second class, or Matthews correlation, from resampled shares of the confusion counts
        true, guess = gold == 1, predicted == 1
        indicators = np.concatenate([guess & true, guess & ~true, ~guess & true]).astype(float)
        hits, false_alarms, misses = bootstrap_means(indicators, **settings).reshape(3, len(predicted), -1)
        if metric == "f1":
            above, below = 2 * hits, 2 * hits + false_alarms + misses
        else:
            rejections = 1 - hits - false_alarms - misses
            above = hits * rejections - false_alarms * misses
            product = (hits + false_alarms) * (hits + misses) * (rejections + false_alarms) * (rejections + misses)
            below = np.sqrt(np.maximum(product, 0))
        return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 1e-12)


def collect(cells: Sequence[Cell], store: JobStore) -> list[Run]:
    """All cells in order, each with its results, or with the reason why it has none.

    Raises:
        NearfarError: the folder of a finished job is damaged.
    """
    read: dict[str, list[Any]] = {}
    return [_run(cell, store, read) for cell in cells]


def _run(cell: Cell, store: JobStore, read: dict[str, list[Any]]) -> Run:
    run = Run(cell.row.id, cell.coordinates, cell.replicate, key=cell.key)
    run.missing = _why_missing(cell, store)
    if run.missing is not None:
        return run
    for job in cell.jobs:
        if job.key not in read:
            read[job.key] = _results(job, store)
    results = [one for job in cell.jobs for one in read[job.key]]
    training = cell.last_training
    if training is not None and store.is_finished(training):
        numbers = _numbers(training, store)
        run.validation = numbers.get("validation")
        # As scripts are timed: with loading, a teacher's vectors, evaluations and saving. A run that was resumed counts
        # the training loop of all its attempts if that is more than its last attempt took.
        whole = store.seconds(training) if training.function.endswith(":train") else None
        run.seconds = max((one for one in (numbers.get("seconds"), whole) if one is not None), default=None)
        run.curves = training_curves(store.folder(training) / RUN)
        if training not in cell.jobs:
            results.append(_without_those_of_runs(numbers))
    else:
        timed = [seconds for job in cell.jobs if (seconds := store.seconds(job)) is not None]
        run.seconds = sum(timed) if timed else None
    run.results = results
    return run


def _why_missing(cell: Cell, store: JobStore) -> str | None:
    """Why a cell has no results; None if it has."""
    waiting = [job for job in cell.jobs if not store.is_finished(job)]
    if not waiting:
        return None
    if cell.missing:
        return f"data missing: {', '.join(one.spec for one in cell.missing)}"
    for job in waiting:
        for one in (*job.inputs.values(), job):
            file = store.part(one) / ERROR_FILE
            if file.is_file():
                with read_errors(file):
                    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                return f"failed: {(lines or ['unknown error'])[-1].removeprefix('nearfar.types.NearfarError: ')}"
    return "not run"


def _results(job: Job, store: JobStore) -> list[Any]:
    folder = store.folder(job)
    results: list[Any] = []
    if (folder / RESULT).is_file():
        result = load_result(folder / RESULT)
        if not isinstance(result, EvaluationResult | GeometryResult):
            raise NearfarError(f"{folder / RESULT}: is no result of an evaluation. {_AGAIN}")
        results.append(result)
    if (folder / NUMBERS).is_file():
        results.append(_without_those_of_runs(_numbers(job, store)))
    if not results:
        raise NearfarError(f"{folder}: has no results. {_AGAIN}")
    return results


def _numbers(job: Job, store: JobStore) -> dict[str, Any]:
    numbers = read_json(store.folder(job) / NUMBERS, otherwise=_AGAIN)
    if not isinstance(numbers, dict):
        raise NearfarError(f"{store.folder(job) / NUMBERS}: is damaged. {_AGAIN}")
    return numbers


def _without_those_of_runs(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in OF_RUNS}


def training_curves(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Measure -> ``(step, value)`` of each evaluation during training."""
    curves: dict[str, list[tuple[float, float]]] = {}
    file = run / "metrics.jsonl"
    for line in read_text(file).splitlines() if file.is_file() else ():
        point = json.loads(line)
        if "best" in point:
            score = point.get(point["metric"])
            measured = {name: point[name] for name in _MEASURES if name in point}
            measured |= {"validation": 100 * score} if isinstance(score, int | float) else {}
            for name, value in measured.items():
                if isinstance(value, int | float):
                    curves.setdefault(name, []).append((point["step"], value))
    return curves


def write_models(output: Path, cells: Sequence[Cell], store: JobStore) -> None:
    """Write ``models.csv`` into ``output``: row, axes, replicate and run folder of each model that is there.

    A run folder inside ``output`` is written relative to it. Without a model, such as after ``--discard-models``, no
    file is written, and one of before is removed.

    Raises:
        NearfarError: the file cannot be written.
    """
    root, models = output.absolute(), []
    for cell in cells:
        if (training := cell.last_training) is not None and store.is_finished(training):
            run = store.folder(training) / RUN
            if (run / "model").is_dir():
                folder = run if (run / "run.json").is_file() else run / "model"  # of a script
                shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
                models.append((cell.row.id, {**cell.coordinates, **cell.replicate}, str(shown)))
    if not models:
        (output / MODELS).unlink(missing_ok=True)
        return
    names = dict.fromkeys(name for _, place, _ in models for name in place)
    lines = [[row, *(str(place.get(name, "")) for name in names), folder] for row, place, folder in models]
    write_text(output / MODELS, csv_lines([["row", *names, "folder"], *lines]))


def model_lines(output: Path) -> list[str]:
    """The models of a study in words, a line for each; only the name of the file if there are many; empty without.

    Raises:
        NearfarError: the file is damaged.
    """
    file = output / MODELS
    if not file.is_file():
        return []
    header, *models = list(csv.reader(io.StringIO(read_text(file)))) or [[]]
    if len(header) < 2 or any(len(one) != len(header) for one in models):
        raise NearfarError(f"{file}: is damaged. Remove it; nearfar study writes it again.")
    if len(models) > MAX_SHOWN:
        return [f"The run folders of the {len(models)} trained models are listed in {file}."]
    lines = ["Trained models, as run folders (also in models.csv):"]
    for row, *labels, folder in models:
        place = ", ".join(f"{name} {label}" for name, label in zip(header[1:-1], labels, strict=True) if label)
        lines.append(f"  {row}{f' ({place})' if place else ''}: {os.path.normpath(output / folder)}")
    return lines
