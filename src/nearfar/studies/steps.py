"""What the jobs of a study do: train, run a script, finetune, evaluate, measure geometry and speed.

The folder of a job has ``numbers.json`` (name -> number; with the provenance where a model was timed), ``result.json``
if the step has a result file, and ``run/`` if it trains. A job that was stopped continues from what it left in its
folder.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from nearfar.config.encoding import GeometryConfig
from nearfar.config.training import FinetuneConfig, RunConfig
from nearfar.config.verbs import EvaluateConfig
from nearfar.disk import read_json, write_text
from nearfar.registry import METHODS
from nearfar.runs.folder import CONFIG, differing_settings
from nearfar.settings import build
from nearfar.studies.cells import ScriptConfig, SpeedConfig, renamed
from nearfar.studies.sources import digest_of_file
from nearfar.types import NearfarError
from nearfar.validation import convert

if TYPE_CHECKING:
    from nearfar.commands.evaluate.model import RecentVectors

NUMBERS, RESULT, RUN = "numbers.json", "result.json", "run"
_Settings = dict[str, Any]
_Inputs = dict[str, Path]


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn the end of a training run after Ctrl-C into the exception that stops a worker."""
    from nearfar.training import Interrupted

    try:
        yield
    except Interrupted:
        raise KeyboardInterrupt from None


@_interruptible()
def train(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Train an encoder in ``run/``."""
    from nearfar.commands.train.run import train_run

    run = folder / RUN
    config = _config(METHODS[settings["method"]], settings, output=str(run), model=_start(settings, inputs))
    train_run(config, resume=_can_resume(run, config), console=None)
    _write_numbers(folder, _training_numbers(run))


@_interruptible()
def finetune(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Fine-tune a classifier in ``run/``; the model is removed at the end unless a later step needs it."""
    from nearfar.commands.finetune import finetune as run_finetune

    run = folder / RUN
    config = _config(FinetuneConfig, settings, output=str(run), model=_start(settings, inputs))
    done = run_finetune(config, resume=_can_resume(run, config), console=None)
    name = _name(settings, inputs)
    recorded = {**done.result.config, "output": None, "model": name}
    replace(done.result, model=name, config=recorded).save(folder / RESULT)
    _write_numbers(folder, _training_numbers(run))
    if not settings["keep_model"]:
        shutil.rmtree(run / "model", ignore_errors=True)


def evaluate(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Evaluate a model on tasks; a worker encodes the same texts once for several evaluations of one model."""
    from nearfar.commands.evaluate import evaluate as run_evaluate

    held_out_of = {"held_out_of": str(inputs["held_out"] / RUN)} if "held_out" in inputs else {}
    config = _config(EvaluateConfig, settings, name=_name(settings, inputs), **held_out_of)
    run_evaluate(_start(settings, inputs), config, progress=False, recent=_recent_vectors()).save(folder / RESULT)


@cache
def _recent_vectors() -> "RecentVectors":
    """The vectors that evaluations in this process share."""
    from nearfar.commands.evaluate.model import RecentVectors

    return RecentVectors()


def geometry(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Measure an embedding space: alignment, uniformity, spectrum, and the scores of each layer."""
    from nearfar.commands.geometry import geometry as run_geometry

    config = _config(GeometryConfig, settings, output=str(folder / "geometry"), overwrite=True)
    name = _name(settings, inputs)
    result: Any = run_geometry({name: _start(settings, inputs)}, config, progress=False)
    replace(result, models={name: replace(result.models[name], model=name)}).save(folder / RESULT)


def speed(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Time a model on texts: ``inference_seconds`` is the mean over the repeats, after a pass that is not timed."""
    from nearfar.commands.evaluate.model import open_model
    from nearfar.data.rows import load_sentences
    from nearfar.evaluation.results import provenance

    config = _config(SpeedConfig, settings)
    texts = list(dict.fromkeys(row[0] for row in load_sentences(config.texts).rows))[: config.limit]
    model = _start(settings, inputs)
    started = time.perf_counter()
    opened = open_model(model, EvaluateConfig(**config.opening, seed=config.seed), progress=False)
    opening = time.perf_counter() - started
    if opened.transductive:
        raise NearfarError(
            f"speed: {model} is fitted on the texts that it encodes; name others, as in {model}@snli:dev."
        )
    size = config.batch_size or len(texts)
    seconds = []
    for _ in range(config.repeats + 1):
        started = time.perf_counter()
        for start in range(0, len(texts), size):
            opened.encode(texts[start : start + size])
        seconds.append(time.perf_counter() - started)
    inference = mean(seconds[1:])
    numbers = {"inference_seconds": inference, "texts_per_second": len(texts) / inference, "texts": len(texts)}
    encoder = getattr(getattr(opened.encode, "func", None), "__self__", None)
    if (parameters := getattr(encoder, "parameters", None)) is not None:
        numbers["parameters"] = sum(one.numel() for one in parameters())
    if "model" in inputs:
        trained = read_json(inputs["model"] / NUMBERS)
        numbers |= {name: trained[name] for name in ("updates_per_second",) if name in trained}
        numbers["training_seconds"] = trained["seconds"]
    elif str(model).startswith("flow:"):
        numbers["training_seconds"] = opening
    _write_numbers(folder, {**numbers, "provenance": provenance().to_dict()})


def script(settings: _Settings, inputs: _Inputs, folder: Path) -> None:
    """Run the script of ``settings`` into ``run/``; what it prints goes to log.txt in a worker.

    Raises:
        NearfarError: the script has changed since the study was started, fails, or does not write its model or one of
            its numbers.
    """
    file, run = Path(settings["files"][settings["script"]]), folder / RUN
    if not file.is_file() or digest_of_file(file)[:16] != settings["script"].removeprefix("script-"):
        raise NearfarError(f"{file}: was changed while the study ran; run the study again.")
    values = renamed(settings["values"], settings["files"])
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    model = str(inputs["model"] / RUN / "model") if "model" in inputs else _start(settings, inputs)
    run.mkdir(exist_ok=True)
    shutil.rmtree(run / "model", ignore_errors=True)  # of an attempt that was stopped
    (run / NUMBERS).unlink(missing_ok=True)
    words = ["--model", model, "--output", str(run), "--seed", str(settings["seed"])]
    words += ScriptConfig(file=str(file), arguments=arguments).command()
    started = time.perf_counter()
    _call([sys.executable, str(file), *words], name=file.name)
    seconds = time.perf_counter() - started
    if not any((run / "model" / name).is_file() for name in ("modules.json", "config.json")):
        raise NearfarError(f"{file.name}: wrote no model. It must write a sentence-transformers model to OUTPUT/model.")
    _write_numbers(folder, {"seconds": seconds, **_script_numbers(run / NUMBERS, settings["numbers"], name=file.name)})


def _call(command: list[str], *, name: str) -> None:
    """Run a command, whose output is that of this process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    status = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    if status:
        raise NearfarError(f"{name}: ended with exit status {status}; a worker keeps what it printed in log.txt.")


def _script_numbers(file: Path, names: list[str], *, name: str) -> dict[str, float]:
    """The numbers in the script's numbers.json; without the file, none."""
    written = read_json(file, otherwise="The script must write a JSON object of numbers.") if file.exists() else {}
    numbers = convert(written, dict[str, float], source=f"{name}: numbers.json")
    if missing := [key for key in names if key not in numbers]:
        raise NearfarError(f"{name}: numbers.json lacks {missing[0]!r}, which the study names among its numbers.")
    return numbers


def _config(kind: type[Any], settings: Mapping[str, Any], **own: Any) -> Any:
    """The config of a job: its values, with the paths of this machine."""
    given = renamed(settings["values"], settings.get("files", {}))
    values = {name: "none" if value is None else value for name, value in given.items()}
    track = {"track": settings["track"]} if settings.get("track") else {}
    return build(kind, {**values, **own, **track, "device": settings.get("device") or "none"}, source="study")


def _start(settings: Mapping[str, Any], inputs: _Inputs) -> str:
    """The model of a job: the run of the job before, or the start."""
    if "model" not in inputs:
        return str(renamed(settings["model"], settings.get("files", {})))
    run = inputs["model"] / RUN
    return str(run if (run / "run.json").is_file() else run / "model")


def _name(settings: Mapping[str, Any], inputs: _Inputs) -> str:
    """The model's name in results: the same on every machine."""
    return f"cell {inputs['model'].name}" if "model" in inputs else str(settings["model"])


def _can_resume(run: Path, config: RunConfig) -> bool:
    """Whether ``run`` is an unfinished run of these settings.

    The same job can name its data and start model by other paths than before; a run with these is removed.
    """
    if (run / CONFIG).exists() and differing_settings(run, config):
        shutil.rmtree(run)
    return (run / CONFIG).exists()


def _training_numbers(run: Path) -> dict[str, float]:
    """The numbers of a finished run; scores x 100."""
    info = read_json(run / "run.json")
    best, seconds, steps = (info.get(name) for name in ("best_score", "seconds", "step"))
    if best is None or info["config"].get("keep", "best") != "best":
        best = info["history"][-1][1] if info.get("history") else None
    numbers = {
        "validation": best and 100 * best,
        "steps": steps,
        "best_step": info.get("best_step"),
        "seconds": seconds,
    }
    numbers["updates_per_second"] = steps / seconds if steps and seconds else None
    return {name: value for name, value in numbers.items() if value is not None}


def _write_numbers(folder: Path, numbers: Mapping[str, Any]) -> None:
    write_text(folder / NUMBERS, json.dumps(dict(numbers), indent=1) + "\n")
