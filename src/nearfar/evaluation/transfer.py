"""Transfer tasks (SentEval): classifiers trained on an encoder's frozen embeddings; and labels without training.

The protocols are described in :mod:`nearfar.evaluation.probes`; :func:`neighbour_vote` trains nothing. As in SentEval,
rows are sorted by their numbers of words and their label or score before they are divided into folds and minibatches,
and pairs have the features [|u - v|; u * v].

Entries are :class:`~nearfar.evaluation.results.ClassificationScores` and
:class:`~nearfar.evaluation.results.RelatednessScores`. Predictions of a pool, which has no test split, are those of all
its rows. Where a task has no result, its estimates are undefined with a reason and its lists are empty.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import track

from nearfar.data.fingerprints import units_of_rows
from nearfar.data.labelled import TransferTask
from nearfar.evaluation import probes, results
from nearfar.evaluation.correlation import CORRELATIONS, Floats, Indices, undefined_reason
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.statistics import bootstrap_means, correlation_estimate, estimate, mean_estimate, plain_numbers
from nearfar.evaluation.tasks import TRANSFER_AVERAGES, ScoredTasks, TextEmbeddings, embed, widest
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
    seed: int = 1111,
    resamples: int = 1000,
    progress: bool = False,
) -> ScoredTasks[results.TransferScores, results.TransferAverage]:
    """Probe ``encode`` on ``tasks``; it is called once for each task, with its distinct texts.

    A task has no score where a vector of its texts holds a NaN or infinity, or where a named task cannot be probed. Its
    entry says why, and the other tasks are scored.

    Args:
        encode: texts -> vectors.
        tasks: by name, from :mod:`nearfar.data.classification`.
        probe: settings of the classifiers; learned relatedness uses only their seed.
        seed: seed of the bootstrap.
        resamples: bootstrap resamples of the tested rows behind each 95% interval; 0 for no intervals. Classifiers are
            not retrained.
        progress: show a progress bar.

    Raises:
        NearfarError: a user's own data set that cannot be probed (one label, or too few rows of a label for the folds),
            before anything is encoded; ``encode`` does not return one vector per text.
    """
    reasons = {name: _unprobeable_reason(task, probe) for name, task in tasks.items()}
    prepared = {name: _SortedRows.of(task) for name, task in tasks.items()}
    texts = {name: sorted({text for row in rows.texts for text in row}) for name, rows in prepared.items()}
    embedded = {name: embed(encode, [] if reasons[name] else own) for name, own in texts.items()}
    entries: dict[str, results.TransferScores] = {}
    draws: dict[str, Floats] = {}
    bar = track(prepared.items(), "probing", console=Console(stderr=True), transient=True, disable=not progress)
    for name, rows in bar:
        reason = reasons[name] or embedded[name].failure
        features = np.zeros((0, 0), dtype=np.float32) if reason else _features(rows.texts, embedded[name])
        if not np.isfinite(features).all():
            reason = "the embeddings are so large that products of them are infinite"
        how: dict[str, Any] = {"reason": reason, "resamples": resamples, "seed": [seed, *name.encode()]}
        how |= {"texts": list(tasks[name].splits.values())[-1].texts, "digest": rows.digest}
        if tasks[name].label_names:
            entries[name], draws[name] = _classified(rows, tasks[name], features, probe, **how)
        else:
            entries[name] = _related(rows, features, probe, **how)
    accuracies = {name: entries[name].compared for name in draws}
    averages = {
        name: results.TransferAverage(
            tasks=list(members),
            accuracy=mean_estimate({task: accuracies[task] for task in members}, [draws[task] for task in members]),
        )
        for name, members in TRANSFER_AVERAGES.items()
        if set(members) <= set(draws)
    }
    return ScoredTasks(entries, averages, {}, widest(embedded.values()))


class _SortedRows(NamedTuple):
    """A task's rows in SentEval's order, split after split; those of the last one are tested."""

    texts: list[tuple[str, ...]]
    targets: NDArray[Any]
    splits: list[Indices]
    """The rows of each split."""
    file_order: list[int]
    """For each tested row, its position in the file."""
    digest: str

    @classmethod
    def of(cls, task: TransferTask) -> "_SortedRows":
        """The rows of a task."""
        texts: list[tuple[str, ...]] = []
        targets: list[float] = []
        splits, lines, named, order = [], [], task.label_names, [0]
        for name, rows in task.splits.items():
            keys = [(*(len(text.split()) for text in row), target) for row, target in zip(*rows, strict=True)]
            order = sorted(range(len(keys)), key=keys.__getitem__)
            splits.append(len(texts) + np.arange(len(order)))
            texts += [rows.texts[place] for place in order]
            targets += [rows.targets[place] for place in order]
            lines += [[name, *row, named[int(y)] if named else y] for row, y in zip(*rows, strict=True)]
        numbers = np.array(targets, dtype=np.intp if named else np.float64)
        return cls(texts, numbers, splits, order, results.fingerprint(lines))

    def in_file_order(self, values: NDArray[Any] | None = None) -> NDArray[Any]:
        """Values of the tested rows, by default their targets, in the order of the file."""
        ordered = np.array(self.targets[self.splits[-1]] if values is None else values)
        ordered[self.file_order] = ordered.copy()
        return ordered


def _unprobeable_reason(task: TransferTask, probe: Probe) -> str | None:
    """Why a task with labels cannot be probed; raises for a user's own data set."""
    if not task.label_names:
        return None
    try:
        labels = {name: [int(target) for target in rows.targets] for name, rows in task.splits.items()}
        probes.check_labels(labels, task.label_names, probe)
    except NearfarError as error:
        if task.source:
            raise NearfarError(f"{task.source}: {error}") from error
        return str(error).rstrip(".")
    return None


def _features(texts: Sequence[tuple[str, ...]], embedded: TextEmbeddings) -> NDArray[np.float32]:
    """The classifier's features of each row [rows, features]."""
    with np.errstate(over="ignore", invalid="ignore"):
        sides = [
            embedded.vectors[[embedded.rows[text] for text in side]].astype(np.float32, copy=False)
            for side in zip(*texts, strict=True)
        ]
        return sides[0] if len(sides) == 1 else probes.pair_features(*sides)


def _classified(
    rows: _SortedRows, task: TransferTask, features: NDArray[np.float32], probe: Probe, **known: Any
) -> tuple[results.ClassificationScores, Floats]:
    """The entry of a task with labels, and the bootstrap draws of its accuracy."""
    known |= {"protocol": probe.protocol, "names": task.label_names, "pairs": task.pairs}
    if known["reason"]:
        return classification(rows.in_file_order(), None, **known)
    protocols: Sequence[Callable[..., probes.ProbeResult]] = (probes.inner_kfold, probes.kfold, probes.split)
    parts = rows.splits if len(rows.splits) > 1 else ()
    how: dict[str, Any] = {"classes": len(task.label_names), "probe": probe}
    probed = protocols[len(rows.splits) - 1](features, rows.targets, *parts, **how)
    grid = {"l2" if probe.protocol == "senteval" else "c": list(probed.grid)}
    known |= {name: getattr(probed, name) for name in ("dev_accuracy", "chosen", "fold_accuracies")}
    known["grid"] = results.PenaltyGrid(**grid, dev_accuracy=probed.grid_accuracies)
    return classification(rows.in_file_order(), rows.in_file_order(probed.predicted), probed.accuracy, **known)


def _related(rows: _SortedRows, features: NDArray[np.float32], probe: Probe, **known: Any) -> results.RelatednessScores:
    """The entry of a task with scores."""
    if known["reason"]:
        return relatedness(rows.in_file_order(), None, **known)
    predicted, dev = probes.fit_relatedness(features, rows.targets, *rows.splits, seed=probe.seed)
    known["dev_pearson"] = None if dev is None else round(100 * dev, 4)
    return relatedness(rows.in_file_order(), rows.in_file_order(predicted), **known)


def classification(
    gold: Indices,
    predicted: Indices | None,
    score: float | None = None,
    *,
    names: Sequence[str],
    texts: Sequence[Sequence[str]],
    pairs: bool = False,
    reason: str | None = None,
    resamples: int,
    seed: Sequence[int],
    **fields: Any,
) -> tuple[results.ClassificationScores, Floats]:
    """The entry of a task with labels, and the bootstrap draws of its accuracy.

    Args:
        gold: labels of the tested rows.
        predicted: predictions for the same rows, in the same order; None where there is a ``reason``.
        score: accuracy x 100, where it is not the share of correct rows but a mean over folds.
        names: names of the labels.
        texts: the texts of each tested row; rows that share one are resampled together.
        pairs: whether rows have two texts; with two labels, F1 of the second label is computed too.
        reason: why there is no result.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
        fields: other fields of the entry.
    """
    how: dict[str, Any] = {"resamples": resamples, "seed": seed, "units": units_of_rows(texts)}
    fields = {"rows": len(gold), "classes": list(names), "units": how["units"], "digest": "", **fields}
    with_f1 = pairs and len(names) == 2
    if predicted is None:
        missing = results.Estimate(None, None, None, reason)
        drawn = np.full(resamples, np.nan)
        return results.ClassificationScores(accuracy=missing, f1=missing if with_f1 else None, **fields), drawn
    correct = (gold == predicted).astype(np.float64)
    drawn = bootstrap_means(correct[None], **how)[0]
    return results.ClassificationScores(
        accuracy=estimate(100 * float(correct.mean()) if score is None else score, drawn),
        f1=confusion_estimate(f1_score, gold, predicted, **how, decimals=2) if with_f1 else None,
        gold=gold.tolist(),
        predicted=predicted.tolist(),
        **fields,
    ), drawn


def relatedness(
    gold: Floats,
    predicted: Floats | None,
    *,
    texts: Sequence[Sequence[str]],
    reason: str | None = None,
    resamples: int,
    seed: Sequence[int],
    **fields: Any,
) -> results.RelatednessScores:
    """The entry of a task with scores, with other ``fields``; ``predicted`` is None where there is a ``reason``.

    Where all predictions are equal the correlations are undefined (SentEval returns 0).
    """
    fields = {"pairs": len(gold), "digest": "", **fields}
    if predicted is None:
        missing = results.Estimate(None, None, None, reason)
        return results.RelatednessScores(pearson=missing, spearman=missing, **fields)
    whole, units = np.rint(predicted / PREDICTION_UNIT), units_of_rows(texts)
    constant = "all predicted scores are equal" if np.ptp(whole) <= 1 else None  # up to rounding
    undefined = constant or undefined_reason(gold, whole)
    how: dict[str, Any] = {"sizes": [len(gold)], "resamples": resamples, "seed": seed, "units": units}
    missing = results.Estimate(None, None, None, undefined)
    for name in CORRELATIONS:
        fields[name] = missing if undefined else correlation_estimate(name, gold, whole, **how)
    return results.RelatednessScores(
        mse=round(float(np.mean((whole * PREDICTION_UNIT - gold) ** 2)), 6),
        gold=plain_numbers(gold),
        predicted_e6=whole.astype(int).tolist(),
        units=units,
        **fields,
    )


def confusions(gold: ArrayLike, predicted: ArrayLike) -> NDArray[np.intp]:
    """Of the labels 0 and 1: true negatives, false positives, false negatives, true positives [4]."""
    return np.bincount(2 * np.asarray(gold, dtype=np.intp) + np.asarray(predicted, dtype=np.intp), minlength=4)


def f1_score(counts: NDArray[Any]) -> Floats:
    """F1 of the second class, 2 tp / (2 tp + fp + fn), of :func:`confusions` [rows, 4]; NaN where there is none."""
    false, hits = counts[:, 1] + counts[:, 2], 2.0 * counts[:, 3]
    return np.divide(hits, hits + false, out=np.full(len(hits), np.nan), where=hits + false > 0)


def confusion_estimate(
    measure: Callable[[NDArray[Any]], Floats], gold: Indices, predicted: Indices, *, decimals: int = 4, **bootstrap: Any
) -> results.Estimate:
    """The estimate x 100 of a measure of :func:`confusions`, which is the same of their shares.

    ``bootstrap`` are the settings of :func:`~nearfar.evaluation.statistics.bootstrap_means`.
    """
    score = float(measure(confusions(gold, predicted)[None])[0])
    cells = (2 * gold + predicted == np.arange(4)[:, None]).astype(np.float64)
    if np.isnan(score):
        return results.Estimate(None, None, None, "no row has the second label, and none is predicted to have it")
    return estimate(round(100 * score, decimals), measure(bootstrap_means(cells, **bootstrap).T))


def neighbour_vote(
    vectors: NDArray[np.float32],
    labelled: NDArray[np.float32],
    labels: Sequence[str],
    *,
    similarity: VectorSimilarity = "cosine",
    device: str = "cpu",
) -> list[str]:
    """The most frequent label among the :data:`NEIGHBOURS` labelled texts with the highest similarity.

    Of labels with equally many votes, the one with the highest sum of similarities wins, then the first in text order.

    Args:
        vectors: texts to label [texts, dim].
        labelled: labelled texts [labelled, dim].
        labels: their labels.
        similarity: how vectors are compared.
        device: where similarities are computed.

    Raises:
        NearfarError: a vector is not finite.
    """
    if similarity == "cosine":
        vectors, labelled = (unit_rows(np.array(side, dtype=np.float32)) for side in (vectors, labelled))
    found = nearest(vectors, labelled, NEIGHBOURS, similarity=similarity, device=device)
    winners = []
    for places, similarities in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
        votes = defaultdict[str, NDArray[np.float64]](lambda: np.zeros(2))
        for place, weight in zip(places, similarities, strict=True):
            votes[labels[place]] += 1, weight
        winners.append(min(votes, key=lambda label: (*-votes[label], label)))
    return winners


def vote_scores(
    texts: Sequence[str], gold: Sequence[str], predicted: Sequence[str], **settings: Any
) -> results.ClassificationScores:
    """The entry of a result file for the labels of a vote.

    ``settings`` are ``resamples``, ``seed`` and ``digest``, of the texts and their neighbours (:func:`classification`).
    """
    classes, numbers = np.unique([*gold, *predicted], return_inverse=True)
    settings |= {"protocol": VOTE, "names": classes.tolist(), "texts": [(text,) for text in texts]}
    right, voted = np.split(numbers, [len(gold)])
    return classification(right, voted, **settings)[0]
