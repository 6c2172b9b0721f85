"""Read scored pairs: the tasks of semantic textual similarity (STS), and own files with the same columns."""

import math
from itertools import chain

from nearfar.data.catalog import NamedTable, find
from nearfar.data.files import Location
from nearfar.data.named_sets import CATALOG
from nearfar.data.paths import shown
from nearfar.data.sources import parse_number, text_field
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
    space is normalised as in :func:`nearfar.data.sources.text_field`.

    Raises:
        NearfarError: a source cannot be found or read; a text that is empty or not a string, a score that is not a
            number or is off the scale (each with file and line); a subset without a pair.

    """
    tables = find(spec, "scored")
    return {found.name: _read_pairs(found, first, second, score, scale or found.scale) for found in tables}


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


def _read_pairs(
    found: NamedTable, first: str, second: str, score: str, scale: tuple[float, float] | None
) -> list[ScoredPair]:
    pairs = [
        ScoredPair(text_field(left, first, where), text_field(right, second, where), _score(gold, score, where, scale))
        for where, (left, right, gold) in found.table.rows((first, second, score))
    ]
    if not pairs:
        raise NearfarError(f"{found.table.title}: no pairs, only a header.")
    return pairs


def _score(value: object, column: str, where: Location, scale: tuple[float, float] | None) -> float:
    number = parse_number(value)
    if math.isnan(number):
        raise NearfarError(
            f"{where}: column {column!r} holds {shown(value)}, not a number. Remove pairs without a score."
        )
    if scale is not None and not scale[0] <= number <= scale[1]:
        raise NearfarError(f"{where}: score {number:g} is outside {scale[0]:g} to {scale[1]:g}.")
    return number
