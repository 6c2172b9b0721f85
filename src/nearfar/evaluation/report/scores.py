"""Scores of a report: a row for each side, a column for each task and average, with the best of each marked."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from nearfar.evaluation import results
from nearfar.evaluation.comparison import fingerprints
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.render import Cell, Table, notes
from nearfar.evaluation.report.blocks import DASH, Block, Chart, Figure, Line
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.statistics import mean_estimate
from nearfar.evaluation.tables.comparison import tells_apart
from nearfar.types import metric_title

AnyComparison: TypeAlias = results.ComparisonResult | results.PairwiseResult
Kind: TypeAlias = Literal["similarity", "transfer", "retrieval"]
MAX_DOTS = 48
"""A figure with more dots than this is left out: it would be taller than its table."""


class Entry(NamedTuple):
    """One score of an evaluation: on a task, or the average over several."""

    tasks: Sequence[str]
    metric: str
    """``spearman``, ``accuracy`` and so on; of retrieval the measure."""
    estimate: results.Estimate
    average: bool


def scores_of(result: results.EvaluationResult, kind: Kind) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The tasks of one kind, and the named averages over them."""
    if kind == "similarity":
        return result.tasks, result.averages
    if kind == "retrieval":
        return result.retrieval, {}
    return (result.transfer.tasks, result.transfer.averages) if result.transfer else ({}, {})


def _entries(
    result: results.EvaluationResult, kind: Kind, metric: str | None, aggregate: Aggregate
) -> dict[str, Entry]:
    """The scores of an evaluation by their titles, those of tasks, then the named averages.

    Of transfer tasks there is accuracy, F1 and Matthews where there are any, or the correlations of learned
    relatedness; retrieval has the main measure of each task unless ``metric`` names one.
    """
    tasks, averages = scores_of(result, kind)
    entries = {}
    for task, scored in {**tasks, **{f"average of {name}": average for name, average in averages.items()}}.items():
        for name in sorted(scored.METRICS) if kind == "transfer" else [metric or scored.main]:
            known = scored.metric(name)
            estimate = known.of(aggregate) if kind == "similarity" else known
            title = f"{task}, {metric_title(name) if kind == 'transfer' else name}"
            if estimate is not None:
                members = getattr(scored, "tasks", [task])
                title = task if name in ("accuracy", metric) else title
                entries[title] = Entry(members, name, estimate, task not in tasks)
    return entries


def _add_average(runs: Sequence[dict[str, Entry]], kind: Kind) -> None:
    """Where no evaluation has a named average, the mean over the tasks that all have, as in comparisons."""
    every = ChainMap(*reversed(runs))
    scored = {title: one for title, one in every.items() if kind != "transfer" or one.metric == "accuracy"}
    shared = {one.tasks[0]: title for title, one in scored.items() if all(title in run for run in runs)}
    if "sickr" in shared:
        shared.pop("sickr-full", None)  # it contains the other one
    metrics = {one.metric for one in scored.values()}
    if len(shared) < 2 or len(metrics) > 1 or any(one.average for one in scored.values()):
        return
    (metric,) = metrics
    name = f"these {len(shared)}" if len(shared) == len(scored) else ", ".join(shared)
    for run in runs:
        of_run = mean_estimate({task: run[title].estimate for task, title in shared.items()}, [np.zeros(0)])
        run[f"average of {name}"] = Entry([*shared], metric, of_run, average=True)


def _score(runs: Sequence[Mapping[str, Entry]], title: str) -> results.Estimate | None:
    """A side's score; of several runs the mean, with one standard deviation to each side; None if not evaluated."""
    known = [run[title].estimate for run in runs if title in run]
    if len(runs) == 1 or not known:
        return next(iter(known), None)
    values = [one.score for one in known if one.score is not None]
    if len(values) < len(runs):
        reasons = [f": {one.reason}" for one in known if one.reason]
        return results.Estimate(
            None, None, None, f"only {len(values)} of {len(runs)} runs have it{''.join(reasons[:1])}"
        )
    middle, sd = mean(values), stdev(values)
    return results.Estimate(middle, middle - sd, middle + sd)


def _tests_by_tasks(computed: AnyComparison) -> dict[Any, results.PairedTest]:
    """The tests by the positions of their sides, their tasks and the metric."""
    tests = dict[Any, results.PairedTest]()
    for one in computed.comparisons:
        rows = [
            *((row.tasks, row) for row in one.averages.values()),
            *(([name], row) for name, row in one.tasks.items()),
        ]
        tests |= {(frozenset(one.pair), frozenset(tasks), one.tasks[tasks[0]].metric): row for tasks, row in rows}
    return tests


@dataclass
class Column:
    """A score of each side, under one title."""

    title: str
    entry: Entry
    """Of the first evaluation that has it."""
    scores: dict[int, results.Estimate]
    """Side -> its score, where it was evaluated."""
    comparable: bool
    """Whether all scores are on the same data; else none is marked."""
    tests: dict[int, results.PairedTest] = field(default_factory=dict)
    """Side with a lower score -> the test between it and the best, if there is one; of the lower number first."""

    @property
    def values(self) -> dict[int, float]:
        """The scores of the sides that have one."""
        return {side: one.score for side, one in self.scores.items() if one.score is not None}

    @property
    def best(self) -> list[int]:
        """The sides with the highest score; empty where only one side has a score, or where their data differ."""
        values = self.values
        return [n for n in values if values[n] == max(values.values()) and self.comparable and len(values) > 1]

    @property
    def untested(self) -> list[int]:
        """The sides with a lower score that no test compares with the best."""
        return [n for n in self.values if self.best and n not in self.best and n not in self.tests]


class Grid:
    """The scores of some of the sides in some columns; tests are between all ``sides``.

    Args:
        sides: all sides of the page.
        computed: the tests between them.
        kind: similarity, transfer tasks or retrieval.
        metric: the metric of similarity, or the measure of retrieval if it is not the main one of each task.
        aggregate: the aggregate of similarity.
        indices: the positions of the sides to show; by default all that have scores of this kind.
    """

    def __init__(
        self,
        sides: Sequence[EvaluatedModel],
        computed: AnyComparison | None,
        kind: Kind,
        *,
        metric: str | None = None,
        aggregate: Aggregate = "all",
        indices: Sequence[int] | None = None,
    ) -> None:
        scored = [n for n, side in enumerate(sides) if any(scores_of(run.result, kind)[0] for run in side.runs)]
        self.sides, self.indices = sides, scored if indices is None else indices
        tested = computed and (kind != "similarity" or aggregate == computed.config.aggregate)
        self._tests = _tests_by_tasks(computed) if computed and tested else {}
        self._runs = {n: [_entries(run.result, kind, metric, aggregate) for run in sides[n].runs] for n in self.indices}
        every = [run for runs in self._runs.values() for run in runs]
        _add_average(every, kind)
        columns = sorted(ChainMap(*reversed(every)).items(), key=lambda item: item[1].average)
        self.columns = [self._column(title, entry) for title, entry in columns]

    def _column(self, title: str, entry: Entry) -> Column:
        """The scores under a title, with the tests against the best of them."""
        known = {n: _score(runs, title) for n, runs in self._runs.items()}
        scores = {n: score for n, score in known.items() if score is not None}
        data = {
            str([fingerprints(run, task) for task in entries[title].tasks if task in run.result.all_tasks])
            for n, score in scores.items()
            for run, entries in zip(self.sides[n].runs, self._runs[n], strict=True)
            if score.score is not None
        }
        column = Column(title, entry, scores, comparable=len(data) < 2)
        for n in column.untested:
            test = self._tests.get((frozenset((n, column.best[0])), frozenset(entry.tasks), entry.metric))
            if test is not None and test.difference is not None:
                column.tests[n] = test
        return column

    def blocks(self, caption: str) -> list[Block]:
        """The table, with a row for each side, and for a few sides and columns a chart."""
        scores = {self.sides[n].name: [column.scores.get(n) for column in self.columns] for n in self.indices}
        several = any(len(self.sides[n].runs) > 1 for n in self.indices)
        words = f"Scores with their 95% intervals{', of several seeds with the standard deviation' * several}."
        return [self.table(caption), *dots(words, caption, [column.title for column in self.columns], scores)]

    def table(self, caption: str) -> Table:
        """A row for each side."""
        runs = [len(self.sides[n].runs) for n in self.indices]
        shown = ["[95% interval]"] * (1 in runs) + ["for several seeds the mean ± standard deviation"] * (max(runs) > 1)
        return Table(
            title=f"{caption}; {', '.join(shown)}",
            columns=["model", *(column.title for column in self.columns)],
            rows=[[_name(self.sides[n]), *(self._cell(column, n) for column in self.columns)] for n in self.indices],
            notes=notes("scores", self.columns, {n: self.sides[n] for n in self.indices}),
        )

    def _cell(self, column: Column, side: int) -> Cell:
        """The score of a side, marked where it is the best or not told apart from it."""
        score, test = column.scores.get(side), column.tests.get(side)
        if score is None or score.score is None:
            return Cell("undefined" if score else DASH)
        mark: Literal["", "near", "best"] = "near" if test is not None and not tells_apart(test) else ""
        return Cell(f"{score.score:.2f}", self._spread(score, side), "best" if side in column.best else mark)

    def _spread(self, score: results.Estimate, side: int) -> str:
        """The interval or the standard deviation in short."""
        if len(self.sides[side].runs) == 1 or score.score is None or score.high is None:
            return score.interval
        return f"± {score.high - score.score:.2f}"

    def headline(self, kind: str, metric: str) -> str:
        """The best side on the average that most sides have, and what the tests say of the others."""
        enough = min(2, len(self.indices))
        averages = [column for column in self.columns if column.entry.average and len(column.values) >= enough]
        chosen = max(averages or self.columns, key=lambda column: len(column.values))
        names = {n: self.sides[n].name for n in self.indices}
        spreads = {n: self._spread(score, n) for n, score in chosen.scores.items()}
        shown = {n: f"{names[n]} with {value:.2f} {spreads[n]}".strip() for n, value in chosen.values.items()}
        return notes("headline", kind, metric, chosen, names, shown)[0]


def dots(
    caption: str, title: str, labels: Sequence[str], scores: Mapping[str, Sequence[results.Estimate | None]]
) -> list[Figure]:
    """Scores with their intervals, beside their labels; no figure of a single row, or of too many scores."""
    if not labels or not 1 < len(scores) <= MAX_DOTS // len(labels):
        return []
    lines = []
    for number, (name, of_name) in enumerate(scores.items()):
        spans = [None if one is None or one.low is None else (one.low, one.high or 0.0) for one in of_name]
        lines.append(
            Line(name, [one.score if one else None for one in of_name], range(len(labels)), number, spans=spans)
        )
    return [Figure(caption, [Chart(title, "", lines, labels=labels)])]


def _name(side: EvaluatedModel) -> Cell:
    if len(side.runs) == 1:
        return Cell(side.name)
    known = [str(seed) for run in side.runs if (seed := run.result.training_seed) is not None]
    return Cell(side.name, f"{len(side.runs)} seeds{': ' if known else ''}{', '.join(known)}")
