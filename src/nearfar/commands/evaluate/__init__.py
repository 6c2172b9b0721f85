"""``nearfar evaluate``: a model and tasks -> scores with confidence intervals, and a result file."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.baselines.whitening import CachedEncode
from nearfar.commands.evaluate.model import (
    Model,
    OpenedModel,
    RecentVectors,
    model_name,
    open_model,
    with_stored_vectors,
)
from nearfar.commands.evaluate.tasks import (
    RETRIEVAL_SETTINGS,
    LoadedTasks,
    find_held_out,
    load_tasks,
    named_tasks,
    score_votes,
)
from nearfar.config.calls import accepts_settings
from nearfar.config.values import flag
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.memory import takes_rows
from nearfar.data.named_sets import suite_tasks
from nearfar.data.sources import skipping_empty
from nearfar.disk.checks import path_errors
from nearfar.disk.model_folder import model_of_run
from nearfar.encoder.precision import check_computing
from nearfar.evaluation.probe_settings import CLASSIFIER_SETTINGS, Probe, preset_probe
from nearfar.evaluation.results import EvaluationResult, ProbeSettings, TransferResults, check_output, provenance
from nearfar.evaluation.seen import add_seen
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tables import save_with_tables
from nearfar.neighbours.words import load_bm25s
from nearfar.runs.folder import read_run_info
from nearfar.runs.held_out import TASK
from nearfar.types import NearfarError

IF_GIVEN = ("dimensions", "quantize", "hybrid", "chunk", "overlap")
"""Settings that a result names only where they are given."""
MAX_CACHED_TEXTS = 200_000
"""Maximum number of queries and documents of all retrieval tasks whose vectors are cached."""


@takes_rows
@accepts_settings(EvaluateConfig)
@path_errors()
def evaluate(
    model: "Model",
    config: EvaluateConfig,
    *,
    training_seed: int | None = None,
    progress: bool = True,
    recent: RecentVectors | None = None,
) -> EvaluationResult:
    """Score a model on semantic textual similarity, transfer tasks and retrieval, with confidence intervals.

    Settings can be given by name: ``evaluate("model", tasks=["stsb"], output="stsb.json")``; see
    :class:`nearfar.EvaluateConfig`. Each distinct text is encoded once for all tasks. ``precision`` ``auto`` is
    ``fp32`` here, as for published scores.

    A task of a suite that cannot be loaded is listed in ``unavailable``. Tasks that are named must be available.

    Args:
        model: a model folder, a hub name, a run folder, a baseline (:mod:`nearfar.baselines`), an
            :class:`nearfar.Encoder`, a SentenceTransformer, or any function from texts to vectors.
        config: the settings.
        training_seed: seed of the training run that made the model, by which :func:`nearfar.compare` pairs runs; for a
            run folder it is read from the run.
        progress: show progress bars.
        recent: vectors of earlier evaluations in this process, which are used again, for several evaluations of one
            model that differ in ``dimensions``, ``quantize``, probes or statistics.

    Raises:
        NearfarError: a task or model that cannot be loaded, settings of an encoder given with a function, vectors that
            are not finite for any task, an output that cannot be written.
    """
    check_computing(config.device, config.precision)
    if config.hybrid:
        load_bm25s()
    probe, held_out = configured_probe(config), find_held_out(model, config)
    named = (*named_tasks(config), *([TASK] if held_out else []))
    name, file = config.name or model_name(model), None
    if config.output is not None:
        spec_parts = re.split("[:@]", model) if isinstance(model, str) else ()  # of a baseline, as in glove:FILE
        inputs = (model_name(model), *spec_parts, *named, *([config.corpus] if config.corpus else []))
        file = check_output(config.output, inputs=inputs, overwrite=config.overwrite)
    suite = suite_tasks(config.suite or "sts") if config.suite or not named else ()
    with skipping_empty(config.skip_empty):
        tasks = load_tasks(suite, config, held_out)
    if not tasks.retrieval and (setting := "hybrid" if config.hybrid else "chunk" if config.chunk else None):
        raise NearfarError(f"{flag(setting)}: is for retrieval, and no task is; name one with --retrieval.")
    if isinstance(model, str | Path) and (folder := model_of_run(Path(model))) != Path(model):
        training_seed = read_run_info(Path(model))["config"]["seed"]
        model = folder
    opened = open_model(model, config, progress=progress, recent=recent)
    if config.quantize is not None:
        opened = with_stored_vectors(opened, config.quantize, tasks.distinct_texts())
    settings: dict[str, Any] = {
        "tasks": list(dict.fromkeys((*suite, *named))),
        "pooling": opened.pooling,
        "transductive": opened.transductive,
        "max_length": config.max_length,
        "precision": config.precision.replace("auto", "fp32"),
        "resamples": config.resamples,
        "seed": config.seed,
        "training_seed": training_seed,
        **({setting: getattr(config, setting) for setting in RETRIEVAL_SETTINGS} if config.retrieval else {}),
        **({"held_out": {"source": held_out.source, "digest": held_out.digest}} if held_out else {}),
        **opened.inputs,
        **({} if opened.similarity == "cosine" else {"similarity": opened.similarity}),
        **{setting: value for setting in IF_GIVEN if (value := getattr(config, setting))},
    }
    scores = _score(opened, tasks, config, probe, progress=progress)
    of_model: dict[str, Any] = {"model": name, "fingerprint": opened.fingerprint, "config": settings}
    result = EvaluationResult(**of_model, provenance=provenance(), **scores)
    if opened.seen is not None:
        rows: dict[str, Any] = {"similarity": tasks.similarity, "tested": tasks.tested_rows()}
        result = add_seen(result, opened.seen, **rows, retrieval=tasks.retrieval, seed=config.seed)
    if file:
        save_with_tables(result, file)
    return result


def _score(
    opened: OpenedModel, tasks: LoadedTasks, config: EvaluateConfig, probe: Probe, *, progress: bool
) -> dict[str, Any]:
    """The scores on all tasks, as fields of a result.

    Raises:
        NearfarError: no task can be scored.
    """
    encode = opened.encode if opened.per_task else CachedEncode(opened.encode)
    resampling: dict[str, Any] = {"resamples": config.resamples}
    compared: dict[str, Any] = {**resampling, "similarity": opened.similarity, "seed": config.seed}
    fields: dict[str, Any] = {"tasks": {}, "unavailable": dict(tasks.unavailable), "texts": len(tasks.distinct_texts())}
    widths: list[int | None] = []
    if tasks.similarity:
        similarity = evaluate_sts(encode, tasks.similarity, **compared)
        fields |= {"tasks": similarity.tasks, "averages": similarity.averages}
        fields["unavailable"] |= similarity.unavailable
        widths.append(similarity.dim)
    if tasks.retrieval:
        from nearfar.evaluation.retrieval import evaluate_retrieval

        queries, documents = opened.encode_query, opened.encode_document
        texts = sum(len(task.queries) + len(task.documents) for task in tasks.retrieval.values())
        if texts <= MAX_CACHED_TEXTS and not opened.per_task:  # tasks share texts; an equal function has one cache
            queries, documents = (encode if one == opened.encode else CachedEncode(one) for one in (queries, documents))
        compared |= {"per_task": opened.per_task, "device": opened.device, "progress": progress}
        compared |= {"hybrid": config.hybrid, "cut": opened.cut}
        ranked = evaluate_retrieval(queries, documents, tasks.retrieval, **compared)
        fields["retrieval"] = ranked.tasks
        fields["unavailable"] |= ranked.unavailable
        widths.append(ranked.dim)
    if tasks.transfer or tasks.votes:
        from nearfar.evaluation.transfer import VOTE, evaluate_transfer

        transfer = TransferResults(protocol=VOTE, averages={}, tasks={})
        voted = score_votes(encode, tasks.votes, opened, resamples=config.resamples, seed=config.seed)
        if tasks.transfer:
            probed = evaluate_transfer(encode, tasks.transfer, probe=probe, progress=progress, **resampling)
            used: dict[str, Any] = {}
            if probe.protocol == "senteval":
                used = {name: getattr(probe, name) for name in CLASSIFIER_SETTINGS}
                used |= {"learning_rate": probe.rate, "l2": list(probe.l2)}
            settings = ProbeSettings(preset=config.probe_preset, seed=probe.seed, fold_seed=probe.fold_seed, **used)
            how: dict[str, Any] = {name: getattr(probe, name) for name in ("protocol", "nhid", "folds")}
            transfer = TransferResults(**how, probe=settings, averages=probed.averages, tasks=probed.tasks)
            widths.insert(0, probed.dim)
        fields["transfer"] = replace(transfer, tasks={**transfer.tasks, **voted})
    elif not fields["tasks"] and not fields.get("retrieval"):
        task, why = next(iter(fields["unavailable"].items()))
        raise NearfarError(f"{task}: {why}.")
    return {**fields, "dim": next((dim for dim in widths if dim), None)}


def configured_probe(config: EvaluateConfig) -> Probe:
    """The probe that an evaluation uses for transfer tasks: its preset, and the single settings that override it.

    Raises:
        NearfarError: settings that exclude each other, such as an optimiser of the protocol ``exact``.
    """
    own = {name: getattr(config, name) for name in ("nhid", "folds", "fold_seed")} | {"seed": config.probe_seed}
    given = {name: getattr(config, f"probe_{name}") for name in CLASSIFIER_SETTINGS}
    return preset_probe(config.probe_preset, config.protocol, **own, **given)


def probe_flags(transfer: TransferResults) -> Mapping[str, Any]:
    """The settings of :class:`nearfar.EvaluateConfig` that probe as a result file was probed."""
    flags: dict[str, Any] = {"protocol": transfer.protocol, "nhid": transfer.nhid, "folds": transfer.folds}
    if (used := transfer.probe) is not None:
        flags |= {"probe_seed": used.seed, "fold_seed": used.fold_seed}
        flags |= {f"probe_{name}": getattr(used, name) for name in CLASSIFIER_SETTINGS}
    return flags
