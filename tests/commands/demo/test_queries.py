"""The choice of the shown queries, by the change of their reciprocal rank."""

import pytest

from nearfar.commands.demo.queries import PERCENTS, choose_queries, describe_changes, describe_query, reciprocal_rank
from nearfar.commands.search.hits import Hit


def hits(rank: int | None, *, of: str = "right", top: int = 4) -> list[Hit]:
    """Hits among which ``of`` has this rank."""
    texts = [of if place == rank else f"wrong {place}" for place in range(1, top + 1)]
    return [Hit(place, 1 / place, place, text, {}) for place, text in enumerate(texts, 1)]


def test_reciprocal_rank() -> None:
    assert [reciprocal_rank(hits(rank), "right") for rank in (1, 2, 4, None)] == [1, 0.5, 0.25, 0]
    assert reciprocal_rank([], "right") == 0


def test_queries_at_equal_steps_of_the_order_by_change() -> None:
    before = [hits(rank) for rank in (2, 1, 1, None, 1, 1, 4, 2, 1)]
    after = [hits(rank) for rank in (1, 1, 2, 1, None, 1, 2, 2, 1)]
    # changes: .5, 0, -.5, 1, -1, 0, .25, 0, 0 -> order 4, 2, 1, 5, 7, 8, 6, 0, 3
    names = [f"q{number}" for number in range(9)]
    chosen = choose_queries(names, ["right"] * 9, before, after)
    assert [(one.percent, one.query) for one in chosen] == list(
        zip(PERCENTS, ["q4", "q1", "q7", "q6", "q3"], strict=True)
    )
    assert chosen[0].before is before[4]
    assert chosen[0].after is after[4]
    assert describe_changes(["right"] * 9, before, after).endswith(
        "ranks higher for 3 of 9 test queries, lower for 2, and the same for 4."
    )


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_queries(count: int) -> None:
    names = [f"q{number}" for number in range(count)]
    same = [hits(1)] * count
    chosen = [one.query for one in choose_queries(names, ["right"] * count, same, same)]
    assert (chosen[0], chosen[-1]) == (names[0], names[-1])  # equal changes: in the order of the file
    assert len(chosen) == len(PERCENTS)


def test_a_query_in_words() -> None:
    (shown, *_) = choose_queries(["what?"], ["right"], [hits(None)], [hits(2)])
    assert describe_query(shown) == [
        "0%  what?",
        "  before: not among the first 4",
        "      1.000  wrong 1",
        "      0.500  wrong 2",
        "      0.333  wrong 3",
        "  after: rank 2",
        "      1.000  wrong 1",
        "    * 0.500  right",
        "      0.333  wrong 3",
        "  right: right",
        "",
    ]
