"""The tasks of an evaluation: which are requested, their rows, and the held-out rows of a run as a task."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.baselines import is_baseline
from nearfar.baselines.whitening import CachedEncode
from nearfar.commands.evaluate.model import Model, OpenedModel, model_name
from nearfar.config.values import flag
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.hold_out import TEST, HeldOut, VoteTask
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.rows import PREFIX, load_mteb_pairs, load_task
from nearfar.disk.model_folder import model_of_run, read_seen
from nearfar.evaluation.results import EvaluationResult, fingerprint
from nearfar.evaluation.seen import scored_rows
from nearfar.evaluation.sts import Subsets
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import CONFIG, HELD_OUT, RUN_INFO, read_run_info
from nearfar.runs.held_out import TASK, has_held_out, load_held_out
from nearfar.types import Encode, NearfarError

if TYPE_CHECKING:
    from nearfar.data.labelled import TransferTask
    from nearfar.data.retrieval import RetrievalTask
    from nearfar.evaluation.results import ClassificationScores

_SPLITS = {"train", "dev", "test"}
RETRIEVAL_SETTINGS = ("corpus", "anchor_column", "positive_column", "exclude_same_id")
"""The settings that decide what a retrieval task is."""
PAIRS, MTEB, LABELLED, RETRIEVAL = "scored pairs", "a task of mteb", "labelled texts", "retrieval"
"""Kinds of tasks."""


@dataclass(frozen=True)
class LoadedTasks:
    """The rows of all tasks, by the kind and the name of a task."""

    similarity: dict[str, Subsets] = field(default_factory=dict)
    transfer: "dict[str, TransferTask]" = field(default_factory=dict)
    retrieval: "dict[str, RetrievalTask]" = field(default_factory=dict)
    votes: dict[str, VoteTask] = field(default_factory=dict)
    """Held-out labelled texts."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Task of a suite -> why it cannot be loaded."""

    def tested_rows(self) -> dict[str, Sequence[Sequence[str]]]:
        """The texts of the tested rows of transfer tasks and votes."""
        votes = {name: [(text,) for text in task.texts] for name, task in self.votes.items()}
        return {**{name: scored_rows(task) for name, task in self.transfer.items()}, **votes}

    def distinct_texts(self) -> set[str]:
        """The distinct texts of all tasks."""
        subsets = chain.from_iterable(task.values() for task in self.similarity.values())
        splits = chain.from_iterable(task.splits.values() for task in self.transfer.values())
        return {
            *(text for rows in subsets for row in rows for text in row[:2]),
            *(text for rows in splits for row in rows.texts for text in row),
            *(text for task in self.retrieval.values() for text in (*task.queries, *task.documents)),
            *(text for task in self.votes.values() for text in (*task.texts, *task.training_texts)),
        }


def named_tasks(config: EvaluateConfig) -> dict[str, str]:
    """The tasks that are named, without those of a suite, and of which kind each is.

    Raises:
        NearfarError: a task is named as two kinds of tasks; a setting of retrieval without a retrieval task.
    """
    for setting in ("corpus", "exclude_same_id"):
        if getattr(config, setting) and not config.retrieval:
            raise NearfarError(f"{flag(setting)} is for retrieval tasks; name one with --retrieval.")
    kinds = {
        PAIRS: (*(config.tasks or ()), *config.pairs),
        MTEB: tuple(f"{PREFIX}{name}" for name in config.mteb),
        LABELLED: config.labelled,
        RETRIEVAL: config.retrieval,
    }
    named: dict[str, str] = {}
    for kind, specs in kinds.items():
        for spec in specs:
            other = named.setdefault(spec, kind)
            if other != kind:
                raise NearfarError(f"{spec}: is named both as {other} and as {kind}.")
    return named


def load_tasks(suite: Sequence[str], config: EvaluateConfig, held_out: HeldOut | None = None) -> LoadedTasks:
    """Load the tasks of a suite and those that are named, and held-out rows.

    Raises:
        NearfarError: a task that is named cannot be loaded, or none of the suite.
    """
    from nearfar.data.labelled import load_labelled_task, load_transfer
    from nearfar.data.retrieval import load_retrieval

    named, loaded = named_tasks(config), LoadedTasks()
    for task in dict.fromkeys((*suite, *named)):
        kind = named.get(task)
        try:
            if kind == RETRIEVAL:
                how = {setting: getattr(config, setting) for setting in RETRIEVAL_SETTINGS}
                loaded.retrieval[task] = load_retrieval(task, **how)
            elif kind == MTEB:
                loaded.similarity[task] = merge_splits(load_mteb_pairs(task.removeprefix(PREFIX)))
            elif kind == LABELLED:
                loaded.transfer[task] = load_labelled_task(task)
            elif task in PROBE_TASKS and task not in config.pairs:
                loaded.transfer[task] = load_transfer(task)
            else:
                loaded.similarity[task] = merge_splits(load_task(task))
        except NearfarError as error:
            if kind:
                raise
            loaded.unavailable[task] = str(error)
    if held_out is not None:
        _add_held_out(loaded, held_out)
    if not (loaded.similarity or loaded.transfer or loaded.retrieval or loaded.votes):
        raise NearfarError(
            f"none of the tasks can be loaded. {next(iter(loaded.unavailable.values()))}\n  Without a data folder or "
            "the hub, evaluate on the rows that a run held out (--held-out), on your own files (--pairs, --labelled, "
            "--retrieval), or on generated pairs (--tasks microworld)."
        )
    return loaded


def _add_held_out(tasks: LoadedTasks, held_out: HeldOut) -> None:
    """Add the test part of held-out rows to the tasks."""
    if held_out.kind == "scored":
        tasks.similarity[TASK] = {TASK: held_out.pairs(TEST)}
    elif held_out.kind == "labelled" and held_out.folds:
        raise NearfarError(
            f"{held_out.source}: these labelled texts are tested in folds, by classifiers; nearfar compare shows the "
            "result of the run and its start. Other models need rows that no run is trained on (--hold-out NUMBER)."
        )
    elif held_out.kind == "labelled":
        tasks.votes[TASK] = held_out.vote(TEST)
    else:
        tasks.retrieval[TASK] = held_out.retrieval(TEST)


def merge_splits(subsets: Subsets) -> Subsets:
    """The splits of one data set as one subset; published scores do not average over splits."""
    if len(subsets) > 1 and set(subsets) <= _SPLITS:
        return {"+".join(subsets): list(chain(*subsets.values()))}
    return subsets


def run_of(model: "Model") -> Path | None:
    """The run folder that a model is in or was read from, itself or its folder ``model``; None if it is in none."""
    source = model if isinstance(model, str | Path) else getattr(model, "source", None)
    for folder in (Path(source), Path(source).parent) if isinstance(source, str | Path) else ():
        if (folder / CONFIG).is_file() and (folder / RUN_INFO).is_file():
            return folder
    return None


def find_held_out(model: "Model", config: EvaluateConfig) -> HeldOut | None:
    """The held-out rows to evaluate a model on, or None if they are not asked for.

    Warns if the model is of another run that kept no hashes of its training texts, so that it may have been trained on
    these rows; otherwise the result says which share it has seen.

    Raises:
        NearfarError: there are none.
    """
    own = run_of(model)
    if config.held_out_of is not None:
        source = run_of(config.held_out_of) or Path(config.held_out_of)
        if not has_held_out(source):
            model_of_run(source)  # raises for an unfinished run, and for a folder that has runs inside
    elif config.held_out:
        if own is None:
            if isinstance(model, str | Path):
                model_of_run(Path(model))  # raises, as below
            raise NearfarError(
                f"--held-out: {model_name(model)} is not a run of nearfar train, so it holds out no rows. Name a run "
                "whose rows to use by --held-out-of RUN."
            )
        source = own
    else:
        return None
    held_out = load_held_out(source)
    if own is not None and own.resolve() == source.resolve() and held_out.folds:
        raise NearfarError(
            f"{source}: its model is trained on all rows, which are tested in folds; the scores are in "
            f"{source / HELD_OUT / STORED[0]}, and nearfar compare {source} MODEL --held-out shows them."
        )
    if own is not None and source.resolve() in own.resolve().parents:  # the run of a fold
        return held_out
    if own is None or own.resolve() == source.resolve() or read_seen(model_of_run(own)) is not None:
        return held_out
    if not has_held_out(own) or load_held_out(own).digest != held_out.digest:
        warnings.warn(
            f"{own} does not hold out the rows that {source} holds out, and has no record of its training "
            "(--no-fingerprints), so it may have been trained on them. Train both with the same --data and --hold-out, "
            "or compare them on other tasks.",
            stacklevel=2,
        )
    return held_out


STORED = ("after.json", "before.json")
"""The evaluations that training writes beside its held-out rows: of the trained model, and of its start."""


def stored_evaluation(run: Path, model: "Model") -> EvaluationResult | None:
    """The evaluation of a model on the held-out rows of a run that training stored, if model and rows are still those.

    None for a model that was not evaluated then, or has changed.
    """
    folders = dict.fromkeys([run, run_of(model) or run])  # a run that is tested in the same folds has its own scores
    files = [file for folder in folders for name in STORED if (file := folder / HELD_OUT / name).is_file()]
    if not files or not isinstance(model, str | Path) or is_baseline(str(model)):
        return None
    fingerprint_now = fingerprint_model(model_of_run(Path(model)))
    rows = {"source": (held_out := load_held_out(run)).source, "digest": held_out.digest}
    for file in files:
        try:
            result = EvaluationResult.load(file)
        except NearfarError:  # damaged, or of another version: it is computed again
            continue
        on = result.config.get("held_out") or {}
        if result.fingerprint == fingerprint_now and {**on, "folds": None} == {**rows, "folds": None}:
            return replace(result, model=str(model))
    return None


def score_votes(
    encode: Encode, votes: Mapping[str, VoteTask], model: OpenedModel, *, resamples: int, seed: int
) -> "dict[str, ClassificationScores]":
    """The accuracy of labels that are voted for by the nearest training texts.

    Raises:
        NearfarError: a vector is not finite.
    """
    import numpy as np

    from nearfar.evaluation.transfer import neighbour_vote, vote_scores

    scored = {}
    for name, task in votes.items():
        cached = CachedEncode(encode)
        cached([*task.texts, *task.training_texts])  # in one call, as vectors of several may not be comparable
        vectors, labelled = (np.asarray(cached(texts), np.float32) for texts in (task.texts, task.training_texts))
        predicted = neighbour_vote(
            vectors, labelled, task.training_labels, similarity=model.similarity, device=model.device
        )
        seeds, digest = [seed, *name.encode()], fingerprint([task])
        scored[name] = vote_scores(task.texts, task.labels, predicted, resamples=resamples, seed=seeds, digest=digest)
    return scored


def warn_if_chosen_by(model: "Model", tasks: Sequence[str]) -> None:
    """Warn about a task that is the dev set which chose the step of the model's run.

    For models without hashes of what they have seen; others have a note below the scores
    (:func:`nearfar.evaluation.tables.evaluation.seen_notes`).
    """
    run = run_of(model)
    if run is None:
        return
    settings = read_run_info(run)["config"]
    dev = settings.get("evaluate_on")
    if dev is None or settings.get("keep") != "best":
        return
    for task in tasks:
        if task == dev or (os.path.isfile(task) and os.path.isfile(dev) and os.path.samefile(task, dev)):
            warnings.warn(
                f"{task}: this dev set chose the best step of {run} (--evaluate-on), so its score is too high; "
                "evaluate on rows that chose nothing.",
                stacklevel=2,
            )
