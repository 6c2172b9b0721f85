"""Which queries one model ranks better or worse than another, and some of them with their hits."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

from nearfar.evaluation.render import one_line
from nearfar.evaluation.results import QueryChanges, QueryExample, ShownHit, ShownHits

Ranking: TypeAlias = Sequence[tuple[str, float]]
"""The hits of a query, best first: text and score."""
PERCENTS = (0, 25, 50, 75, 100)
"""Where in the order of queries by change the shown ones are."""
FEW = (0, 50, 100)
"""Those that a report and a model card show."""
SHOWN_HITS = 3


def compare_rankings(
    queries: Sequence[str], relevant: Sequence[Collection[str]], first: Sequence[Ranking], second: Sequence[Ranking]
) -> QueryChanges:
    """The change of each query from ``second`` to ``first``, that of 1 / rank of its first right hit, 0 without one.

    Args:
        queries: the queries.
        relevant: the right texts of each query.
        first: the hits of each query by one model.
        second: the hits of each query by the other.
    """
    ranks = [
        [_first_rank(hits, right) for hits, right in zip(rankings, relevant, strict=True)]
        for rankings in (first, second)
    ]
    gained = [(1 / one if one else 0.0) - (1 / other if other else 0.0) for one, other in zip(*ranks, strict=True)]
    order = sorted(range(len(queries)), key=gained.__getitem__)
    chosen = [(percent, order[round(percent / 100 * (len(order) - 1))]) for percent in PERCENTS] if order else []
    return QueryChanges(
        higher=sum(change > 0 for change in gained),
        lower=sum(change < 0 for change in gained),
        same=sum(change == 0 for change in gained),
        examples=[
            QueryExample(
                percent=percent,
                query=queries[place],
                right=sorted(relevant[place]),
                first=_show(first[place], relevant[place]),
                second=_show(second[place], relevant[place]),
            )
            for percent, place in chosen
        ],
    )


def _first_rank(hits: Ranking, right: Collection[str]) -> int | None:
    return next((rank for rank, (text, _) in enumerate(hits, start=1) if text in right), None)


def _show(hits: Ranking, right: Collection[str]) -> ShownHits:
    shown = [ShownHit(text=text, score=round(score, 6), right=text in right) for text, score in hits[:SHOWN_HITS]]
    return ShownHits(rank=_first_rank(hits, right), searched=len(hits), hits=shown)


class QueriesInWords(NamedTuple):
    """What a comparison says of queries."""

    summary: str
    """How many queries changed, and how the shown ones are chosen."""
    lines: list[str]
    """The shown queries, each with its first hits by the second side, then by the first."""


def describe_queries(
    changes: QueryChanges, *, start: str, first: str, second: str, percents: Sequence[int] = PERCENTS
) -> QueriesInWords:
    """The queries at ``percents``, in the words of ``start``, such as "After training", and with the names of sides."""
    total = changes.higher + changes.lower + changes.same
    summary = (
        f"{start}, the right hit ranks higher for {changes.higher:,} of {total:,} test queries, lower for "
        f"{changes.lower:,}, and the same for {changes.same:,}. The queries below are chosen by rule: all queries are "
        "sorted by the change of their reciprocal rank, equal ones in their order, and those at "
        f"{', '.join(map(str, percents[:-1]))} and {percents[-1]} percent are shown, from the largest loss to the "
        "largest gain. * marks a right hit."
    )
    lines = []
    for example in (one for one in changes.examples if one.percent in percents):
        lines.append(f"{example.percent}%  {one_line(example.query)}")
        for name, shown in ((second, example.second), (first, example.first)):
            lines.append(f"  {name}: {f'rank {shown.rank}' if shown.rank else f'not among the first {shown.searched}'}")
            lines += [f"    {'*' if hit.right else ' '} {hit.score:.3f}  {one_line(hit.text)}" for hit in shown.hits]
        lines += [*(f"  right: {one_line(text)}" for text in example.right[:SHOWN_HITS]), ""]
    return QueriesInWords(summary, lines)
