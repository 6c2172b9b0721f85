"""Scored pairs of mteb's tasks of semantic textual similarity (the extra ``mteb``)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from nearfar.data.sources import parse_number
from nearfar.types import NearfarError, ScoredPair

PREFIX = "mteb:"
"""Before the name of a task in results, so that it is no name of nearfar's own."""
TYPE = "STS"


def load_mteb_pairs(name: str) -> dict[str, list[ScoredPair]]:
    """Return subset -> pairs of an STS task of mteb, from the splits that mteb evaluates on.

    Subsets are mteb's, such as languages; a task without subsets has its splits. The data come from the hub's cache or
    the hub, as ``task.load_data()`` finds them. Texts and scores are unchanged.

    Raises:
        NearfarError: mteb is not installed, has no such task or cannot load its data; the task is of another type; a
            row without two texts and a score.
    """
    try:
        import mteb
    except ImportError as error:
        raise NearfarError(f"--mteb {name}: needs the extra mteb: pip install 'nearfar[mteb]'") from error
    try:
        task: Any = mteb.get_task(name)
    except KeyError as error:
        raise NearfarError(f"--mteb {name}: mteb {mteb.__version__} has no task of this name. {_hint(error)}") from None
    if task.metadata.type != TYPE:
        raise NearfarError(
            f"--mteb {name}: is a task of the type {task.metadata.type}, and --mteb takes those of the type {TYPE}; "
            "for others, give nearfar.mteb.MtebModel to mteb.evaluate"
        )
    try:
        task.load_data()
    except Exception as error:  # whatever datasets, the hub's client or the task's own code raises
        reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        raise NearfarError(
            f"--mteb {name}: its data cannot be loaded ({reason}); without a network, load them once where there is "
            "one, and bring the cache of the hub (HF_HOME) along"
        ) from error
    subsets = dict(_subsets(task))
    if not any(subsets.values()):
        raise NearfarError(f"--mteb {name}: has no pairs in its splits {', '.join(task.eval_splits)}")
    return subsets


def _subsets(task: Any) -> Iterator[tuple[str, list[ScoredPair]]]:
    """The subsets of a loaded task, and their pairs."""
    splits = list(task.eval_splits)
    if not task.metadata.is_multilingual:
        for split in splits:
            yield split, _pairs(task, split, task.dataset[split])
        return
    for subset in task.hf_subsets:
        for split in splits:
            if split in task.dataset[subset]:
                title = subset if len(splits) == 1 else f"{subset}:{split}"
                yield title, _pairs(task, title, task.dataset[subset][split])


def _pairs(task: Any, subset: str, rows: Any) -> list[ScoredPair]:
    first, second = task.column_names
    return [ScoredPair(*_row(task, subset, number, row, (first, second))) for number, row in enumerate(rows)]


def _row(
    task: Any, subset: str, number: int, row: Mapping[str, Any], columns: tuple[str, str]
) -> tuple[str, str, float]:
    first, second = (row.get(column) for column in columns)
    score = parse_number(row.get("score"))
    if not isinstance(first, str) or not isinstance(second, str) or math.isnan(score):
        raise NearfarError(
            f"--mteb {task.metadata.name}: row {number} of {subset} must have two texts, {' and '.join(columns)}, and "
            "a score"
        )
    return first, second, score


def _hint(error: KeyError) -> str:
    """What mteb proposes in place of an unknown name."""
    message = str(error.args[0]) if error.args else ""
    return message.partition("not found. ")[2]
