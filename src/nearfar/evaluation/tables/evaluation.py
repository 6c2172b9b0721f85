"""Evaluations as tables: similarity, transfer tasks, retrieval, and what the model has seen of them in training."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, Literal

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation import results
from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.render import Table
from nearfar.quantization import Quantization, bytes_per_vector
from nearfar.types import metric_title

ALL_MEASURES_UP_TO = 3
"""Number of tasks up to which the screen shows all measures of each."""
LEGEND = (
    "Seen: trained on with nearfar, or part of the dev set that chose the training step. The data of the model that "
    "training started from are not known."
)


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
    tables = [_similarity(result, metric, subsets=subsets) for metric in metrics] if result.tasks else []
    if result.transfer:
        tables.append(_transfer(result, result.transfer))
        entries = list(result.transfer.tasks.values()) if result.transfer.protocol == "finetune" else []
        tables += [class_table(one) for one in entries if isinstance(one, results.ClassificationScores) and one.gold]
    if result.retrieval:
        tables.append(_retrieval(result, measure, screen=screen))
    notes = [f"{task}: not evaluated. {why}" for task, why in result.unavailable.items()]
    notes += ["Fitted on the texts of each task, without their scores (transductive)."] * result.transductive
    dimensions, kind = result.config.get("dimensions"), result.config.get("quantize")
    parts = [f"the first {dimensions} dimensions"] * bool(dimensions) + [f"stored as {kind}"] * bool(kind)
    notes += [f"Embeddings: {', '.join(parts)}; {stored_bytes(result)} bytes each."] * bool(parts)
    if not tables:
        return []
    return [*tables[:-1], replace(tables[-1], notes=[*tables[-1].notes, *notes]), *seen_tables(result)]


def _similarity(result: results.EvaluationResult, metric: str, *, subsets: bool) -> Table:
    def row(name: str, size: object, scored: Any) -> list[str]:
        return [name, str(size), *(format_estimate(estimate) for _, estimate in scored.metric(metric).items())]

    tasks = []
    for task, scored in result.tasks.items():
        tasks.append(row(task, scored.pairs, scored))
        for name, subset in list(scored.subsets.items()) if subsets and len(scored.subsets) > 1 else []:
            tasks.append([f"{task} / {name}", str(subset.pairs), format_estimate(subset.metric(metric)), "", ""])
    averages = [row(f"average of {name}", "", average) for name, average in result.averages.items()]
    title = f"{result.model}: {metric_title(metric)} x 100 [95% interval]"
    columns = ["task", "pairs", *AGGREGATES]
    return Table.of_groups([tasks, averages], columns=columns, title=title, notes=_similarity_notes(result, metric))


def _similarity_notes(result: results.EvaluationResult, metric: str) -> list[str]:
    pooling = result.config.get("pooling")
    notes = [
        "all: over all pairs of a task; mean: mean over its subsets; wmean: mean weighted by number of pairs.",
        *_intervals(result, "pairs"),
        *([f"Pooling: {pooling}."] * bool(pooling)),
    ]
    for name, scored in (*result.tasks.items(), *result.averages.items()):
        estimates = scored.metric(metric).items()
        for reason in dict.fromkeys(one.reason for _, one in estimates if one.reason is not None):
            undefined = " and ".join(aggregate for aggregate, one in estimates if one.reason == reason)
            notes.append(f"{name}, {undefined}: {reason}.")
        if zeros := getattr(scored, "zero_vectors", 0):
            notes.append(f"{name}: {zeros} pairs with a zero vector; their cosine is set to 0.")
    return notes


def _intervals(result: results.EvaluationResult, units: str) -> list[str]:
    resamples = result.resamples
    return [f"Intervals: 95%, from {resamples} bootstrap resamples of {units}."] if resamples else []


def _transfer(result: results.EvaluationResult, transfer: results.TransferResults) -> Table:
    """Probes or fine-tuned classifiers: accuracy, F1 and Matthews where there are any; correlations of relatedness."""
    tasks, reasons = [], []
    for task, scored in transfer.tasks.items():
        first, *others = ("accuracy", "f1", "matthews") if scored.kind == "classification" else ("pearson", "spearman")
        title = first if first == "accuracy" else metric_title(first)
        more = [(metric_title(name), scored.metric(name)) for name in others]
        also = ", ".join(f"{name} {format_estimate(estimate)}" for name, estimate in more if estimate is not None)
        tasks.append([task, str(scored.size), title, format_estimate(scored.main), also])
        reasons += [f"{task}: {scored.main.reason}."] * (scored.main.reason is not None)
    averages = [
        [f"average of {name}", "", "accuracy", format_estimate(average.accuracy), ""]
        for name, average in transfer.averages.items()
    ]
    finetuned = transfer.protocol == "finetune"
    head = [] if finetuned else [f"Probes with protocol {transfer.describe_probe()}."]
    notes = [*head, *_intervals(result, "the tested rows"), *reasons]
    if finetuned and (training := result.training):
        speed = training.updates_per_second
        notes.append(
            f"Validation rows: {training.metric} {training.validation:.2f}, best step {training.best_step} of "
            f"{training.steps}{'' if speed is None else f', {speed:.2f} updates per second'}."
        )
    notes += [f"{source}." for source in result.config.get("data") or [] if finetuned]
    title = f"{result.model}: {'fine-tuned' if finetuned else 'transfer tasks'}, x 100 [95% interval]"
    columns = ["task", "rows", "metric", "score", "also"]
    return Table.of_groups([tasks, averages], columns=columns, title=title, notes=notes)


def class_table(entry: results.ClassificationScores) -> Table:
    """Rows, precision, recall and F1 of each label; the notes have macro F1 and the share of the most frequent label.

    Macro F1 is the mean of F1 over the labels that a tested row has or is predicted to have. What is undefined is 0.
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support  # imported here: slow

    gold, predicted = entry.gold, entry.predicted
    measured = precision_recall_fscore_support(gold, predicted, labels=range(len(entry.classes)), zero_division=0)
    rows = [
        [name, f"{given:,}", *(f"{100 * share:.1f}" for share in shares)]
        for name, *shares, given in zip(entry.classes, *measured, strict=True)
    ]
    f1 = [100 * measured[2][int(label)] for label in {*gold, *predicted}]
    frequent, count = Counter(gold).most_common(1)[0]
    accuracy, most = 100 * accuracy_score(gold, predicted), 100 * count / len(gold)
    name = entry.classes[int(frequent)]
    notes = [f"Accuracy {accuracy:.2f}, macro F1 {mean(f1):.2f}; always {name}: accuracy {most:.2f}."]
    if accuracy <= most:
        notes.append(
            f"WARNING: no better than giving every row the label {name}. The classifier learned nothing that helps: "
            "look for wrong labels, add rows, or train for more --epochs or with a higher --learning-rate."
        )
    return Table(
        title="By label, x 100", columns=["label", "rows", "precision", "recall", "F1"], rows=rows, notes=notes
    )


def _retrieval(result: results.EvaluationResult, measure: str | None, *, screen: bool) -> Table:
    """The retrieval tasks of an evaluation, with intervals, and the mean over several tasks.

    In a file all measures are columns. On a screen each task has a row with ``measure``, by default its main one, and
    then up to :data:`ALL_MEASURES_UP_TO` tasks have a row for each other measure.
    """
    tasks, groups = result.retrieval, []
    several = screen and measure is None and len(tasks) <= ALL_MEASURES_UP_TO
    for name, scored in tasks.items():
        head, first = [name, str(scored.queries), str(scored.documents)], measure or scored.main
        estimates = {column: format_estimate(scored.metric(column)) for column in (first, *MEASURES)}
        if not screen:
            groups.append([[*head, *(estimates[column] for column in MEASURES)]])
            continue
        others = [["", "", "", *one] for one in estimates.items() if several and one[0] != first]
        groups.append([[*head, first, estimates[first]], *others])
    if not several:
        groups = [[row for group in groups for row in group]]
    compared = {measure or scored.main for scored in tasks.values()}
    if len(tasks) > 1 and (not screen or len(compared) == 1):
        each = [[task.metric(name) for task in tasks.values()] for name in (compared if screen else MEASURES)]
        means = (mean_score([None if one is None else one.score for one in of_measure]) for of_measure in each)
        shown = ("" if score is None else format_score(score) for score in means)
        groups.append([["average", "", "", *(compared if screen else ()), *shown]])
    columns = ["task", "queries", "documents", *(("measure", "score") if screen else MEASURES)]
    title = f"{result.model}: retrieval, x 100 [95% interval]"
    return Table.of_groups(groups, columns=columns, title=title, notes=_retrieval_notes(result))


def _retrieval_notes(result: results.EvaluationResult) -> list[str]:
    notes, mains = _intervals(result, "queries"), defaultdict[str, list[str]](list)
    for name, scored in result.retrieval.items():
        mains[scored.main].append(name)
    for main, names in mains.items():
        of = f" of {', '.join(names)}" * (len(mains) > 1)
        notes.append(f"Main measure{of}: {main}.")
    for name, scored in result.retrieval.items():
        counts = [f"{what} ({number})" for what, number in scored.counts.items() if number]
        notes += [f"{name}: {', '.join(counts)}."] * bool(counts)
    return notes


def stored_bytes(result: results.EvaluationResult) -> int | None:
    """Number of bytes of an embedding, in float32 unless it was quantized; None where the width is not known."""
    if result.dim is None:
        return None
    kind: Quantization | Literal["float32"] = result.config.get("quantize") or "float32"
    return bytes_per_vector(result.dim, kind)


def format_score(score: float | None) -> str:
    """Two decimals, or ``undefined``."""
    return "undefined" if score is None else f"{score:.2f}"


def format_estimate(estimate: results.Estimate | None) -> str:
    """A score with its interval, where it has one; empty for None."""
    if estimate is None:
        return ""
    if estimate.score is None or estimate.low is None or estimate.high is None:
        return format_score(estimate.score)
    return f"{estimate.score:.2f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def format_share(share: float) -> str:
    """A share in percent.

    >>> [format_share(share) for share in (0, 0.0002, 0.0087, 0.3227, 0.998, 1)]
    ['0%', '<0.1%', '0.9%', '32%', '>99%', '100%']
    """
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "<0.1%"
    if share > 0.99:
        return ">99%"
    return f"{share:.1%}" if share < 0.095 else f"{share:.0%}"


def format_seen(seen: results.SeenShares | None) -> str:
    """The share of the pairs, and in brackets that of the texts; only that of the texts where rows have one text."""
    if seen is None:
        return ""
    if seen.pairs is None:
        return format_share(seen.texts)
    return f"{format_share(seen.pairs)} ({format_share(seen.texts)})"


def mean_seen(runs: Sequence[results.SeenShares | None]) -> results.SeenShares | None:
    """The mean over runs, rounded to 6 decimals; None where a run has no record."""
    known = [one for one in runs if one is not None]
    if not known or len(known) < len(runs):
        return None
    means: dict[str, Any] = {}
    for key in ("pairs", "texts", "chosen_pairs", "chosen_texts"):
        values = [getattr(one, key) for one in known]
        means[key] = None if None in values else round(mean(values), 6)
    same = all(one == known[0] for one in known)
    return known[0] if same else replace(known[0], **means, dev=True if all(one.dev for one in known) else None)


def seen_of(evaluations: Sequence[results.EvaluationResult]) -> dict[str, results.SeenShares]:
    """Task -> what the runs of a model have seen of it; tasks that all results have, where it is known."""
    shared = [task for task in evaluations[0].all_tasks if all(task in one.all_tasks for one in evaluations)]
    means = {task: mean_seen([one.all_tasks[task].seen for one in evaluations]) for task in shared}
    return {task: seen for task, seen in means.items() if seen is not None}


def seen_notes(seen: Mapping[str, results.SeenShares]) -> list[str]:
    """Notes on one model: what chose its step, and the dev sets among the tasks."""
    chosen = ", ".join(
        f"{task} {format_share(share)}"
        for task, one in seen.items()
        if not one.dev and (share := one.chosen_texts if one.chosen_pairs is None else one.chosen_pairs)
    )
    notes = [f"Not trained on, but part of the dev set that chose the training step: {chosen}."] * bool(chosen)
    return notes + [
        f"{task} is in the dev set that chose the training step: its score is a dev score, not a test score."
        for task, one in seen.items()
        if one.dev
    ]


def seen_tables(result: results.EvaluationResult) -> list[Table]:
    """What a model has seen of its tasks; empty where its training left no record."""
    seen = seen_of([result])
    if not seen:
        return []
    unseen = {task: one.unseen for task, one in result.tasks.items() if task in seen and one.unseen is not None}
    rows = []
    for task, shares in seen.items():
        cells = [task, "" if shares.pairs is None else format_share(shares.pairs), format_share(shares.texts)]
        if task in unseen:
            score = format_score(result.tasks[task].spearman.all.score)
            rows.append([*cells, score, str(unseen[task].pairs), format_estimate(unseen[task].spearman)])
        else:
            rows.append([*cells, *[""] * 3 * bool(unseen)])
    title = f"{result.model}: share of each task that the model has seen in training"
    what = ["Scores: Spearman x 100 (all), over all pairs, and over those that the model has not seen."] * bool(unseen)
    reasons = [f"{task}, unseen: {one.spearman.reason}." for task, one in unseen.items() if one.spearman.reason]
    columns = ["task", "pairs seen", "texts seen", *["score", "unseen pairs", "unseen score"] * bool(unseen)]
    return [Table(title=title, columns=columns, rows=rows, notes=[LEGEND, *what, *seen_notes(seen), *sorted(reasons)])]


def mean_score(scores: Sequence[float | None]) -> float | None:
    """The mean; None where a score is undefined."""
    known = [score for score in scores if score is not None]
    return mean(known) if known and len(known) == len(scores) else None


def comparison_notes(names: Sequence[str], sides: Sequence[results.ComparedSide]) -> list[str]:
    """Notes on a comparison: the shares of tasks that the sides have seen, and tasks that are a side's dev set."""
    seen = [side.seen or {} for side in sides]
    equal, unequal, dev = [], [], []
    for task in dict.fromkeys(task for one in seen for task in one):
        known = [one.get(task) for one in seen]
        # a side without a record may have seen nothing
        if len({(0.0, 0.0) if one is None else (one.pairs or 0.0, one.texts) for one in known}) > 1:
            shares = ("not recorded" if one is None else format_seen(one) for one in known)
            unequal.append(f"{task} {', '.join(map(' '.join, zip(names, shares, strict=True)))}")
        elif known[0] and known[0].texts:
            equal.append(f"{task} {format_seen(known[0])}")
    for name, one in zip(names, seen, strict=True):
        for task in (task for task, shares in one.items() if shares.dev):
            which = f"{task} is in the dev set that chose the training step of {name}"
            dev.append(f"{which}: its score is a dev score, not a test score.")
    what = "shares of the tested pairs (in brackets: of the texts) in training"
    notes = [f"The sides have seen equal {what}: {'; '.join(equal)}."] if equal else []
    if unequal:
        more = f"which favours the side that has seen more: {'; '.join(unequal)}"
        notes.append(f"The sides have seen unequal {what}, {more}.")
    return [*notes, *dev]
