"""From the cells of a study to jobs: settings and content of data and models, without places on this machine.

What a step reads, data sets and models, is identified by its content, so that every machine gives a job one key.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from nearfar.baselines.named import is_baseline, parse_spec
from nearfar.config.geometry import GeometryConfig
from nearfar.config.training import FinetuneConfig, RunConfig, TrainConfig
from nearfar.config.values import Settings, field_types, named_models
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.catalog import parse
from nearfar.data.named_sets import (
    CATALOG,
    FINETUNING_TASKS,
    MIXTURES,
    OWN,
    PROBE_TASKS,
    VOCABULARY,
    how_to_get,
    suite_tasks,
)
from nearfar.data.paths import as_path, is_file, status
from nearfar.disk import read_errors, sha256_of
from nearfar.disk.model_folder import SEEN_FILE, model_of_run
from nearfar.jobs import Job, JobStore
from nearfar.registry import METHODS, name_of
from nearfar.settings import load_method, read_toml
from nearfar.studies.cells import HUB, Cell, CellStep, ScriptConfig, Source, SpeedConfig, check_columns, plan_cells
from nearfar.studies.spec import MODEL_VERBS, Study, agree
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

FORMAT = 1
"""Version of the jobs: a change makes all keys new. Raise it when the same settings give other results."""
STEPS = "nearfar.studies.steps"
"""The module of the functions of jobs."""
MODEL, HELD_OUT = "model", "held_out"
"""Inputs of a job: the training of its model, and the training whose held-out rows it is evaluated on."""
GENERATED = "microworld"
"""Fingerprint of texts that this version of nearfar makes or has: they are identified by their name alone."""
_NOT_VALUES = ("device", "output", "overwrite", "name", "page", "model", "held_out_of", "track")
"""Settings that are not among the values of a job: they do not change the result, or have an entry of their own."""
_DATA_ARGUMENTS = ("data", "evaluate_on")
"""Arguments of a script that name data sets: their content is part of the key of the job."""
_NOISES = ("none", "word-dropout", "word-swap", "characters")
_GEOMETRY_DEFAULTS = {"pairs": "stsb:dev", "task": "stsb", "labelled": "sst2:test"}
"""Data sets of ``nearfar geometry`` that may be missing if they are not named."""
_FILE_BASELINES = ("glove", "use")
"""Baselines that read a file or folder, not a model."""
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


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
    settings: dict[str, Any] = {"format": FORMAT}
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
        named["task"] = [_keep_name(_find_finetuning_task(config.task))]
        noise = None if config.noise in _NOISES else config.noise
        for name, spec in (("validation", config.validation), ("test", config.test), ("noise", noise)):
            named[name] = [] if spec is None else [find_source(spec)]
    elif isinstance(config, EvaluateConfig):
        named |= _evaluated(config)
    elif isinstance(config, GeometryConfig):
        for name, default in _GEOMETRY_DEFAULTS.items():
            named[name] = [_keep_name(find_source(getattr(config, name) or default))]
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
    named["tasks"] = [_find_task(task) for task in config.tasks or ()]
    is_named = any([*named.values(), config.suite, config.held_out, config.held_out_of])
    suite = config.suite if is_named else "sts"
    named["corpus"] = [] if config.corpus is None else [find_source(config.corpus)]
    named["suite"] = [_find_task(task) for task in suite_tasks(suite)] if suite else []
    return {name: [_keep_name(one) for one in some] for name, some in named.items()}


def _keep_name(source: Source) -> Source:
    """The source, written as it is named: the name is part of the result."""
    return source._replace(written=source.spec)


def _is_optional(config: Settings, name: str) -> bool:
    """Whether a data set may be missing: one of a suite, or a default of ``nearfar geometry``."""
    return getattr(config, name) is None if isinstance(config, GeometryConfig) else name == "suite"


def find_source(spec: str) -> Source:
    """A data set by its spec (:mod:`nearfar.data.catalog`); nothing is downloaded.

    Raises:
        NearfarError: a file that cannot be read.
    """
    name = spec.partition(":")[0]
    if spec == VOCABULARY or (name in CATALOG and CATALOG[name].packaged):
        return Source(spec, spec, GENERATED)
    if name in MIXTURES:
        return _joined(spec, [find_source(f"{member}{spec[len(name) :]}") for member in MIXTURES[name]])
    if name in CATALOG:
        return _find_named(spec)
    for path, rest in ((spec, ""), (spec.rpartition(":")[0], f":{spec.rpartition(':')[2]}")):
        if path and status(as_path(path)) is not None:
            return _of_path(spec, as_path(path), rest)
    if spec.startswith("hub:") or _is_hub_name(name):
        return Source(spec, spec, HUB, f"{spec.removeprefix('hub:')} is read from the Hugging Face Hub")
    return Source(spec, spec, None, f"{spec}: no such file")


def _find_task(task: str) -> Source:
    """The data of a task of ``nearfar evaluate``."""
    return _joined(task, [find_source(PROBE_TASKS[task].spec)]) if task in PROBE_TASKS else find_source(task)


def _find_finetuning_task(task: str) -> Source:
    """The data of a task of ``nearfar finetune``."""
    if task not in FINETUNING_TASKS:
        return find_source(task)
    entry = FINETUNING_TASKS[task]
    return _joined(task, [find_source(one) for one in (entry.source, entry.test, entry.validation) if one is not None])


def find_model(model: str) -> Source:
    """A model folder, run folder, hub name, or baseline.

    Raises:
        NearfarError: a damaged model folder, or an invalid baseline.
    """
    if is_baseline(model):
        return _find_baseline(model)
    folder = as_path(model)
    if folder.is_dir():
        files = model_of_run(folder)
        if any((files / name).is_file() for name in ("config.json", "modules.json")):
            return _of_model(model, files)
        return Source(model, model, None, f"{model}: is no model folder (it has no config.json)")
    if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
        return Source(model, model, None, f"{model}: no such model folder")
    return Source(model, model, HUB, f"{model} is read from the Hugging Face Hub unless it is in the local cache")


def _of_model(spec: str, folder: Path) -> Source:
    """A model folder by its files, without the hashes of its training texts, which change no vector."""
    modules = [one.parent for one in folder.glob("*/config.json")]
    files = sorted({file for kind in _MODEL_FILES for part in (folder, *modules) for file in part.glob(kind)})
    files = [file for file in files if file.name != SEEN_FILE and is_file(file)]
    digest = _hash(*(f"{file.relative_to(folder).as_posix()} {digest_of_file(file)}" for file in files))
    return Source(spec, f"model-{digest}", digest)


def _find_baseline(spec: str) -> Source:
    parts = parse_spec(spec)
    read = []
    if parts.source:
        read.append(find_source(parts.source) if parts.name in _FILE_BASELINES else find_model(parts.source))
    if parts.texts is not None:
        read.append(find_source(parts.texts))
    if not read:
        return Source(spec, spec, parts.name)
    options = "".join(f",{name}={value}" for name, value in sorted(parts.options.items()))
    written = f"{parts.name}:{'@'.join(one.written for one in read)}{options}"
    return _joined(spec, read)._replace(written=written)


def _find_named(spec: str) -> Source:
    name, requested = parse(spec)
    entry = CATALOG[name]
    splits = requested or entry.splits
    root = os.environ.get("NEARFAR_DATA")
    files = [as_path(root) / entry.folder / entry.files.get(split, f"{split}.tsv") for split in splits] if root else []
    missing = [split for split, file in zip(splits, files, strict=True) if not is_file(file)] if root else splits
    if not missing:
        return Source(spec, spec, _hash(*map(digest_of_file, files)))
    on_hub = entry.hub is not None and ("all" in entry.hub_splits or all(one in entry.hub_splits for one in missing))
    return Source(spec, spec, HUB if on_hub else None, how_to_get(spec))


def _of_path(spec: str, path: Path, rest: str) -> Source:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    names = [] if path.is_file() else [file.relative_to(path).as_posix() for file in files]
    digest = _hash(*map(digest_of_file, files), *names)
    return Source(spec, f"file-{digest}{''.join(path.suffixes[-2:])}{rest}", digest)


def _is_hub_name(name: str) -> bool:
    path = as_path(name)
    return name.count("/") in (1, 2) and not path.is_absolute() and not name.startswith(".") and not path.suffix


def _joined(spec: str, parts: Sequence[Source]) -> Source:
    """One source of several; its fingerprint is missing if that of a part is."""
    missing = [one for one in parts if one.fingerprint is None]
    on_hub = [one for one in parts if one.fingerprint == HUB]
    advice = "; ".join(dict.fromkeys(one.advice for one in missing or on_hub))
    digest = None if missing else HUB if len(on_hub) == len(parts) else _hash(*(str(one.fingerprint) for one in parts))
    return Source(spec, spec, digest, advice)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file's content.

    Raises:
        NearfarError: it cannot be read.
    """
    known = file.stat()
    return _digest_of(file, known.st_size, known.st_mtime_ns)


@cache
def _digest_of(file: Path, *_: int) -> str:
    """SHA-256 of a file; its size and time of modification are part of the cache's key."""
    with read_errors(file):
        return sha256_of(file)
