"""Which sides can be told apart: what the comparisons at hand, given or computed, say of the sides of a report."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nearfar.evaluation.report.columns import Column, Score
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import Result

_ROUNDING_TOLERANCE = 0.006
"""Scores x 100 that differ by less are the same number, rounded."""


class _ComparedPair(NamedTuple):
    """Two sides of a comparison, as the sides of the report that they may be, and their tests."""

    first: frozenset[int]
    second: frozenset[int]
    tests: Mapping[str, Any]
    aggregate: str


class SignificanceLookup:
    """Looks up the test between two sides.

    ``computed`` is a comparison of just these ``sides``. In ``from_files`` ones a side is known by the names and
    training seeds of its runs, and by its score: a comparison of an older evaluation says nothing of this one.
    """

    def __init__(
        self, sides: Sequence[EvaluatedModel], *, computed: Result | None = None, from_files: Sequence[Result] = ()
    ) -> None:
        self.sides = sides
        places = [frozenset([number]) for number in range(len(sides))]
        self.pairs = [] if computed is None else list(_pairs(computed, places))
        for comparison in from_files:
            self.pairs += _pairs(comparison, [self._matching_models(side) for side in sides_of(comparison)])

    def test(self, column: Column, first: int, second: int, scores: Sequence[Score | None]) -> dict[str, Any] | None:
        """The test of ``first`` against ``second`` in the column, differences being first minus second."""
        if not column.tested:
            return None
        for pair in self.pairs:
            if column.aggregate is not None and pair.aggregate != column.aggregate:
                continue
            for a, b, swapped in ((first, second, False), (second, first, True)):
                row = _find_test(pair.tests, column) if a in pair.first and b in pair.second else None
                if (
                    row is not None
                    and _equal_scores(row["first"], scores[a])
                    and _equal_scores(row["second"], scores[b])
                ):
                    return _swap_sides(row) if swapped else dict(row)
        return None

    def _matching_models(self, described: Mapping[str, Any]) -> frozenset[int]:
        wanted = _signature(described["models"], described.get("training_seeds") or [None] * len(described["models"]))
        return frozenset(
            number
            for number, side in enumerate(self.sides)
            if _signature([run.result["model"] for run in side.runs], side.seeds) == wanted
        )


def sides_of(comparison: Result) -> list[Mapping[str, Any]]:
    """The sides of a comparison of either kind."""
    if comparison["kind"] == "comparison":
        return [comparison["first"], comparison["second"]]
    return list(comparison["sides"])


def tests_of(comparison: Result) -> list[tuple[int, int, Mapping[str, Any]]]:
    """The tests of each two sides of a comparison of either kind, with the numbers of the sides."""
    if comparison["kind"] == "comparison":
        return [(0, 1, comparison)]
    return [(*one["pair"], one) for one in comparison["comparisons"]]


def _pairs(comparison: Result, places: Sequence[frozenset[int]]) -> list[_ComparedPair]:
    aggregate = comparison["config"]["aggregate"]
    return [_ComparedPair(places[i], places[j], tests, aggregate) for i, j, tests in tests_of(comparison)]


def _find_test(tests: Mapping[str, Any], column: Column) -> Mapping[str, Any] | None:
    if column.group == "tasks":
        found: Mapping[str, Any] | None = tests["tasks"].get(column.name)
        return found
    average: Mapping[str, Any] | None = tests.get(column.group)
    return average if average and set(average["tasks"]) == set(column.members) else None


def _equal_scores(value: float | None, score: Score | None) -> bool:
    if score is None or score.value is None or value is None:
        return False
    return abs(value - score.value) < _ROUNDING_TOLERANCE


def _swap_sides(row: Mapping[str, Any]) -> dict[str, Any]:
    def negative(value: float | None) -> float | None:
        return None if value is None else -value

    return {
        **row,
        "first": row["second"],
        "second": row["first"],
        "difference": negative(row["difference"]),
        "low": negative(row["high"]),
        "high": negative(row["low"]),
    }


def _signature(models: Sequence[str], seeds: Sequence[Any]) -> list[tuple[str, str]]:
    return sorted((model, str(seed)) for model, seed in zip(models, seeds, strict=False))
