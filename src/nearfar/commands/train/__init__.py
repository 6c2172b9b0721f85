"""``nearfar train``: trains an encoder in a run folder, and compares it with its start on held-out rows.

A notebook can call it too; ``model/`` in the run folder is a sentence-transformers folder.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from rich.console import Console

from nearfar.commands.model_card import write_card
from nearfar.commands.train.choose import resolve_config
from nearfar.config.calls import with_settings
from nearfar.config.training import TrainConfig
from nearfar.data.memory import takes_rows
from nearfar.disk.checks import path_errors
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.runs.folder import read_run_info
from nearfar.runs.held_out import Tried, load_guard
from nearfar.runtime import memory


@dataclass(frozen=True)
class TrainResult:
    """The result of a run."""

    model: Path
    """The folder of the trained model."""
    steps: int
    start_score: float | None
    """Score on the dev set before training, in [-1, 1]; None without a dev set."""
    best_score: float | None
    """The best score on the dev set, in [-1, 1]; None without a dev set."""
    best_step: int | None
    """The step with the best score; 0 if nothing was better than before training."""
    metric: str | None = None
    """The name of the score: spearman, mrr@10 or accuracy; None without a dev set."""
    dev: str | None = None
    """The name of the dev set."""
    comparison: ComparisonResult | None = None
    """The trained model against the model it started from, on the held-out test rows, or of a small file in folds on
    all rows (:mod:`nearfar.commands.train.after`); None if nothing is tested."""
    labels: EvaluationResult | None = None
    """After training on labelled texts: the classifier on the tested rows (:mod:`nearfar.commands.train.after`)."""
    guard: ComparisonResult | None = None
    """The model against its start on the guard sets; if the start was kept, the last average that was refused. None
    without guard sets, or if no step was better than the start."""
    tried: tuple[Tried, ...] = ()
    """The averages with the start that were tried on the guard sets; the last one is kept, or none."""
    kept_neighbours: float | None = None
    """How far training moved the user's own texts: the share of the ten nearest neighbours of each of 500 of them that
    are those of the start (:func:`nearfar.evaluation.geometry_measures.kept_neighbours`)."""
    model_is_start: bool = False
    """Whether the model has the weights before training: no step was better, or the guard sets refused them all."""


@takes_rows
@path_errors()
def train(
    method: "TrainConfig | str | os.PathLike[str] | None" = None,
    *,
    resume: bool = False,
    console: Console | None = None,
    **settings: Any,
) -> TrainResult:
    """Train an encoder, and save the model in ``OUTPUT/model``.

    ::

        train(data="pairs.tsv", output="runs/mine")
        train("scl", data="my.tsv", evaluate_on="scored.tsv", output="runs/mine")
        train("configs/liao-scl.toml", output="runs/liao", seed=2)
        train(SclConfig(data=("my.tsv",), output="runs/mine"))

    Args:
        method: a method's name, a TOML file, or a config such as :class:`nearfar.SclConfig`. Without one, the columns
            of ``data`` choose the method (:mod:`nearfar.commands.train.choose`).
        resume: continue a run that was stopped or killed. It ends with bit-identical weights on the same machine with
            the same number of threads and processes; a finished run is left as it is. Data and initial model must be
            unchanged.
        console: shows progress; by default it is shown in notebooks only.
        settings: settings of the method by name, as in its config class (``nearfar train METHOD --help`` lists them);
            they override those of ``method``. A single text or path may stand for a tuple of one, as in ``data``.
            In place of a file, ``data`` takes rows in memory: a DataFrame, a data set of ``datasets`` or a list of
            dictionaries (:mod:`nearfar.data.memory`). The defaults above are most methods'; recipes have others.

    Without ``evaluate_on``, rows are held out (:mod:`nearfar.data.hold_out`) and written to ``OUTPUT/held_out``: the
    dev part chooses the best step, and after training the test part compares the model with the one it started from. A
    small file is trained on as a whole, and tested by further trainings without one of five folds each.

    Started by torchrun, several processes train together, like one process with the batches of all.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is not free; data that changed since the run was
            started; a loss that is not finite; a file that cannot be written.
        nearfar.training.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.commands.train.after import prove
    from nearfar.commands.train.run import train_run
    from nearfar.runs.run import join_processes
    from nearfar.training.processes import lost_process_errors

    config = resolve_config(method, settings)
    with lost_process_errors():
        train_run(config, resume=resume, console=console, in_folds=True)
        memory.release()  # of the rows and the weights
        context, run = join_processes(config, console), Path(config.output)
        first = context.processes.broadcast_from_first
        info = first(partial(read_run_info, run))
        comparison, labels = prove(config, context)
        guard, tried = first(partial(load_guard, run))
        first(partial(write_card, run))
    names = ("start_score", "best_score", "best_step", "metric", "dev", "kept_neighbours")
    recorded: dict[str, Any] = {name: info.get(name) for name in names}
    recorded["model_is_start"] = not tried[-1].kept if tried else config.keep == "best" and info.get("best_step") == 0
    tests: dict[str, Any] = {"comparison": comparison, "labels": labels, "guard": guard, "tried": tried}
    return TrainResult(run / "model", info.get("step") or 0, **recorded, **tests)


train.__signature__ = with_settings(signature(train), TrainConfig)  # type: ignore[attr-defined]


def adapt(
    documents: "str | os.PathLike[str] | Sequence[str]",
    *,
    resume: bool = False,
    console: Console | None = None,
    **settings: Any,
) -> TrainResult:
    """Train an encoder to search in documents, which have neither labels nor queries; as :func:`train` in all else.

    ::

        adapt("articles/", output="runs/articles")
        adapt("corpus.jsonl", output="runs/corpus", guard=["judged/", "stsb:dev"])

    Pairs are made of each document (:func:`nearfar.data.documents.pairs_of`), and the method ``documents`` is trained
    with the settings of pairs for the start.

    Args:
        documents: folders of text files, tables with the column ``text`` and perhaps ``title``, or text files with one
            document a line.
        resume: as of :func:`train`.
        console: as of :func:`train`.
        settings: settings of the method ``documents``, as in :class:`nearfar.DocumentsConfig`.

    Raises:
        NearfarError: as :func:`train`; documents of which no pair can be made.
        nearfar.training.Interrupted: as :func:`train`.
    """
    config = resolve_config(None, {"data": documents, **settings}, documents=True)
    return train(config, resume=resume, console=console)
