"""The cells of a study: each row at each combination of labels, for each replicate, with the settings of its steps."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

from nearfar.config.bounds import Count, File, Length, Prompt, RowCount, Runs, Seed
from nearfar.config.geometry import GeometryConfig
from nearfar.config.training import FinetuneConfig, TrainConfig
from nearfar.config.values import Settings
from nearfar.config.verbs import EvaluateConfig
from nearfar.registry import METHODS
from nearfar.settings import build, check_values
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
    read_study,
)
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value, unknown_name_message

if TYPE_CHECKING:
    from nearfar.jobs import Job

HUB = "hub"
"""Fingerprint of what is read from the hub: it is identified by its name alone."""
MAX_CELLS = 100_000
"""Maximum number of cells of a study."""


@dataclass(frozen=True, kw_only=True)
class SpeedConfig(Settings):
    """Measure how fast a model encodes texts, and count its parameters."""

    texts: File
    """Texts to encode: a named set, or a file with one text per line."""
    limit: RowCount = 2000
    """Use only the first LIMIT distinct texts."""
    repeats: Runs = 3
    """Number of timed passes over the texts, after one that is not timed; their mean counts."""
    batch_size: Count | None = None
    """Number of texts to encode at a time; by default all, in batches of similar length."""
    pooling: str | None = None
    """Override the model's pooling: cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max."""
    prompt: Prompt | None = None
    """Text before each text, or the name of one of the model's prompts; by default the model's own."""
    max_length: Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available."""
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


class Source(NamedTuple):
    """A data set or model that a setting names."""

    spec: str
    """The value of the setting."""
    written: str
    """The value in the settings of a job, the same on every machine: paths are replaced by fingerprints."""
    fingerprint: str | None
    """SHA-256 of its content (16 hex digits), :data:`HUB`, or None if it is missing."""
    advice: str = ""
    """How to get it if it is missing or on the hub."""

    @property
    def problem(self) -> str:
        """What is missing and how to get it."""
        return self.advice if self.advice.startswith(f"{self.spec}:") else f"{self.spec}: {self.advice}"


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
    jobs: tuple["Job", ...] = ()
    """The last jobs, which are measured."""
    last_training: "Job | None" = None
    """The last job that trains, which has the validation score."""
    trainings: tuple[tuple["Job", TrainConfig], ...] = ()
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
    from nearfar.data.named_sets import suite_tasks
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
