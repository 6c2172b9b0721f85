"""From the cells of a study to jobs: settings and content of data and models, without places on this machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from nearfar.baselines.named import is_baseline
from nearfar.config.finetune import FinetuneConfig
from nearfar.config.geometry import GeometryConfig
from nearfar.config.training import RunConfig, TrainConfig
from nearfar.config.values import Settings, field_types, named_models
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import OWN, VOCABULARY, suite_tasks
from nearfar.data.paths import is_file
from nearfar.jobs import Job, JobStore
from nearfar.registry import METHODS, name_of
from nearfar.settings import load_method, read_toml
from nearfar.studies.cells import Cell, CellStep, check_columns, plan_cells
from nearfar.studies.sources import (
    HUB,
    Source,
    digest_of_file,
    find_finetuning_task,
    find_model,
    find_source,
    find_task,
)
from nearfar.studies.spec import DATA_ARGUMENTS, MODEL_VERBS, ScriptConfig, SpeedConfig, Study, agree
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

FORMAT = 1
"""Version of the jobs: a change makes all keys new. Raise it when the same settings give other results."""
STEPS = "nearfar.studies.steps"
"""The module of the functions of jobs."""
MODEL, HELD_OUT = "model", "held_out"
"""Inputs of a job: the training of its model, and the training whose held-out rows it is evaluated on."""
_NOT_VALUES = ("device", "output", "overwrite", "name", "page", "model", "held_out_of", "track")
"""Settings that are not among the values of a job: they do not change the result, or have an entry of their own."""
_NOISES = ("none", "word-dropout", "word-swap", "characters")
_GEOMETRY_DEFAULTS = {"pairs": "stsb:dev", "task": "stsb", "labelled": "sst2:test"}
"""Data sets of ``nearfar geometry`` that may be missing if they are not named."""


@dataclass(frozen=True)
class CellJobs:
    """A cell as jobs."""

    cell: Cell
    jobs: tuple[Job, ...]
    """The last jobs, which are measured."""
    last_training: Job | None
    """The last job that trains, which has the validation score."""
    sources: tuple[Source, ...]
    """Data and models that it reads."""
    trainings: tuple[tuple[Job, TrainConfig], ...] = ()
    """The jobs that train an encoder, with their settings."""

    @property
    def key(self) -> str:
        """Identifies what is measured: cells with the same jobs have the same key."""
        return "+".join(job.key for job in self.jobs)

    @property
    def missing(self) -> tuple[Source, ...]:
        """Data and models that are missing."""
        return tuple(one for one in self.sources if one.fingerprint is None)

    @property
    def scripts(self) -> tuple[str, ...]:
        """Scripts of the study's author that the cell runs."""
        return tuple(step.config.file for step in self.cell.steps if isinstance(step.config, ScriptConfig))


def plan_jobs(study: Study) -> list[CellJobs]:
    """The cells of a study with their jobs; equal steps of several cells are one job.

    Raises:
        NearfarError: a column that no step has, a setting that cannot be part of a study, a model folder or file that
            cannot be read.
    """
    cells = plan_cells(study)
    check_columns(study, cells)
    planned = []
    for cell in cells:
        try:
            planned.append(_plan_cell(study, cell, cells))
        except NearfarError as error:
            raise NearfarError(f"{study.file}: row {cell.row.id!r}: {error}") from error
    return planned


def all_jobs(cells: Iterable[CellJobs]) -> list[Job]:
    """The measured jobs of the cells, each once."""
    return list({job.key: job for cell in cells for job in cell.jobs}.values())


def check_rows(study: Study, cells: Iterable[CellJobs], store: JobStore) -> None:
    """Read the training rows of all unfinished cells, so that an error in them costs no time; nothing is downloaded.

    Equal readings are done once. Rows on the hub, and texts of a model's vocabulary, are not read.

    Raises:
        NearfarError: rows that are missing or malformed, or that a method cannot read; it names the row of the study.
    """
    from nearfar.commands.train.inputs import read_training_data, resolve_objectives

    checked: set[object] = set()
    for cell in cells:
        for job, config in cell.trainings:
            read = replace(config, sentences=tuple(spec for spec in config.sentences if spec != VOCABULARY))
            sources = [one for some in _training_data(read).values() for one in some]
            is_here = all(one.fingerprint != HUB and one.spec != VOCABULARY for one in sources)
            # What decides how rows are read: the method, and all settings but numbers, of which only the limit does.
            values = [(field.name, getattr(read, field.name)) for field in fields(read)]
            kept = [(name, repr(value)) for name, value in values if type(value) not in (int, float) or name == "limit"]
            reading = (name_of(type(read)), tuple(kept))
            if store.is_finished(job) or not is_here or reading in checked:
                continue
            checked.add(reading)
            try:
                read_training_data(resolve_objectives(read))
            except NearfarError as error:
                raise NearfarError(f"{study.file}: row {cell.cell.row.id!r}: train: {error}") from error


def _plan_cell(study: Study, cell: Cell, cells: Sequence[Cell]) -> CellJobs:
    sources: list[Source] = []
    jobs: list[Job] = []
    trainings: list[tuple[Job, TrainConfig]] = []
    model: Job | None = None
    used: set[str] = set()
    for place, step in enumerate(cell.steps):
        if isinstance(step.config, ScriptConfig):
            job, read = _script_job(step, step.config, model, Path(study.file).parent)
        else:
            held_out, rows = _held_out(step, cell, cells)
            job, read = _job(step, model, keep_model=place < len(cell.steps) - 1, held_out=held_out)
            sources += rows
        sources += read
        jobs.append(job)
        if isinstance(step.config, TrainConfig):
            trainings.append((job, step.config))
        if model is not None:
            used.add(model.key)
        if step.verb in MODEL_VERBS:
            model = job
    measured = tuple(dict.fromkeys(job for job in jobs if job.key not in used))
    return CellJobs(cell, measured, model, tuple(dict.fromkeys(sources)), tuple(trainings))


def _held_out(step: CellStep, cell: Cell, cells: Sequence[Cell]) -> tuple[Job | None, list[Source]]:
    """The training whose held-out rows a step is evaluated on, and the data that it needs.

    ``held_out_of`` names a row. All replicates of a row hold out the same rows, so the first one is taken.
    """
    row = step.config.held_out_of if isinstance(step.config, EvaluateConfig) else None
    if row is None:
        return None, []
    where = f"evaluate: held_out_of = {format_value(row)}"
    others = list(dict.fromkeys(one.row.id for one in cells if one.row.id != cell.row.id))
    if row not in others:
        message = unknown_name_message(row, others, what="other row")
        raise NearfarError(f"{where}: must be the id of another row: {message}")
    same = next(one for one in cells if one.row.id == row and agree(one.coordinates, cell.coordinates))
    training = same.steps[0]
    if not isinstance(training.config, TrainConfig):
        raise NearfarError(f"{where}: the first step of this row must be train.")
    if training.config.evaluate_on is not None or training.config.hold_out == 0:
        raise NearfarError(f"{where}: this row holds out no rows, because of its evaluate_on or hold_out.")
    return _job(training, None, keep_model=True)


def _job(
    step: CellStep, model: Job | None, *, keep_model: bool, held_out: Job | None = None
) -> tuple[Job, list[Source]]:
    """The job of a step, and the data and models that must be there."""
    config, read = step.config, _sources(step.config)
    values = {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if field.name not in _NOT_VALUES and (field.default is MISSING or getattr(config, field.name) != field.default)
    }
    for name, some in read.items():
        if any(one.written != one.spec for one in some):
            written = [one.written for one in some]
            values[name] = written if isinstance(getattr(config, name), tuple) else written[0]
    every = [one for some in read.values() for one in some]
    needed = [one for name, some in read.items() if not _is_optional(config, name) for one in some]
    settings: dict[str, Any] = {"values": values}
    inputs = {} if held_out is None else {HELD_OUT: held_out}
    if held_out is not None:
        values["held_out"] = True
    if isinstance(config, TrainConfig):
        settings["method"] = name_of(type(config))
    if isinstance(config, FinetuneConfig):
        settings["keep_model"] = keep_model
    local: dict[str, Any] = {"device": getattr(config, "device", None)}
    if isinstance(config, RunConfig) and config.track:
        local["track"] = list(config.track)
    return _finish(step, model, settings, read=every, needed=needed, inputs=inputs, local=local)


def _script_job(step: CellStep, config: ScriptConfig, model: Job | None, folder: Path) -> tuple[Job, list[Source]]:
    """The job of a script step. The script is known by its content, and so are the data that its arguments name.

    Raises:
        NearfarError: there is no such file, or it cannot be read; it starts from a baseline.
    """
    file = folder / config.file
    if not is_file(file):
        raise NearfarError(f"script: {file}: no such file; its path is relative to the study file.")
    digest = digest_of_file(file)[:16]
    script = Source(spec=str(file.absolute()), written=f"script-{digest}", fingerprint=digest)
    if model is None and is_baseline(str(step.model)):
        raise NearfarError(f"script: starts from a model folder or a name on the hub, not the baseline {step.model}.")
    values: dict[str, Any] = dict(config.arguments)
    needed: list[Source] = []
    for name in DATA_ARGUMENTS:
        value = values.get(name)
        if isinstance(value, str | tuple):
            some = [find_source(str(one)) for one in (value if isinstance(value, tuple) else (value,))]
            values[name] = [one.written for one in some] if isinstance(value, tuple) else some[0].written
            needed += some
    settings = {"script": script.written, "values": values, "seed": config.seed, "numbers": config.numbers}
    return _finish(step, model, settings, read=[script, *needed], needed=needed)


def _finish(
    step: CellStep,
    model: Job | None,
    settings: dict[str, Any],
    *,
    read: Sequence[Source],
    needed: list[Source],
    inputs: Mapping[str, Job] | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[Job, list[Source]]:
    """The job with its start model, or the training of its model, and with the paths of this machine in ``local``."""
    settings = {"format": FORMAT, **settings, "sources": {one.written: one.fingerprint for one in read}}
    inputs, local = dict(inputs or {}), dict(local or {})
    if model is None:
        start = find_model(str(step.model))
        settings |= {"model": start.written, "model_fingerprint": start.fingerprint}
        read, needed = [*read, start], [*needed, start]
    else:
        inputs[MODEL] = model
    if files := {one.written: one.spec for one in read if one.written != one.spec}:
        local["files"] = files
    uses = "gpu" if str(local.get("device") or "").startswith("cuda") else None
    return Job(f"{STEPS}:{step.verb}", settings, inputs, local=local, uses=uses), needed


def _sources(config: Settings) -> dict[str, list[Source]]:
    """Setting -> the data that it names."""
    named: dict[str, list[Source]] = {}
    if isinstance(config, TrainConfig):
        named |= _training_data(config)
        if config.evaluate_on is not None:
            named["evaluate_on"] = [find_source(config.evaluate_on)]
        named |= {name: [find_model(model)] for name, model in named_models(config).items()}
    elif isinstance(config, FinetuneConfig):
        named["task"] = [_keep_name(find_finetuning_task(config.task))]
        for name in ("validation", "test"):
            if (spec := getattr(config, name)) is not None:
                named[name] = [find_source(spec)]
        if config.noise not in _NOISES:
            named["noise"] = [find_source(config.noise)]
    elif isinstance(config, EvaluateConfig):
        named |= _evaluated(config)
    elif isinstance(config, GeometryConfig):
        for name, default in _GEOMETRY_DEFAULTS.items():
            named[name] = [_keep_name(find_source(getattr(config, name) or default))]
    elif isinstance(config, SpeedConfig):
        named["texts"] = [find_source(config.texts)]
    return {name: some for name, some in named.items() if some}


def _training_data(config: TrainConfig) -> dict[str, list[Source]]:
    """Setting -> the data that an encoder trains on, those of a second objective included."""
    return {
        "data": [find_source(spec) for spec in config.data],
        "sentences": [find_source(spec) for spec in config.sentences if spec != OWN],
        "second": [] if config.second is None else _second(config.second),
    }


def _second(second: str) -> list[Source]:
    """The file of a second objective, if it is one, and the data and models that it trains on."""
    kind, values, file = METHODS.get(second), {}, []
    if kind is None:
        file = [find_source(second)]
        if file[0].fingerprint is None:
            return file
        kind, _ = load_method(second)
        values = read_toml(second)
    default = next(field.default for field in fields(kind) if field.name == "data")
    data = values.get("data", default)
    models = [str(values[name]) for name, field in field_types(kind).items() if field.names_model and name in values]
    specs = (data,) if isinstance(data, str) else tuple(data)
    return [*file, *map(find_source, specs), *map(find_model, models)]


def _evaluated(config: EvaluateConfig) -> dict[str, list[Source]]:
    """The tasks of an evaluation. They are named in its result, so a path is written as it is."""
    named = {name: [find_source(spec) for spec in getattr(config, name)] for name in ("pairs", "labelled", "retrieval")}
    named["tasks"] = [find_task(task) for task in config.tasks or ()]
    if config.corpus is not None:
        named["corpus"] = [find_source(config.corpus)]
    suite = config.suite
    if not any(
        (suite, config.tasks, config.pairs, config.labelled, config.retrieval, config.held_out, config.held_out_of)
    ):
        suite = "sts"
    named["suite"] = [find_task(task) for task in suite_tasks(suite)] if suite else []
    return {name: [_keep_name(one) for one in some] for name, some in named.items()}


def _keep_name(source: Source) -> Source:
    """The source, written as it is named: the name is part of the result."""
    return source if source.written == source.spec else replace(source, written=source.spec)


def _is_optional(config: Settings, name: str) -> bool:
    """Whether a data set may be missing: one of a suite, or a default of ``nearfar geometry``."""
    if isinstance(config, GeometryConfig):
        return getattr(config, name) is None
    return name == "suite"
