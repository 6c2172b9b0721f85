"""``nearfar evaluate``: a model and tasks -> scores with confidence intervals, and a result file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.baselines.caching import CachedEncode
from nearfar.baselines.named import is_baseline, is_transductive, open_baseline, parse_spec
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import PROBE_TASKS, suite_tasks
from nearfar.data.sts import load_task
from nearfar.disk import model_of_run, path_errors
from nearfar.evaluation.results import EvaluationResult, TransferResults, check_output, provenance
from nearfar.evaluation.sts import SimilarityEvaluation, Subsets, evaluate_sts
from nearfar.evaluation.tables.files import save_with_tables
from nearfar.runs.group import GROUP_FILE, runs_of
from nearfar.runs.records import read_run_info
from nearfar.types import Encode, NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.data.transfer import TransferTask
    from nearfar.evaluation.transfer import TransferEvaluation

_SPLITS = {"train", "dev", "test"}


@accepts_settings(EvaluateConfig)
@path_errors()
def evaluate(
    model: "str | Path | Encode",
    config: EvaluateConfig,
    *,
    training_seed: int | None = None,
    progress: bool = True,
) -> EvaluationResult:
    """Score a model on semantic textual similarity and transfer tasks, with confidence intervals.

    Settings can be given by name: ``evaluate("model", tasks=["stsb"], output="stsb.json")``; see
    :class:`nearfar.EvaluateConfig`. Each distinct text is encoded once for all tasks. ``precision`` ``auto`` is
    ``fp32`` here, as for published scores.

    A task of a suite that cannot be loaded is listed in ``unavailable``. Tasks that are named must be available.

    Args:
        model: a model folder, a hub name, a run folder, a baseline (:mod:`nearfar.baselines.named`), or any function
            from texts to vectors.
        config: the settings.
        training_seed: seed of the training run that made the model, by which :func:`nearfar.compare` pairs runs; for a
            run folder it is read from the run.
        progress: show progress bars.

    Raises:
        NearfarError: a task or model that cannot be loaded, settings of an encoder given with a function, vectors that
            are not finite for any task, an output that cannot be written.
    """
    from nearfar.encoder.device import check_device
    from nearfar.encoder.precision import check_precision, resolve

    check_device(config.device)
    check_precision(config.precision)
    precision: Precision = "fp32" if config.precision == "auto" else config.precision
    named = tuple(dict.fromkeys((*(config.tasks or ()), *config.pairs, *config.labelled)))
    file = None
    if config.output is not None:
        spec_parts = re.split("[:@]", model) if isinstance(model, str) else ()  # of a baseline, as in glove:FILE
        file = check_output(config.output, inputs=(model, *spec_parts, *named), overwrite=config.overwrite)
    if isinstance(model, str) and is_baseline(model):
        parse_spec(model)  # an invalid spec is reported before anything is read
    suite = suite_tasks(config.suite or "sts") if config.suite or not named else ()
    similarity, transfer, unavailable = _load(suite, config)
    name = config.name or str(getattr(model, "__qualname__", type(model).__name__) if callable(model) else model)
    if not callable(model) and (folder := model_of_run(Path(model))) != Path(model):
        training_seed = read_run_info(Path(model))["config"]["seed"]
        model = folder
    opened = _open(model, config, bf16=resolve(precision, config.device) == "bf16", progress=progress)
    encode = opened.encode if opened.transductive else CachedEncode(opened.encode)
    scored = SimilarityEvaluation(texts=0, dim=0, averages={}, tasks={}, unavailable={})
    if similarity:
        scored = evaluate_sts(
            encode,
            similarity,
            per_task=opened.transductive,
            resamples=config.resamples,
            seed=config.seed,
            progress=progress,
        )
    unavailable |= scored.unavailable
    if not transfer and not scored.tasks:
        task, why = next(iter(unavailable.items()))
        raise NearfarError(f"{task}: {why}.")
    result = EvaluationResult(
        model=name,
        config={
            "tasks": list(dict.fromkeys((*suite, *named))),
            "pooling": opened.pooling,
            "transductive": opened.transductive,
            "max_length": config.max_length,
            "precision": precision,
            "resamples": config.resamples,
            "seed": config.seed,
            "training_seed": training_seed,
        },
        provenance=provenance(),
        unavailable=unavailable,
        averages=scored.averages,
        tasks=scored.tasks,
        texts=scored.texts,
        dim=scored.dim,
    )
    if transfer:
        probed = _probe(encode, transfer, config, per_task=opened.transductive, progress=progress)
        result = replace(
            result,
            texts=len(_texts(similarity, transfer)),
            dim=probed.dim or scored.dim or None,
            transfer=TransferResults(
                protocol=config.protocol,
                nhid=config.nhid,
                folds=config.folds,
                averages=probed.averages,
                tasks=probed.tasks,
            ),
        )
    if file:
        save_with_tables(result, file)
    return result


def _probe(
    encode: Encode, tasks: "Mapping[str, TransferTask]", config: EvaluateConfig, *, per_task: bool, progress: bool
) -> "TransferEvaluation":
    from nearfar.evaluation.transfer import evaluate_transfer

    return evaluate_transfer(
        encode,
        tasks,
        protocol=config.protocol,
        nhid=config.nhid,
        folds=config.folds,
        per_task=per_task,
        resamples=config.resamples,
        progress=progress,
    )


@accepts_settings(EvaluateConfig)
def evaluate_group(folder: str | Path, config: EvaluateConfig, *, progress: bool = True) -> list[EvaluationResult]:
    """Evaluate each run of a group by :func:`nearfar.evaluate`.

    ``config.output`` is a folder for the result files, one per run; ``nearfar compare`` takes it as a side.

    Args:
        folder: the folder of the group.
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: the folder is not a finished group, the output is a file, or what ``evaluate`` refuses.
    """
    runs = runs_of(folder)
    if runs is None:
        raise NearfarError(f"{folder}: is not a finished group of runs (no {GROUP_FILE}).")
    if config.output is not None and config.output.endswith(".json"):
        raise NearfarError(f"--output {config.output}: a group has one result per run; name a folder for them.")
    files = [None if config.output is None else str(Path(config.output) / f"{run.name}.json") for run in runs]
    for file in files:  # all of them, before the first run is evaluated
        if file is not None:
            check_output(file, overwrite=config.overwrite)
    return [
        evaluate(run, replace(config, name=config.name or str(folder), output=file), progress=progress)
        for run, file in zip(runs, files, strict=True)
    ]


def _load(
    suite: Sequence[str], config: EvaluateConfig
) -> tuple[dict[str, Subsets], "dict[str, TransferTask]", dict[str, str]]:
    """Similarity tasks, transfer tasks, and the tasks of the suite that cannot be loaded, with the reason."""
    from nearfar.data.transfer import load_labelled_task, load_transfer

    tasks = config.tasks or ()
    for spec in config.labelled:
        if spec in (*tasks, *config.pairs):
            raise NearfarError(f"{spec}: is named both as scored pairs and as labelled texts.")
    similarity: dict[str, Subsets] = {}
    transfer: dict[str, TransferTask] = {}
    unavailable: dict[str, str] = {}
    for task in dict.fromkeys((*suite, *tasks, *config.pairs, *config.labelled)):
        try:
            if task in config.labelled:
                transfer[task] = load_labelled_task(task)
            elif task in PROBE_TASKS and task not in config.pairs:
                transfer[task] = load_transfer(task)
            else:
                similarity[task] = _merge_splits(load_task(task))
        except NearfarError as error:
            if task in (*tasks, *config.pairs, *config.labelled):
                raise
            unavailable[task] = str(error)
    if not similarity and not transfer:
        raise NearfarError(f"none of the tasks can be loaded. {next(iter(unavailable.values()))}")
    return similarity, transfer, unavailable


def _merge_splits(subsets: Subsets) -> Subsets:
    """The splits of one data set as one subset; published scores do not average over splits."""
    if len(subsets) > 1 and set(subsets) <= _SPLITS:
        return {"+".join(subsets): list(chain(*subsets.values()))}
    return subsets


def _texts(similarity: Mapping[str, Subsets], transfer: "Mapping[str, TransferTask]") -> set[str]:
    """The distinct texts of all tasks."""
    of_pairs = (t for subsets in similarity.values() for rows in subsets.values() for row in rows for t in row[:2])
    of_rows = (t for task in transfer.values() for rows in task.splits.values() for row in rows.texts for t in row)
    return {*of_pairs, *of_rows}


class _OpenedModel(NamedTuple):
    encode: Encode
    pooling: str | None = None
    """None where it is not known."""
    transductive: bool = False
    """Whether ``encode`` is fitted, in each call, on the texts of that call."""


def _open(model: "str | Path | Encode", config: EvaluateConfig, *, bf16: bool, progress: bool) -> _OpenedModel:
    """The model as a function from texts to vectors."""
    settings: dict[str, Any] = {
        "pooling": config.pooling,
        "max_length": config.max_length,
        "device": config.device,
    }
    if callable(model):
        given = [key for key, value in settings.items() if value is not None] + ["precision"] * bf16
        if given:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")
        return _OpenedModel(model)
    if isinstance(model, str) and is_baseline(model):
        encode = open_baseline(model, per_call=True, bf16=bf16, seed=config.seed, progress=progress, **settings)
        return _OpenedModel(encode, config.pooling, is_transductive(model))
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, **settings)
    precision: Precision = "bf16" if bf16 else "fp32"
    # check_finite=False: a vector that is not finite affects only the tasks that contain its text.
    encode = partial(encoder.encode, precision=precision, progress=progress, check_finite=False)
    return _OpenedModel(encode, encoder.pooling)
