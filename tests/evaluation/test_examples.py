"""Queries that two models rank differently: how they change, and which are shown."""

from nearfar.evaluation.examples import compare_rankings
from nearfar.evaluation.results import QueryChanges


def hits(rank: int | None, *, top: int = 4) -> list[tuple[str, float]]:
    """Hits among which ``right`` has this rank."""
    return [("right" if place == rank else f"wrong {place}", 1 / place) for place in range(1, top + 1)]


def changes(*ranks: tuple[int | None, int | None]) -> QueryChanges:
    """Of queries by the ranks of their right hits, those of the second side first."""
    second, first = ([hits(pair[side]) for pair in ranks] for side in (0, 1))
    return compare_rankings([f"q{n}" for n in range(len(ranks))], [{"right", "absent"}] * len(ranks), first, second)


def test_the_queries_that_gain_and_lose_most() -> None:
    found = changes((2, 1), (1, 1), (1, 2), (None, 1), (1, None), (1, 1), (4, 2), (2, 4), (3, 1), (2, 1))
    # The changes are 0.5, 0, -0.5, 1, -1, 0, 0.25, -0.25, 2/3, 0.5.
    assert [one.query for one in found.examples] == ["q3", "q8", "q0", "q4", "q2", "q7"]
    assert [one.change for one in found.examples] == [1, 0.666667, 0.5, -1, -0.5, -0.25]
    assert (found.higher, found.lower, found.same) == (5, 3, 2)
    assert [one.query for one in changes((1, 2), (1, 1)).examples] == ["q0"]
