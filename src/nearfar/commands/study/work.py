"""The jobs of a study: train, finetune, evaluate, geometry and speed, each writing its results into a folder.

A folder has ``numbers.json`` (name -> number), ``result.json`` if the step has a result file, and ``run/`` if it
trains. A job that was stopped continues from what it left in its folder.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from nearfar.config.files import build
from nearfar.config.finetune import FinetuneConfig
from nearfar.config.geometry import GeometryConfig
from nearfar.config.study import SpeedConfig
from nearfar.config.training import RunConfig
from nearfar.config.verbs import EvaluateConfig
from nearfar.disk import read_json, write_text
from nearfar.registry import METHODS
from nearfar.runs.folder import differing_settings
from nearfar.runs.records import CONFIG
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.evaluate.recent import RecentVectors

NUMBERS, RESULT, RUN = "numbers.json", "result.json", "run"
_Settings = dict[str, Any]
_Inputs = dict[str, Path]


def train(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Train an encoder in ``run/``."""
    from nearfar.commands.train.command import train_run

    kind = METHODS[settings["method"]]
    run = folder / RUN
    config = _config(kind, settings, output=str(run), model=start_of(settings, inputs))
    with _interruptible():
        train_run(config, resume=_can_resume(run, config), console=None)
    write_numbers(folder, _training_numbers(run))


def finetune(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Fine-tune a classifier in ``run/``; the model is removed at the end unless a later step needs it."""
    from nearfar.commands.finetune.command import finetune as run_finetune

    run = folder / RUN
    config = _config(FinetuneConfig, settings, output=str(run), model=start_of(settings, inputs))
    with _interruptible():
        done = run_finetune(config, resume=_can_resume(run, config), console=None)
    result = replace(done.result, model=_name(settings, inputs))
    result = replace(result, config={**result.config, "output": None, "model": _name(settings, inputs)})
    result.save(folder / RESULT)
    write_numbers(folder, _training_numbers(run))
    if not settings["keep_model"]:
        shutil.rmtree(run / "model", ignore_errors=True)


def evaluate(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Evaluate a model on tasks; a worker encodes the same texts once for several evaluations of one model."""
    from nearfar.commands.evaluate.command import evaluate as run_evaluate

    held_out_of = {"held_out_of": str(inputs["held_out"] / RUN)} if "held_out" in inputs else {}
    config = _config(EvaluateConfig, settings, name=_name(settings, inputs), **held_out_of)
    result = run_evaluate(start_of(settings, inputs), config, progress=False, recent=_recent_vectors())
    result.save(folder / RESULT)


@cache
def _recent_vectors() -> "RecentVectors":
    """The vectors that evaluations in this process share."""
    from nearfar.commands.evaluate.recent import RecentVectors

    return RecentVectors()


def geometry(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Measure an embedding space: alignment, uniformity, spectrum, and the scores of each layer."""
    from nearfar.baselines.named import is_baseline, open_baseline
    from nearfar.commands.geometry.command import geometry as run_geometry
    from nearfar.evaluation.results import GeometryResult

    config = _config(GeometryConfig, settings, output=str(folder / "geometry"), overwrite=True)
    model: Any = start_of(settings, inputs)
    if is_baseline(model):
        own = {name: getattr(config, name) for name in ("pooling", "max_length", "prompt", "device", "seed")}
        model = open_baseline(model, per_call=True, **own)
        config = replace(config, **dict.fromkeys(("pooling", "max_length", "prompt")))
    name = _name(settings, inputs)
    result = run_geometry({name: model}, config, progress=False)
    assert isinstance(result, GeometryResult)
    named = {name: replace(one, model=name) for name, one in result.models.items()}
    replace(result, models=named).save(folder / RESULT)


def speed(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Time a model on texts: ``inference_seconds`` is the mean over the repeats, after a pass that is not timed."""
    from nearfar.commands.evaluate.model import open_model
    from nearfar.data.rows import load_sentences

    config = _config(SpeedConfig, settings)
    texts = list(dict.fromkeys(row[0] for row in load_sentences(config.texts).rows))[: config.limit]
    same = {name: getattr(config, name) for name in ("pooling", "prompt", "max_length", "device", "seed")}
    model = start_of(settings, inputs)
    started = time.perf_counter()
    opened = open_model(model, EvaluateConfig(**same), bf16=False, progress=False)
    opening = time.perf_counter() - started
    if opened.transductive:
        raise NearfarError(
            f"speed: {model} is fitted on the texts that it encodes; name others, as in {model}@snli:dev."
        )
    size = config.batch_size or len(texts)
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    seconds = []
    for _ in range(config.repeats + 1):
        started = time.perf_counter()
        for batch in batches:
            opened.encode(batch)
        seconds.append(time.perf_counter() - started)
    inference = mean(seconds[1:])
    numbers = {"inference_seconds": inference, "texts_per_second": len(texts) / inference, "texts": len(texts)}
    if (parameters := _parameters(opened.encode)) is not None:
        numbers["parameters"] = parameters
    if "model" in inputs:
        trained = read_json(inputs["model"] / NUMBERS)
        numbers |= {name: trained[name] for name in ("updates_per_second",) if name in trained}
        numbers["training_seconds"] = trained["seconds"]
    elif str(model).startswith("flow:"):
        numbers["training_seconds"] = opening
    write_numbers(folder, numbers)


def _parameters(encode: Any) -> int | None:
    """The number of parameters of the encoder behind a function, if there is one."""
    encoder = getattr(getattr(encode, "func", None), "__self__", None)
    parameters = getattr(encoder, "parameters", None)
    return None if parameters is None else sum(one.numel() for one in parameters())


def _config(kind: type[Any], settings: Mapping[str, Any], **own: Any) -> Any:
    """The config of a job: its values, with the paths of this machine."""
    files = settings.get("files") or {}

    def on_this_machine(value: Any) -> Any:
        if isinstance(value, list):
            return [on_this_machine(one) for one in value]
        return files.get(value, value) if isinstance(value, str) else value

    values = {name: on_this_machine(value) for name, value in settings["values"].items()}
    values |= {name: "none" if value is None else value for name, value in values.items()}
    track = {"track": settings["track"]} if settings.get("track") else {}
    return build(kind, {**values, **own, **track, "device": settings.get("device") or "none"}, source="study")


def start_of(settings: Mapping[str, Any], inputs: _Inputs) -> str:
    """The model of a job: the run of the job before, or the start."""
    if "model" not in inputs:
        return str((settings.get("files") or {}).get(settings["model"], settings["model"]))
    run = inputs["model"] / RUN
    if not (run / "model").is_dir():
        raise NearfarError(f"{run}: its model was discarded. Remove {inputs['model']} to train it again.")
    return str(run if (run / "run.json").is_file() else run / "model")


def _name(settings: Mapping[str, Any], inputs: _Inputs) -> str:
    """The model's name in results: the same on every machine."""
    return f"cell {inputs['model'].name}" if "model" in inputs else str(settings["model"])


def _can_resume(run: Path, config: RunConfig) -> bool:
    """Whether ``run`` is an unfinished run of these settings.

    The same job can name its data and start model by other paths than before; a run with these is removed.
    """
    if not (run / CONFIG).exists():
        return False
    if not differing_settings(run, config):
        return True
    shutil.rmtree(run)
    return False


def _training_numbers(run: Path) -> dict[str, float]:
    """The numbers of a finished run; scores x 100."""
    info = read_json(run / "run.json")
    keep = info["config"].get("keep", "best")
    history = info.get("history") or []
    last = history[-1][1] if history else None
    best = info.get("best_score")
    validation = best if keep == "best" and best is not None else last
    numbers = {
        "validation": None if validation is None else 100 * validation,
        "start_validation": None if info.get("start_score") is None else 100 * info["start_score"],
        "steps": info.get("step"),
        "best_step": info.get("best_step"),
        "seconds": info.get("seconds"),
        "updates_per_second": info["step"] / info["seconds"] if info.get("seconds") and info.get("step") else None,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def write_numbers(folder: Path, numbers: Mapping[str, float]) -> None:
    """Write the numbers of a job."""
    write_text(folder / NUMBERS, json.dumps(dict(numbers), indent=1) + "\n")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn the end of a training run after Ctrl-C into the exception that stops a worker."""
    from nearfar.training.trainer import Interrupted

    try:
        yield
    except Interrupted:
        raise KeyboardInterrupt from None
