"""Retrieval tasks as tables: narrow for a screen, with all measures as columns for a file."""

from collections.abc import Iterator, Sequence
from statistics import mean

from nearfar.data.retrieval_task import MEASURES
from nearfar.evaluation.results import Estimate, EvaluationResult
from nearfar.evaluation.tables.grid import Grid, format_estimate, format_score

ALL_MEASURES_UP_TO = 3
"""Number of tasks up to which the screen shows all measures of each."""


def screen_grid(result: EvaluationResult, measure: str | None) -> Grid:
    """The retrieval tasks of an evaluation for a screen, with intervals.

    A row for each task with ``measure``, and the mean over several tasks. By default it is the main measure of each
    task, and up to :data:`ALL_MEASURES_UP_TO` tasks have a row for each measure, the main one first.
    """
    several = measure is None and len(result.retrieval) <= ALL_MEASURES_UP_TO
    sections = []
    for name, scored in result.retrieval.items():
        shown = measure or scored.main
        others = [column for column in MEASURES if column != shown] if several else []
        head = [[name, str(scored.queries), str(scored.documents), shown, _cell(scored.metric(shown), interval=True)]]
        sections.append(head + [["", "", "", other, _cell(scored.metric(other), interval=True)] for other in others])
    if not several:
        sections = [[row for section in sections for row in section]]
    compared = {measure or scored.main for scored in result.retrieval.values()}
    if len(compared) == 1 and (average := _averages(result, tuple(compared))):
        sections.append([["average", "", "", *compared, *average]])
    header = ["task", "queries", "documents", "measure", "score"]
    return Grid(_title(result), header, sections, list(_notes(result)))


def file_grid(result: EvaluationResult) -> Grid:
    """The retrieval tasks of an evaluation for a file: all measures as columns, with intervals."""
    rows = [
        [
            name,
            str(scored.queries),
            str(scored.documents),
            *(_cell(scored.metric(column), interval=True) for column in MEASURES),
        ]
        for name, scored in result.retrieval.items()
    ]
    averages = [["average", "", "", *average]] if (average := _averages(result, MEASURES)) else []
    return Grid(_title(result), ["task", "queries", "documents", *MEASURES], [rows, averages], list(_notes(result)))


def _title(result: EvaluationResult) -> str:
    return f"{result.model}: retrieval, x 100 [95% interval]"


def _cell(estimate: Estimate | None, *, interval: bool) -> str:
    if estimate is None:
        return ""
    return format_estimate(estimate) if interval else format_score(estimate.score)


def _averages(result: EvaluationResult, measures: Sequence[str]) -> list[str]:
    """The mean of each measure over several tasks; empty for a single task."""
    tasks = result.retrieval.values()
    if len(tasks) < 2:
        return []
    cells = []
    for measure in measures:
        estimates = [task.metric(measure) for task in tasks]
        scores = [one.score for one in estimates if one is not None and one.score is not None]
        cells.append(format_score(mean(scores)) if len(scores) == len(tasks) else "")
    return cells


def _notes(result: EvaluationResult) -> Iterator[str]:
    if result.resamples:
        yield f"Intervals: 95%, from {result.resamples} bootstrap resamples of queries."
    mains: dict[str, list[str]] = {}
    for name, scored in result.retrieval.items():
        mains.setdefault(scored.main, []).append(name)
    for main, names in mains.items():
        yield f"Main measure: {main}." if len(mains) == 1 else f"Main measure of {', '.join(names)}: {main}."
    for name, scored in result.retrieval.items():
        counts = [f"{what} ({number})" for what, number in scored.counts.items() if number]
        if counts:
            yield f"{name}: {', '.join(counts)}."
