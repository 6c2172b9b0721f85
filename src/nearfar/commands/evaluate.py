"""One evaluation put together: tasks, encoder, scores, result file. What ``nearfar evaluate`` and notebooks call."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nearfar.baselines.caching import CachedEncode
from nearfar.baselines.named import is_baseline, is_transductive, open_baseline, parse_spec
from nearfar.data.named_sets import PROBE_TASKS, suite_tasks
from nearfar.data.sts import load_task
from nearfar.disk import model_of_run, path_errors
from nearfar.evaluation import results
from nearfar.evaluation.results import Result, check_output
from nearfar.evaluation.sts import Subsets, evaluate_sts
from nearfar.evaluation.tables import evaluation_markdown
from nearfar.runs.group import FILE, runs_of
from nearfar.runs.records import read_run_info
from nearfar.types import Encode, NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.data.transfer import TransferTask

_SPLITS = {"train", "dev", "test"}
SUITES = ("sts", "transfer", "all")


@path_errors()
def evaluate(
    model: "str | Path | Encode",
    *,
    suite: Literal["sts", "transfer", "all"] | None = None,
    tasks: Sequence[str] | None = None,
    pairs: Sequence[str] = (),
    labelled: Sequence[str] = (),
    pooling: str | None = None,
    max_length: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    protocol: Literal["senteval", "exact"] = "senteval",
    nhid: int = 0,
    folds: int = 10,
    resamples: int = 1000,
    seed: int = 0,
    name: str | None = None,
    training_seed: int | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> results.Result:
    """Score a model on semantic textual similarity and transfer tasks, and say how sure the scores are.

    Each distinct text is encoded once, whatever the tasks that have it.

    Args:
        model: a model folder, a hub name, a training run's folder, a baseline (:mod:`nearfar.baselines.named`), or any
            function from texts to vectors.
        suite: ``sts``, ``transfer`` or ``all``: a set that cannot be had is noted under ``unavailable``. By default
            ``sts``, unless ``tasks``, ``pairs`` or ``labelled`` name something.
        tasks: named sets of either kind (:func:`nearfar.data.sts.load_task`, :mod:`nearfar.data.transfer`), or files of
            scored pairs. They must be there.
        pairs: files or data sets of scored pairs of one's own, with the columns score, sentence1, sentence2.
        labelled: labelled files or data sets of one's own, with the columns text, label or sentence1, sentence2, label.
        pooling: instead of the model's own.
        max_length: tokens kept of a text, instead of the model's own limit.
        precision: ``bf16`` encodes in bfloat16; ``auto`` is ``fp32`` here, as published scores are.
        device: where to encode.
        protocol: of the probes of transfer tasks: ``senteval``, or ``exact`` (:mod:`nearfar.evaluation.probes`).
        nhid: hidden units of SentEval's probe.
        folds: of the probes' cross-validation.
        resamples: bootstrap resamples behind each 95% interval; 0 for none.
        seed: of the bootstrap, and of a baseline that is fitted.
        name: what to call the model in tables, by default what ``model`` is called.
        training_seed: of the run that made the model, by which :func:`nearfar.compare` pairs runs of two methods; a run
            folder knows its own.
        output: result file to write, ending in .json; a Markdown table is written beside it.
        overwrite: replace ``output`` even if it is no result of nearfar's.
        progress: show progress bars.

    Returns:
        The content of the result file (see :mod:`nearfar.evaluation.results`).

    Raises:
        NearfarError: a task or model cannot be had, settings of an encoder given with a function, vectors that are
            not finite for any task, an output that cannot be written.
    """
    from nearfar.encoder.device import check_device
    from nearfar.encoder.precision import check_precision, resolve

    check_device(device)
    check_precision(precision)
    precision = "fp32" if precision == "auto" else precision
    tasks, pairs, labelled = _as_tuple(tasks), _as_tuple(pairs), _as_tuple(labelled)
    named = (*tasks, *pairs, *labelled)
    file = None
    if output is not None:
        of_spec = re.split("[:@]", model) if isinstance(model, str) else ()  # of a baseline, as in glove:FILE
        file = results.check_output(output, inputs=(model, *of_spec, *named), overwrite=overwrite)
    if suite is not None and suite not in SUITES:
        raise NearfarError(f"suite {suite!r}: take one of {', '.join(SUITES)}.")
    if isinstance(model, str) and is_baseline(model):
        parse_spec(model)  # a slip of the pen is told before anything is read
    of_suite = suite_tasks(suite or "sts") if suite or not named else ()
    similarity, transfer, unavailable = _load(of_suite, tasks, pairs, labelled)
    name = name or (getattr(model, "__qualname__", type(model).__name__) if callable(model) else str(model))
    if not callable(model) and (folder := model_of_run(Path(model))) != Path(model):
        training_seed = read_run_info(Path(model))["config"]["seed"]
        model = folder
    settings = {"pooling": pooling, "max_length": max_length, "device": device}
    opened = _open(model, bf16=resolve(precision, device) == "bf16", seed=seed, progress=progress, **settings)
    encode = opened.encode if opened.transductive else CachedEncode(opened.encode)
    config = {
        "tasks": list(dict.fromkeys((*of_suite, *named))),
        "pooling": opened.pooling,
        "transductive": opened.transductive,
        "max_length": max_length,
        "precision": precision,
        "resamples": resamples,
        "seed": seed,
        "training_seed": training_seed,
    }
    result: results.Result = {
        "schema": results.SCHEMA,
        "kind": "evaluation",
        "model": name,
        "config": config,
        "provenance": results.provenance(),
        "unavailable": unavailable,
        "averages": {},
        "tasks": {},
    }
    if similarity:
        scored = evaluate_sts(
            encode, similarity, per_task=opened.transductive, resamples=resamples, seed=seed, progress=progress
        )
        result |= scored | {"unavailable": unavailable | scored["unavailable"]}
    if not transfer and not result["tasks"]:
        task, why = next(iter(result["unavailable"].items()))
        raise NearfarError(f"{task}: {why}.")
    if transfer:
        from nearfar.evaluation.transfer import evaluate_transfer

        probed = evaluate_transfer(
            encode,
            transfer,
            protocol=protocol,
            nhid=nhid,
            folds=folds,
            per_task=opened.transductive,
            resamples=resamples,
            progress=progress,
        )
        result |= {"texts": len(_texts(similarity, transfer)), "dim": probed["dim"] or result.get("dim")}
        result["transfer"] = {
            "protocol": protocol,
            "nhid": nhid,
            "folds": folds,
            "averages": probed["averages"],
            "tasks": probed["transfer"],
        }
    if file:
        results.write_result(result, file, markdown=evaluation_markdown(result))
    return result


def evaluate_group(
    folder: str | Path, *, output: str | Path | None = None, name: str | None = None, **settings: Any
) -> list[Result]:
    """Evaluate each run of a group by :func:`nearfar.evaluate`, which takes the ``settings``.

    ``output`` is a folder for the result files, one a run; ``nearfar compare`` takes it as a side.

    Raises:
        NearfarError: the folder is no finished group, ``output`` is a file, and what ``evaluate`` refuses.
    """
    runs = runs_of(folder)
    if runs is None:
        raise NearfarError(f"{folder}: is no finished group of runs (no {FILE}).")
    if output is not None and str(output).endswith(".json"):
        raise NearfarError(f"--output {output}: a group has a result for each run; name a folder for them.")
    files = [None if output is None else Path(output) / f"{run.name}.json" for run in runs]
    for file in files:  # all of them, before the first run is evaluated
        if file is not None:
            check_output(file, overwrite=settings.get("overwrite", False))
    return [
        evaluate(run, name=name or str(folder), output=file, **settings) for run, file in zip(runs, files, strict=True)
    ]


def _as_tuple(specs: Sequence[str] | None) -> tuple[str, ...]:
    """Each once; one string is one of them."""
    return (specs,) if isinstance(specs, str) else tuple(dict.fromkeys(specs or ()))


def _load(
    suite: Sequence[str], tasks: Sequence[str], pairs: Sequence[str], labelled: Sequence[str]
) -> tuple[dict[str, Subsets], "dict[str, TransferTask]", dict[str, str]]:
    """Similarity tasks, transfer tasks, and those of the suite that cannot be had, each with the reason."""
    from nearfar.data.transfer import load_labelled_task, load_transfer

    for spec in labelled:
        if spec in (*tasks, *pairs):
            raise NearfarError(f"{spec}: is named both as scored pairs and as labelled texts.")
    similarity: dict[str, Subsets] = {}
    transfer: dict[str, TransferTask] = {}
    unavailable: dict[str, str] = {}
    for task in dict.fromkeys((*suite, *tasks, *pairs, *labelled)):
        try:
            if task in labelled:
                transfer[task] = load_labelled_task(task)
            elif task in PROBE_TASKS and task not in pairs:
                transfer[task] = load_transfer(task)
            else:
                similarity[task] = _merge_splits(load_task(task))
        except NearfarError as error:
            if task in (*tasks, *pairs, *labelled):
                raise
            unavailable[task] = str(error)
    if not similarity and not transfer:
        raise NearfarError(f"none of the tasks can be had. {next(iter(unavailable.values()))}")
    return similarity, transfer, unavailable


def _merge_splits(subsets: Subsets) -> Subsets:
    """Splits of one set together: nobody averages over them."""
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
    """Where it is known."""
    transductive: bool = False
    """``encode`` is fitted, in each call, on the texts of that call."""


def _open(
    model: "str | Path | Encode",
    *,
    bf16: bool,
    seed: int,
    progress: bool,
    **settings: Any,
) -> _OpenedModel:
    """The model as a function."""
    if callable(model):
        if bf16:
            raise NearfarError("precision is a setting of a model folder or hub name; a function has its own.")
        given = [key for key, value in settings.items() if value is not None]
        if given:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")
        return _OpenedModel(model)
    if isinstance(model, str) and is_baseline(model):
        encode = open_baseline(model, per_call=True, bf16=bf16, seed=seed, progress=progress, **settings)
        return _OpenedModel(encode, settings["pooling"], is_transductive(model))
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, **settings)
    precision: Precision = "bf16" if bf16 else "fp32"
    # A vector that is not finite costs only the tasks concerned.
    encode = partial(encoder.encode, precision=precision, progress=progress, check_finite=False)
    return _OpenedModel(encode, encoder.pooling)
