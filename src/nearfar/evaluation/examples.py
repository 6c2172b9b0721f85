"""Which queries one model ranks better or worse than another, and some of them with their hits."""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from nearfar.evaluation.render import one_line
from nearfar.evaluation.results import QueryChanges, QueryExample, ShownHit, ShownHits

Ranking: TypeAlias = Sequence[tuple[str, float]]
"""The hits of a query, best first: text and score."""
MOST = 3
"""Number of shown queries of those that gain, and of those that lose."""
SHOWN_HITS = 3


def compare_rankings(
    queries: Sequence[str], relevant: Sequence[Collection[str]], first: Sequence[Ranking], second: Sequence[Ranking]
) -> QueryChanges:
    """How ``first`` changes the queries of ``second``: 1 / rank of the first right hit, which is 0 without one.

    The examples are the :data:`MOST` queries that gain most, then those that lose most, each from the largest change;
    equal ones in their order.

    Args:
        queries: the queries.
        relevant: the right texts of each query.
        first: the hits of each query by one model.
        second: the hits of each query by the other.
    """
    rankings = [[_show(hits, right) for hits, right in zip(side, relevant, strict=True)] for side in (first, second)]
    inverse = [[1 / shown.rank if shown.rank else 0.0 for shown in side] for side in rankings]
    changes = [one - other for one, other in zip(*inverse, strict=True)]
    order = sorted(range(len(queries)), key=lambda query: -abs(changes[query]))
    most = [[query for query in order if sign * changes[query] > 0][:MOST] for sign in (1, -1)]
    return QueryChanges(
        higher=sum(change > 0 for change in changes),
        lower=sum(change < 0 for change in changes),
        same=sum(change == 0 for change in changes),
        examples=[
            QueryExample(
                change=round(changes[query], 6),
                query=queries[query],
                right=sorted(relevant[query]),
                first=rankings[0][query],
                second=rankings[1][query],
            )
            for query in chain(*most)
        ],
    )


def _show(hits: Ranking, right: Collection[str]) -> ShownHits:
    shown = [ShownHit(text=text, score=round(score, 6), right=text in right) for text, score in hits[:SHOWN_HITS]]
    rank = next((rank for rank, (text, _) in enumerate(hits, start=1) if text in right), None)
    return ShownHits(rank=rank, searched=len(hits), hits=shown)


class QueriesInWords(NamedTuple):
    """What a comparison says of queries."""

    summary: str
    """How many queries changed, and how the shown ones are chosen."""
    lines: list[str]
    """The shown queries, each with its first hits by the second side, then by the first."""


def describe_queries(changes: QueryChanges, *, start: str, first: str, second: str) -> QueriesInWords:
    """The queries in the words of ``start``, such as "After training", and with the names of the sides."""
    total = changes.higher + changes.lower + changes.same
    gains = sum(example.change > 0 for example in changes.examples)
    losses = len(changes.examples) - gains
    summary = (
        f"{start}, the right hit ranks higher for {changes.higher:,} of {total:,} test queries, lower for "
        f"{changes.lower:,}, and the same for {changes.same:,}."
    )
    if changes.examples:
        summary += (
            f" Shown by rule: the {gains} that gain and the {losses} that lose most, by the change of 1 / rank of the "
            "first right hit. * marks a right hit."
        )
    lines = []
    for example in changes.examples:
        lines.append(f"{example.change:+.3f}  {one_line(example.query)}")
        for name, shown in ((second, example.second), (first, example.first)):
            lines.append(f"  {name}: {f'rank {shown.rank}' if shown.rank else f'not among the first {shown.searched}'}")
            lines += [f"    {'*' if hit.right else ' '} {hit.score:.3f}  {one_line(hit.text)}" for hit in shown.hits]
        lines += [*(f"  right: {one_line(text)}" for text in example.right[:SHOWN_HITS]), ""]
    return QueriesInWords(summary, lines)
