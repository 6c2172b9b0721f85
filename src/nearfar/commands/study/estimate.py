"""Estimates the time and disk of jobs, from finished jobs or from stated rates."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from nearfar.data.catalog import parse
from nearfar.data.finetuning_splits import VALIDATION_ROWS
from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, MIXTURES, PROBE_TASKS, suite_tasks
from nearfar.data.paths import as_path, is_file
from nearfar.evaluation.probe_settings import PRESETS
from nearfar.jobs import Job, JobStore
from nearfar.jobs.store import ATTEMPT_FILE, JOB_FILE
from nearfar.registry import METHODS

SECONDS_PER_ROW = 0.004
"""Training time of a row: 64 rows a step, 300 steps in 60 to 100 s, with a 6-layer MiniLM on one core."""
SECONDS_PER_JOINED_PAIR = 0.018
"""Fine-tuning time of a row of two texts, which the model reads as one sequence: 16 rows of STS-B a step in 0.28 s."""
SECONDS_PER_EVALUATED_TEXT = 0.0015
"""Of the evaluations during training, on the same machine."""
SECONDS_PER_START = 6.0
"""Reading the model and the data, and writing the result."""
SECONDS_PER_STS_TASK, SECONDS_PER_PROBE, SECONDS_PER_GEOMETRY, SECONDS_PER_SPEED = 13.0, 25.0, 30.0, 30.0
SECONDS_PER_HIDDEN_PROBE = 200.0
"""Of a probe with a hidden layer of 50 and ten nested folds, the mean over seven tasks, from 57 s on TREC and 156 s on
CR."""
MODEL_BYTES = 91e6
"""Size of a 6-layer MiniLM in float32."""
RESULT_BYTES = 300e3
RATES = (
    "from rates of a 6-layer MiniLM on one core (a step of 64 rows 0.26 s, fine-tuning on 64 pairs 1.2 s, 1,000 dev "
    "texts 1.5 s, an STS task 13 s, a probe 25 s, with hidden units 200 s); larger models and the hub are slower"
)


@dataclass(frozen=True)
class Estimates:
    """The time and disk of jobs."""

    seconds: float
    unknown: int
    """Number of jobs without an estimate."""
    basis: tuple[str, ...]
    disk: float


class Estimator:
    """Knows the finished jobs of a store."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._exact: dict[str, list[float]] = {}
        self._models: list[int] = []

    def estimate(self, todo: Sequence[Job]) -> Estimates:
        """The time and disk of the jobs ``todo``.

        A job takes as long as the finished jobs of the store with the same settings but for seeds; without one, the
        time follows from the number of rows or tasks and stated rates.
        """
        self._read_store()
        seconds, unknown, from_store, from_rates = 0.0, 0, 0, 0
        disk = 0.0
        for job in todo:
            verb = job.function.rpartition(":")[2]
            timed = self._exact.get(_signature(job.function, job.settings))
            if timed is not None:
                seconds, from_store = seconds + mean(timed), from_store + 1
            elif (rate := _by_rate(verb, job.settings)) is not None:
                seconds, from_rates = seconds + rate, from_rates + 1
            else:
                unknown += 1
            keeps = verb in ("train", "script") or (verb == "finetune" and job.settings.get("keep_model"))
            disk += RESULT_BYTES + (mean(self._models) if self._models else MODEL_BYTES) * bool(keeps)
        basis = [f"{from_store} jobs from finished ones with the same settings"] if from_store else []
        basis += [f"{from_rates} jobs {RATES}"] if from_rates else []
        return Estimates(seconds, unknown, tuple(basis), disk)

    def _read_store(self) -> None:
        for file in self._store.root.glob(f"*/{JOB_FILE}"):
            if file.parent.suffix:
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):
                content = json.loads(file.read_text(encoding="utf-8"))
                seconds = json.loads((file.parent / ATTEMPT_FILE).read_text(encoding="utf-8"))["seconds"]
                self._exact.setdefault(_signature(content["function"], content["settings"]), []).append(float(seconds))
                model = file.parent / "run" / "model"
                if model.is_dir():
                    self._models.append(sum(one.stat().st_size for one in model.rglob("*") if one.is_file()))


def _signature(function: str, settings: Mapping[str, Any]) -> str:
    """What decides how long a job takes: its settings without seeds."""
    values = {name: value for name, value in settings.get("values", {}).items() if not name.endswith("seed")}
    size = {name: settings.get(name) for name in ("method", "script", "model", "keep_model")}
    return json.dumps([function, values, size], sort_keys=True)


def _by_rate(verb: str, settings: Mapping[str, Any]) -> float | None:
    values = settings["values"]
    if verb == "script":
        return None
    if verb == "evaluate":
        tasks = [*(values.get("tasks") or ()), *(values.get("pairs") or ()), *(values.get("labelled") or ())]
        suite = values.get("suite") or (None if tasks or values.get("held_out") else "sts")
        tasks += suite_tasks(suite) if suite else ()
        probes = sum(task in PROBE_TASKS for task in tasks) + len(values.get("labelled") or ())
        return SECONDS_PER_STS_TASK * max(1, len(tasks) - probes) + _seconds_per_probe(values) * probes
    if verb in ("geometry", "speed"):
        return SECONDS_PER_GEOMETRY if verb == "geometry" else SECONDS_PER_SPEED
    get = {**_defaults(verb, settings), **values}.get
    batch, epochs, steps = int(get("batch_size") or 1), int(get("epochs") or 1), get("max_steps")
    sources = _sources(verb, get, settings.get("files") or {})
    if steps is None:
        counts = [_rows(spec) for spec in sources]
        rows = get("sample_size") or (None if None in counts else sum(one or 0 for one in counts))
        if not rows:
            return None
        rows = min(int(rows), int(get("limit") or rows))
        if get("noise") not in (None, "none") and get("noise_mode") == "add":
            rows *= 2  # each row and its noisy copy
        steps = -(-rows // batch) * epochs
    trained = float(steps) * batch * _seconds_per_row(verb, get) * int(get("accumulate") or 1)
    evaluations = 1 + -(-int(steps) // int(get("evaluate_every") or steps))  # before training, and at the last step
    return SECONDS_PER_START + trained + evaluations * _dev_texts(verb, get) * SECONDS_PER_EVALUATED_TEXT


def _seconds_per_probe(values: Mapping[str, Any]) -> float:
    preset = PRESETS[values.get("probe_preset") or "senteval"]
    hidden = values.get("nhid")
    if not (preset.nhid if hidden is None else hidden):
        return SECONDS_PER_PROBE
    # Half of the folds took 0.37 of the time on CR.
    return SECONDS_PER_HIDDEN_PROBE * ((values.get("folds") or preset.folds) / 10) ** 1.5


def _seconds_per_row(verb: str, get: Callable[[str], Any]) -> float:
    task = FINETUNING_TASKS.get(str(get("task"))) if verb == "finetune" else None
    return SECONDS_PER_JOINED_PAIR if task is not None and len(task.columns) == 2 else SECONDS_PER_ROW


def _sources(verb: str, get: Callable[[str], Any], files: Mapping[str, str]) -> list[str]:
    """The data sets with the training rows."""
    if verb == "train":
        return [str(files.get(spec, spec)) for spec in get("data") or ()]
    task = str(get("task"))
    return [f"{FINETUNING_TASKS[task].source}:train" if task in FINETUNING_TASKS else str(files.get(task, task))]


def _dev_texts(verb: str, get: Callable[[str], Any]) -> int:
    """Number of texts of the dev set; of fine-tuning, of the task's own validation rows or of those held out."""
    if verb == "finetune":
        task = FINETUNING_TASKS.get(str(get("task")))
        own = _rows(task.validation) if task is not None and task.validation else None
        return int(get("validation_rows") or own or VALIDATION_ROWS)
    dev = get("evaluate_on")
    return 2 * (_rows(str(dev)) or 0) if dev else 0  # pairs


def _defaults(verb: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    from dataclasses import fields

    from nearfar.config.finetune import FinetuneConfig

    kind: Any = METHODS[settings["method"]] if verb == "train" else FinetuneConfig
    return {field.name: field.default for field in fields(kind)}


def _rows(spec: str) -> int | None:
    """The number of lines of a data set's local files; None if it is not there."""
    name = spec.partition(":")[0]
    if name in MIXTURES:
        parts = [_rows(f"{member}{spec[len(name) :]}") for member in MIXTURES[name]]
        return None if None in parts else sum(one or 0 for one in parts)
    files = _files(spec)
    return sum(_lines(file) for file in files) if files and all(map(is_file, files)) else None


def _files(spec: str) -> list[Path]:
    if spec.partition(":")[0] not in CATALOG:
        return [as_path(spec)] if is_file(as_path(spec)) else []
    name, requested = parse(spec)
    entry, root = CATALOG[name], os.environ.get("NEARFAR_DATA")
    if not root:
        return []
    return [
        as_path(root) / entry.folder / entry.files.get(split, f"{split}.tsv") for split in requested or entry.splits
    ]


def _lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
