"""The cells of a study: each row at each combination of labels, for each replicate, with the settings of its steps."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from nearfar.config.files import build
from nearfar.config.finetune import FinetuneConfig
from nearfar.config.geometry import GeometryConfig
from nearfar.config.study.script import script_config
from nearfar.config.study.types import MODEL_VERBS, VERBS, Axis, Row, SpeedConfig, Step, Study, Verb
from nearfar.config.values import Settings
from nearfar.config.verbs import EvaluateConfig
from nearfar.registry import METHODS
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
SEEDED = ("flow:",)
"""Models that are fitted with a seed."""
OUTPUT = "cell"
"""Stands for the output, which the job decides."""
_DECIDED = ("output", "overwrite", "name", "page")
"""Settings that the job decides."""


@dataclass(frozen=True)
class PlannedStep:
    """One step of a cell."""

    verb: Verb
    name: str
    config: Settings
    """The checked settings; ``output`` is :data:`OUTPUT`, and the ``model`` of a later step is not used."""
    model: str | None
    """The model of the first step; None for a later one, which takes the model of a step before it."""


@dataclass(frozen=True)
class PlannedCell:
    """One row at one combination of labels, for one replicate."""

    row: Row
    coordinates: Mapping[str, str]
    """Axis -> label."""
    replicate: Mapping[str, Any]
    """Dotted setting -> value."""
    steps: tuple[PlannedStep, ...]


def plan_cells(study: Study) -> list[PlannedCell]:
    """All cells, by row, then by the labels of its axes in the order of the file, then by replicate.

    Later settings have precedence: those of the file, of the row, of the axes, of the replicate, of the entry in
    ``steps``. A dotted setting of a step that a row does not have is ignored for this row. ``seed`` is the seed of each
    step that trains, and of the others if the row's model is fitted with a seed.

    Raises:
        NearfarError: settings that a step does not have, or that are invalid; a row without a model; too many cells.
    """
    count = sum(len(row.replicates) * _combinations(study, row) for row in study.rows)
    if count > MAX_CELLS:
        raise NearfarError(f"{study.file}: has {count:,} cells; a study has at most {MAX_CELLS:,}.")
    return [cell for row in study.rows if row.steps for cell in _cells(study, row)]


def _combinations(study: Study, row: Row) -> int:
    count = 1
    for name in row.axes:
        count *= len(study.axis(name).labels)
    return count


def _cells(study: Study, row: Row) -> Iterator[PlannedCell]:
    axes = [study.axis(name) for name in row.axes]
    for places in product(*(range(len(axis.labels)) for axis in axes)):
        coordinates = {axis.name: axis.labels[place] for axis, place in zip(axes, places, strict=True)}
        changes = [_changes(axis, place) for axis, place in zip(axes, places, strict=True)]
        for replicate in row.replicates:
            where = _where(study, row, coordinates)
            steps = _plan_steps(study, row, [*changes, replicate], where)
            yield PlannedCell(row, coordinates, replicate, steps)


def _changes(axis: Axis, place: int) -> dict[str, Any]:
    return dict(zip(axis.settings, axis.values[place], strict=True))


def _where(study: Study, row: Row, coordinates: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} {label}" for name, label in coordinates.items())
    return f"{study.file}: row {row.id!r}{f' ({shown})' if shown else ''}"


def _plan_steps(study: Study, row: Row, changes: list[Mapping[str, Any]], where: str) -> tuple[PlannedStep, ...]:
    values = [{**study.settings.get(step.verb, {}), **row.settings.get(step.verb, {})} for step in row.steps]
    unused = set(row.settings) - {step.verb for step in row.steps} if row.steps else set()
    if unused:
        raise NearfarError(f"{where}: has settings of {', '.join(sorted(unused))}, which is none of its steps.")
    known = dict.fromkeys([*VERBS, *(step.name for other in study.rows for step in other.steps)])
    model, seed = row.model, None
    for setting, value in (item for change in changes for item in change.items()):
        if setting == "model":
            model = value
        elif setting == "seed":
            seed = value
        else:
            _apply(values, setting, value, row=row, known=known, where=where)
    if model is not None and not isinstance(model, str):
        raise NearfarError(f"{where}: model = {format_value(model)}: must be a text.")
    planned = []
    makes_model = False
    for step, one in zip(row.steps, values, strict=True):
        if seed is not None and (step.verb in MODEL_VERBS or str(model).startswith(SEEDED)):
            one["seed"] = seed
        one.update(step.settings)
        own = one.pop("model", None)
        first = None if makes_model else (model or own)
        planned.append(_plan_step(step, one, first, later=makes_model, where=where))
        makes_model = makes_model or step.verb in MODEL_VERBS
    return tuple(planned)


def _apply(
    values: list[dict[str, Any]], setting: str, value: Any, *, row: Row, known: Collection[str], where: str
) -> None:
    """Set a dotted setting in the steps that it names, by verb or by name."""
    name, dot, key = setting.partition(".")
    places = [place for place, step in enumerate(row.steps) if name in (step.name, step.verb)]
    if not dot or not key or name not in known:
        raise NearfarError(
            f"{where}: {format_value(setting)} is no setting. Write seed, model, or STEP.SETTING with a step of "
            f"{', '.join(known)}."
        )
    for place in places:
        values[place][key] = value


def _plan_step(step: Step, values: Mapping[str, Any], model: Any, *, later: bool, where: str) -> PlannedStep:
    values = dict(values)
    source = f"{where}: {step.name}"
    for key in _DECIDED if step.verb != "script" else ():
        if key in values:
            raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
    if step.verb == "script":
        return PlannedStep(step.verb, step.name, script_config(values, source=source), _start(model, later, where))
    kind = _KINDS.get(step.verb) or _method(values, source)
    names = {field.name for field in fields(kind)}
    if "output" in names:
        values["output"] = OUTPUT
    if step.verb in MODEL_VERBS and model is not None:
        values["model"] = model
    config = build(kind, values, source=source)
    if not later:
        model = config.model if step.verb in MODEL_VERBS else model  # type: ignore[attr-defined]
    return PlannedStep(step.verb, step.name, config, _start(model, later, where))


def _start(model: Any, later: bool, where: str) -> str | None:
    """The model of a first step; None for a later one."""
    if later:
        return None
    if not isinstance(model, str) or not model.strip():
        raise NearfarError(f'{where}: has no model to start from; give it one, as in model = "{{start}}".')
    return model


def _method(values: dict[str, Any], source: str) -> type[Settings]:
    """The config class of the method of a train step; removes the method from ``values``."""
    method = values.pop("method", None)
    if method is None:
        raise NearfarError(f'{source}: names no method; give one, as in train = {{ method = "scl" }}.')
    if not isinstance(method, str) or method not in METHODS:
        raise NearfarError(f"{source}: {unknown_name_message(str(method), METHODS, what='method')}")
    return METHODS[method]
