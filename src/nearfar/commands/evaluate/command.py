"""``nearfar evaluate``: a model and tasks -> scores with confidence intervals, and a result file."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.baselines.caching import CachedEncode
from nearfar.baselines.named import is_baseline, parse_spec
from nearfar.commands.evaluate.model import open_model
from nearfar.commands.evaluate.tasks import distinct_texts, load_tasks
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import suite_tasks
from nearfar.disk import model_of_run, path_errors
from nearfar.evaluation.results import EvaluationResult, TransferResults, check_output, provenance
from nearfar.evaluation.sts import SimilarityEvaluation, evaluate_sts
from nearfar.evaluation.tables.files import save_with_tables
from nearfar.runs.group import GROUP_FILE, runs_of
from nearfar.runs.records import read_run_info
from nearfar.types import Encode, NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.data.transfer import TransferTask
    from nearfar.evaluation.transfer import TransferEvaluation


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
    similarity, transfer, unavailable = load_tasks(suite, config)
    name = config.name or str(getattr(model, "__qualname__", type(model).__name__) if callable(model) else model)
    if not callable(model) and (folder := model_of_run(Path(model))) != Path(model):
        training_seed = read_run_info(Path(model))["config"]["seed"]
        model = folder
    opened = open_model(model, config, bf16=resolve(precision, config.device) == "bf16", progress=progress)
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
            **opened.prompts,
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
            texts=len(distinct_texts(similarity, transfer)),
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
