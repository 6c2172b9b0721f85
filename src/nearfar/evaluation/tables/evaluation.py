"""Evaluations as tables: similarity, transfer tasks and retrieval."""

from collections.abc import Sequence

from rich.table import Table

from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.results import (
    AggregateEstimates,
    ClassificationScores,
    EvaluationResult,
    TransferResults,
)
from nearfar.evaluation.stored import stored_notes
from nearfar.evaluation.tables.grid import Grid, format_estimate, markdown_page, rich_table
from nearfar.evaluation.tables.retrieval import file_grid, screen_grid
from nearfar.evaluation.tables.seen import seen_grids

_TITLES = {"spearman": "Spearman", "pearson": "Pearson"}


def evaluation_tables(
    result: EvaluationResult, *, metric: str = "spearman", measure: str | None = None, subsets: bool = False
) -> list[Table]:
    """An evaluation on screen: similarity by ``all``, ``mean`` and ``wmean``, transfer tasks, averages, retrieval.

    ``measure`` is the retrieval measure that is shown with its interval, by default the main one of each task.
    """
    return [rich_table(grid) for grid in _evaluation_grids(result, [metric], measure, subsets=subsets)]


def evaluation_markdown(result: EvaluationResult) -> str:
    """An evaluation in Markdown: both metrics with subsets and averages, and the provenance."""
    grids = _evaluation_grids(result, list(_TITLES), None, subsets=True, to_file=True)
    return markdown_page(f"Evaluation of {result.model}", grids, result.provenance)


def evaluation_grids(result: EvaluationResult) -> list[Grid]:
    """The tables of an evaluation with one metric and without subsets, for pages that have their own headings."""
    return _evaluation_grids(result, ["spearman"], None, subsets=False, to_file=True)


def _evaluation_grids(
    result: EvaluationResult, metrics: Sequence[str], measure: str | None, *, subsets: bool, to_file: bool = False
) -> list[Grid]:
    grids = [_similarity_grid(result, metric, subsets=subsets) for metric in metrics] if result.tasks else []
    if result.transfer:
        grids.append(_transfer_grid(result, result.transfer))
    if result.retrieval:
        grids.append(file_grid(result) if to_file else screen_grid(result, measure))
    notes = [f"{task}: not evaluated. {why}" for task, why in result.unavailable.items()]
    if result.transductive:
        notes.append("Fitted on the texts of each task, without their scores (transductive).")
    notes += stored_notes(result)
    if not grids:
        return []
    return [*grids[:-1], grids[-1]._replace(notes=[*grids[-1].notes, *notes]), *seen_grids(result)]


def _similarity_grid(result: EvaluationResult, metric: str, *, subsets: bool) -> Grid:
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
    return Grid(title, ["task", "pairs", *AGGREGATES], [tasks, averages], _similarity_notes(result, metric))


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


def _transfer_grid(result: EvaluationResult, transfer: TransferResults) -> Grid:
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
    return Grid(title, ["task", "rows", "metric", "score", "also"], [tasks, averages], notes)


def _training_notes(result: EvaluationResult) -> list[str]:
    """How a classifier was fine-tuned, and on which rows."""
    training = result.training
    if training is None:
        return []
    speed = "" if training.updates_per_second is None else f", {training.updates_per_second:.2f} updates per second"
    chosen = f"{training.metric} {training.validation:.2f}, best step {training.best_step} of {training.steps}{speed}"
    return [f"Validation rows: {chosen}.", *(f"{source}." for source in result.config.get("data") or [])]
