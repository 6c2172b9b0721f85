"""Queries that two models rank differently: how they change, which are shown, and how."""

import pytest

from nearfar.evaluation.examples import FEW, PERCENTS, compare_rankings, describe_queries
from nearfar.evaluation.results import QueryChanges


def hits(rank: int | None, *, top: int = 4) -> list[tuple[str, float]]:
    """Hits among which ``right`` has this rank."""
    return [("right" if place == rank else f"wrong {place}", 1 / place) for place in range(1, top + 1)]


def changes(*ranks: tuple[int | None, int | None]) -> QueryChanges:
    """Of queries by the ranks of their right hits, those of the second side first."""
    second, first = ([hits(pair[side]) for pair in ranks] for side in (0, 1))
    return compare_rankings([f"q{n}" for n in range(len(ranks))], [{"right", "absent"}] * len(ranks), first, second)


def test_queries_at_equal_steps_of_the_order_by_change() -> None:
    found = changes((2, 1), (1, 1), (1, 2), (None, 1), (1, None), (1, 1), (4, 2), (2, 2), (1, 1))
    # The changes are 0.5, 0, -0.5, 1, -1, 0, 0.25, 0, 0, so the order is 4, 2, 1, 5, 7, 8, 6, 0, 3.
    assert [one.query for one in found.examples] == ["q4", "q1", "q7", "q6", "q3"]
    assert [one.percent for one in found.examples] == list(PERCENTS)
    assert (found.higher, found.lower, found.same) == (3, 2, 4)
    few = describe_queries(found, start="After training", first="after", second="before", percents=FEW)
    assert few.summary == (
        "After training, the right hit ranks higher for 3 of 9 test queries, lower for 2, and the same for 4. The "
        "queries below are chosen by rule: all queries are sorted by the change of their reciprocal rank, equal ones "
        "in their order, and those at 0, 50 and 100 percent are shown, from the largest loss to the largest gain. "
        "* marks a right hit."
    )
    assert [line for line in few.lines if line and line[0] != " "] == ["0%  q4", "50%  q7", "100%  q3"]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_queries(count: int) -> None:
    shown = [one.query for one in changes(*[(1, 1)] * count).examples]
    assert (shown[0], shown[-1]) == ("q0", f"q{count - 1}")  # equal changes: in the order of the file
    assert len(shown) == len(PERCENTS)


def test_a_query_in_words() -> None:
    found = describe_queries(changes((None, 2)), start="", first="after", second="before")
    assert found.lines[:12] == [
        "0%  q0",
        "  before: not among the first 4",
        "      1.000  wrong 1",
        "      0.500  wrong 2",
        "      0.333  wrong 3",
        "  after: rank 2",
        "      1.000  wrong 1",
        "    * 0.500  right",
        "      0.333  wrong 3",
        "  right: absent",
        "  right: right",
        "",
    ]
