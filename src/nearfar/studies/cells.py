"""The cells of a study: each row at each combination of labels, for each replicate, with the settings of its steps."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from nearfar.config.finetune import FinetuneConfig
from nearfar.config.geometry import GeometryConfig
from nearfar.config.training import TrainConfig
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
    Row,
    ScriptConfig,
    SpeedConfig,
    Step,
    Study,
    Verb,
)
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

MAX_CELLS = 100_000
"""Maximum number of cells of a study."""
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
    """One row at one combination of labels, for one replicate."""

    row: Row
    coordinates: Mapping[str, str]
    """Axis -> label."""
    replicate: Mapping[str, Any]
    """Dotted setting -> value."""
    steps: tuple[CellStep, ...]

    @property
    def name(self) -> str:
        """The cell in words: ``scl (lambda 0.3, seed 1)``."""
        parts = [f"{name} {value}" for name, value in (*self.coordinates.items(), *self.replicate.items())]
        return f"{self.row.id} ({', '.join(parts)})" if parts else self.row.id


def plan_cells(study: Study) -> list[Cell]:
    """All cells, by row, then by the labels of its axes in the order of the file, then by replicate.

    Later settings have precedence: those of the file, of the row, of the axes, of the replicate, of the entry in
    ``steps``. A dotted setting of a step that a row does not have is ignored for this row. ``seed`` is the seed of each
    step that trains, and of the others if the row's model is fitted with a seed.

    Raises:
        NearfarError: settings that a step does not have, or that are invalid; a row without a model; too many cells.
    """
    count = sum(len(row.replicates) * prod(len(study.axis(name).labels) for name in row.axes) for row in study.rows)
    if count > MAX_CELLS:
        raise NearfarError(f"{study.file}: has {count:,} cells; a study has at most {MAX_CELLS:,}.")
    return [cell for row in study.rows if row.steps for cell in _cells(study, row)]


def _cells(study: Study, row: Row) -> Iterator[Cell]:
    axes = [study.axis(name) for name in row.axes]
    for places in product(*(range(len(axis.labels)) for axis in axes)):
        chosen = list(zip(axes, places, strict=True))
        coordinates = {axis.name: axis.labels[place] for axis, place in chosen}
        changes = [dict(zip(axis.settings, axis.values[place], strict=True)) for axis, place in chosen]
        shown = ", ".join(f"{name} {label}" for name, label in coordinates.items())
        where = f"{study.file}: row {row.id!r}{f' ({shown})' if shown else ''}"
        for replicate in row.replicates:
            yield Cell(row, coordinates, replicate, _cell_steps(study, row, [*changes, replicate], where))


def _cell_steps(study: Study, row: Row, changes: list[Mapping[str, Any]], where: str) -> tuple[CellStep, ...]:
    values = [{**study.settings.get(step.verb, {}), **row.settings.get(step.verb, {})} for step in row.steps]
    if unused := set(row.settings) - {step.verb for step in row.steps}:
        raise NearfarError(f"{where}: has settings of {', '.join(sorted(unused))}, which is none of its steps.")
    known = dict.fromkeys([*VERBS, *(step.name for other in study.rows for step in other.steps)])
    model, seed = row.model, None
    for setting, value in (item for change in changes for item in change.items()):
        if setting == "model":
            model = value
        elif setting == "seed":
            seed = value
        else:
            _set(values, setting, value, row=row, known=known, where=where)
    if model is not None and not isinstance(model, str):
        raise NearfarError(f"{where}: model = {format_value(model)}: must be a text.")
    steps = []
    makes_model = False
    for step, own in zip(row.steps, values, strict=True):
        if seed is not None and (step.verb in MODEL_VERBS or str(model).startswith(_SEEDED)):
            own["seed"] = seed
        own.update(step.settings)
        given = own.pop("model", None)
        start = None if makes_model else model or given
        steps.append(_cell_step(step, own, start, later=makes_model, where=where))
        makes_model = makes_model or step.verb in MODEL_VERBS
    return tuple(steps)


def _set(
    values: list[dict[str, Any]], setting: str, value: Any, *, row: Row, known: Collection[str], where: str
) -> None:
    """Set a dotted setting in the steps that it names, by verb or by name."""
    name, dot, key = setting.partition(".")
    if not dot or not key or name not in known:
        raise NearfarError(
            f"{where}: {format_value(setting)} is no setting. Write seed, model, or STEP.SETTING with a step of "
            f"{', '.join(known)}."
        )
    for step, own in zip(row.steps, values, strict=True):
        if name in (step.name, step.verb):
            own[key] = value


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
