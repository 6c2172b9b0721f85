"""Evaluations as tables: similarity, transfer tasks, retrieval, and what the model has seen of them in training."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import mean
from typing import Any, Literal

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation import results
from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.render import Table, format_score, format_share, notes
from nearfar.quantization import Quantization, bytes_per_vector
from nearfar.types import metric_title

ALL_MEASURES_UP_TO = 3
"""Number of tasks up to which the screen shows all measures of each."""


def evaluation_tables(
    result: results.EvaluationResult,
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
    tables = [_similarity(result, metric, subsets=subsets) for metric in metrics if result.tasks]
    if result.transfer:
        tables.append(_transfer(result, result.transfer))
        entries = result.transfer.tasks.values() if result.transfer.protocol == "finetune" else ()
        tables += [class_table(one) for one in entries if isinstance(one, results.ClassificationScores) and one.gold]
    if result.retrieval:
        tables.append(_retrieval(result, measure, screen=screen))
    if not tables:
        return []
    last = tables.pop()
    more = notes("evaluation", result, stored_bytes(result))
    return [*tables, replace(last, notes=[*last.notes, *more]), *seen_tables(result)]


def _similarity(result: results.EvaluationResult, metric: str, *, subsets: bool) -> Table:
    def row(name: str, size: object, scored: Any) -> list[str]:
        return [name, str(size), *(format_estimate(estimate) for _, estimate in scored.metric(metric).items())]

    tasks = []
    for task, scored in result.tasks.items():
        tasks.append(row(task, scored.pairs, scored))
        for name, subset in scored.subsets.items() if subsets and len(scored.subsets) > 1 else ():
            tasks.append([f"{task} / {name}", str(subset.pairs), format_estimate(subset.metric(metric)), "", ""])
    averages = [row(f"average of {name}", "", average) for name, average in result.averages.items()]
    title = f"{result.model}: {metric_title(metric)} x 100 [95% interval]"
    columns = ["task", "pairs", *AGGREGATES]
    words = notes("similarity", result, metric)
    return Table(rows=[*tasks, *averages], breaks=[len(tasks)], columns=columns, title=title, notes=words)


def _transfer(result: results.EvaluationResult, transfer: results.TransferResults) -> Table:
    """Probes or fine-tuned classifiers: accuracy, F1 and Matthews where there are any; correlations of relatedness."""
    tasks = []
    for task, scored in transfer.tasks.items():
        title = "accuracy" if scored.main == "accuracy" else metric_title(scored.main)
        known = {name: scored.metric(name) for name in sorted(scored.METRICS) if name != scored.main}
        also = [f"{metric_title(name)} {format_estimate(estimate)}" for name, estimate in known.items() if estimate]
        score = format_estimate(scored.metric(scored.main))
        tasks.append([task, str(scored.size), title, score, ", ".join(also)])
    averages = [
        [f"average of {name}", "", "accuracy", format_estimate(average.accuracy), ""]
        for name, average in transfer.averages.items()
    ]
    what = "fine-tuned" if transfer.protocol == "finetune" else "transfer tasks"
    return Table(
        rows=[*tasks, *averages],
        breaks=[len(tasks)],
        columns=["task", "rows", "metric", "score", "also"],
        title=f"{result.model}: {what}, x 100 [95% interval]",
        notes=notes("transfer", result),
    )


def class_table(entry: results.ClassificationScores) -> Table:
    """Rows, precision, recall and F1 of each label; the notes have macro F1 and the share of the most frequent label.

    Macro F1 is the mean of F1 over the labels that a tested row has or is predicted to have. What is undefined is 0.
    """
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support  # imported here: slow

    gold, predicted = entry.gold, entry.predicted
    measured = precision_recall_fscore_support(gold, predicted, labels=range(len(entry.classes)), zero_division=0)
    rows = [
        [name, f"{given:,}", *(f"{100 * share:.1f}" for share in shares)]
        for name, *shares, given in zip(entry.classes, *measured, strict=True)
    ]
    macro = f1_score(gold, predicted, average="macro", zero_division=0)
    ((frequent, count),) = Counter(gold).most_common(1)
    shares = (100 * accuracy_score(gold, predicted), 100 * macro, entry.classes[int(frequent)], 100 * count / len(gold))
    columns = ["label", "rows", "precision", "recall", "F1"]
    return Table(title="By label, x 100", columns=columns, rows=rows, notes=notes("classes", *shares))


def _retrieval(result: results.EvaluationResult, measure: str | None, *, screen: bool) -> Table:
    """The retrieval tasks of an evaluation, with intervals, and the mean over several tasks.

    In a file all measures are columns. On a screen each task has a row with ``measure``, by default its main one, and
    then up to :data:`ALL_MEASURES_UP_TO` tasks have a row for each other measure.
    """
    tasks, rows, breaks = result.retrieval, list[list[str]](), list[int]()
    every = screen and measure is None and len(tasks) <= ALL_MEASURES_UP_TO

    def average(name: str) -> str:
        known = [one.metric(name) for one in tasks.values()]
        scores = [one.score for one in known if one is not None and one.score is not None]
        return format_score(mean(scores)) if len(scores) == len(known) else ""

    for name, scored in tasks.items():
        shown = {one: format_estimate(scored.metric(one)) for one in (measure or scored.main, *MEASURES)}
        head = [name, str(scored.queries), str(scored.documents)]
        narrow = [[*head, *pair] if not number else ["", "", "", *pair] for number, pair in enumerate(shown.items())]
        rows += narrow[: None if every else 1] if screen else [[*head, *(shown[one] for one in MEASURES)]]
        breaks += [len(rows)] * every
    columns = list(dict.fromkeys(measure or scored.main for scored in tasks.values())) if screen else MEASURES
    if len(tasks) > 1 and (not screen or len(columns) == 1):
        breaks.append(len(rows))
        rows.append(["average", "", "", *columns[: int(screen)], *map(average, columns)])
    return Table(
        rows=rows,
        breaks=breaks,
        columns=["task", "queries", "documents", *(("measure", "score") if screen else MEASURES)],
        title=f"{result.model}: retrieval, x 100 [95% interval]",
        notes=notes("retrieval", result),
    )


def stored_bytes(result: results.EvaluationResult) -> int | None:
    """Number of bytes of an embedding, in float32 unless it was quantized; None where the width is not known."""
    if result.dim is None:
        return None
    kind: Quantization | Literal["float32"] = result.config.get("quantize") or "float32"
    return bytes_per_vector(result.dim, kind)


def format_estimate(estimate: results.Estimate | None) -> str:
    """A score with its interval, where it has one; empty for None."""
    if estimate is None:
        return ""
    return f"{format_score(estimate.score)} {estimate.interval}".rstrip()


def format_seen(seen: results.SeenShares | None) -> str:
    """The share of the pairs, and in brackets that of the texts; only that of the texts where rows have one text."""
    if seen is None:
        return "not recorded"
    if seen.pairs is None:
        return format_share(seen.texts)
    return f"{format_share(seen.pairs)} ({format_share(seen.texts)})"


def mean_seen(runs: Sequence[results.SeenShares | None]) -> results.SeenShares | None:
    """The mean over runs, rounded to 6 decimals; None where a run has no record."""
    known = [one for one in runs if one is not None]
    if len(known) < len(runs):
        return None
    keys = ("pairs", "texts", "chosen_pairs", "chosen_texts")
    values = {key: [getattr(one, key) for one in known] for key in keys}
    means: dict[str, Any] = {key: None if None in of else round(mean(of), 6) for key, of in values.items()}
    return results.SeenShares(**means, dev=all(one.dev for one in known) or None)


def seen_of(evaluations: Sequence[results.EvaluationResult]) -> dict[str, results.SeenShares]:
    """Task -> what the runs of a model have seen of it; tasks that all results have, where it is known."""
    shared = [task for task in evaluations[0].all_tasks if all(task in one.all_tasks for one in evaluations)]
    means = {task: mean_seen([one.all_tasks[task].seen for one in evaluations]) for task in shared}
    return {task: seen for task, seen in means.items() if seen is not None}


def seen_tables(result: results.EvaluationResult) -> list[Table]:
    """What a model has seen of its tasks; empty where its training left no record."""
    seen = seen_of([result])
    if not seen:
        return []
    unseen = {task: one.unseen for task, one in result.tasks.items() if task in seen and one.unseen is not None}
    rows = []
    for task, shares in seen.items():
        cells = [task, "" if shares.pairs is None else format_share(shares.pairs), format_share(shares.texts)]
        if (one := unseen.get(task)) is not None:
            score = format_score(result.tasks[task].spearman.all.score)
            cells += [score, str(one.pairs), format_estimate(one.spearman)]
        rows.append([*cells, *[""] * (3 * bool(unseen) + 3 - len(cells))])
    columns = ["task", "pairs seen", "texts seen", *["score", "unseen pairs", "unseen score"] * bool(unseen)]
    title = f"{result.model}: share of each task that the model has seen in training"
    return [Table(title=title, columns=columns, rows=rows, notes=notes("seen_table", unseen, seen))]


def seen_notes(names: Sequence[str], sides: Sequence[Mapping[str, results.SeenShares]]) -> list[str]:
    """Notes on a comparison: the shares of tasks that the sides have seen, and tasks that are a side's dev set."""
    equal, unequal = [], []
    for task in dict.fromkeys(chain(*sides)):
        known = [one.get(task) for one in sides]
        # a side without a record may have seen nothing
        if len({(0.0, 0.0) if one is None else (one.pairs or 0.0, one.texts) for one in known}) > 1:
            shown = (f"{name} {format_seen(one)}" for name, one in zip(names, known, strict=True))
            unequal.append(f"{task} {', '.join(shown)}")
        elif known[0] and known[0].texts:
            equal.append(f"{task} {format_seen(known[0])}")
    dev = [(name, task) for name, of in zip(names, sides, strict=True) for task, shares in of.items() if shares.dev]
    return notes("seen_by_sides", equal, unequal, dev)
