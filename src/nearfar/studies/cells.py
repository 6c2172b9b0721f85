"""The cells of a study: each row at each combination of labels, for each replicate; their settings, then their jobs.

A job has the settings of a step, and the content of its data and models, without places on this machine.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from nearfar.baselines import is_baseline
from nearfar.config.bounds import Count, File, RowCount, Runs, Seed
from nearfar.config.encoder import EncoderOptions
from nearfar.config.encoding import GeometryConfig
from nearfar.config.training import FinetuneConfig, RunConfig, TrainConfig
from nearfar.config.values import Settings, field_types, named_models
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import OWN, VOCABULARY, suite_tasks
from nearfar.data.paths import is_file
from nearfar.jobs import Job, JobStore
from nearfar.registry import METHODS, name_of
from nearfar.settings import build, check_values, load_method, read_toml
from nearfar.studies.sources import (
    Source,
    digest_of_file,
    find_finetuning_task,
    find_model,
    find_source,
    find_task,
)
from nearfar.studies.spec import (
    BYTES,
    GEOMETRY,
    MODEL_VERBS,
    ONLY_TASK,
    VERBS,
    Coordinates,
    Row,
    Step,
    Study,
    Verb,
    agree,
    read_study,
)
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value, unknown_name_message

MAX_CELLS = 100_000
"""Maximum number of cells of a study."""


FORMATS: Mapping[Verb, int] = {"finetune": 2}
"""Verb -> version of its jobs, by default 1: a change makes their keys new. Raise it when the same settings give other
results, as do settings that are left out when their default changes."""
STEPS = "nearfar.studies.steps"
"""The module of the functions of jobs."""
MODEL, HELD_OUT = "model", "held_out"
"""Inputs of a job: the training of its model, and the training whose held-out rows it is evaluated on."""
_NOT_VALUES = ("device", "output", "overwrite", "name", "page", "model", "held_out_of", "track")
"""Settings that are not among the values of a job: they do not change the result, or have an entry of their own."""
_DATA_ARGUMENTS = ("data", "evaluate_on")
"""Arguments of a script that name data sets: their content is part of the key of the job."""
_NOISES = ("none", "word-dropout", "word-swap", "characters")
_GEOMETRY_DEFAULTS = {"pairs": "stsb:dev", "task": "stsb", "labelled": "sst2:test"}
"""Data sets of ``nearfar geometry`` that may be missing if they are not named."""


@dataclass(frozen=True, kw_only=True)
class SpeedConfig(EncoderOptions):
    """Measure how fast a model encodes texts, and count its parameters."""

    texts: File
    """Texts to encode: a named set, or a file with one text per line."""
    limit: RowCount = 2000
    """Use only the first LIMIT distinct texts."""
    repeats: Runs = 3
    """Number of timed passes over the texts, after one that is not timed; their mean counts."""
    batch_size: Count | None = None
    """Number of texts to encode at a time; by default all, in batches of similar length."""
    seed: Seed = 0
    """Seed of baselines that are fitted."""


Argument: TypeAlias = str | int | float | bool | Annotated[tuple[str | int | float, ...], Meta(min_length=1)]
_FLAG = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class ScriptConfig(Settings):
    """Run ``python FILE --model START --output FOLDER --seed N --KEY VALUE ...``, which writes ``FOLDER/model``."""

    file: File
    """The script, relative to the folder of the study file."""
    numbers: tuple[str, ...] = ()
    """Numbers that the script writes into ``FOLDER/numbers.json``; each is a column of the study."""
    seed: Seed = 1
    arguments: dict[str, Argument] = field(default_factory=dict)
    """Name of a flag, with underscores -> its value: a text, a number, true for a flag without value, or a list."""

    @classmethod
    def read(cls, values: Mapping[str, Any], *, source: str) -> "ScriptConfig":
        """The checked settings of a script step.

        Raises:
            NearfarError: no file; a key that is no name of a flag, or that the study decides; a value that is no text,
                number, boolean or list of texts and numbers.
        """
        fixed = {key: value for key, value in values.items() if key in ("file", "numbers", "seed")}
        arguments: dict[str, Any] = {}
        for key in (key for key in values if key not in fixed):
            if not _FLAG.fullmatch(key):
                raise NearfarError(
                    f"{source}: {key!r} is no name of a flag; use lower-case letters, digits, '-' and '_', as in "
                    "learning_rate = 2e-5 for --learning-rate."
                )
            name = key.replace("-", "_")
            if name in ("model", "output"):
                raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
            if name in arguments:
                raise NearfarError(f"{source}: {key} is given twice, with '-' and with '_'.")
            try:
                arguments[name] = convert(values[key], Argument)  # type: ignore[arg-type]  # a union
            except InvalidValueError:
                raise NearfarError(
                    f"{source}: {key} = {format_value(values[key])}: must be a text, a number, true, false, or a list "
                    "of texts and numbers."
                ) from None
        return build(cls, {**fixed, "arguments": arguments}, source=source)

    def command(self) -> list[str]:
        """The arguments as words: ``--learning-rate 2e-05 --languages de fr``."""
        words: list[str] = []
        for name, value in self.arguments.items():
            if value is not False:
                values = value if isinstance(value, tuple) else () if value is True else (value,)
                words += ["--" + name.replace("_", "-"), *map(str, values)]
        return words


_KINDS: Mapping[Verb, type[Settings]] = {
    "finetune": FinetuneConfig,
    "evaluate": EvaluateConfig,
    "geometry": GeometryConfig,
    "speed": SpeedConfig,
}
AUTO = "auto"
"""In place of a method: the recipe of ``nearfar train --data`` for the rows and the start."""
_SEEDED = ("flow:",)
"""Models that are fitted with a seed."""
_OUTPUT = "cell"
"""Stands for the output, which the job decides."""
_DECIDED = ("output", "overwrite", "name", "page")
"""Settings that the job decides."""
_TRAINING = ("validation", "start_validation", "steps", "best_step", "updates_per_second")
_MEASURED = {
    "train": _TRAINING,
    "script": ("validation",),
    "finetune": _TRAINING,
    "evaluate": (BYTES,),
    "geometry": GEOMETRY,
    "speed": ("inference_seconds", "texts_per_second", "texts", "parameters", "training_seconds", *_TRAINING),
}
"""Verb -> the columns that are not scores of tasks."""


@dataclass(frozen=True)
class CellStep:
    """One step of a cell."""

    verb: Verb
    name: str
    config: Settings
    """The checked settings; ``output`` is a placeholder, and the ``model`` of a later step is not used."""
    model: str | None
    """The model of the first step; None for a later one, which takes the model of a step before it."""


@dataclass(frozen=True)
class Cell:
    """One row at one combination of labels, for one replicate; with its jobs once they are planned."""

    row: Row
    coordinates: Coordinates
    replicate: Mapping[str, Any]
    """Dotted setting -> value."""
    steps: tuple[CellStep, ...]
    jobs: tuple[Job, ...] = ()
    """The last jobs, which are measured."""
    last_training: Job | None = None
    """The last job that trains, which has the validation score."""
    trainings: tuple[tuple[Job, TrainConfig], ...] = ()
    """The jobs that train an encoder, with their settings."""
    sources: tuple[Source, ...] = ()
    """Data and models that it reads."""

    @property
    def name(self) -> str:
        """The cell in words: ``scl (lambda 0.3, seed 1)``."""
        parts = [f"{name} {value}" for name, value in (*self.coordinates.items(), *self.replicate.items())]
        return f"{self.row.id} ({', '.join(parts)})" if parts else self.row.id

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
        return tuple(step.config.file for step in self.steps if isinstance(step.config, ScriptConfig))


def load_study(file: str | Path, scale: str | None = None, *, placeholders: Mapping[str, str] | None = None) -> Study:
    """Read a study file, at one of its scales, and check all of its settings.

    ``placeholders`` are the values of ``{name}`` in the texts of settings, as in ``model = "{start}"``.

    Raises:
        NearfarError: as :func:`nearfar.studies.spec.read_study` and :func:`plan_cells`.
    """
    study = read_study(file, scale, placeholders or {})
    plan_cells(study)
    return study


def plan_cells(study: Study) -> list[Cell]:
    """All cells, by row, then by the labels of its axes in the order of the file, then by replicate.

    Later settings have precedence: those of the file, of the row, of the axes, of the replicate, of the entry in
    ``steps``. A dotted setting of a step that a row does not have is ignored for this row. ``seed`` is the seed of each
    step that trains, and of the others if the row's model is fitted with a seed.

    Raises:
        NearfarError: settings that a step does not have, or that are invalid; a row without a model; too many cells.
    """
    count = sum(
        len(study.replicates_of(row)) * prod(len(axis.labels) for axis in study.axes_of(row)) for row in study.rows
    )
    if count > MAX_CELLS:
        raise NearfarError(f"{study.file}: has {count:,} cells; a study has at most {MAX_CELLS:,}.")
    steps = {row.id: study.steps_of(row) for row in study.rows}
    known = list(dict.fromkeys([*VERBS, *(step.name for some in steps.values() for step in some)]))
    return [cell for row in study.rows if steps[row.id] for cell in _cells(study, row, steps[row.id], known)]


def _cells(study: Study, row: Row, steps: Sequence[Step], known: Sequence[str]) -> Iterator[Cell]:
    """The cells of a row; ``known`` are the names of all steps of the study."""
    axes = study.axes_of(row)
    for places in product(*(range(len(axis.labels)) for axis in axes)):
        chosen = list(zip(axes, places, strict=True))
        coordinates = {axis.name: axis.labels[place] for axis, place in chosen}
        changes = [dict(zip(axis.settings, axis.values[place], strict=True)) for axis, place in chosen]
        shown = ", ".join(f"{name} {label}" for name, label in coordinates.items())
        where = f"{study.file}: row {row.id!r}{f' ({shown})' if shown else ''}"
        if unused := set(row.settings) - {step.verb for step in steps}:
            raise NearfarError(f"{where}: has settings of {', '.join(sorted(unused))}, which is none of its steps.")
        for replicate in study.replicates_of(row):
            own = [(step, {**study.settings.get(step.verb, {}), **row.settings.get(step.verb, {})}) for step in steps]
            done = _cell_steps(row.model, own, [*changes, replicate], known, where)
            yield Cell(row, coordinates, replicate, done)


def _cell_steps(
    model: Any,
    steps: Sequence[tuple[Step, dict[str, Any]]],
    changes: Sequence[Mapping[str, Any]],
    known: Sequence[str],
    where: str,
) -> tuple[CellStep, ...]:
    """The steps of a cell: settings of file and row, changed by axes and replicate, then by the step's own."""
    seed = None
    for setting, value in (item for change in changes for item in change.items()):
        name, _, key = setting.partition(".")
        if setting == "model":
            model = value
        elif setting == "seed":
            seed = value
        elif not key or name not in known:
            raise NearfarError(
                f"{where}: {format_value(setting)} is no setting. Write seed, model, or STEP.SETTING with a step of "
                f"{', '.join(known)}."
            )
        for step, own in steps:
            if key and name in (step.name, step.verb):
                own[key] = value
    if model is not None and not isinstance(model, str):
        raise NearfarError(f"{where}: model = {format_value(model)}: must be a text.")
    done: list[CellStep] = []
    for step, own in steps:
        later = any(one.verb in MODEL_VERBS for one in done)
        if seed is not None and (step.verb in MODEL_VERBS or str(model).startswith(_SEEDED)):
            own["seed"] = seed
        own.update(step.settings)
        given = own.pop("model", None)
        done.append(_cell_step(step, own, None if later else model or given, later=later, where=where))
    return tuple(done)


def _cell_step(step: Step, values: dict[str, Any], model: Any, *, later: bool, where: str) -> CellStep:
    source = f"{where}: {step.name}"
    for key in _DECIDED if step.verb != "script" else ():
        if key in values:
            raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
    config: Settings
    if step.verb == "script":
        config = ScriptConfig.read(values, source=source)
    else:
        if step.verb in MODEL_VERBS and model is not None:
            values["model"] = model
        kind = _KINDS.get(step.verb) or _method(values, source, later=later)
        if "output" in {field.name for field in fields(kind)}:
            values["output"] = _OUTPUT
        config = build(kind, values, source=source)
        model = config.model if step.verb in MODEL_VERBS else model  # type: ignore[attr-defined]
    if not later and (not isinstance(model, str) or not model.strip()):
        raise NearfarError(f'{where}: has no model to start from; give it one, as in model = "{{start}}".')
    return CellStep(step.verb, step.name, config, None if later else model)


def _method(values: dict[str, Any], source: str, *, later: bool) -> type[Settings]:
    """The config class of the method of a train step; removes the method from ``values``.

    With ``auto``, it is the method that ``nearfar train --data`` takes for the rows and the start, whose settings are
    added to ``values``.
    """
    method = values.pop("method", None)
    if method is None:
        raise NearfarError(f'{source}: names no method; give one, as in train = {{ method = "scl" }}, or "auto".')
    if method == AUTO:
        from nearfar.commands.train.choose import choose_method

        if later:
            raise NearfarError(f'{source}: method = "{AUTO}" reads the start, which an earlier step makes; name one.')
        data = check_values(TrainConfig, {"data": values.get("data", ())}, source=source)["data"]
        try:
            choice = choose_method(data, values, model=str(values.get("model")))
        except NearfarError as error:
            raise NearfarError(f'{source}: method = "{AUTO}": {error}') from error
        values |= {name: value for name, value in choice.values.items() if name not in values}
        return METHODS[choice.method]
    if not isinstance(method, str) or method not in METHODS:
        raise NearfarError(f"{source}: {unknown_name_message(str(method), METHODS, what='method')}")
    return METHODS[method]


def check_columns(study: Study, cells: Iterable[Cell]) -> None:
    """Refuse a column that no step of the study can have.

    Raises:
        NearfarError: it names the column, and the nearest one that there is or all of them.
    """
    steps = [step for cell in cells for step in cell.steps]
    verbs = {step.verb for step in steps}
    tasks = dict.fromkeys(task for step in steps for task in _tasks(step.config))
    known = dict.fromkeys(name for step in steps for name in _MEASURED[step.verb])
    known |= {name: None for step in steps if isinstance(step.config, ScriptConfig) for name in step.config.numbers}
    known["seconds"] = None
    if verbs & {"evaluate", "finetune"}:
        known |= dict.fromkeys((*ONLY_TASK, "average", "average.unseen_by_all"))
    for column in study.columns if verbs else ():
        is_task = any(column == task or column.startswith(f"{task}.") for task in tasks)
        is_layer = column.startswith("layer.") and "geometry" in verbs
        if not (is_task or is_layer or column in known or column.startswith("average:")):
            message = unknown_name_message(column, [*tasks, *known], what="column")
            raise NearfarError(f"{study.file}: columns: {message}")


def _tasks(config: object) -> Iterator[str]:
    """The names of tasks in a result of a step."""
    from nearfar.runs.held_out import TASK

    if isinstance(config, EvaluateConfig):
        named = (*(config.tasks or ()), *config.pairs, *config.labelled, *config.retrieval)
        yield from named
        held_out = config.held_out or config.held_out_of is not None
        if held_out:
            yield TASK
        if config.suite or not (named or held_out):
            yield from suite_tasks(config.suite or "sts")
    elif isinstance(config, FinetuneConfig):
        tested = config.test or config.task
        yield from (tested, tested.partition(":")[0], Path(tested).stem, Path(tested).name)


def plan_jobs(study: Study) -> list[Cell]:
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


def all_jobs(cells: Iterable[Cell]) -> list[Job]:
    """The measured jobs of the cells, each once."""
    return list(dict.fromkeys(job for cell in cells for job in cell.jobs))


def in_rounds(cells: Sequence[Cell]) -> list[Cell]:
    """Cells in the order of their jobs: where models are timed, each replicate is a round over all rows.

    What slows the machine down for a while then meets every row, not the replicates of one.
    """
    if not any(step.verb == "speed" for cell in cells for step in cell.steps):
        return list(cells)
    met: Counter[tuple[object, ...]] = Counter()
    rounds = []
    for cell in cells:
        place = (cell.row.id, *cell.coordinates.items())
        rounds.append(met[place])
        met[place] += 1
    return [cell for _, cell in sorted(zip(rounds, cells, strict=True), key=lambda one: one[0])]


def check_rows(study: Study, cells: Iterable[Cell], store: JobStore) -> None:
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
            is_here = not any(one.on_hub or one.spec == VOCABULARY for one in sources)
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
                raise NearfarError(f"{study.file}: row {cell.row.id!r}: train: {error}") from error


def _plan_cell(study: Study, cell: Cell, cells: Sequence[Cell]) -> Cell:
    sources: list[Source] = []
    jobs: list[Job] = []
    trainings: list[tuple[Job, TrainConfig]] = []
    model: Job | None = None
    used: set[str] = set()
    for place, step in enumerate(cell.steps):
        held_out, rows = _held_out(step, cell, cells)
        keep_model = place < len(cell.steps) - 1
        job, read = _job(step, model, Path(study.file).parent, keep_model=keep_model, held_out=held_out)
        sources += [*rows, *read]
        jobs.append(job)
        trainings += [(job, step.config)] if isinstance(step.config, TrainConfig) else []
        used |= {model.key} if model else set()
        model = job if step.verb in MODEL_VERBS else model
    measured = tuple(dict.fromkeys(job for job in jobs if job.key not in used))
    read_by_all = tuple(dict.fromkeys(sources))
    return replace(cell, jobs=measured, last_training=model, trainings=tuple(trainings), sources=read_by_all)


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
    return _job(training, None, Path(), keep_model=True)


def _job(
    step: CellStep, model: Job | None, folder: Path, *, keep_model: bool, held_out: Job | None = None
) -> tuple[Job, list[Source]]:
    """The job of a step, and the data and models that must be there; ``folder`` is that of the study file."""
    config = step.config
    settings: dict[str, Any] = {"format": FORMATS.get(step.verb, 1)}
    local: dict[str, Any] = {}
    inputs = {} if held_out is None else {HELD_OUT: held_out}
    if isinstance(config, ScriptConfig):
        script, values, named = _of_script(step, config, model, folder)
        settings |= {"script": script.written, "seed": config.seed, "numbers": config.numbers}
        read = [script]
    else:
        named, read = _sources(config), []
        values = {
            field.name: value
            for field in fields(config)
            if field.name not in _NOT_VALUES
            and ((value := getattr(config, field.name)) != field.default or field.default is MISSING)
        }
        values |= {"held_out": True} if held_out else {}
        local = {"device": getattr(config, "device", None)}
    for name, some in named.items():
        if any(one.written != one.spec for one in some):
            written = [one.written for one in some]
            given = values.get(name, getattr(config, name, None))
            values[name] = written if isinstance(given, tuple) else written[0]
    read += [one for some in named.values() for one in some]
    needed = [one for name, some in named.items() if not _is_optional(config, name) for one in some]
    if isinstance(config, TrainConfig):
        settings["method"] = name_of(type(config))
    if isinstance(config, FinetuneConfig):
        settings["keep_model"] = keep_model
    if isinstance(config, RunConfig) and config.track:
        local["track"] = list(config.track)
    settings |= {"values": values, "sources": {one.written: one.fingerprint for one in read}}
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


def _of_script(
    step: CellStep, config: ScriptConfig, model: Job | None, folder: Path
) -> tuple[Source, dict[str, Any], dict[str, list[Source]]]:
    """The script, its arguments, and the data that they name. The script is known by its content.

    Raises:
        NearfarError: there is no such file, or it cannot be read; it starts from a baseline.
    """
    file = folder / config.file
    if not is_file(file):
        raise NearfarError(f"script: {file}: no such file; its path is relative to the study file.")
    if model is None and is_baseline(str(step.model)):
        raise NearfarError(f"script: starts from a model folder or a name on the hub, not the baseline {step.model}.")
    digest = digest_of_file(file)[:16]
    named = {name: config.arguments.get(name) for name in _DATA_ARGUMENTS}
    lists = {name: (value,) if isinstance(value, str) else value for name, value in named.items()}
    read = {name: [find_source(str(one)) for one in some] for name, some in lists.items() if isinstance(some, tuple)}
    return Source(str(file.absolute()), f"script-{digest}", digest), dict(config.arguments), read


def _sources(config: Settings) -> dict[str, list[Source]]:
    """Setting -> the data that it names."""
    named: dict[str, list[Source]] = {}
    if isinstance(config, TrainConfig):
        named |= _training_data(config)
        if config.evaluate_on is not None:
            named["evaluate_on"] = [find_source(config.evaluate_on)]
        named |= {name: [find_model(model)] for name, model in named_models(config).items()}
    elif isinstance(config, FinetuneConfig):
        named["task"] = [find_finetuning_task(config.task).named()]
        noise = None if config.noise in _NOISES else config.noise
        for name, spec in (("validation", config.validation), ("test", config.test), ("noise", noise)):
            named[name] = [] if spec is None else [find_source(spec)]
    elif isinstance(config, EvaluateConfig):
        named |= _evaluated(config)
    elif isinstance(config, GeometryConfig):
        for name, default in _GEOMETRY_DEFAULTS.items():
            named[name] = [find_source(getattr(config, name) or default).named()]
    elif isinstance(config, SpeedConfig):
        named["texts"] = [find_source(config.texts)]
    return named


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
    is_named = any([*named.values(), config.suite, config.held_out, config.held_out_of])
    suite = config.suite if is_named else "sts"
    named["corpus"] = [] if config.corpus is None else [find_source(config.corpus)]
    named["suite"] = [find_task(task) for task in suite_tasks(suite)] if suite else []
    return {name: [one.named() for one in some] for name, some in named.items()}


def _is_optional(config: Settings, name: str) -> bool:
    """Whether a data set may be missing: one of a suite, or a default of ``nearfar geometry``."""
    return getattr(config, name) is None if isinstance(config, GeometryConfig) else name == "suite"
