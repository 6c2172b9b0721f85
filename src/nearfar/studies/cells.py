"""The cells of a study: each row at each combination of labels, for each replicate; their settings, then their jobs.

A job has the settings of a step, and the content of its data and models, without places on this machine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

from nearfar.baselines import is_baseline
from nearfar.config.bounds import Count, File, RowCount, Runs, Seed
from nearfar.config.encoder import EncoderOptions
from nearfar.config.encoding import GeometryConfig
from nearfar.config.training import FinetuneConfig, RunConfig, TrainConfig
from nearfar.config.values import Settings, field_types, named_models
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import OWN, suite_tasks
from nearfar.jobs import Job
from nearfar.registry import METHODS, name_of
from nearfar.settings import build
from nearfar.studies.sources import Source, digest_of_file, find_finetuning_task, find_model, find_source, find_task
from nearfar.studies.spec import MODEL_VERBS, VERBS, Coordinates, Row, Study, Verb, agree, read_study, words_of
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

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
        arguments = {key.replace("-", "_"): value for key, value in values.items() if key not in fixed}
        for key in arguments:
            if not _FLAG.fullmatch(key) or key in ("model", "output"):
                raise NearfarError(
                    f"{source}: {key!r} is no name of a flag, or is set by the study; use lower-case letters, digits, "
                    "'-' and '_', as in learning_rate = 2e-5 for --learning-rate."
                )
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


class CellStep(NamedTuple):
    """One step of a cell."""

    verb: Verb
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
    number: int
    """Of the replicate, from 0."""
    steps: tuple[CellStep, ...]
    jobs: tuple[Job, ...] = ()
    """The last jobs, which are measured."""
    last_training: Job | None = None
    """The last job that trains, which has the validation score."""
    sources: tuple[Source, ...] = ()
    """Data and models that it reads."""

    @property
    def name(self) -> str:
        """The cell in words: ``scl (lambda 0.3, seed 1)``."""
        places = words_of({**self.coordinates, **self.replicate})
        return f"{self.row.id} ({places})" if places else self.row.id

    @property
    def key(self) -> str:
        """Identifies what is measured: cells with the same jobs have the same key."""
        return "+".join(job.key for job in self.jobs)

    @property
    def missing(self) -> tuple[Source, ...]:
        """Data and models that are missing."""
        return tuple(one for one in self.sources if one.fingerprint is None)


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
    sizes = [[len(study.replicates_of(row)), *(len(axis.labels) for axis in study.axes_of(row))] for row in study.rows]
    count = sum(map(prod, sizes))
    if count > MAX_CELLS:
        raise NearfarError(f"{study.file}: has {count:,} cells; a study has at most {MAX_CELLS:,}.")
    return [cell for row in study.rows if study.steps_of(row) for cell in _cells(study, row)]


def _cells(study: Study, row: Row) -> Iterator[Cell]:
    axes = study.axes_of(row)
    for chosen in product(*(list(zip(axis.labels, axis.values, strict=True)) for axis in axes)):
        coordinates = {axis.name: label for axis, (label, _) in zip(axes, chosen, strict=True)}
        settings = [zip(axis.settings, values, strict=True) for axis, (_, values) in zip(axes, chosen, strict=True)]
        changes = dict(chain.from_iterable(settings))
        where = f"{study.file}: row {row.id!r}" + (f" ({words_of(coordinates)})" if coordinates else "")
        for number, replicate in enumerate(study.replicates_of(row)):
            steps = _cell_steps(study, row, {**changes, **replicate}, where)
            yield Cell(row, coordinates, replicate, number, steps)


def _cell_steps(study: Study, row: Row, changes: Mapping[str, Any], where: str) -> tuple[CellStep, ...]:
    """The steps of a cell: settings of file and row, changed by axes and replicate, then by the step's own."""
    steps, model, done = study.steps_of(row), changes.get("model", row.model), list[CellStep]()
    if unused := set(row.settings) - {step.verb for step in steps}:
        raise NearfarError(f"{where}: has settings of {', '.join(sorted(unused))}, which is none of its steps.")
    dotted = [(name.partition("."), value) for name, value in changes.items() if name not in ("model", "seed")]
    for (verb, dot, key), _ in dotted:
        if not key or verb not in VERBS:
            raise NearfarError(
                f"{where}: {format_value(verb + dot + key)} is no setting. Write seed, model, or STEP.SETTING with a "
                f"step of {', '.join(VERBS)}."
            )
    for step in steps:
        values = {**study.settings.get(step.verb, {}), **row.settings.get(step.verb, {})}
        values |= {key: value for (verb, _, key), value in dotted if verb == step.verb}
        if "seed" in changes and (step.verb in MODEL_VERBS or str(model).startswith(_SEEDED)):
            values["seed"] = changes["seed"]
        values |= step.settings
        own_model = values.pop("model", None)
        later = any(one.verb in MODEL_VERBS for one in done)
        done.append(_cell_step(step.verb, values, None if later else model or own_model, later=later, where=where))
    return tuple(done)


def _cell_step(verb: Verb, values: dict[str, Any], model: Any, *, later: bool, where: str) -> CellStep:
    source = f"{where}: {verb}"
    if verb == "script":
        config: Any = ScriptConfig.read(values, source=source)
    else:
        for key in ("output", "overwrite", "name", "page"):
            if key in values:
                raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
        if verb in MODEL_VERBS and model is not None:
            values["model"] = model
        kind = _KINDS.get(verb) or _method(values, source, later=later)
        decided = {"output": "cell"} if "output" in field_types(kind) else {}  # by the job
        config = build(kind, values | decided, source=source)
        model = config.model if verb in MODEL_VERBS else model
    if not later and (not isinstance(model, str) or not model.strip()):
        raise NearfarError(f'{where}: has no model to start from; give it one, as in model = "{{start}}".')
    return CellStep(verb, config, None if later else model)


def _method(values: dict[str, Any], source: str, *, later: bool) -> type[Settings]:
    """The config class of the method of a train step; removes the method from ``values``.

    With ``auto``, it is the method that ``nearfar train --data`` takes for the rows and the start, whose settings are
    added to ``values``.
    """
    method = str(values.pop("method", None))
    if method == AUTO and not later:
        from nearfar.commands.train.choose import resolve_config

        try:
            chosen = resolve_config(None, {**values, "output": "cell"})
        except NearfarError as error:
            raise NearfarError(f'{source}: method = "{AUTO}": {error}') from error
        values |= {name: value for name, value in vars(chosen).items() if name != "output"}
        return type(chosen)
    if method not in METHODS:
        message = unknown_name_message(method, [*METHODS, AUTO], what="method")
        raise NearfarError(f'{source}: {message} Give one, as in train = {{ method = "scl" }}; {AUTO} only first.')
    return METHODS[method]


def _suite(config: EvaluateConfig) -> Sequence[str]:
    """The tasks of the suite of an evaluation, which is sts where nothing else is named."""
    named = (config.tasks, config.pairs, config.labelled, config.retrieval, config.held_out, config.held_out_of)
    suite = config.suite or (None if any(named) else "sts")
    return suite_tasks(suite) if suite else ()


def plan_jobs(study: Study) -> list[Cell]:
    """The cells of a study with their jobs; equal steps of several cells are one job.

    Raises:
        NearfarError: a setting that cannot be part of a study, a model folder or file that cannot be read.
    """
    cells, planned = plan_cells(study), []
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
    is_timed = any(step.verb == "speed" for cell in cells for step in cell.steps)
    return sorted(cells, key=lambda cell: cell.number if is_timed else 0)


def _plan_cell(study: Study, cell: Cell, cells: Sequence[Cell]) -> Cell:
    sources: dict[Source, None] = {}
    jobs: dict[Job, None] = {}
    model: Job | None = None
    for place, step in enumerate(cell.steps):
        held_out, rows = _held_out(step, cell, cells)
        keep_model = place < len(cell.steps) - 1
        job, read = job_of(step, model, Path(study.file).parent, keep_model=keep_model, held_out=held_out)
        sources |= dict.fromkeys([*rows, *read])
        jobs[job] = None
        model = job if step.verb in MODEL_VERBS else model
    used = [job.inputs.get(MODEL) for job in jobs]
    measured = tuple(job for job in jobs if job not in used)
    return replace(cell, jobs=measured, last_training=model, sources=tuple(sources))


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
    config = same.steps[0].config
    if not isinstance(config, TrainConfig) or config.evaluate_on is not None or config.hold_out == 0:
        raise NearfarError(f"{where}: this row holds out no rows: its first step must be train, without evaluate_on.")
    return job_of(same.steps[0], None, Path(), keep_model=True)


def job_of(
    step: CellStep, model: Job | None, folder: Path, *, keep_model: bool, held_out: Job | None = None
) -> tuple[Job, list[Source]]:
    """The job of a step, and the data and models that must be there; ``folder`` is that of the study file."""
    config, (needed, suite) = step.config, _sources(step.config)
    settings: dict[str, Any] = {"format": FORMATS.get(step.verb, 1)}
    local: dict[str, Any] = {"device": getattr(config, "device", None)}
    inputs = {} if held_out is None else {HELD_OUT: held_out}
    values: dict[str, Any]
    if isinstance(config, ScriptConfig):
        script, local = _script(folder / config.file), {}
        if model is None and is_baseline(str(step.model)):
            raise NearfarError(
                f"script: starts from a model folder or a name on the hub, not the baseline {step.model}."
            )
        settings |= {"script": script.written, "seed": config.seed, "numbers": config.numbers}
        values, needed = dict(config.arguments), [script, *needed]
    else:
        given = {one: getattr(config, one.name) for one in fields(config) if one.name not in _NOT_VALUES}
        values = {one.name: value for one, value in given.items() if value != one.default or one.default is MISSING}
        values |= {"held_out": True} if held_out else {}
    read = [*needed, *suite]
    values = renamed(values, {one.spec: one.written for one in read})
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


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value with other texts in it: paths of this machine for those of a job, or the reverse."""
    if isinstance(value, dict):
        return {name: renamed(one, names) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def _script(file: Path) -> Source:
    """A script, which is known by its content.

    Raises:
        NearfarError: there is no such file, or it cannot be read.
    """
    if not file.is_file():
        raise NearfarError(f"script: {file}: no such file; its path is relative to the study file.")
    digest = digest_of_file(file)[:16]
    return Source(str(file.absolute()), f"script-{digest}", digest)


_DATA: Mapping[type[Settings], Sequence[str]] = {
    TrainConfig: ("data", "evaluate_on"),
    FinetuneConfig: ("task", "validation", "test", "noise"),
    EvaluateConfig: ("pairs", "labelled", "retrieval", "tasks", "corpus"),
    GeometryConfig: ("pairs", "task", "labelled"),
    SpeedConfig: ("texts",),
    ScriptConfig: ("data", "evaluate_on"),
}
"""The settings, of a script its arguments, that name data, whose content is part of the key of a job."""
_FINDERS = {(EvaluateConfig, "tasks"): find_task, (FinetuneConfig, "task"): find_finetuning_task}
"""What finds the data of a setting that names tasks."""
_NO_DATA = (OWN, "none", "word-dropout", "word-swap", "characters")
"""Values of ``data`` of further sets and of ``noise`` that are no data."""


def _sources(config: Settings) -> tuple[list[Source], list[Source]]:
    """The data and models that it names, and the tasks of a suite, which may be missing.

    What a result names is written as it is named.
    """
    kind = next(kind for kind in _DATA if isinstance(config, kind))
    given = config.arguments if isinstance(config, ScriptConfig) else vars(config)
    named: list[Source] = []
    for name in _DATA[kind]:
        value, find = given.get(name), _FINDERS.get((kind, name), find_source)
        specs = [value] if isinstance(value, str) else map(str, value) if isinstance(value, tuple) else ()
        named += [find(spec) for spec in specs if spec not in _NO_DATA]
    if isinstance(config, TrainConfig):
        for table in config.sets:
            named += _sources_of_set(table)
        named += map(find_model, named_models(config).values())
    if isinstance(config, EvaluateConfig | GeometryConfig):
        named = [one.named() for one in named]
    return named, [find_task(task).named() for task in _suite(config)] if isinstance(config, EvaluateConfig) else []


def _sources_of_set(table: Mapping[str, Any]) -> list[Source]:
    """The data and models that a further set of rows is trained on."""
    kind = METHODS.get(str(table.get("method")), TrainConfig)
    data = table.get("data", next(field.default for field in fields(kind) if field.name == "data"))
    models = [str(table[name]) for name, field in field_types(kind).items() if field.names_model and name in table]
    specs = (data,) if isinstance(data, str) else tuple(data)
    return [*(find_source(spec) for spec in specs if spec not in _NO_DATA), *map(find_model, models)]
