"""Read scored pairs: the tasks of semantic textual similarity (STS), and own files with the same columns."""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from nearfar.data.catalog import NamedTable, find
from nearfar.data.cells import parse_number, score_check
from nearfar.data.named_sets import CATALOG
from nearfar.data.sources import Entry
from nearfar.types import NearfarError, ScoredPair


def load_task(
    spec: str,
    *,
    first: str = "sentence1",
    second: str = "sentence2",
    score: str = "score",
    scale: tuple[float, float] | None = None,
) -> dict[str, list[ScoredPair]]:
    """Return subset name -> pairs of the subset.

    ``spec`` (see :mod:`nearfar.data.catalog`) is

    - ``sts12`` to ``sts16``: the SemEval test sets, by their official subsets. The hub copies do not distinguish
      subsets: from the hub, a task has a single subset ``all``, and its subset aggregates are meaningless;
    - ``stsb`` (the test split), ``stsb:dev``, ``stsb:train``;
    - ``sickr``, the official 4,927 test pairs, or ``sickr-full``, all 9,927, as in MTEB. The two give different
      scores; always say which. Scores are 1 to 5, elsewhere 0 to 5;
    - ``microworld`` (its test pairs) or ``microworld:dev``, generated sentences, 0 to 5;
    - a path or hub data set with columns ``first``, ``second``, ``score``: one subset, named by the file or split.

    ``scale`` is the lowest and highest valid score; a named set defines its own. Scores are returned unchanged. White
    space is normalised as in :func:`nearfar.data.cells.text_field`.

    Raises:
        NearfarError: a source cannot be found or read; a text that is empty or not a string, a score that is not a
            number or is off the scale (each with file and line); a subset without a pair.

    """
    tables = find(spec, "scored")
    return {
        found.name: [
            ScoredPair(entry.texts[0], entry.texts[1], entry.target)
            for entry in scored_entries(found, (first, second), score, scale or found.scale)
        ]
        for found in tables
    }


def load_pairs(
    spec: str,
    *,
    first: str = "sentence1",
    second: str = "sentence2",
    score: str = "score",
    scale: tuple[float, float] | None = None,
) -> list[ScoredPair]:
    """Return the pairs of all subsets of :func:`load_task`, concatenated."""
    return list(chain(*load_task(spec, first=first, second=second, score=score, scale=scale).values()))


def known_scale(spec: str) -> tuple[float, float] | None:
    """Return the lowest and highest score of a named set, or None for own data."""
    name = spec.partition(":")[0]
    return CATALOG[name].of_kind("scored").scale if name in CATALOG else None


def scored_entries(
    found: NamedTable, columns: tuple[str, str], score: str, scale: tuple[float, float] | None
) -> list[Entry]:
    """Return the pairs of a table with their scores; raises NearfarError as :func:`load_task`."""
    entries = list(found.table.entries(columns, score, score_check(scale)))
    if not entries:
        raise NearfarError(f"{found.table.title}: no pairs, only a header.")
    return entries


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
