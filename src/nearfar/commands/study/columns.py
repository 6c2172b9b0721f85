"""Checks the columns of a study before anything runs: each must be a result of some step."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from nearfar.config.finetune import FinetuneConfig
from nearfar.config.study import PlannedCell, Study
from nearfar.config.study.script import ScriptConfig
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.named_sets import suite_tasks
from nearfar.runs.held_out import TASK
from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

SINGLE = ("accuracy", "f1", "matthews", "pearson", "spearman", "score")
"""Scores of the only task of a result."""
TRAINING = ("validation", "start_validation", "steps", "best_step", "updates_per_second")
MEASURED = {
    "train": TRAINING,
    "script": ("validation",),
    "finetune": TRAINING,
    "evaluate": ("bytes_per_vector",),
    "geometry": ("uniformity", "alignment", "isotropy", "mean_cosine", "effective_rank"),
    "speed": ("inference_seconds", "texts_per_second", "texts", "parameters", "training_seconds", *TRAINING),
}
"""Verb -> the columns that are not scores of tasks."""


def check_columns(study: Study, cells: Iterable[PlannedCell]) -> None:
    """Refuse a column that no step of the study can have.

    Raises:
        NearfarError: it names the column, and the nearest one that there is or all of them.
    """
    known: dict[str, None] = {}
    tasks: dict[str, None] = {}
    verbs: set[str] = set()
    for step in (step for cell in cells for step in cell.steps):
        verbs.add(step.verb)
        known |= dict.fromkeys(MEASURED[step.verb])
        tasks |= dict.fromkeys(_tasks(step.config))
        if isinstance(step.config, ScriptConfig):
            known |= dict.fromkeys(step.config.numbers)
    known["seconds"] = None
    if verbs & {"evaluate", "finetune"}:
        known |= dict.fromkeys((*SINGLE, "average", "average.unseen_by_all"))
    for column in study.columns if verbs else ():
        is_task = any(column == task or column.startswith(f"{task}.") for task in tasks)
        is_layer = column.startswith("layer.") and "geometry" in verbs
        if not (is_task or is_layer or column in known or column.startswith("average:")):
            message = unknown_name_message(column, [*tasks, *known], what="column")
            raise NearfarError(f"{study.file}: columns: {message}")


def _tasks(config: object) -> Iterator[str]:
    """The names of tasks in a result of a step."""
    if isinstance(config, EvaluateConfig):
        named = (*(config.tasks or ()), *config.pairs, *config.labelled, *config.retrieval)
        yield from named
        held_out = config.held_out or config.held_out_of is not None
        if held_out:
            yield TASK
        if config.suite or not (named or held_out):
            yield from suite_tasks(config.suite or "sts")
    elif isinstance(config, FinetuneConfig):
        yield from (config.task, config.task.partition(":")[0], Path(config.task).stem, Path(config.task).name)
