"""The tasks of an evaluation: which are requested, and their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from nearfar.config.verbs import EvaluateConfig
from nearfar.data.hold_out import TEST
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.sts import PREFIX, load_mteb_pairs, load_task
from nearfar.evaluation.seen import scored_rows
from nearfar.evaluation.sts import Subsets
from nearfar.runs.held_out import TASK
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.hold_out import HeldOut, VoteTask
    from nearfar.data.labelled import TransferTask
    from nearfar.data.retrieval import RetrievalTask

_SPLITS = {"train", "dev", "test"}


@dataclass(frozen=True)
class LoadedTasks:
    """The rows of all tasks, by the kind and the name of a task."""

    similarity: dict[str, Subsets] = field(default_factory=dict)
    transfer: "dict[str, TransferTask]" = field(default_factory=dict)
    retrieval: "dict[str, RetrievalTask]" = field(default_factory=dict)
    votes: "dict[str, VoteTask]" = field(default_factory=dict)
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


def named_tasks(config: EvaluateConfig) -> tuple[str, ...]:
    """The tasks that are named, without those of a suite.

    Raises:
        NearfarError: a task is named as two kinds of tasks.
    """
    kinds = {
        "scored pairs": (*(config.tasks or ()), *config.pairs),
        "a task of mteb": tuple(f"{PREFIX}{name}" for name in config.mteb),
        "labelled texts": config.labelled,
        "retrieval": config.retrieval,
    }
    found: dict[str, str] = {}
    for kind, specs in kinds.items():
        for spec in specs:
            other = found.setdefault(spec, kind)
            if other != kind:
                raise NearfarError(f"{spec}: is named both as {other} and as {kind}.")
    return tuple(found)


def load_tasks(suite: Sequence[str], config: EvaluateConfig, held_out: "HeldOut | None" = None) -> LoadedTasks:
    """Load the tasks of a suite and those that are named, and held-out rows.

    Raises:
        NearfarError: a task that is named cannot be loaded, or none of the suite.
    """
    from nearfar.data.labelled import load_labelled_task, load_transfer
    from nearfar.data.retrieval import load_retrieval

    named = named_tasks(config)
    of_mteb = {f"{PREFIX}{name}": name for name in config.mteb}
    loaded = LoadedTasks()
    for task in dict.fromkeys((*suite, *named)):
        try:
            if task in config.retrieval:
                loaded.retrieval[task] = load_retrieval(
                    task,
                    anchor_column=config.anchor_column,
                    positive_column=config.positive_column,
                    corpus=config.corpus,
                    exclude_same_id=config.exclude_same_id,
                )
            elif task in of_mteb:
                loaded.similarity[task] = merge_splits(load_mteb_pairs(of_mteb[task]))
            elif task in config.labelled:
                loaded.transfer[task] = load_labelled_task(task)
            elif task in PROBE_TASKS and task not in config.pairs:
                loaded.transfer[task] = load_transfer(task)
            else:
                loaded.similarity[task] = merge_splits(load_task(task))
        except NearfarError as error:
            if task in named:
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


def _add_held_out(tasks: LoadedTasks, held_out: "HeldOut") -> None:
    """Add the test part of held-out rows to the tasks."""
    if held_out.kind == "scored":
        tasks.similarity[TASK] = {TASK: held_out.pairs(TEST)}
    elif held_out.kind == "labelled":
        tasks.votes[TASK] = held_out.vote(TEST)
    else:
        tasks.retrieval[TASK] = held_out.retrieval(TEST)


def merge_splits(subsets: Subsets) -> Subsets:
    """The splits of one data set as one subset; published scores do not average over splits."""
    if len(subsets) > 1 and set(subsets) <= _SPLITS:
        return {"+".join(subsets): list(chain(*subsets.values()))}
    return subsets
