"""The tasks of an evaluation: which are requested, their rows, and the held-out rows of a run as a task."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from nearfar.baselines import is_baseline
from nearfar.baselines.whitening import CachedEncode
from nearfar.commands.evaluate.model import Model, OpenedModel, model_name
from nearfar.config.values import flag
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.hold_out import TEST, HeldOut, VoteTask
from nearfar.data.labelled import TransferTask, load_labelled_task, load_transfer
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.retrieval import RetrievalTask, load_retrieval
from nearfar.data.rows import PREFIX, load_mteb_pairs, load_task
from nearfar.disk.model_folder import model_of_run
from nearfar.evaluation.results import ClassificationScores, EvaluationResult, fingerprint
from nearfar.evaluation.seen import scored_rows
from nearfar.evaluation.sts import Subsets
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import CONFIG, HELD_OUT, RUN_INFO
from nearfar.runs.held_out import TASK, has_held_out, load_held_out
from nearfar.types import Encode, NearfarError

_SPLITS = {"train", "dev", "test"}
RETRIEVAL_SETTINGS = ("corpus", "anchor_column", "positive_column", "exclude_same_id")
"""The settings that decide what a retrieval task is."""


@dataclass(frozen=True)
class LoadedTasks:
    """The rows of all tasks, by the kind and the name of a task."""

    similarity: dict[str, Subsets] = field(default_factory=dict)
    transfer: dict[str, TransferTask] = field(default_factory=dict)
    retrieval: dict[str, RetrievalTask] = field(default_factory=dict)
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
    """The tasks that are named, without those of a suite, and the setting that names each.

    Raises:
        NearfarError: a task is named as two kinds of tasks; a setting of retrieval without a retrieval task.
    """
    for setting in ("corpus", "exclude_same_id"):
        if getattr(config, setting) and not config.retrieval:
            raise NearfarError(f"{flag(setting)} is for retrieval tasks; name one with --retrieval.")
    mteb = tuple(f"{PREFIX}{name}" for name in config.mteb)
    specs = {"tasks": config.tasks or (), "mteb": mteb, "labelled": config.labelled, "retrieval": config.retrieval}
    named = dict.fromkeys(config.pairs, "pairs")
    for setting, names in specs.items():
        for name in names:
            other = named.setdefault(name, setting)
            if (other, setting) != ("pairs", "tasks") and other != setting:
                raise NearfarError(f"{name}: is named both by {flag(other)} and by {flag(setting)}.")
    return named


def load_tasks(suite: Sequence[str], config: EvaluateConfig, held_out: HeldOut | None = None) -> LoadedTasks:
    """Load the tasks of a suite and those that are named, and held-out rows.

    Raises:
        NearfarError: a task that is named cannot be loaded, or none of the suite.
    """
    named, loaded = named_tasks(config), LoadedTasks()
    for task in dict.fromkeys((*suite, *named)):
        setting = named.get(task)
        try:
            if setting == "retrieval":
                how = {name: getattr(config, name) for name in RETRIEVAL_SETTINGS}
                loaded.retrieval[task] = load_retrieval(task, **how)
            elif setting == "labelled":
                loaded.transfer[task] = load_labelled_task(task)
            elif task in PROBE_TASKS and setting != "pairs":
                loaded.transfer[task] = load_transfer(task)
            else:
                subsets = load_mteb_pairs(task.removeprefix(PREFIX)) if setting == "mteb" else load_task(task)
                if len(subsets) > 1 and set(subsets) <= _SPLITS:  # published scores do not average over splits
                    subsets = {"+".join(subsets): list(chain(*subsets.values()))}
                loaded.similarity[task] = subsets
        except NearfarError as error:
            if setting:
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


def run_of(model: "Model") -> Path | None:
    """The run folder that a model is in or was read from, itself or its folder ``model``; None if it is in none."""
    source = model if isinstance(model, str | Path) else getattr(model, "source", None)
    for folder in (Path(source), Path(source).parent) if isinstance(source, str | Path) else ():
        if (folder / CONFIG).is_file() and (folder / RUN_INFO).is_file():
            return folder
    return None


def find_held_out(model: "Model", config: EvaluateConfig) -> HeldOut | None:
    """The held-out rows to evaluate a model on, or None if they are not asked for.

    Raises:
        NearfarError: there are none.
    """
    own, named = run_of(model), config.held_out_of
    if named is None and not config.held_out:
        return None
    source = own if named is None else run_of(named) or Path(named)
    if source is None or not has_held_out(source):
        if isinstance(asked := named or model, str | Path):
            model_of_run(Path(asked))  # raises for an unfinished run, and for a folder that has runs inside
        if source is None:
            raise NearfarError(
                f"--held-out: {model_name(model)} is not a run of nearfar train, so it holds out no rows. Name a run "
                "whose rows to use by --held-out-of RUN."
            )
    held_out = load_held_out(source)
    if own is not None and own.resolve() == source.resolve() and held_out.folds:
        raise NearfarError(
            f"{source}: its model is trained on all rows, which are tested in folds; the scores are in "
            f"{source / HELD_OUT / STORED[0]}, and nearfar compare {source} MODEL --held-out shows them."
        )
    return held_out


STORED = ("after.json", "before.json")
"""The evaluations that training writes beside its held-out rows: of the trained model, and of its start."""


def stored_evaluation(run: Path, model: "Model") -> EvaluationResult | None:
    """The evaluation of a model on the held-out rows of a run that training stored, if model and rows are still those.

    None for a model that was not evaluated then, or has changed.
    """
    if not isinstance(model, str | Path) or is_baseline(str(model)):
        return None
    held_out, fingerprint_now = load_held_out(run), fingerprint_model(model_of_run(Path(model)))
    rows = {"source": held_out.source, "digest": held_out.digest}
    for folder in dict.fromkeys([run, run_of(model) or run]):  # a run tested in the same folds has its own scores
        for name in STORED:
            with suppress(NearfarError):  # it is missing, damaged, or of another version: it is computed again
                result = EvaluationResult.load(folder / HELD_OUT / name)
                on = result.config.get("held_out") or {}
                if result.fingerprint == fingerprint_now and {key: on.get(key) for key in rows} == rows:
                    return replace(result, model=str(model))
    return None


def score_votes(
    encode: Encode, votes: Mapping[str, VoteTask], model: OpenedModel, *, resamples: int, seed: int
) -> dict[str, ClassificationScores]:
    """The accuracy of labels that are voted for by the nearest training texts.

    Raises:
        NearfarError: a vector is not finite.
    """
    from nearfar.evaluation.transfer import neighbour_vote, vote_scores

    scored = {}
    for name, task in votes.items():
        cached = CachedEncode(encode)
        cached([*task.texts, *task.training_texts])  # in one call, as vectors of several may not be comparable
        vectors, labelled = (np.asarray(cached(texts), np.float32) for texts in (task.texts, task.training_texts))
        known = vectors, labelled, task.training_labels
        predicted = neighbour_vote(*known, similarity=model.similarity, device=model.device)
        seeds, digest = [seed, *name.encode()], fingerprint([task])
        scored[name] = vote_scores(task.texts, task.labels, predicted, resamples=resamples, seed=seeds, digest=digest)
    return scored
