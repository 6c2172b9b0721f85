"""Queries that two models rank differently: how they change, which are shown, and how."""

from nearfar.evaluation.examples import compare_rankings, describe_queries
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
    shown = describe_queries(found, start="After training", first="after", second="before")
    assert shown.summary == (
        "After training, the right hit ranks higher for 5 of 10 test queries, lower for 3, and the same for 2. Shown "
        "by rule: the 3 that gain and the 3 that lose most, by the change of 1 / rank of the first right hit. * marks "
        "a right hit."
    )
    assert [line for line in shown.lines if line and line[0] != " "][::3] == ["+1.000  q3", "-1.000  q4"]


def test_few_changes_and_none() -> None:
    lost = changes((1, 2), (1, 1))
    assert [one.query for one in lost.examples] == ["q0"]
    assert "the 0 that gain and the 1 that lose most" in describe_queries(lost, start="", first="", second="").summary
    same = describe_queries(changes((2, 2)), start="With A", first="A", second="B")
    assert same == ("With A, the right hit ranks higher for 0 of 1 test queries, lower for 0, and the same for 1.", [])
