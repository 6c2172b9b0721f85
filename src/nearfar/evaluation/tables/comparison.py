"""Tables of comparisons: of two sides, of pairs of several, of ranked systems, of a model before and after training."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from nearfar.evaluation import results
from nearfar.evaluation.examples import QueriesInWords, describe_queries
from nearfar.evaluation.render import Table
from nearfar.evaluation.tables.evaluation import comparison_notes, format_score, format_seen
from nearfar.types import metric_title

_AVERAGES = {"overall": "average", "overall_transfer": "average accuracy", "overall_retrieval": "average retrieval"}
_UNITS = {
    **{"similarity": "pairs", "relatedness": "pairs", "classification": "rows", "retrieval": "queries"},
    "scores": "units",
}
"""Kind of a task -> what its bootstrap resamples."""
BEFORE_AFTER = ("before", "after", "after - before [95%]", "trained model")
"""The columns of :func:`before_after_cells`."""
MEAN = "mean over tasks"
MOST_SYSTEMS = 10
"""The largest number of systems of which all pairs are listed; of more, those of neighbours."""


def metric_of(row: results.TaskTest) -> str:
    """The name of the score that is tested."""
    return metric_title(row.measure or ("accuracy" if row.kind == "classification" else "spearman"))


def verdict_in_words(row: results.PairedTest, *, first: str = "", second: str = "", units: str = "rows") -> str:
    """What a test says of its first side, or where that is worse, of the second; ``units`` are those of an average."""
    if row.verdict == "cannot tell" and row.more_units:
        units = _UNITS[row.kind] if isinstance(row, results.TaskTest) else units
        return f"cannot tell: about {row.more_units:,} more {units} would"
    if row.verdict in (None, "cannot tell", "level"):
        return row.verdict or "undefined"
    return f"{second} better" if row.verdict == "worse" and second else f"{first} {row.verdict}".strip()


def tells_apart(row: results.PairedTest) -> bool:
    """Whether one of the sides is better."""
    return row.verdict in ("better", "worse")


def before_after_cells(row: results.PairedTest) -> list[str]:
    """The scores of a model before and after training, which is the first side, and their test."""
    return [format_score(row.second), format_score(row.first), format_difference(row), verdict_in_words(row)]


def before_after_sentence(row: results.PairedTest) -> str:
    """:func:`before_after_cells` as the end of a sentence."""
    if row.difference is None:
        return f"undefined, {row.reason}."
    change = f"{format_difference(row)}: {verdict_in_words(row)}"
    return f"{row.second:.2f} before training, {row.first:.2f} after, {change}."


def held_out_notes(result: results.ComparisonResult, task: str) -> list[str]:
    """Which rows a trained model, the first side, was compared with its start on, and of what the interval is."""
    row, folds = result.tasks[task], result.sides[0].folds
    seen = [(side.seen or {}).get(task) for side in result.sides]
    which = fold_note(folds) if folds else "Rows that were neither trained on nor used to choose the step"
    if any(shares and (shares.main or shares.texts) for shares in seen):
        after, before = (format_seen(shares) or "not recorded" for shares in seen)
        earlier = "Rows that this run neither trained on nor used to choose the step, but earlier training did"
        which = f"{which}. Earlier training had some of the rows" if folds else earlier
        shares = "Share of the pairs (in brackets: of the texts) that was seen"
        which = f"{which}. {shares}: before {before}, after {after}"
    notes = [f"{which}. The interval is over {_UNITS[row.kind]}: it says nothing of training with other seeds."]
    if row.verdict == "cannot tell" and not folds:
        notes.append("--hold-out NUMBER holds out more rows to test on.")
    return notes


def fold_note(folds: int) -> str:
    """Which rows a model was tested on that was trained on all of them, and how."""
    return (
        f"Each row is tested by one of {folds} models that were trained with the same settings without its fold; the "
        "saved model is trained on all rows"
    )


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
    names = _task_names(comparison.tasks)
    tasks = {names[task]: row for task, row in comparison.tasks.items()}
    averages = _averages(comparison.comparisons[0])
    sides = f"first {_side_title(comparison.first)}, second {_side_title(comparison.second)}"
    return Table.of_groups(
        [[_row_of_test(name, row) for name, row in group.items()] for group in (tasks, averages)],
        columns=["task", "first", "second", "first - second [95%]", "verdict"],
        title=f"{_scores_title(comparison.tasks, comparison.config)}: {sides}",
        notes=_comparison_notes(comparison, averages),
    )


def queries_in_words(comparison: results.ComparisonResult, *, trained: bool = False) -> QueriesInWords | None:
    """The held-out queries of a comparison that has some, in words; ``trained``: of a model with its start."""
    first, second = ("after", "before") if trained else (side.name for side in comparison.sides)
    if comparison.queries is None:
        return None
    start = "After training" if trained else f"With {first}"
    return describe_queries(comparison.queries, start=start, first=first, second=second)


def pairwise_table(result: results.PairwiseResult) -> Table:
    """Several sides: a column for each, the best of each row marked."""
    first = result.comparisons[0]
    names, averages = _task_names(first.tasks), _averages(first)
    pairs = result.comparisons
    tasks = [_pairwise_row(names[task], result, [tests.tasks[task] for tests in pairs]) for task in first.tasks]
    means = [_pairwise_row(name, result, [_averages(tests)[name] for tests in pairs]) for name in averages]
    notes = [
        "* the best; = not told apart from it. p is corrected (Holm) over tasks and pairs of sides, which all use the "
        "same resamples.",
        *(f"{name}: mean over {', '.join(average.tasks)}." for name, average in averages.items()),
        *comparison_notes([side.name for side in result.sides], result.sides),
        *_not_compared(result),
    ]
    columns = ["task", *map(_side_title, result.sides)]
    title = _scores_title(first.tasks, result.config)
    return Table.of_groups([tasks, means], columns=columns, title=title, notes=notes)


def _task_names(tasks: Mapping[str, results.TaskTest]) -> dict[str, str]:
    """The tasks with their metrics, where these are neither Spearman nor in the title."""
    metrics = {task: "accuracy" if row.kind == "classification" else row.measure for task, row in tasks.items()}
    if len(set(metrics.values())) == 1 and all(row.kind == "retrieval" for row in tasks.values()):
        return {task: task for task in tasks}
    return {task: f"{task}, {metric}" if metric else task for task, metric in metrics.items()}


def _units_in_words(tasks: Mapping[str, results.TaskTest]) -> str:
    """What the bootstrap resamples in tasks of these kinds."""
    return " or ".join(dict.fromkeys(_UNITS[kind] for kind in _UNITS if kind in {row.kind for row in tasks.values()}))


def _scores_title(tasks: Mapping[str, results.TaskTest], config: results.ComparisonSettings) -> str:
    """What the scores of the tasks are, for a title."""
    kinds = {row.kind for row in tasks.values()}
    if kinds == {"classification"}:
        return "Accuracy x 100"
    if kinds == {"scores"}:
        return next(iter(tasks.values())).measure or "score"
    if kinds == {"retrieval"}:
        measures = {row.measure for row in tasks.values() if row.measure}
        return f"{measures.pop() if len(measures) == 1 else 'Retrieval'} x 100"
    others = [name for kind, name in (("classification", "accuracy"), ("retrieval", "retrieval")) if kind in kinds]
    return ", or ".join([f"Spearman x 100 ({config.aggregate})", *(f"{name} x 100" for name in others)])


def _pairwise_row(name: str, result: results.PairwiseResult, of_pairs: Sequence[results.PairedTest]) -> list[str]:
    """The scores of all sides, from the tests of each pair of them."""
    tests = {
        (compared.pair[0], compared.pair[1]): test for compared, test in zip(result.comparisons, of_pairs, strict=True)
    }
    values = [tests[0, side].second if side else tests[0, 1].first for side in range(len(result.sides))]
    known = {side: value for side, value in enumerate(values) if value is not None}
    best = max(known, key=known.__getitem__, default=None)
    near = {
        side for pair, test in tests.items() if best in pair and test.verdict and not tells_apart(test) for side in pair
    }
    marks = (" *" if side == best else " =" if side in near else "" for side in range(len(values)))
    return [name, *(format_score(value) + mark for value, mark in zip(values, marks, strict=True))]


def _averages(tests: results.PairTests) -> dict[str, results.AverageTest]:
    """The tests on averages, by their names in tables."""
    return {_AVERAGES.get(key, f"average of {key}"): average for key, average in tests.averages.items()}


def format_difference(row: results.PairedTest) -> str:
    """The difference with its interval."""
    return "undefined" if row.difference is None else f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]"


def _row_of_test(name: str, row: results.PairedTest) -> list[str]:
    scores = [*map(format_score, (row.first, row.second))]
    difference = "" if row.difference is None else format_difference(row)
    return [name, *scores, difference, verdict_in_words(row, first="first", second="second")]


def _comparison_notes(comparison: results.ComparisonResult, averages: Mapping[str, results.AverageTest]) -> list[str]:
    config, tasks = comparison.config, comparison.tasks
    several = [name for name, side in zip(("first", "second"), comparison.sides, strict=True) if len(side.models) > 1]
    lone = [name for name in ("first", "second") if name not in several]
    of_runs = " and training runs" * bool(several)
    unknown = f"; it says nothing of other training runs of {' and '.join(lone)}, one model{' each' * (len(lone) > 1)}"
    notes = [
        f"Interval: 95%, over {_units_in_words(tasks)}, those that share a text together{of_runs} ({config.resamples} "
        f"resamples){unknown * bool(lone)}.",
        f"Level: no difference of {config.margin:g} points or more (--margin); no worse: not by that much. Better: p "
        f"below {config.level:g}, of several tasks after Holm's correction.",
        *(f"{name}: mean over {', '.join(row.tasks)}." for name, row in averages.items()),
    ]
    rows: dict[str, results.PairedTest] = {**tasks, **averages}
    notes += [f"{name}: {row.reason}." for name, row in rows.items() if row.reason is not None]
    notes += [f"{side.name}: {fold_note(side.folds)}." for side in comparison.sides if side.folds]
    return [*notes, *comparison_notes(["first", "second"], comparison.sides), *_not_compared(comparison)]


def _not_compared(result: results.ComparisonResult | results.PairwiseResult) -> list[str]:
    if not result.not_compared:
        return []
    return [f"Not compared, because not all sides were evaluated on them: {', '.join(result.not_compared)}."]


def _side_title(side: results.ComparedSide) -> str:
    """The name of a side, and its number of runs where it has several."""
    runs = len(side.models)
    return side.name if runs == 1 else f"{side.name} (mean of {runs} runs)"


def _ranks(result: results.PairwiseResult, families: Sequence[str | None]) -> Table:
    """The scores and ranks of all systems, on the mean over tasks (None) and on each task."""
    config, first, several = result.config, result.comparisons[0].tasks, len(families) > 1
    groups = []
    for task in families:
        rows: list[list[str]] = []
        for number, one in _best_first(result, task):
            interval = "" if one.low is None else f" [{one.low:.2f}, {one.high:.2f}]"
            shared = one.best_rank is not None and one.best_rank != one.worst_rank
            rank = f"{one.best_rank} to {one.worst_rank}" if shared else str(one.best_rank or "")
            family = [] if not several else [""] if rows else [task or MEAN]
            rows.append([*family, _side_title(result.sides[number]), format_score(one.score) + interval, rank])
        groups.append(rows)
    reasons = [one.reason for side in result.sides for one in (side.ranks or {}).values() if one.reason]
    notes = [
        "Rank: systems that are not told apart share ranks. With a confidence of 95%, all true ranks are in these "
        "ranges (Holm's correction over pairs and tasks).",
        f"Intervals: over {_units_in_words(first)}, and over training runs where a system has several "
        f"({config.resamples} resamples). Level, no worse: by more than {config.margin:g} points (--margin).",
        *(f"{side.name}: {number} {what}." for side in result.sides for what, number in (side.counts or {}).items()),
        *(f"{reason}; it has no rank there and on the mean." for reason in reasons),
    ]
    columns = [*(["task"] if several else []), "system", "score [95%]", "rank"]
    title = f"{_scores_title(first, config)}: ranks of {len(result.sides)} systems"
    return Table.of_groups(groups, columns=columns, title=title, notes=notes, left=1 + several)


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
