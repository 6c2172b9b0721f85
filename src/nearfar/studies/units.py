"""The scores of single rows of test data (pairs, texts, queries): what is resampled, and the file that keeps them.

``units.parquet``, beside study.json, has a line for each row of each run and task that a compared column rests on, so
that each comparison can be computed again (:func:`nearfar.studies.table.compare_again`):

=================================  =================================================================================
``row, coordinates, replicate``    the run, as in study.json; the last two as JSON objects
``columns``                        the columns of the study that rest on the score, a JSON list
``task``, ``statistic``            what is computed of the units: ``spearman.all`` and others with an aggregate of the
                                   subsets, ``accuracy``, ``f1``, ``matthews``, or the ``mean``
``digest``                         fingerprints of the test data, a JSON list; equal ones are the same units
``subset``, ``unit``               numbers from 0: rows that share a text are one unit, which is drawn whole
``gold``                           the gold score or label of the row; null where the value is a measure, as of a query
``value``                          cosine (x 10^6), prediction, label, or measure of the row
=================================  =================================================================================
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nearfar.disk import new_file, read_errors
from nearfar.evaluation.correlation import AGGREGATES, CORRELATIONS, Floats, bootstrap_scores
from nearfar.evaluation.finetuned import matthews
from nearfar.evaluation.results import StudyCell
from nearfar.evaluation.statistics import bootstrap_means
from nearfar.evaluation.transfer import f1_score
from nearfar.types import NearfarError

UNITS = "units.parquet"
Place: TypeAlias = tuple[str, str, str]
"""Row, coordinates and replicate of a run, as texts."""
_RUN = ["row", "coordinates", "replicate"]
_PART = [*_RUN, "columns", "task", "statistic", "digest"]


@dataclass(frozen=True, eq=False)
class TestData:
    """Predictions of one run on the rows of one task, with what computes a score of them."""

    __test__ = False  # no class of tests, whatever its name

    task: str
    statistic: str
    """``spearman.all`` and others with an aggregate, ``accuracy``, ``f1``, ``matthews``, ``mean``."""
    digest: tuple[str, ...]
    """Fingerprints of the test data; runs with equal ones can be paired row by row."""
    gold: Floats | None
    """The gold score or label of each row; None where ``predicted`` are measures."""
    predicted: Floats
    """One number for each row: a cosine, a prediction, or the measure of a query."""
    run: int
    """The identity of the result; the same data of one result, in several columns, are resampled once."""
    units: Sequence[int] | None = None
    """The independent unit of each row; None where each row is its own."""
    sizes: Sequence[int] | None = None
    """Number of rows of each subset, in order; None where a task has none."""

    @property
    def size(self) -> int:
        """The number of independent units."""
        return len(self.predicted) if self.units is None else max(self.units) + 1

    @property
    def group(self) -> tuple[str, str, tuple[str, ...]]:
        """Runs of the same group share resamples."""
        return self.task, self.statistic, self.digest


def place_of(cell: StudyCell) -> Place:
    """What identifies a run in the files of a study."""
    return cell.row, json.dumps(cell.coordinates, sort_keys=True), json.dumps(cell.replicate, sort_keys=True)


class Resampler:
    """Bootstrap scores of runs, computed when they are first asked for, and once for each task and statistic.

    ``resamples`` drawn from ``seed`` and the task's name, as in ``nearfar compare``; runs with the same test data share
    them.
    """

    def __init__(self, data: Iterable[TestData], *, resamples: int, seed: int) -> None:
        self.resamples = resamples
        self.seed = seed
        self._draws: dict[tuple[Any, int], NDArray[np.float32]] = {}
        self._members: dict[Any, dict[int, TestData]] = defaultdict(dict)
        for one in data:
            self._members[one.group][one.run] = one

    def of(self, parts: Sequence[TestData]) -> Floats:
        """Scores on each resample [resamples], the mean over the parts; x 1, NaN where undefined."""
        for group in {part.group for part in parts if (part.group, part.run) not in self._draws}:
            members = self._members[group]
            scores = self._scores([*members.values()])
            self._draws |= {(group, run): row.astype(np.float32) for run, row in zip(members, scores, strict=True)}
        return np.mean([self._draws[part.group, part.run] for part in parts], axis=0, dtype=np.float64)

    def _scores(self, members: Sequence[TestData]) -> Floats:
        first = members[0]
        settings: dict[str, Any] = {"resamples": self.resamples, "seed": [self.seed, *first.task.encode()]}
        settings["units"] = next((one.units for one in members if one.units is not None), None)
        metric, _, aggregate = first.statistic.partition(".")
        gold, predicted = first.gold, np.array([one.predicted for one in members])
        if aggregate:
            settings |= {"only": aggregate, "sizes": first.sizes, "gold": gold, "systems": predicted}
            drawn = bootstrap_scores(CORRELATIONS[metric], **settings)
            return drawn.aggregate(next(by for by in AGGREGATES if by == aggregate))
        if metric in ("mean", "accuracy"):
            values = predicted if metric == "mean" else (predicted == gold).astype(float)
            return bootstrap_means(values, **settings)
        # F1 or Matthews correlation, from resampled shares of the confusions
        true, guess = gold == 1, predicted == 1
        indicators = np.concatenate([guess & true, guess & ~true, ~guess & true]).astype(float)
        hits, false_alarms, misses = bootstrap_means(indicators, **settings).reshape(3, -1)
        rejections = np.maximum(1 - hits - false_alarms - misses, 0)
        measure = f1_score if metric == "f1" else matthews
        return measure(np.stack([rejections, false_alarms, misses, hits], axis=1)).reshape(len(predicted), -1)


def write_units(file: Path, runs: Mapping[Place, Mapping[str, Sequence[TestData]]]) -> None:
    """Write the scores of single units that columns of runs rest on: run -> column -> what it rests on.

    Without any, no file is left.

    Raises:
        NearfarError: the file cannot be written.
    """
    frames = []
    for place, columns in runs.items():
        used: dict[tuple[Any, int], tuple[TestData, list[str]]] = {}
        for column, part in ((column, part) for column, parts in columns.items() for part in parts):
            used.setdefault((part.group, part.run), (part, []))[1].append(column)
        for part, its in used.values():
            texts = (*place, json.dumps(its), part.task, part.statistic, json.dumps(part.digest))
            numbers = {
                "subset": 0 if part.sizes is None else np.repeat(range(len(part.sizes)), part.sizes),
                "unit": range(len(part.predicted)) if part.units is None else part.units,
                "gold": np.nan if part.gold is None else part.gold,
                "value": part.predicted,
            }
            frames.append(pd.DataFrame(dict(zip(_PART, texts, strict=True)) | numbers))
    if not frames:
        file.unlink(missing_ok=True)
        return
    types = dict.fromkeys(_PART, "category") | dict.fromkeys(["subset", "unit"], "int32")
    types |= dict.fromkeys(["gold", "value"], "float64")
    with new_file(file) as temporary:
        pd.concat(frames).astype(types).to_parquet(temporary, compression="zstd", index=False)


def read_units(file: Path) -> dict[Place, dict[str, tuple[TestData, ...]]]:
    """Run -> column -> the scores of units that it rests on, from a file of :func:`write_units`.

    Raises:
        NearfarError: it cannot be read, or is no such file.
    """
    with read_errors(file):
        try:
            lines = pd.read_parquet(file)
            parts = lines.groupby(_PART, sort=False, observed=True)
        except (ValueError, KeyError) as error:  # pyarrow's errors of a damaged file are ValueErrors
            raise NearfarError(f"{file}: is damaged; run the study again to write it: {error}") from None
    read: dict[Place, dict[str, tuple[TestData, ...]]] = defaultdict(dict)
    for number, (texts, part) in enumerate(parts):
        row, coordinates, replicate, columns, task, statistic, digest = map(str, texts)
        gold, predicted = part["gold"].to_numpy(), part["value"].to_numpy()
        units, sizes = part["unit"].tolist(), part.groupby("subset").size().tolist()
        of_rows = None if units == [*range(len(units))] else units
        known = None if np.isnan(gold).any() else gold
        data = TestData(task, statistic, tuple(json.loads(digest)), known, predicted, number, of_rows, sizes)
        own = read[row, coordinates, replicate]
        for column in json.loads(columns):
            own[column] = (*own.get(column, ()), data)
    return dict(read)
