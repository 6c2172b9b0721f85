"""Transfer tasks (SentEval): classifiers trained on an encoder's frozen embeddings.

The protocols are described in :mod:`nearfar.evaluation.probes` and :mod:`nearfar.evaluation.relatedness`. As in
SentEval, rows are sorted by their numbers of words and their label or score before they are divided into folds and
minibatches, and pairs have the features [|u - v|; u * v].

Entries are :class:`~nearfar.evaluation.results.ClassificationScores` and
:class:`~nearfar.evaluation.results.RelatednessScores`. Predictions of a pool, which has no test split, are those of all
its rows. Where a task has no result, its estimates are undefined with a reason and its lists are empty.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nearfar.data.labelled import TransferTask
from nearfar.evaluation.averages import TRANSFER_AVERAGES
from nearfar.evaluation.classifiers import Floats, Indices
from nearfar.evaluation.correlation import check_resampling
from nearfar.evaluation.probe_settings import Probe, check_probe
from nearfar.evaluation.probes import ProbeResult, check_labels, inner_kfold, kfold, split
from nearfar.evaluation.relatedness import fit_relatedness, pair_features
from nearfar.evaluation.results import ClassificationScores, TransferAverage, TransferScores
from nearfar.evaluation.task_vectors import TextEmbeddings, embed_tasks
from nearfar.evaluation.transfer_scores import average, classification, relatedness
from nearfar.types import Encode, NearfarError

DEFAULT_PROBE = Probe()


class TransferEvaluation(NamedTuple):
    """Scores on transfer tasks."""

    texts: int
    """Number of distinct texts that were encoded."""
    dim: int | None
    """Width of an embedding; None where nothing was encoded."""
    averages: dict[str, TransferAverage]
    tasks: dict[str, TransferScores]


def evaluate_transfer(
    encode: Encode,
    tasks: Mapping[str, TransferTask],
    *,
    probe: Probe = DEFAULT_PROBE,
    per_task: bool = False,
    seed: int = 1111,
    resamples: int = 1000,
    progress: bool = False,
) -> TransferEvaluation:
    """Probe ``encode`` on ``tasks``; all their distinct texts are encoded in one call, or in one for each task.

    A task has no score where a vector of its texts holds a NaN or infinity, or where a named task cannot be probed. Its
    entry says why, and the other tasks are scored.

    Args:
        encode: texts -> vectors.
        tasks: by name, from :mod:`nearfar.data.labelled`.
        probe: settings of the classifiers; learned relatedness uses only their seed.
        per_task: call ``encode`` once for each task with that task's texts, for baselines that are fitted on the texts
            they encode.
        seed: seed of the bootstrap.
        resamples: bootstrap resamples of the tested rows behind each 95% interval; 0 for no intervals. Classifiers are
            not retrained.
        progress: show a progress bar.

    Raises:
        NearfarError: no tasks; invalid settings of the probe; a user's own data set that cannot be probed (one label,
            or too few rows of a label for the folds), before anything is encoded; ``encode`` does not return one
            vector per text.
    """
    check_probe(probe)
    check_resampling(resamples, seed)
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
        name: TransferAverage(tasks=list(members), accuracy=average(members, accuracies, draws))
        for name, members in TRANSFER_AVERAGES.items()
        if set(members) <= set(entries)
    }
    encoded = {text for known in embedded.values() for text in known.rows}
    dim = max((known.vectors.shape[1] for known in embedded.values()), default=0) or None
    return TransferEvaluation(len(encoded), dim, averages, entries)


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
        lines += [json.dumps([name, *row, named[int(y)] if named else y]) for row, y in zip(*rows, strict=True)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    numbers = np.array(targets, dtype=np.intp if named else np.float64)
    return _PreparedTask(texts, numbers, tuple(parts), np.array(order, dtype=np.intp), digest)


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
    gold = one.in_file_order(one.targets[one.split_rows[-1]])
    if task.label_names:
        probed = None if reason else _probe(one, features, len(task.label_names), probe)
        names, pairs = task.label_names, task.pairs
        entry, draws = classification(
            gold, probed, names=names, pairs=pairs, probe=probe, reason=reason, resamples=resamples, seed=bootstrap
        )
        return replace(entry, digest=one.digest), draws
    predicted, dev_pearson = None, None
    if not reason:
        train, dev, test = one.split_rows
        predicted, dev_pearson = fit_relatedness(features, one.targets, train, dev, test, seed=probe.seed)
        predicted = one.in_file_order(predicted)
    learned = relatedness(gold, predicted, dev_pearson, reason=reason, resamples=resamples, seed=bootstrap)
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
