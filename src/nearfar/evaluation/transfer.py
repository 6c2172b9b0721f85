"""Transfer tasks (SentEval): classifiers trained on an encoder's frozen embeddings; and labels without training.

The protocols are described in :mod:`nearfar.evaluation.probes`; :func:`neighbour_vote` trains nothing. As in SentEval,
rows are sorted by their numbers of words and their label or score before they are divided into folds and minibatches,
and pairs have the features [|u - v|; u * v].

Entries are :class:`~nearfar.evaluation.results.ClassificationScores` and
:class:`~nearfar.evaluation.results.RelatednessScores`. Predictions of a pool, which has no test split, are those of all
its rows. Where a task has no result, its estimates are undefined with a reason and its lists are empty.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nearfar.data.fingerprints import units_of_rows
from nearfar.data.labelled import TransferTask
from nearfar.evaluation.correlation import (
    CORRELATIONS,
    Floats,
    Indices,
    Units,
    undefined_reason,
)
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.probes import (
    ProbeResult,
    check_labels,
    fit_relatedness,
    inner_kfold,
    kfold,
    pair_features,
    split,
)
from nearfar.evaluation.results import (
    ClassificationScores,
    Estimate,
    PenaltyGrid,
    RelatednessScores,
    TransferAverage,
    TransferScores,
    fingerprint,
)
from nearfar.evaluation.statistics import bootstrap_means, correlation_estimate, estimate, mean_estimate
from nearfar.evaluation.tasks import TRANSFER_AVERAGES, ScoredTasks, TextEmbeddings, embed_tasks, encoded_size
from nearfar.neighbours import unit_rows
from nearfar.neighbours.exact import nearest
from nearfar.types import Encode, NearfarError, VectorSimilarity

DEFAULT_PROBE = Probe()
PREDICTION_UNIT = 1e-6
NEIGHBOURS = 10
VOTE = "neighbours"
"""The protocol of :func:`neighbour_vote` in results."""


def evaluate_transfer(
    encode: Encode,
    tasks: Mapping[str, TransferTask],
    *,
    probe: Probe = DEFAULT_PROBE,
    per_task: bool = False,
    seed: int = 1111,
    resamples: int = 1000,
    progress: bool = False,
) -> ScoredTasks[TransferScores, TransferAverage]:
    """Probe ``encode`` on ``tasks``; all their distinct texts are encoded in one call, or in one for each task.

    A task has no score where a vector of its texts holds a NaN or infinity, or where a named task cannot be probed. Its
    entry says why, and the other tasks are scored.

    Args:
        encode: texts -> vectors.
        tasks: by name, from :mod:`nearfar.data.classification`.
        probe: settings of the classifiers; learned relatedness uses only their seed.
        per_task: call ``encode`` once for each task with that task's texts, for baselines that are fitted on the texts
            they encode.
        seed: seed of the bootstrap.
        resamples: bootstrap resamples of the tested rows behind each 95% interval; 0 for no intervals. Classifiers are
            not retrained.
        progress: show a progress bar.

    Raises:
        NearfarError: no tasks; a user's own data set that cannot be probed (one label,
            or too few rows of a label for the folds), before anything is encoded; ``encode`` does not return one
            vector per text.
    """
    if not tasks:
        raise NearfarError("no transfer tasks to evaluate on.")
    reasons = {name: reason for name, task in tasks.items() if (reason := _unprobeable_reason(task, probe))}
    prepared = {name: _prepare_task(task) for name, task in tasks.items()}
    texts = {name: sorted(one.distinct) for name, one in prepared.items() if name not in reasons}
    embedded = embed_tasks(encode, texts, per_task=per_task)

    entries: dict[str, TransferScores] = {}
    draws: dict[str, Floats] = {}
    columns = (SpinnerColumn(), TextColumn("probing {task.description} ({task.completed} of {task.total} done)"))
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, disable=not progress
    ) as bar:
        shown = bar.add_task("", total=len(tasks))
        for name, one in prepared.items():
            bar.update(shown, description=name)
            reason = reasons.get(name) or embedded[name].failure_reason(one.distinct)
            features = np.zeros((0, 0), dtype=np.float32) if reason else _features(one, embedded[name])
            if not np.isfinite(features).all():
                reason = "the embeddings are so large that products of them are infinite"
            entries[name], draws[name] = _evaluate(
                one, tasks[name], features, probe, reason=reason, resamples=resamples, bootstrap=[seed, *name.encode()]
            )
            bar.advance(shown)
    accuracies = {name: entry.accuracy for name, entry in entries.items() if isinstance(entry, ClassificationScores)}
    averages = {
        name: TransferAverage(
            tasks=list(members),
            accuracy=mean_estimate({task: accuracies[task] for task in members}, [draws[task] for task in members]),
        )
        for name, members in TRANSFER_AVERAGES.items()
        if set(members) <= set(entries)
    }
    return ScoredTasks(entries, averages, {}, *encoded_size(embedded.values()))


class _PreparedTask(NamedTuple):
    """A task's rows in SentEval's order, split after split; those of the last one are tested."""

    texts: list[tuple[str, ...]]
    targets: NDArray[Any]
    split_rows: tuple[Indices, ...]
    """The rows of each split."""
    file_order: Indices
    """For each tested row, its position in the file."""
    digest: str

    @property
    def distinct(self) -> set[str]:
        """The texts of all rows."""
        return {text for row in self.texts for text in row}

    def in_file_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put values of the tested rows into the order of the file."""
        ordered = np.empty_like(values)
        ordered[self.file_order] = values
        return ordered


def _prepare_task(task: TransferTask) -> _PreparedTask:
    texts: list[tuple[str, ...]] = []
    targets: list[float] = []
    parts, order, lines = [], [0], []
    named = task.label_names
    for name, rows in task.splits.items():
        keys = [(*(len(text.split()) for text in row), target) for row, target in zip(*rows, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        parts.append(np.arange(len(texts), len(texts) + len(order)))
        texts += [rows.texts[place] for place in order]
        targets += [rows.targets[place] for place in order]
        lines += [[name, *row, named[int(y)] if named else y] for row, y in zip(*rows, strict=True)]
    numbers = np.array(targets, dtype=np.intp if named else np.float64)
    return _PreparedTask(texts, numbers, tuple(parts), np.array(order, dtype=np.intp), fingerprint(lines))


def _unprobeable_reason(task: TransferTask, probe: Probe) -> str | None:
    """Why a task cannot be probed; raises for a user's own data set."""
    try:
        if task.label_names:
            labels = {name: [int(target) for target in rows.targets] for name, rows in task.splits.items()}
            check_labels(labels, task.label_names, probe)
        else:
            for name, rows in task.splits.items():
                if not rows.texts or not np.isfinite(rows.targets).all():
                    return f"{'a score is not finite' if rows.texts else 'no pairs'} in {name}"
    except NearfarError as error:
        if task.source:
            raise NearfarError(f"{task.source}: {error}") from error
        return str(error).rstrip(".")
    return None


def _features(one: _PreparedTask, embedded: TextEmbeddings) -> NDArray[np.float32]:
    """The classifier's features of each row [rows, features]."""
    places = [[embedded.rows[text] for text in side] for side in zip(*one.texts, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        sides = [embedded.vectors[side].astype(np.float32, copy=False) for side in places]
        return sides[0] if len(sides) == 1 else pair_features(*sides)


def _evaluate(
    one: _PreparedTask,
    task: TransferTask,
    features: NDArray[np.float32],
    probe: Probe,
    *,
    reason: str | None,
    resamples: int,
    bootstrap: list[int],
) -> tuple[TransferScores, Floats]:
    """The entry of a task, and the bootstrap draws of its accuracy where it has one."""
    gold, texts = one.in_file_order(one.targets[one.split_rows[-1]]), list(task.splits.values())[-1].texts
    if task.label_names:
        probed = None if reason else _probe(one, features, len(task.label_names), probe)
        entry, draws = classification(
            gold,
            probed and probed.predicted,
            probed and probed.accuracy,
            protocol=probe.protocol,
            names=task.label_names,
            pairs=task.pairs,
            texts=texts,
            reason=reason,
            resamples=resamples,
            seed=bootstrap,
        )
        entry = replace(entry, digest=one.digest)
        if probed is None:
            return entry, draws
        grid = {"l2" if probe.protocol == "senteval" else "c": list(probed.grid)}
        return replace(
            entry,
            dev_accuracy=probed.dev_accuracy,
            grid=PenaltyGrid(**grid, dev_accuracy=probed.grid_accuracies),
            chosen=probed.chosen,
            fold_accuracies=probed.fold_accuracies,
        ), draws
    predicted, dev_pearson = None, None
    if not reason:
        train, dev, test = one.split_rows
        predicted, dev_pearson = fit_relatedness(features, one.targets, train, dev, test, seed=probe.seed)
        predicted = one.in_file_order(predicted)
    how: dict[str, Any] = {"texts": texts, "reason": reason, "resamples": resamples, "seed": bootstrap}
    learned = relatedness(gold, predicted, dev_pearson, **how)
    return replace(learned, digest=one.digest), np.zeros(0)


def _probe(one: _PreparedTask, features: NDArray[np.float32], classes: int, probe: Probe) -> ProbeResult:
    match one.split_rows:
        case train, dev, test:
            probed = split(features, one.targets, train, dev, test, classes=classes, probe=probe)
        case train, test:
            probed = kfold(features, one.targets, train, test, classes=classes, probe=probe)
        case _:
            probed = inner_kfold(features, one.targets, classes=classes, probe=probe)
    return probed._replace(predicted=one.in_file_order(probed.predicted))


def classification(
    gold: Indices,
    predicted: Indices | None,
    score: float | None = None,
    *,
    protocol: str,
    names: Sequence[str],
    texts: Sequence[Sequence[str]],
    pairs: bool = False,
    reason: str | None = None,
    resamples: int,
    seed: Sequence[int],
) -> tuple[ClassificationScores, Floats]:
    """The entry of a task with labels, without its digest, and the bootstrap draws of its accuracy.

    Args:
        gold: labels of the tested rows.
        predicted: predictions for the same rows, in the same order; None where there is a ``reason``.
        score: accuracy x 100, where it is not the share of correct rows but a mean over folds.
        protocol: name of the protocol.
        names: names of the labels.
        texts: the texts of each tested row; rows that share one are resampled together.
        pairs: whether rows have two texts; with two labels, F1 of the second label is computed too.
        reason: why there is no result.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
    """
    how: dict[str, Any] = {"resamples": resamples, "seed": seed, "units": (units := units_of_rows(texts))}
    drawn = np.full(resamples, np.nan)
    if predicted is not None:
        correct = (gold == predicted).astype(np.float64)
        drawn = bootstrap_means(correct[None], **how)[0]
        score = 100 * float(correct.mean()) if score is None else score
    f1 = None
    if pairs and len(names) == 2:
        f1 = estimate(None, drawn, reason)
        if predicted is not None:
            f1 = confusion_estimate(f1_score, gold, predicted, **how, decimals=2)
    return ClassificationScores(
        protocol=protocol,
        rows=len(gold),
        classes=list(names),
        accuracy=estimate(score, drawn, reason),
        f1=f1,
        gold=[] if predicted is None else gold.tolist(),
        predicted=[] if predicted is None else predicted.tolist(),
        digest="",
        units=units,
    ), drawn


def relatedness(
    gold: Floats,
    predicted: Floats | None,
    dev_pearson: float | None,
    *,
    texts: Sequence[Sequence[str]],
    reason: str | None,
    resamples: int,
    seed: Sequence[int],
) -> RelatednessScores:
    """The entry of a task with scores, without its digest; ``predicted`` is None where there is a ``reason``.

    Where all predictions are equal the correlations are undefined (SentEval returns 0).
    """
    if predicted is None:
        missing = estimate(None, gold[:0], reason)
        return RelatednessScores(pairs=len(gold), pearson=missing, spearman=missing, digest="")
    whole, units = np.rint(predicted / PREDICTION_UNIT), units_of_rows(texts)
    constant = "all predicted scores are equal" if np.ptp(whole) <= 1 else None  # up to rounding
    undefined = constant or undefined_reason(gold, whole)
    estimates = {
        metric: Estimate(None, None, None, undefined)
        if undefined
        else correlation_estimate(metric, gold, whole, sizes=[len(gold)], resamples=resamples, seed=seed, units=units)
        for metric in CORRELATIONS
    }
    return RelatednessScores(
        pairs=len(gold),
        pearson=estimates["pearson"],
        spearman=estimates["spearman"],
        mse=round(float(np.mean((whole * PREDICTION_UNIT - gold) ** 2)), 6),
        dev_pearson=None if dev_pearson is None else round(100 * dev_pearson, 4),
        gold=[int(score) if score.is_integer() else score for score in gold.tolist()],
        predicted_e6=whole.astype(int).tolist(),
        digest="",
        units=units,
    )


def confusions(gold: ArrayLike, predicted: ArrayLike) -> NDArray[np.intp]:
    """Of the labels 0 and 1: true negatives, false positives, false negatives, true positives [4]."""
    return np.bincount(2 * np.asarray(gold, dtype=np.intp) + np.asarray(predicted, dtype=np.intp), minlength=4)


def f1_score(counts: NDArray[Any]) -> Floats:
    """F1 of the second class, 2 tp / (2 tp + fp + fn), of :func:`confusions` [rows, 4]; NaN where there is none."""
    false, hits = counts[:, 1] + counts[:, 2], 2.0 * counts[:, 3]
    return np.divide(hits, hits + false, out=np.full(len(hits), np.nan), where=hits + false > 0)


def confusion_estimate(
    measure: Callable[[NDArray[Any]], Floats],
    gold: Indices,
    predicted: Indices,
    *,
    resamples: int,
    seed: Sequence[int],
    units: Units | None = None,
    decimals: int = 4,
) -> Estimate:
    """The estimate x 100 of a measure of :func:`confusions`, which is the same of their shares."""
    score = float(measure(confusions(gold, predicted)[None])[0])
    cells = (2 * gold + predicted == np.arange(4)[:, None]).astype(np.float64)
    drawn = measure(bootstrap_means(cells, resamples=resamples, seed=seed, units=units).T)
    if np.isnan(score):
        return estimate(None, drawn, "no row has the second label, and none is predicted to have it")
    return estimate(round(100 * score, decimals), drawn)


def neighbour_vote(
    vectors: NDArray[np.float32],
    labelled: NDArray[np.float32],
    labels: Sequence[str],
    *,
    k: int = NEIGHBOURS,
    similarity: VectorSimilarity = "cosine",
    device: str = "cpu",
) -> list[str]:
    """The most frequent label among the ``k`` labelled texts with the highest similarity.

    Of labels with equally many votes, the one with the highest sum of similarities wins, then the first in text order.

    Args:
        vectors: texts to label [texts, dim].
        labelled: labelled texts [labelled, dim].
        labels: their labels.
        k: number of neighbours.
        similarity: how vectors are compared.
        device: where similarities are computed.

    Raises:
        NearfarError: no labelled text; a vector is not finite.
    """
    if not len(labelled):
        raise NearfarError("there is no labelled text to vote.")
    if similarity == "cosine":
        vectors, labelled = (unit_rows(np.array(side, dtype=np.float32)) for side in (vectors, labelled))
    found = nearest(vectors, labelled, k, similarity=similarity, device=device)
    winners = []
    for places, cosines in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
        votes: Counter[str] = Counter()
        weights: Counter[str] = Counter()
        for place, cosine in zip(places, cosines, strict=True):
            votes[labels[place]] += 1
            weights[labels[place]] += cosine
        winners.append(min(votes, key=lambda label: (-votes[label], -weights[label], label)))
    return winners


def vote_scores(
    texts: Sequence[str],
    gold: Sequence[str],
    predicted: Sequence[str],
    *,
    resamples: int,
    seed: Sequence[int],
    digest: str,
) -> ClassificationScores:
    """The entry of a result file for the labels of a vote. ``digest`` is that of the texts and their neighbours."""
    classes = sorted({*gold, *predicted})
    numbers = {name: number for number, name in enumerate(classes)}
    right, voted = (np.array([numbers[label] for label in side], dtype=np.intp) for side in (gold, predicted))
    how: dict[str, Any] = {"texts": [(text,) for text in texts], "resamples": resamples, "seed": seed}
    entry, _ = classification(right, voted, protocol=VOTE, names=classes, **how)
    return replace(entry, digest=digest)
