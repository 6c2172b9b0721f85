"""Systems compared by a table of scores or by run files: the ranks that they may have, and the tests of their pairs."""

from itertools import pairwise

from nearfar.evaluation import results
from nearfar.evaluation.render import Table
from nearfar.evaluation.tables import comparison
from nearfar.evaluation.tables.evaluation import format_score

MOST_SYSTEMS = 10
"""The largest number of systems of which all pairs are listed; of more, those of neighbours."""


def ranking_tables(result: results.PairwiseResult) -> list[Table]:
    """The scores and ranks of all systems, on the mean over tasks and on each task, and the pairs of each of these."""
    first = result.comparisons[0]
    families = [*([None] if first.overall else []), *first.tasks]
    groups, several = [], len(families) > 1
    for task in families:
        ordered = [(result.sides[number], one) for number, one in _best_first(result, task)]
        rows = [[comparison.side_title(side), *_score_and_rank(one)] for side, one in ordered]
        groups.append([[_name(task) if row is rows[0] else "", *row] for row in rows] if several else rows)
    columns = [*(["task"] if several else []), "system", "score [95%]", "rank"]
    title = f"{comparison.scores_title(first.tasks, result.config)}: ranks of {len(result.sides)} systems"
    ranks = Table.of_groups(groups, columns=columns, title=title, notes=_notes(result), left=1 + several)
    return [ranks, *(_pairs(result, task) for task in families)]


def _pairs(result: results.PairwiseResult, task: str | None) -> Table:
    """The tests of all pairs of systems, or with more than :data:`MOST_SYSTEMS` of neighbours, best first."""
    order = [number for number, one in _best_first(result, task) if one.score is not None]
    neighbours = {frozenset(pair) for pair in pairwise(order)}
    few = len(result.sides) <= MOST_SYSTEMS
    rows = []
    for tests in result.comparisons:
        row = tests.overall if task is None else tests.tasks[task]
        if row is not None and row.difference is not None and (few or frozenset(tests.pair) in neighbours):
            a, b = (result.sides[number].name for number in tests.pair)
            says = comparison.verdict_in_words(
                row, first=a, second=b, units=comparison.units_in_words(result.comparisons[0].tasks)
            )
            rows.append([a, b, comparison.format_difference(row), says])
    note = f"Neighbours in the order of scores; a result file (--output) has all {len(result.comparisons)} pairs."
    columns = ["first", "second", "first - second [95%]", "verdict"]
    return Table(title=f"Pairs, {_name(task)}", columns=columns, rows=rows, notes=[] if few else [note], left=2)


def _best_first(result: results.PairwiseResult, task: str | None) -> list[tuple[int, results.RankedScore]]:
    """The number of each side and its score on a task, or on the mean over tasks; undefined scores come last."""
    scores = [side.overall_rank if task is None else (side.ranks or {}).get(task) for side in result.sides]
    known = [(number, one) for number, one in enumerate(scores) if one is not None]
    return sorted(known, key=lambda item: (item[1].score is None, -(item[1].score or 0.0)))


def _name(task: str | None) -> str:
    return "mean over tasks" if task is None else task


def _score_and_rank(one: results.RankedScore) -> tuple[str, str]:
    interval = "" if one.low is None else f" [{one.low:.2f}, {one.high:.2f}]"
    alone = one.best_rank is None or one.best_rank == one.worst_rank
    rank = str(one.best_rank or "") if alone else f"{one.best_rank} to {one.worst_rank}"
    return format_score(one.score) + interval, rank


def _notes(result: results.PairwiseResult) -> list[str]:
    rows, config = result.comparisons[0].tasks, result.config
    units = comparison.units_in_words(rows)
    reasons = [one.reason for side in result.sides for one in (side.ranks or {}).values() if one.reason]
    return [
        "Rank: systems that are not told apart share ranks. With a confidence of 95%, all true ranks are in these "
        "ranges (Holm's correction over pairs and tasks).",
        f"Intervals: over {units}, and over training runs where a system has several ({config.resamples} resamples). "
        f"Level, no worse: by more than {config.margin:g} points (--margin).",
        *(f"{side.name}: {number} {what}." for side in result.sides for what, number in (side.counts or {}).items()),
        *(f"{reason}; it has no rank there and on the mean." for reason in reasons),
    ]
