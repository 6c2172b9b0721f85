"""Which queries one model ranks better or worse than another, and some of them with their hits."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

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
    examples = []
    for query, right, *rankings in zip(queries, relevant, first, second, strict=True):
        one, other = (_show(hits, right) for hits in rankings)
        change = round(_inverse_rank(one) - _inverse_rank(other), 6)
        examples.append(QueryExample(change=change, query=query, right=sorted(right), first=one, second=other))
    gains = sorted((one for one in examples if one.change > 0), key=lambda one: -one.change)
    losses = sorted((one for one in examples if one.change < 0), key=lambda one: one.change)
    return QueryChanges(
        higher=len(gains),
        lower=len(losses),
        same=len(examples) - len(gains) - len(losses),
        examples=[*gains[:MOST], *losses[:MOST]],
    )


def _show(hits: Ranking, right: Collection[str]) -> ShownHits:
    shown = [ShownHit(text=text, score=round(score, 6), right=text in right) for text, score in hits[:SHOWN_HITS]]
    rank = next((rank for rank, (text, _) in enumerate(hits, start=1) if text in right), None)
    return ShownHits(rank=rank, searched=len(hits), hits=shown)


def _inverse_rank(shown: ShownHits) -> float:
    return 1 / shown.rank if shown.rank else 0.0
