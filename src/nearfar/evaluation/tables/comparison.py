"""Tables of comparisons: of two sides, of pairs of several, of ranked systems, of a model before and after training."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from nearfar.evaluation import results
from nearfar.evaluation.examples import SHOWN_HITS
from nearfar.evaluation.render import Table, format_score, notes, one_line
from nearfar.evaluation.tables.evaluation import format_seen, seen_notes
from nearfar.types import metric_title

_AVERAGES = {"overall": "average", "overall_transfer": "average accuracy", "overall_retrieval": "average retrieval"}
_UNITS = {"classification": "rows", "retrieval": "queries", "scores": "units"}
"""Kind of a task -> what its bootstrap resamples, of other kinds pairs."""
BEFORE_AFTER = ("before", "after", "after - before [95%]", "trained model")
"""The columns of :func:`before_after_cells`."""
MEAN = "mean over tasks"
MOST_SYSTEMS = 10
"""The largest number of systems of which all pairs are listed; of more, those of neighbours."""


def metric_of(row: results.TaskTest) -> str:
    """The name of the score that is tested."""
    return metric_title(row.metric)


def verdict_in_words(row: results.PairedTest, *, first: str = "", second: str = "", units: str = "rows") -> str:
    """What a test says of its first side, or where that is worse, of the second; ``units`` are those of an average."""
    if row.verdict == "cannot tell" and row.more_units:
        units = _UNITS.get(row.kind, "pairs") if isinstance(row, results.TaskTest) else units
        return f"cannot tell: about {row.more_units:,} more {units} would"
    if row.verdict in (None, "cannot tell", "level"):
        return row.verdict or "undefined"
    return f"{second} better" if row.verdict == "worse" and second else f"{first} {row.verdict}".strip()


def tells_apart(row: results.PairedTest) -> bool:
    """Whether one of the sides is better."""
    return row.verdict in ("better", "worse")


def format_difference(row: results.PairedTest) -> str:
    """The difference with its interval."""
    return "undefined" if row.difference is None else f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]"


def before_after_cells(row: results.PairedTest) -> list[str]:
    """The scores of a model before and after training, which is the first side, and their test."""
    return [format_score(row.second), format_score(row.first), format_difference(row), verdict_in_words(row)]


def before_after_sentence(row: results.PairedTest) -> str:
    """:func:`before_after_cells` as the end of a sentence."""
    if row.difference is None:
        return f"undefined, {row.reason}."
    return "{} before training, {} after, {}: {}.".format(*before_after_cells(row))


def held_out_notes(result: results.ComparisonResult, task: str) -> list[str]:
    """Which rows a trained model, the first side, was compared with its start on, and of what the interval is."""
    row, seen = result.tasks[task], [(side.seen or {}).get(task) for side in result.sides]
    shares = [format_seen(one) for one in seen] if any(one and one.texts for one in seen) else []
    return notes("held_out", row, _UNITS.get(row.kind, "pairs"), result.first.folds, shares)


def comparison_tables(result: results.ComparisonResult | results.PairwiseResult) -> list[Table]:
    """A comparison of two sides; of several sides, the table of all, then that of each pair.

    Of systems that have ranks, their scores and ranks on the mean over tasks and on each task, then the pairs of each.
    """
    if isinstance(result, results.ComparisonResult):
        return [_comparison_table(result)]
    if result.ranked:
        first = result.comparisons[0]
        families = [*([None] if first.overall else []), *first.tasks]
        return [_ranks(result, families), *(_pairs(result, task) for task in families)]
    return [pairwise_table(result), *(_comparison_table(result.between(tests)) for tests in result.comparisons)]


def _comparison_table(comparison: results.ComparisonResult) -> Table:
    """A comparison of two sides: a row for each task and average."""
    tasks, averages = _rows_by_name(comparison)
    sides = f"first {_side_title(comparison.first)}, second {_side_title(comparison.second)}"
    sentences = notes("comparison", comparison, _units_in_words(comparison.tasks), averages)
    seen = seen_notes(["first", "second"], [side.seen or {} for side in comparison.sides])
    return Table(
        rows=[_row_of_test(name, row) for name, row in (tasks | averages).items()],
        breaks=[len(tasks)],
        columns=["task", "first", "second", "first - second [95%]", "verdict"],
        title=f"{_scores_title(comparison.tasks, comparison.config)}: {sides}",
        notes=[*sentences, *seen, *notes("not_compared", comparison)],
    )


class QueriesInWords(NamedTuple):
    """What a comparison says of queries."""

    summary: str
    """How many queries changed, and how the shown ones are chosen."""
    lines: list[str]
    """The shown queries, each with its first hits by the second side, then by the first."""


def queries_in_words(comparison: results.ComparisonResult, *, trained: bool = False) -> QueriesInWords | None:
    """The held-out queries of a comparison that has some, in words; ``trained``: of a model with its start."""
    first, second = ("after", "before") if trained else (side.name for side in comparison.sides)
    if comparison.queries is None:
        return None
    (summary,) = notes("queries", comparison.queries, "After training" if trained else f"With {first}")
    lines = []
    for example in comparison.queries.examples:
        lines.append(f"{example.change:+.3f}  {one_line(example.query)}")
        for name, shown in ((second, example.second), (first, example.first)):
            lines.append(f"  {name}: {f'rank {shown.rank}' if shown.rank else f'not among the first {shown.searched}'}")
            lines += [f"    {'*' if hit.right else ' '} {hit.score:.3f}  {one_line(hit.text)}" for hit in shown.hits]
        lines += [*(f"  right: {one_line(text)}" for text in example.right[:SHOWN_HITS]), ""]
    return QueriesInWords(summary, lines)


def pairwise_table(result: results.PairwiseResult) -> Table:
    """Several sides: a column for each, the best of each row marked."""
    tests = [_rows_by_name(one) for one in result.comparisons]
    every = [tasks | averages for tasks, averages in tests]
    seen = seen_notes([side.name for side in result.sides], [side.seen or {} for side in result.sides])
    return Table(
        rows=[_pairwise_row(name, result, [of_pair[name] for of_pair in every]) for name in every[0]],
        breaks=[len(tests[0][0])],
        columns=["task", *map(_side_title, result.sides)],
        title=_scores_title(result.comparisons[0].tasks, result.config),
        notes=[*notes("pairwise", tests[0][1]), *seen, *notes("not_compared", result)],
    )


def _rows_by_name(
    tests: results.PairTests | results.ComparisonResult,
) -> tuple[dict[str, results.PairedTest], dict[str, results.PairedTest]]:
    """The tests on tasks, with their metrics where these are neither Spearman nor in the title, and on averages."""
    metrics = {row.metric for row in tests.tasks.values()} - {"spearman"}
    known = all(row.kind == "retrieval" for row in tests.tasks.values()) and len(metrics) == 1
    tasks: dict[str, results.PairedTest] = {
        task if known or row.metric == "spearman" else f"{task}, {row.metric}": row for task, row in tests.tasks.items()
    }
    return tasks, {_AVERAGES.get(name, f"average of {name}"): row for name, row in tests.averages.items()}


def _units_in_words(tasks: Mapping[str, results.TaskTest]) -> str:
    """What the bootstrap resamples in tasks of these kinds."""
    units = {_UNITS.get(row.kind, "pairs") for row in tasks.values()}
    return " or ".join(unit for unit in ("pairs", *_UNITS.values()) if unit in units)


def _scores_title(tasks: Mapping[str, results.TaskTest], config: results.ComparisonSettings) -> str:
    """What the scores of the tasks are, for a title."""
    kinds, metrics = {row.kind for row in tasks.values()}, {row.metric for row in tasks.values()}
    if kinds == {"scores"}:
        return metrics.pop()
    if kinds == {"retrieval"}:
        return f"{metrics.pop() if len(metrics) == 1 else 'Retrieval'} x 100"
    names = {"classification": "accuracy", "retrieval": "retrieval"}
    titles = [f"Spearman x 100 ({config.aggregate})"] if kinds - names.keys() else []
    title = ", or ".join([*titles, *(f"{name} x 100" for kind, name in names.items() if kind in kinds)])
    return title[0].upper() + title[1:]


def _pairwise_row(name: str, result: results.PairwiseResult, of_pairs: Sequence[results.PairedTest]) -> list[str]:
    """The scores of all sides, from the tests of each pair of them, those with the first side first."""
    scores = [of_pairs[0].first, *(test.second for test in of_pairs[: len(result.sides) - 1])]
    known = {side: score for side, score in enumerate(scores) if score is not None}
    best = max(known, key=known.__getitem__, default=None)
    near = {
        side
        for compared, test in zip(result.comparisons, of_pairs, strict=True)
        for side in compared.pair
        if best in compared.pair and test.verdict and not tells_apart(test)
    }
    marks = [" *" if side == best else " =" if side in near else "" for side in range(len(scores))]
    return [name, *(format_score(score) + mark for score, mark in zip(scores, marks, strict=True))]


def _row_of_test(name: str, row: results.PairedTest) -> list[str]:
    scores = [*map(format_score, (row.first, row.second))]
    difference = "" if row.difference is None else format_difference(row)
    return [name, *scores, difference, verdict_in_words(row, first="first", second="second")]


def _side_title(side: results.ComparedSide) -> str:
    """The name of a side, and its number of runs where it has several."""
    runs = len(side.models)
    return side.name if runs == 1 else f"{side.name} (mean of {runs} runs)"


def _ranks(result: results.PairwiseResult, families: Sequence[str | None]) -> Table:
    """The scores and ranks of all systems, on the mean over tasks (None) and on each task."""
    tasks, several = result.comparisons[0].tasks, len(families) > 1
    rows, breaks = list[list[str]](), list[int]()
    for task in families:
        breaks.append(len(rows))
        for number, one in _best_first(result, task):
            interval = "" if one.low is None else f" [{one.low:.2f}, {one.high:.2f}]"
            ranks = dict.fromkeys(str(rank) for rank in (one.best_rank, one.worst_rank) if rank is not None)
            family = [""] if len(rows) > breaks[-1] else [task or MEAN]
            cells = [_side_title(result.sides[number]), format_score(one.score) + interval, " to ".join(ranks)]
            rows.append([*(family if several else []), *cells])
    return Table(
        rows=rows,
        breaks=breaks,
        columns=[*(["task"] if several else []), "system", "score [95%]", "rank"],
        title=f"{_scores_title(tasks, result.config)}: ranks of {len(result.sides)} systems",
        notes=notes("ranks", result, _units_in_words(tasks)),
        left=1 + several,
    )


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
            says = verdict_in_words(row, first=a, second=b, units=_units_in_words(tests.tasks))
            rows.append([a, b, format_difference(row), says])
    note = f"Neighbours in the order of scores; a result file (--output) has all {len(result.comparisons)} pairs."
    columns = ["first", "second", "first - second [95%]", "verdict"]
    return Table(title=f"Pairs, {task or MEAN}", columns=columns, rows=rows, notes=[] if few else [note], left=2)


def _best_first(result: results.PairwiseResult, task: str | None) -> list[tuple[int, results.RankedScore]]:
    """The number of each side and its score on a task, or on the mean over tasks; undefined scores come last."""
    scores = [side.overall_rank if task is None else (side.ranks or {}).get(task) for side in result.sides]
    known = [(number, one) for number, one in enumerate(scores) if one is not None]
    return sorted(known, key=lambda item: (item[1].score is None, -(item[1].score or 0.0)))
