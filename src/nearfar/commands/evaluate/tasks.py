"""The tasks of an evaluation: which are requested, and their rows."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.sts import load_task
from nearfar.evaluation.sts import Subsets
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.transfer import TransferTask

_SPLITS = {"train", "dev", "test"}


def load_tasks(
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
                similarity[task] = merge_splits(load_task(task))
        except NearfarError as error:
            if task in (*tasks, *config.pairs, *config.labelled):
                raise
            unavailable[task] = str(error)
    if not similarity and not transfer:
        raise NearfarError(f"none of the tasks can be loaded. {next(iter(unavailable.values()))}")
    return similarity, transfer, unavailable


def merge_splits(subsets: Subsets) -> Subsets:
    """The splits of one data set as one subset; published scores do not average over splits."""
    if len(subsets) > 1 and set(subsets) <= _SPLITS:
        return {"+".join(subsets): list(chain(*subsets.values()))}
    return subsets


def distinct_texts(similarity: Mapping[str, Subsets], transfer: "Mapping[str, TransferTask]") -> set[str]:
    """The distinct texts of all tasks."""
    of_pairs = (t for subsets in similarity.values() for rows in subsets.values() for row in rows for t in row[:2])
    of_rows = (t for task in transfer.values() for rows in task.splits.values() for row in rows.texts for t in row)
    return {*of_pairs, *of_rows}
