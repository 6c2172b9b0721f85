"""Evaluations as tables: similarity, transfer tasks and retrieval."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import (
    AggregateEstimates,
    ClassificationScores,
    EvaluationResult,
    TransferResults,
)
from nearfar.evaluation.stored import stored_notes
from nearfar.evaluation.tables.seen import format_estimate, format_score, seen_tables

_TITLES = {"spearman": "Spearman", "pearson": "Pearson"}
ALL_MEASURES_UP_TO = 3
"""Number of tasks up to which the screen shows all measures of each."""
_RETRIEVAL = "{}: retrieval, x 100 [95% interval]"


def evaluation_tables(
    result: EvaluationResult,
    *,
    metrics: Sequence[str] = ("spearman",),
    measure: str | None = None,
    subsets: bool = False,
    screen: bool = False,
) -> list[Table]:
    """The tables of an evaluation: similarity by ``all``, ``mean`` and ``wmean``, transfer tasks, averages, retrieval.

    Args:
        result: the evaluation.
        metrics: ``spearman``, ``pearson`` or both: a table of similarity for each.
        measure: on a screen, the retrieval measure with its interval; by default the main one of each task.
        subsets: whether tasks with subsets have a row for each.
        screen: whether retrieval is narrow, for a screen, or has all measures as columns.
    """
    tables = [_similarity(result, metric, subsets=subsets) for metric in metrics] if result.tasks else []
    if result.transfer:
        tables.append(_transfer(result, result.transfer))
    if result.retrieval:
        tables.append(_retrieval_on_screen(result, measure) if screen else _retrieval_in_file(result))
    notes = [f"{task}: not evaluated. {why}" for task, why in result.unavailable.items()]
    if result.transductive:
        notes.append("Fitted on the texts of each task, without their scores (transductive).")
    notes += stored_notes(result)
    if not tables:
        return []
    return [*tables[:-1], replace(tables[-1], notes=[*tables[-1].notes, *notes]), *seen_tables(result)]


def _similarity(result: EvaluationResult, metric: str, *, subsets: bool) -> Table:
    tasks = []
    for task, scored in result.tasks.items():
        estimates = [format_estimate(estimate) for _, estimate in scored.metric(metric).items()]
        tasks.append([task, str(scored.pairs), *estimates])
        if subsets and len(scored.subsets) > 1:
            for name, subset in scored.subsets.items():
                tasks.append([f"{task} / {name}", str(subset.pairs), format_estimate(subset.metric(metric)), "", ""])
    averages = [
        [f"average of {name}", "", *(format_estimate(estimate) for _, estimate in average.metric(metric).items())]
        for name, average in result.averages.items()
    ]
    title = f"{result.model}: {_TITLES[metric]} x 100 [95% interval]"
    columns = ["task", "pairs", *AGGREGATES]
    return Table.of_groups([tasks, averages], columns=columns, title=title, notes=_similarity_notes(result, metric))


def _similarity_notes(result: EvaluationResult, metric: str) -> list[str]:
    resamples, pooling = result.resamples, result.config.get("pooling")
    notes = [
        "all: over all pairs of a task; mean: mean over its subsets; wmean: mean weighted by number of pairs.",
        *([f"Intervals: 95%, from {resamples} bootstrap resamples of pairs."] * bool(resamples)),
        *([f"Pooling: {pooling}."] * bool(pooling)),
    ]
    for name, scored in result.tasks.items():
        notes += _reasons(name, scored.metric(metric))
        if scored.zero_vectors:
            notes.append(f"{name}: {scored.zero_vectors} pairs with a zero vector; their cosine is set to 0.")
    return notes + [
        note for name, average in result.averages.items() for note in _reasons(name, average.metric(metric))
    ]


def _reasons(name: str, estimates: AggregateEstimates) -> list[str]:
    """Why aggregates are undefined, one note for each reason."""
    reasons: dict[str, list[str]] = {}
    for aggregate, estimate in estimates.items():
        if estimate.reason is not None:
            reasons.setdefault(estimate.reason, []).append(aggregate)
    return [f"{name}, {' and '.join(aggregates)}: {reason}." for reason, aggregates in reasons.items()]


def _transfer(result: EvaluationResult, transfer: TransferResults) -> Table:
    """Probes or fine-tuned classifiers: accuracy, F1 and Matthews where there are any; correlations of relatedness."""
    tasks, notes = [], []
    for task, scored in transfer.tasks.items():
        if isinstance(scored, ClassificationScores):
            others = [("F1", scored.f1), ("Matthews", scored.matthews)]
        else:
            others = [("Spearman", scored.spearman)]
        more = ", ".join(f"{name} {format_estimate(estimate)}" for name, estimate in others if estimate is not None)
        title = "accuracy" if scored.kind == "classification" else "Pearson"
        tasks.append([task, str(scored.size), title, format_estimate(scored.main), more])
        if scored.main.reason is not None:
            notes.append(f"{task}: {scored.main.reason}.")
    averages = [
        [f"average of {name}", "", "accuracy", format_estimate(average.accuracy), ""]
        for name, average in transfer.averages.items()
    ]
    finetuned = transfer.protocol == "finetune"
    head = [] if finetuned else [f"Probes with protocol {transfer.describe_probe()}."]
    if result.resamples:
        head.append(f"Intervals: 95%, from {result.resamples} bootstrap resamples of the tested rows.")
    title = f"{result.model}: {'fine-tuned' if finetuned else 'transfer tasks'}, x 100 [95% interval]"
    notes = [*head, *notes, *_training_notes(result)]
    columns = ["task", "rows", "metric", "score", "also"]
    return Table.of_groups([tasks, averages], columns=columns, title=title, notes=notes)


def _training_notes(result: EvaluationResult) -> list[str]:
    """How a classifier was fine-tuned, and on which rows."""
    training = result.training
    if training is None:
        return []
    speed = "" if training.updates_per_second is None else f", {training.updates_per_second:.2f} updates per second"
    chosen = f"{training.metric} {training.validation:.2f}, best step {training.best_step} of {training.steps}{speed}"
    return [f"Validation rows: {chosen}.", *(f"{source}." for source in result.config.get("data") or [])]


def _retrieval_on_screen(result: EvaluationResult, measure: str | None) -> Table:
    """The retrieval tasks of an evaluation for a screen, with intervals.

    A row for each task with ``measure``, and the mean over several tasks. By default it is the main measure of each
    task, and up to :data:`ALL_MEASURES_UP_TO` tasks have a row for each measure, the main one first.
    """
    several = measure is None and len(result.retrieval) <= ALL_MEASURES_UP_TO
    sections = []
    for name, scored in result.retrieval.items():
        shown = measure or scored.main
        others = [column for column in MEASURES if column != shown] if several else []
        head = [[name, str(scored.queries), str(scored.documents), shown, format_estimate(scored.metric(shown))]]
        sections.append(head + [["", "", "", other, format_estimate(scored.metric(other))] for other in others])
    if not several:
        sections = [[row for section in sections for row in section]]
    compared = {measure or scored.main for scored in result.retrieval.values()}
    if len(compared) == 1 and (average := _retrieval_averages(result, tuple(compared))):
        sections.append([["average", "", "", *compared, *average]])
    header = ["task", "queries", "documents", "measure", "score"]
    title = _RETRIEVAL.format(result.model)
    return Table.of_groups(sections, columns=header, title=title, notes=list(_retrieval_notes(result)))


def _retrieval_in_file(result: EvaluationResult) -> Table:
    """The retrieval tasks of an evaluation for a file: all measures as columns, with intervals."""
    rows = [
        [
            name,
            str(scored.queries),
            str(scored.documents),
            *(format_estimate(scored.metric(column)) for column in MEASURES),
        ]
        for name, scored in result.retrieval.items()
    ]
    averages = [["average", "", "", *average]] if (average := _retrieval_averages(result, MEASURES)) else []
    columns, title = ["task", "queries", "documents", *MEASURES], _RETRIEVAL.format(result.model)
    return Table.of_groups([rows, averages], columns=columns, title=title, notes=list(_retrieval_notes(result)))


def _retrieval_averages(result: EvaluationResult, measures: Sequence[str]) -> list[str]:
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


def _retrieval_notes(result: EvaluationResult) -> Iterator[str]:
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
