"""From the cells of a study to jobs: settings and content of data and models, without places on this machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from nearfar.baselines.named import is_baseline
from nearfar.commands.study.columns import check_columns
from nearfar.commands.study.script import FUNCTION as SCRIPT_FUNCTION
from nearfar.commands.study.script import data_of_script, find_script
from nearfar.commands.study.sources import Source, find_finetuning_task, find_model, find_source, find_task
from nearfar.config.files import load_method, read_toml
from nearfar.config.finetune import FinetuneConfig
from nearfar.config.geometry import GeometryConfig
from nearfar.config.study import PlannedCell, PlannedStep, SpeedConfig, Study, plan_cells
from nearfar.config.study.script import ScriptConfig
from nearfar.config.study.types import MODEL_VERBS
from nearfar.config.training import RunConfig, TrainConfig
from nearfar.config.values import Settings, field_types, named_models
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import OWN, suite_tasks
from nearfar.evaluation.study_table.plan import agree
from nearfar.jobs import Job
from nearfar.registry import METHODS, name_of
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

FORMAT = 1
"""Version of the jobs: a change makes all keys new. Raise it when the same settings give other results."""
MODULE = "nearfar.commands.study.work"
LOCAL = ("device", "output", "overwrite", "name", "page", "model", "held_out_of", "track")
"""Settings that are not among the values of a job: they do not change the result, or have an entry of their own."""
MODEL, HELD_OUT = "model", "held_out"
"""Inputs of a job: the training of its model, and the training whose held-out rows it is evaluated on."""
NOISES = ("none", "word-dropout", "word-swap", "characters")
OPTIONAL = ("pairs", "task", "labelled")
"""Data sets of ``nearfar geometry`` that may be missing if they are not named."""
GEOMETRY_DEFAULTS = {"pairs": "stsb:dev", "task": "stsb", "labelled": "sst2:test"}


@dataclass(frozen=True)
class Cell:
    """One row at one combination of labels, for one replicate, as jobs."""

    row_id: str
    coordinates: Mapping[str, str]
    """Axis -> label."""
    replicate: Mapping[str, Any]
    """Dotted setting -> value."""
    jobs: tuple[Job, ...]
    """The last jobs, which are measured."""
    last_training: Job | None
    """The last job that trains, which has the validation score."""
    missing: tuple[Source, ...]
    """Data and models that are missing."""
    downloads: tuple[Source, ...]
    """Data and models that are read from the hub."""
    trainings: tuple[tuple[Job, TrainConfig], ...] = ()
    """The jobs that train an encoder, with their settings."""
    scripts: tuple[str, ...] = ()
    """Scripts of the study's author that the cell runs."""

    @property
    def key(self) -> str:
        """Identifies what is measured: cells with the same jobs have the same key."""
        return "+".join(job.key for job in self.jobs)

    @property
    def name(self) -> str:
        """The cell in words."""
        parts = [f"{name} {value}" for name, value in (*self.coordinates.items(), *self.replicate.items())]
        return f"{self.row_id} ({', '.join(parts)})" if parts else self.row_id


def expand(study: Study) -> list[Cell]:
    """The cells of a study with their jobs; equal steps of several cells are one job.

    Raises:
        NearfarError: a column that no step has, a setting that cannot be part of a study, a model folder or file that
            cannot be read.
    """
    planned = plan_cells(study)
    check_columns(study, planned)
    return [_expand_cell(study, cell, planned) for cell in planned]


def all_jobs(cells: Iterable[Cell]) -> list[Job]:
    """The measured jobs of the cells, each once."""
    return list({job.key: job for cell in cells for job in cell.jobs}.values())


def _expand_cell(study: Study, cell: PlannedCell, planned: Sequence[PlannedCell]) -> Cell:
    sources: list[Source] = []
    jobs: list[Job] = []
    trainings: list[tuple[Job, TrainConfig]] = []
    model: Job | None = None
    used: set[str] = set()
    try:
        for place, step in enumerate(cell.steps):
            held_out, rows = _held_out(step, cell, planned)
            if isinstance(step.config, ScriptConfig):
                job, read = _script_job(step, step.config, model, Path(study.file).parent)
            else:
                job, read = _job(step, model, keep_model=place < len(cell.steps) - 1, held_out=held_out)
            sources += [*rows, *read]
            jobs.append(job)
            if isinstance(step.config, TrainConfig):
                trainings.append((job, step.config))
            if model is not None:
                used.add(model.key)
            if step.verb in MODEL_VERBS:
                model = job
    except NearfarError as error:
        raise NearfarError(f"{study.file}: row {cell.row.id!r}: {error}") from error
    return Cell(
        row_id=cell.row.id,
        coordinates=cell.coordinates,
        replicate=cell.replicate,
        jobs=tuple(dict.fromkeys(job for job in jobs if job.key not in used)),
        last_training=model,
        missing=tuple(dict.fromkeys(one for one in sources if one.fingerprint is None)),
        downloads=tuple(dict.fromkeys(one for one in sources if one.fingerprint == "hub")),
        trainings=tuple(trainings),
        scripts=tuple(step.config.file for step in cell.steps if isinstance(step.config, ScriptConfig)),
    )


def _held_out(step: PlannedStep, cell: PlannedCell, planned: Sequence[PlannedCell]) -> tuple[Job | None, list[Source]]:
    """The training whose held-out rows a step is evaluated on, and the data that it needs.

    ``held_out_of`` names a row. All replicates of a row hold out the same rows, so the first one is taken.
    """
    row = step.config.held_out_of if isinstance(step.config, EvaluateConfig) else None
    if row is None:
        return None, []
    where = f"evaluate: held_out_of = {format_value(row)}"
    others = list(dict.fromkeys(one.row.id for one in planned if one.row.id != cell.row.id))
    if row not in others:
        message = unknown_name_message(row, others, what="other row")
        raise NearfarError(f"{where}: must be the id of another row: {message}")
    same = [one for one in planned if one.row.id == row and agree(one.coordinates, cell.coordinates)]
    training = same[0].steps[0]
    if not isinstance(training.config, TrainConfig):
        raise NearfarError(f"{where}: the first step of this row must be train.")
    if training.config.evaluate_on is not None or training.config.hold_out == 0:
        raise NearfarError(f"{where}: this row holds out no rows, because of its evaluate_on or hold_out.")
    return _job(training, None, keep_model=True)


def _job(
    step: PlannedStep, model: Job | None, *, keep_model: bool, held_out: Job | None = None
) -> tuple[Job, list[Source]]:
    """The job of a step, and the data and models that must be there."""
    read = _sources(step.config)
    values = _values(step.config)
    files: dict[str, str] = {}
    for name, found in read.items():
        if any(one.written != one.spec for one in found):
            value = [one.written for one in found]
            values[name] = value if isinstance(getattr(step.config, name), tuple) else value[0]
            files |= {one.written: one.spec for one in found if one.written != one.spec}
    settings: dict[str, Any] = {
        "format": FORMAT,
        "values": values,
        "sources": {one.written: one.fingerprint for found in read.values() for one in found},
    }
    local: dict[str, Any] = {"device": getattr(step.config, "device", None)}
    needed = [one for name, found in read.items() if not _is_optional(step.config, name) for one in found]
    inputs = {}
    if held_out is not None:
        values["held_out"] = True
        inputs[HELD_OUT] = held_out
    if model is None:
        start = find_model(str(step.model))
        settings |= {"model": start.written, "model_fingerprint": start.fingerprint}
        files |= {start.written: start.spec} if start.written != start.spec else {}
        needed.append(start)
    else:
        inputs[MODEL] = model
    if isinstance(step.config, TrainConfig):
        settings["method"] = name_of(type(step.config))
    if isinstance(step.config, FinetuneConfig):
        settings["keep_model"] = keep_model
    if isinstance(step.config, RunConfig) and step.config.track:
        local["track"] = list(step.config.track)
    if files:
        local["files"] = files
    device = str(local["device"] or "")
    job = Job(f"{MODULE}:{step.verb}", settings, inputs, local=local, uses="gpu" if device[:4] == "cuda" else None)
    return job, needed


def _script_job(step: PlannedStep, config: ScriptConfig, model: Job | None, folder: Path) -> tuple[Job, list[Source]]:
    """The job of a script step. The script is known by its content, and so are the data that its arguments name."""
    found, read = find_script(config, folder), data_of_script(config)
    values: dict[str, Any] = dict(config.arguments)
    for name, some in read.items():
        written = [one.written for one in some]
        values[name] = written if isinstance(values[name], tuple) else written[0]
    needed = [one for some in read.values() for one in some]
    settings: dict[str, Any] = {
        "format": FORMAT,
        "script": found.written,
        "values": values,
        "seed": config.seed,
        "numbers": config.numbers,
        "sources": {one.written: one.fingerprint for one in needed},
    }
    inputs = {} if model is None else {"model": model}
    if model is None:
        if is_baseline(str(step.model)):
            raise NearfarError(
                f"script: starts from a model folder or a name on the hub, not the baseline {step.model}."
            )
        start = find_model(str(step.model))
        settings |= {"model": start.written, "model_fingerprint": start.fingerprint}
        needed.append(start)
    files = {one.written: one.spec for one in (found, *needed) if one.written != one.spec}
    return Job(SCRIPT_FUNCTION, settings, inputs, local={"files": files}), needed


def _values(config: Settings) -> dict[str, Any]:
    """The settings that differ from their defaults, or have none."""
    return {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if field.name not in LOCAL and (field.default is MISSING or getattr(config, field.name) != field.default)
    }


def _sources(config: Settings) -> dict[str, list[Source]]:
    """Setting -> the data that it names."""
    found: dict[str, list[Source]] = {}
    if isinstance(config, TrainConfig):
        found |= _training_data(config)
        if config.evaluate_on is not None:
            found["evaluate_on"] = [find_source(config.evaluate_on)]
        found |= {name: [find_model(model)] for name, model in named_models(config).items()}
    elif isinstance(config, FinetuneConfig):
        found["task"] = [_keep_name(find_finetuning_task(config.task))]
        for name in ("validation", "test"):
            if (spec := getattr(config, name)) is not None:
                found[name] = [find_source(spec)]
        if config.noise not in NOISES:
            found["noise"] = [find_source(config.noise)]
    elif isinstance(config, EvaluateConfig):
        found |= _evaluated(config)
    elif isinstance(config, GeometryConfig):
        for name, default in GEOMETRY_DEFAULTS.items():
            found[name] = [_keep_name(find_source(getattr(config, name) or default))]
    elif isinstance(config, SpeedConfig):
        found["texts"] = [find_source(config.texts)]
    return {name: some for name, some in found.items() if some}


def data_sources(config: TrainConfig) -> list[Source]:
    """The data that an encoder trains on, those of a second objective included."""
    return [one for found in _training_data(config).values() for one in found]


def _training_data(config: TrainConfig) -> dict[str, list[Source]]:
    return {
        "data": [find_source(spec) for spec in config.data],
        "sentences": [find_source(spec) for spec in config.sentences if spec != OWN],
        "second": [] if config.second is None else _second(config.second),
    }


def _evaluated(config: EvaluateConfig) -> dict[str, list[Source]]:
    """The tasks of an evaluation. They are named in its result, so a path is written as it is."""
    found = {"suite": [find_task(task) for task in suite_tasks(config.suite)] if config.suite else []}
    found["tasks"] = [find_task(task) for task in config.tasks or ()]
    for name in ("pairs", "labelled", "retrieval"):
        found[name] = [find_source(spec) for spec in getattr(config, name)]
    if config.corpus is not None:
        found["corpus"] = [find_source(config.corpus)]
    named = (config.suite, config.tasks, config.pairs, config.labelled, config.retrieval)
    if not any((*named, config.held_out, config.held_out_of)):
        found["suite"] = [find_task(task) for task in suite_tasks("sts")]
    return {name: [_keep_name(one) for one in some] for name, some in found.items()}


def _keep_name(found: Source) -> Source:
    """The source, written as it is named: the name is part of the result."""
    return (
        found
        if found.written == found.spec
        else Source(
            spec=found.spec, written=found.spec, fingerprint=found.fingerprint, advice=found.advice, bytes=found.bytes
        )
    )


def _second(second: str) -> list[Source]:
    """The file of a second objective, if it is one, and the data that it trains on."""
    if second in METHODS:
        return [find_source(spec) for spec in _default_data(METHODS[second])]
    file = find_source(second)
    if file.fingerprint is None:
        return [file]
    kind, _ = load_method(second)
    values = read_toml(second)
    data = values.get("data", _default_data(kind))
    models = [str(values[name]) for name, field in field_types(kind).items() if field.names_model and name in values]
    return [
        file,
        *(find_source(spec) for spec in ((data,) if isinstance(data, str) else data)),
        *map(find_model, models),
    ]


def _default_data(kind: type[TrainConfig]) -> tuple[str, ...]:
    """The data that a method trains on where none are named."""
    found: Any = next(field.default for field in fields(kind) if field.name == "data")
    return tuple(found)


def _is_optional(config: Settings, name: str) -> bool:
    """Whether a data set may be missing: one of a suite, or a default of ``nearfar geometry``."""
    if isinstance(config, GeometryConfig):
        return getattr(config, name) is None
    return name == "suite"
