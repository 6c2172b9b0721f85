"""Which differences between the sides of a report are significant, from comparison files and computed comparisons."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from nearfar.evaluation.report.columns import Column, Score
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import ComparedSide, ComparisonResult, PairedTest, PairTests, PairwiseResult

AnyComparison: TypeAlias = ComparisonResult | PairwiseResult
_ROUNDING_TOLERANCE = 0.006
"""Scores x 100 that differ by less are equal up to rounding."""


class _ComparedPair(NamedTuple):
    """Two sides of a comparison, each as the positions of the matching sides of the report, and their tests."""

    first: frozenset[int]
    second: frozenset[int]
    tests: PairTests
    aggregate: str


class SignificanceLookup:
    """Looks up the test between two sides.

    ``computed`` is a comparison of exactly these ``sides``. Sides of comparisons in ``from_files`` are matched by the
    names and training seeds of their runs and by their scores, so a comparison of an older evaluation is not used.
    """

    def __init__(
        self,
        sides: Sequence[EvaluatedModel],
        *,
        computed: AnyComparison | None = None,
        from_files: Sequence[AnyComparison] = (),
    ) -> None:
        self.sides = sides
        positions = [frozenset([number]) for number in range(len(sides))]
        self.pairs = [] if computed is None else _pairs(computed, positions)
        for comparison in from_files:
            self.pairs += _pairs(comparison, [self._matching_models(side) for side in comparison.sides])

    def test(self, column: Column, first: int, second: int, scores: Sequence[Score | None]) -> PairedTest | None:
        """The test of ``first`` against ``second`` in the column, with differences first minus second."""
        if not column.tested:
            return None
        for pair in self.pairs:
            if column.aggregate is not None and pair.aggregate != column.aggregate:
                continue
            for a, b, swapped in ((first, second, False), (second, first, True)):
                row = _find_test(pair.tests, column) if a in pair.first and b in pair.second else None
                if row is not None and _equal_scores(row.first, scores[a]) and _equal_scores(row.second, scores[b]):
                    return _swap_sides(row) if swapped else row
        return None

    def _matching_models(self, described: ComparedSide) -> frozenset[int]:
        wanted = _signature(described.models, described.training_seeds or [None] * len(described.models))
        return frozenset(
            number
            for number, side in enumerate(self.sides)
            if _signature([run.result.model for run in side.runs], side.seeds) == wanted
        )


def _pairs(comparison: AnyComparison, matching: Sequence[frozenset[int]]) -> list[_ComparedPair]:
    return [
        _ComparedPair(matching[tests.pair[0]], matching[tests.pair[1]], tests, comparison.config.aggregate)
        for tests in comparison.comparisons
    ]


def _find_test(tests: PairTests, column: Column) -> PairedTest | None:
    members = [column.name] if column.group == "tasks" else column.members
    if any(task not in tests.tasks or tests.tasks[task].measure != column.measure for task in members):
        return None
    if column.group == "tasks":
        return tests.tasks[column.name]
    average = tests.average(column.group)
    return average if average and set(average.tasks) == set(members) else None


def _equal_scores(value: float | None, score: Score | None) -> bool:
    if score is None or score.value is None or value is None:
        return False
    return abs(value - score.value) < _ROUNDING_TOLERANCE


def _swap_sides(row: PairedTest) -> PairedTest:
    def negative(value: float | None) -> float | None:
        return None if value is None else -value

    return replace(
        row,
        first=row.second,
        second=row.first,
        difference=negative(row.difference),
        low=negative(row.high),
        high=negative(row.low),
    )


def _signature(models: Sequence[str], seeds: Sequence[int | None]) -> list[tuple[str, str]]:
    return sorted((model, str(seed)) for model, seed in zip(models, seeds, strict=False))
