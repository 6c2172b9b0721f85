"""Scores of systems on the units of a test set: a table that any tool wrote, and run files of TREC with judgements.

A table has a row for each score, and the columns ``system``, ``unit`` (a query, a row, a pair of texts) and ``score``,
where higher is better. Scores of which none is beyond 1 are shown x 100, others as they are. It may also have

- ``seed``: the training run. The score of a system is the mean of its runs;
- ``task``: the test set. Units are those of a task;
- ``cluster``: what units belong to that are not independent of each other, such as the questions about one text.

A line of a run file is ``query Q0 document rank score tag``, one of the judgements ``query 0 document grade``; they may
also have BEIR's columns (:mod:`nearfar.data.retrieval`). As in trec_eval, documents are ranked by their scores in
float32, and those with equal scores by their identifiers, the last in the order of texts first; ``rank`` is not read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.data.cells import Location, find_columns, is_blank, score_check, text_field
from nearfar.data.files import is_known, read_file, read_lines, stem
from nearfar.data.retrieval import MEASURES, QRELS_COLUMNS, Judgement, agreeing, grade_field, read_judgements
from nearfar.data.sources import Table, column_names
from nearfar.types import NearfarError
from nearfar.validation import format_value

COLUMNS, OPTIONAL = ("system", "unit", "score"), ("seed", "task", "cluster")
RUN_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
QRELS = ("query", "0", "document", "grade")
MAX_SCORE = 1e9
_FEW = 5
"""How many names of many an error lists."""


@dataclass(frozen=True)
class UnitScores:
    """The scores of systems on the units of a task."""

    runs: Sequence[tuple[str, str]]
    """System and seed of each run, sorted; the seed is empty for a system without seeds."""
    values: NDArray[np.float64]
    """Scores [runs, units], 0.01 for each point that is shown."""
    clusters: NDArray[np.int64]
    """The number of the cluster of each unit [units], from 0."""
    measure: str
    """What the scores are."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that describe the task in a result file."""
        kind = "retrieval" if self.measure in MEASURES else "scores"
        return {"kind": kind, "pairs": self.values.shape[1], "measure": self.measure}


class Systems(NamedTuple):
    """The scores of systems."""

    tasks: dict[str, UnitScores]
    sources: dict[str, str]
    """System -> the file of its scores."""
    counts: dict[str, dict[str, int]]
    """System -> what is worth knowing of its units, in words -> their number."""
    points: float
    """From the lowest to the highest score in points: 100 of shares, else the range in the table."""


def read_scores(file: Path) -> Systems:
    """The scores of a table; without a column ``task``, the name of the task is that of the file.

    Raises:
        NearfarError: the file cannot be read, a column is missing, a cell is empty or no number, a unit has two scores
            by one run or two clusters, or the runs of a task were not scored on the same units; the message names file,
            row and column, or the run and the units.
    """
    from pandas import DataFrame  # imported here: the import is slow

    frame = DataFrame(_rows(file), columns=["task", "system", "seed", "unit", "cluster", "score", "where"])
    twice = frame[frame.duplicated(["task", "system", "seed", "unit"])]
    if len(twice):
        row = twice.iloc[0]
        raise NearfarError(
            f"{row['where']}: {_run(row.system, row.seed)} has a score on unit {row.unit!r} in a row above."
        )
    if frame.empty:
        raise NearfarError(f"{file}: has no rows.")
    shares = bool((frame.score.abs() <= 1).all())
    measure, scale = ("score x 100", 1) if shares else ("score", 100)
    tasks = {}
    for task, of_task in frame.groupby("task", sort=False):
        clusters = of_task.groupby("unit").cluster.agg(["nunique", "first"])
        if (clusters["nunique"] > 1).any():
            unit = clusters.index[clusters["nunique"] > 1][0]
            raise NearfarError(f"{file}: unit {format_value(unit)} of task {task} has two clusters.")
        wide = of_task.pivot(index=["system", "seed"], columns="unit", values="score")
        lacking = wide.isna()  # refused, as a system's failures would go unseen
        for (system, seed), of_run in lacking[lacking.any(axis=1)].iterrows():
            units = list(of_run.index[of_run])
            few = ", ".join(units[:_FEW]) + ", ..." * (len(units) > _FEW)
            raise NearfarError(
                f"{file}: task {task}: {_run(system, seed)} has no score on {len(units)} of {wide.shape[1]} units: "
                f"{few}. Systems are compared on the same units: add the scores, or remove these units' rows."
            )
        numbers = clusters["first"].astype("category").cat.codes.to_numpy(np.int64)
        tasks[str(task)] = UnitScores(list(wide.index), wide.to_numpy() / scale, numbers, measure)
    points = 100.0 if shares else float(frame.score.max() - frame.score.min())
    return Systems(tasks, dict.fromkeys(frame.system, str(file)), {}, points)


def _rows(file: Path) -> Iterator[tuple[object, ...]]:
    """Task, system, seed, unit, cluster, score and location of each row of a table."""
    names = column_names(Table(str(file), file))
    read = {column: found[0] for column in OPTIONAL if (found := find_columns(names, (column,)))}
    check = score_check((-MAX_SCORE, MAX_SCORE))
    for where, values in read_file(file, COLUMNS, optional=list(read.values())):
        cells = dict(zip((*COLUMNS, *read), values, strict=True))
        system, unit = (_name(cells[column], column, where) for column in ("system", "unit"))
        task = _name(cells["task"], "task", where) if "task" in cells else stem(file)
        seed, cluster = (_name(cells.get(column), column, where, optional=True) for column in ("seed", "cluster"))
        group = f"cluster {cluster}" if cluster else f"unit {unit}"
        yield task, system, seed, unit, group, check(cells["score"], "score", where), where


def _name(value: object, column: str, where: Location, *, optional: bool = False) -> str:
    """The name in a cell, which may also be a whole number; empty for an empty cell that is ``optional``."""
    if isinstance(value, int | float):
        value = "" if isnan(value) else str(int(value) if float(value).is_integer() else value)
    return "" if optional and is_blank(value) else text_field(value, column, where)


def _run(system: str, seed: str) -> str:
    return f"system {format_value(system)}" + (f", seed {seed}," if seed else "")


def read_run(file: Path) -> tuple[str | None, dict[str, list[str]]]:
    """The tag that all lines of a run file have, and query -> its documents, best first.

    Raises:
        NearfarError: the file cannot be read, a line has not six fields, a score is no number, or a document is
            ranked twice for a query; the message names file and line.
    """
    tags: set[str] = set()
    found: dict[str, dict[str, float]] = {}
    check = score_check()
    for where, (query, _, document, _, score, tag) in _fields(file, RUN_COLUMNS):
        of_query = found.setdefault(query, {})
        if document in of_query:
            raise NearfarError(f"{where}: query {query!r} has document {document!r} in a line above.")
        of_query[document] = float(np.float32(check(score, "score", where)))
        tags.add(tag)
    ranked = {
        query: [document for _, document in sorted(zip(of_query.values(), of_query, strict=True), reverse=True)]
        for query, of_query in found.items()
    }
    return (tags.pop() if len(tags) == 1 else None), ranked


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """Query -> document -> its grade, from judgements in TREC's columns or BEIR's.

    Raises:
        NearfarError: the file cannot be read, a grade is no whole number, or a document has two grades for a query; the
            message names file and line.
    """
    if is_known(file) and find_columns(column_names(table := Table(str(file), file)), QRELS_COLUMNS):
        judgements = read_judgements(table)
    else:
        lines = _fields(file, QRELS)
        judgements = (
            Judgement(at, query, name, grade_field(cell, "grade", at)) for at, (query, _, name, cell) in lines
        )
    grades: dict[str, dict[str, int]] = {}
    for one in agreeing(judgements):
        grades.setdefault(one.query, {})[one.document] = one.grade
    return grades


def _fields(file: Path, columns: Sequence[str]) -> Iterator[tuple[Location, list[str]]]:
    """The fields of each line, which white space separates."""
    where = None
    for where, line in read_lines(file):
        fields = line.split()
        if len(fields) != len(columns):
            raise NearfarError(f"{where}: {len(fields)} fields; expected {len(columns)}: {' '.join(columns)}.")
        yield where, fields
    if where is None:
        raise NearfarError(f"{file}: is empty; each line should be: {' '.join(columns)}.")
