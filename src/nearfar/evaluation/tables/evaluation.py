"""Evaluations as tables: similarity, transfer tasks, retrieval, and the spread over several seeds."""

from collections.abc import Sequence
from statistics import mean, stdev

from rich.table import Table

from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.results import (
    AggregateEstimates,
    ClassificationScores,
    Estimate,
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


def spread_table(
    runs: Sequence[EvaluationResult], *, metric: str = "spearman", measure: str | None = None, subsets: bool = False
) -> Table:
    """Evaluations of one method with several seeds on screen: mean, standard deviation, minimum and maximum.

    A similarity task with subsets has a row for each of ``all``, ``mean`` and ``wmean``, and with ``subsets`` one for
    each subset; so have averages.
    """
    rows: list[list[str]] = []
    divided = False
    for task, similarity in runs[0].tasks.items():
        aggregates = AGGREGATES if len(similarity.subsets) > 1 else AGGREGATES[:1]
        divided |= len(aggregates) > 1
        rows += _spread_of_aggregates(task, [run.tasks[task].metric(metric) for run in runs], aggregates)
        for name in similarity.subsets if subsets and len(similarity.subsets) > 1 else ():
            rows.append(_spread(f"{task} / {name}", [run.tasks[task].subsets[name].metric(metric) for run in runs]))
    averages: list[list[str]] = []
    for name in runs[0].averages:
        estimates = [run.averages[name].metric(metric) for run in runs]
        averages += _spread_of_aggregates(f"average of {name}", estimates, AGGREGATES if divided else AGGREGATES[:1])
    transfer = [run.transfer for run in runs if run.transfer]
    if transfer:
        for task, scored in transfer[0].tasks.items():
            rows.append(_spread(f"{task}, {_main_metric(scored.kind)}", [one.tasks[task].main for one in transfer]))
        for name in transfer[0].averages:
            averages.append(_spread(f"average of {name}", [one.averages[name].accuracy for one in transfer]))
    for task, ranked in runs[0].retrieval.items():
        shown = measure or ranked.main
        found = [run.retrieval[task].metric(shown) for run in runs]
        rows.append(_spread(f"{task}, {shown}", [one for one in found if one is not None]))
    title = f"{runs[0].model}: {len(runs)} runs, {_TITLES[metric]} x 100 (all), or the metric that is named, x 100"
    header = ["task", "mean", "standard deviation", "minimum", "maximum"]
    return rich_table(Grid(title, header, [rows, averages], []))


def _spread_of_aggregates(
    name: str, runs: Sequence[AggregateEstimates], aggregates: Sequence[Aggregate]
) -> list[list[str]]:
    """A row for each aggregate; that of ``all`` has the name alone."""
    labels = {aggregate: name if aggregate == "all" else f"{name}, {aggregate}" for aggregate in aggregates}
    return [_spread(label, [one.of(aggregate) for one in runs]) for aggregate, label in labels.items()]


def _main_metric(kind: str) -> str:
    return "accuracy" if kind == "classification" else "pearson"


def _spread(name: str, estimates: Sequence[Estimate]) -> list[str]:
    scores = [estimate.score for estimate in estimates if estimate.score is not None]
    if len(scores) < len(estimates):
        return [name, "undefined", "", "", ""]
    deviation = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
    return [name, f"{mean(scores):.2f}", deviation, f"{min(scores):.2f}", f"{max(scores):.2f}"]


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
    return [*grids[:-1], grids[-1]._replace(notes=[*grids[-1].notes, *notes]), *seen_grids([result])]


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
