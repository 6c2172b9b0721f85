"""One evaluation put together: tasks, encoder, scores, result file. What ``nearfar evaluate`` and notebooks call."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from nearfar.config import STS_TASKS
from nearfar.data.sts import load_task
from nearfar.evaluation import results
from nearfar.evaluation.sts import Subsets, evaluate_sts
from nearfar.evaluation.tables import evaluation_markdown
from nearfar.types import Encode, NearfarError

_SPLITS = {"train", "dev", "test"}


def evaluate(
    model: "str | Path | Encode",
    *,
    tasks: Sequence[str] = STS_TASKS,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    device: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    name: str | None = None,
    training_seed: int | None = None,
    output: str | Path | None = None,
    progress: bool = True,
) -> results.Result:
    """Score a model on semantic textual similarity and say how sure the scores are.

    Args:
        model: a model folder, a hub name, a training run's folder, or any function from texts to vectors.
        tasks: named sets or files (see :func:`nearfar.data.sts.load_task`). Where ``tasks`` is left at its default,
            a set that cannot be had is noted under ``unavailable``; one that is named must be there.
        pooling: instead of the model's own.
        max_length: tokens kept of a text, instead of the model's own limit.
        precision: ``bf16`` encodes in bfloat16.
        device: where to encode.
        resamples: bootstrap resamples behind each 95% interval; 0 for none.
        seed: of the bootstrap.
        name: what to call the model in tables, by default what ``model`` is called.
        training_seed: of the run that made the model, by which :func:`nearfar.compare.compare` pairs runs of two
            methods; a run folder knows its own.
        output: result file to write, ending in .json; a Markdown table is written beside it.
        progress: show progress bars.

    Returns:
        The content of the result file (see :mod:`nearfar.evaluation.results`).

    Raises:
        NearfarError: a task or model cannot be had, settings of an encoder given with a function, vectors that are
            not finite, an output that cannot be written.
    """
    file = None if output is None else results.check_output(output)
    tasks = (tasks,) if isinstance(tasks, str) else tuple(dict.fromkeys(tasks))
    loaded, unavailable = _load(tasks, required=tasks != STS_TASKS)
    name = name or (getattr(model, "__qualname__", type(model).__name__) if callable(model) else str(model))
    if not callable(model) and (account := Path(model) / "run.json").is_file():
        training_seed = json.loads(account.read_text(encoding="utf-8"))["config"]["seed"]
        model = Path(model) / "model"
    settings = {"pooling": pooling, "max_length": max_length, "device": device}
    encode, pooled = _open(model, bf16=precision == "bf16", progress=progress, **settings)
    scored = evaluate_sts(encode, loaded, resamples=resamples, seed=seed, progress=progress)
    config = {
        "tasks": list(tasks),
        "pooling": pooled,
        "max_length": max_length,
        "precision": precision,
        "resamples": resamples,
        "seed": seed,
        "training_seed": training_seed,
    }
    result = {
        "schema": results.SCHEMA,
        "kind": "sts",
        "model": name,
        "config": config,
        "provenance": results.provenance(),
        "unavailable": unavailable,
    } | scored
    if file:
        results.write_result(result, file, markdown=evaluation_markdown(result))
    return result


def _load(tasks: tuple[str, ...], *, required: bool) -> tuple[dict[str, Subsets], dict[str, str]]:
    loaded: dict[str, Subsets] = {}
    unavailable = {}
    for task in tasks:
        try:
            subsets = load_task(task)
        except NearfarError as error:
            if required:
                raise
            unavailable[task] = str(error)
            continue
        if len(subsets) > 1 and set(subsets) <= _SPLITS:  # splits of one set: nobody averages over them
            subsets = {"+".join(subsets): list(chain(*subsets.values()))}
        loaded[task] = subsets
    if unavailable and not loaded:
        raise NearfarError(f"none of the tasks can be had. {next(iter(unavailable.values()))}")
    return loaded, unavailable


def _open(model: "str | Path | Encode", *, bf16: bool, progress: bool, **settings: Any) -> tuple[Encode, str | None]:
    """The model as a function, and the pooling it uses where that is known."""
    if callable(model):
        if bf16:
            raise NearfarError("precision is a setting of a model folder or hub name; a function has its own.")
        given = [key for key, value in settings.items() if value is not None]
        if given:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")
        return model, None
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, **settings)
    return partial(encoder.encode, bf16=bf16, progress=progress), encoder.pooling
