"""Evaluations as tables: similarity, transfer tasks, retrieval, and what the model has seen of them in training."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
        if result.transfer.protocol == "finetune":
            entries = result.transfer.tasks.values()
            tables += [
                class_table(one) for one in entries if isinstance(one, results.ClassificationScores) and one.gold
            ]
    if result.retrieval:
        tables.append(_retrieval(result, measure, screen=screen))
    notes = [f"{task}: not evaluated. {why}" for task, why in result.unavailable.items()]
    if result.transductive:
        notes.append("Fitted on the texts of each task, without their scores (transductive).")
    notes += stored_notes(result)
    if not tables:
        return []
    return [*tables[:-1], replace(tables[-1], notes=[*tables[-1].notes, *notes]), *seen_tables(result)]


def _similarity(result: results.EvaluationResult, metric: str, *, subsets: bool) -> Table:
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
    tasks, notes = [], []
    for task, scored in transfer.tasks.items():
        if isinstance(scored, results.ClassificationScores):
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
    title = f"{result.model}: {'fine-tuned' if finetuned else 'transfer tasks'}, x 100 [95% interval]"
    notes = [*head, *_intervals(result, "the tested rows"), *notes, *_training_notes(result)]
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


def _training_notes(result: results.EvaluationResult) -> list[str]:
    """How a classifier was fine-tuned, and on which rows."""
    training, data = result.training, [f"{source}." for source in result.config.get("data") or []]
    if result.transfer is None or result.transfer.protocol != "finetune":
        return []
    if training is None:
        return data
    speed = "" if training.updates_per_second is None else f", {training.updates_per_second:.2f} updates per second"
    chosen = f"{training.metric} {training.validation:.2f}, best step {training.best_step} of {training.steps}{speed}"
    return [f"Validation rows: {chosen}.", *data]


def _retrieval(result: results.EvaluationResult, measure: str | None, *, screen: bool) -> Table:
    """The retrieval tasks of an evaluation, with intervals, and the mean over several tasks.

    In a file all measures are columns. On a screen each task has a row with ``measure``, by default its main one, and
    then up to :data:`ALL_MEASURES_UP_TO` tasks have a row for each other measure.
    """
    tasks, groups, averages = result.retrieval, [], []
    several = measure is None and len(tasks) <= ALL_MEASURES_UP_TO
    for name, scored in tasks.items():
        head, main = [name, str(scored.queries), str(scored.documents)], measure or scored.main
        estimates = {column: format_estimate(scored.metric(column)) for column in (main, *MEASURES)}
        if not screen:
            groups.append([[*head, *(estimates[column] for column in MEASURES)]])
        else:
            others = [["", "", "", *one] for one in estimates.items() if several and one[0] != main]
            groups.append([[*head, main, estimates[main]], *others])
    if not (screen and several):
        groups = [[row for group in groups for row in group]]
    compared = {measure or scored.main for scored in tasks.values()}
    shown = MEASURES if not screen else tuple(compared) if len(compared) == 1 else ()
    if shown and (means := _retrieval_averages(result, shown)):
        averages = [["average", "", "", *(compared if screen else ()), *means]]
    return Table.of_groups(
        [*groups, averages],
        columns=["task", "queries", "documents", *(("measure", "score") if screen else MEASURES)],
        title=f"{result.model}: retrieval, x 100 [95% interval]",
        notes=list(_retrieval_notes(result)),
    )


def _retrieval_averages(result: results.EvaluationResult, measures: Sequence[str]) -> list[str]:
    """The mean of each measure over several tasks; empty for a single task."""
    tasks = result.retrieval.values()
    if len(tasks) < 2:
        return []
    each = [[task.metric(name) for task in tasks] for name in measures]
    scores = (mean_score([None if one is None else one.score for one in of_measure]) for of_measure in each)
    return ["" if score is None else format_score(score) for score in scores]


def _retrieval_notes(result: results.EvaluationResult) -> Iterator[str]:
    yield from _intervals(result, "queries")
    mains: dict[str, list[str]] = {}
    for name, scored in result.retrieval.items():
        mains.setdefault(scored.main, []).append(name)
    for main, names in mains.items():
        yield f"Main measure: {main}." if len(mains) == 1 else f"Main measure of {', '.join(names)}: {main}."
    for name, scored in result.retrieval.items():
        counts = [f"{what} ({number})" for what, number in scored.counts.items() if number]
        if counts:
            yield f"{name}: {', '.join(counts)}."


def stored_bytes(result: results.EvaluationResult) -> int | None:
    """Number of bytes of an embedding, in float32 unless it was quantized; None where the width is not known."""
    if result.dim is None:
        return None
    kind: Quantization | Literal["float32"] = result.config.get("quantize") or "float32"
    return bytes_per_vector(result.dim, kind)


def stored_notes(result: results.EvaluationResult) -> list[str]:
    """A note on the embeddings, if they are smaller than those of the model."""
    dimensions, kind, size = result.config.get("dimensions"), result.config.get("quantize"), stored_bytes(result)
    parts = [f"the first {dimensions} dimensions"] * bool(dimensions) + [f"stored as {kind}"] * bool(kind)
    return [f"Embeddings: {', '.join(parts)}; {size} bytes each."] if parts else []


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
    if not known or len(known) < len(runs) or all(one == known[0] for one in known):
        return known[0] if known and len(known) == len(runs) else None
    means: dict[str, Any] = {}
    for key in ("pairs", "texts", "chosen_pairs", "chosen_texts"):
        values = [getattr(one, key) for one in known]
        means[key] = None if None in values else round(mean(values), 6)
    return results.SeenShares(**means, dev=True if all(one.dev for one in known) else None)


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
            cells += [score, str(unseen[task].pairs), format_estimate(unseen[task].spearman)]
        elif unseen:
            cells += [""] * 3
        rows.append(cells)
    title = f"{result.model}: share of each task that the model has seen in training"
    what = ["Scores: Spearman x 100 (all), over all pairs, and over those that the model has not seen."] * bool(unseen)
    reasons = [f"{task}, unseen: {one.spearman.reason}." for task, one in unseen.items() if one.spearman.reason]
    scores = ["score", "unseen pairs", "unseen score"] if unseen else []
    notes = [LEGEND, *what, *seen_notes(seen), *sorted(reasons)]
    return [Table(title=title, columns=["task", "pairs seen", "texts seen", *scores], rows=rows, notes=notes)]


def mean_score(scores: Sequence[float | None]) -> float | None:
    """The mean; None where a score is undefined."""
    known = [score for score in scores if score is not None]
    return mean(known) if known and len(known) == len(scores) else None


def comparison_notes(names: Sequence[str], sides: Sequence[results.ComparedSide]) -> list[str]:
    """Notes on a comparison: the shares of tasks that the sides have seen, and tasks that are a side's dev set."""
    seen = [side.seen or {} for side in sides]
    tasks = dict.fromkeys(task for one in seen for task in one)
    equal, unequal = [], []
    for task in tasks:
        known = [one.get(task) for one in seen]
        # a side without a record may have seen nothing
        if len({(0.0, 0.0) if one is None else (one.pairs or 0.0, one.texts) for one in known}) > 1:
            words = ("not recorded" if one is None else format_seen(one) for one in known)
            each = (f"{name} {share}" for name, share in zip(names, words, strict=True))
            unequal.append(f"{task} {', '.join(each)}")
        elif known[0] and known[0].texts:
            equal.append(f"{task} {format_seen(known[0])}")
    dev = [
        f"{task} is in the dev set that chose the training step of {name}: its score is a dev score, not a test score."
        for name, one in zip(names, seen, strict=True)
        for task, shares in one.items()
        if shares.dev
    ]
    shares = "shares of the tested pairs (in brackets: of the texts) in training"
    notes = [f"The sides have seen equal {shares}: {'; '.join(equal)}."] if equal else []
    if unequal:
        more = f"which favours the side that has seen more: {'; '.join(unequal)}"
        notes.append(f"The sides have seen unequal {shares}, {more}.")
    return [*notes, *dev]
