"""Queries of the demo that show what changed, chosen by the change of their reciprocal rank."""

from collections.abc import Sequence
from typing import NamedTuple

from nearfar.commands.search.hits import Hit

PERCENTS = (0, 25, 50, 75, 100)
"""Where in the order of queries by change the shown ones are."""
SHOWN_HITS = 3


class ShownQuery(NamedTuple):
    """A query with its hits before and after training."""

    percent: int
    query: str
    positive: str
    """The right hit."""
    before: Sequence[Hit]
    after: Sequence[Hit]


def reciprocal_rank(hits: Sequence[Hit], positive: str) -> float:
    """1 / rank of the hit ``positive``, 0 if it is not among the hits."""
    return next((1 / hit.rank for hit in hits if hit.text == positive), 0.0)


def changes(positives: Sequence[str], before: Sequence[Sequence[Hit]], after: Sequence[Sequence[Hit]]) -> list[float]:
    """The change of each query's reciprocal rank, after minus before."""
    return [
        reciprocal_rank(new, positive) - reciprocal_rank(old, positive)
        for positive, old, new in zip(positives, before, after, strict=True)
    ]


def choose_queries(
    queries: Sequence[str],
    positives: Sequence[str],
    before: Sequence[Sequence[Hit]],
    after: Sequence[Sequence[Hit]],
) -> list[ShownQuery]:
    """The queries at :data:`PERCENTS` of the order by change, equal changes in the order of ``queries``."""
    change = changes(positives, before, after)
    order = sorted(range(len(queries)), key=change.__getitem__)
    places = [(percent, order[round(percent / 100 * (len(order) - 1))]) for percent in PERCENTS]
    return [
        ShownQuery(percent, queries[place], positives[place], before[place], after[place]) for percent, place in places
    ]


def describe_changes(positives: Sequence[str], before: Sequence[Sequence[Hit]], after: Sequence[Sequence[Hit]]) -> str:
    """The number of queries whose right hit ranks higher, lower, and the same."""
    change = changes(positives, before, after)
    higher, lower = sum(value > 0 for value in change), sum(value < 0 for value in change)
    return (
        f"After training, the right hit ranks higher for {higher:,} of {len(change):,} test queries, lower for "
        f"{lower:,}, and the same for {len(change) - higher - lower:,}."
    )


def describe_query(shown: ShownQuery) -> list[str]:
    """A query and its first hits, in lines of text."""
    lines = [f"{shown.percent}%  {shown.query}"]
    for name, hits in (("before", shown.before), ("after", shown.after)):
        rank = next((hit.rank for hit in hits if hit.text == shown.positive), None)
        lines.append(f"  {name}: {f'rank {rank}' if rank else f'not among the first {len(hits)}'}")
        for hit in hits[:SHOWN_HITS]:
            lines.append(f"    {'*' if hit.text == shown.positive else ' '} {hit.score:.3f}  {hit.text}")
    return [*lines, f"  right: {shown.positive}", ""]
