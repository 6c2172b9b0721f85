"""Scores of a report: a row for each side, a column for each task and average, with the best of each marked."""

from collections import defaultdict
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
from nearfar.evaluation.statistics import NO_REASON, mean_estimate
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
    estimate: results.Estimate | None
    average: bool = False


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

    def entry(tasks: Sequence[str], name: str, scored: Any, *, average: bool = False) -> Entry:
        known = scored.metric(name)
        estimate = known.of(aggregate) if isinstance(known, results.AggregateEstimates) else known
        return Entry(tasks, name, estimate, average)

    entries = {}
    tasks, averages = scores_of(result, kind)
    for task, scored in tasks.items():
        for name in sorted(scored.METRICS) if kind == "transfer" else [metric or scored.main]:
            plain = kind == "similarity" or name in ("accuracy", metric)
            title = task if plain else f"{task}, {metric_title(name) if kind == 'transfer' else name}"
            entries[title] = entry([task], name, scored)
    for title, average in averages.items():
        name = "accuracy" if kind == "transfer" else metric or "spearman"
        entries[f"average of {title}"] = entry(average.tasks, name, average, average=True)
    return {title: one for title, one in entries.items() if one.estimate is not None or kind != "transfer"}


def _add_average(runs: Sequence[dict[str, Entry]], kind: Kind) -> None:
    """Where no evaluation has a named average, the mean over the tasks that all have, as in comparisons."""
    first = _first(runs)
    scored = {title: one for title, one in first.items() if kind != "transfer" or one.metric == "accuracy"}
    shared = {one.tasks[0]: title for title, one in scored.items() if all(_known(run, title) for run in runs)}
    if "sickr" in shared:
        shared.pop("sickr-full", None)  # it contains the other one
    metrics = {one.metric for one in scored.values()}
    if len(shared) < 2 or len(metrics) > 1 or any(one.average for one in first.values()):
        return
    name = f"these {len(shared)}" if len(shared) == len(scored) else ", ".join(shared)
    for run in runs:
        estimates = {task: estimate for task, title in shared.items() if (estimate := _known(run, title))}
        of_run = mean_estimate(estimates, [np.zeros(0)])
        run[f"average of {name}"] = Entry([*shared], next(iter(metrics)), of_run, average=True)


def _known(run: Mapping[str, Entry], title: str) -> results.Estimate | None:
    return run[title].estimate if title in run else None


def _first(runs: Sequence[dict[str, Entry]]) -> dict[str, Entry]:
    """The entries of all runs; where several have a title, that of the first one."""
    merged: dict[str, Entry] = {}
    for run in runs:
        merged |= run | merged
    return merged


def _score(side: EvaluatedModel, estimates: Sequence[results.Estimate | None]) -> results.Estimate | None:
    """The side's score; of several runs the mean, with one standard deviation to each side; None if not evaluated."""
    known = [one for one in estimates if one is not None]
    if len(estimates) == 1 or not known:
        return known[0] if known else None
    if len(known) < len(estimates):
        reason = f"only {len(known)} of {len(estimates)} runs were evaluated on it"
        return results.Estimate(None, None, None, reason)
    values = [one.score for one in known if one.score is not None]
    for run, one in zip(side.runs, known, strict=True):
        if one.score is None:
            return results.Estimate(None, None, None, f"{run.source}: {one.reason or NO_REASON}")
    middle, sd = mean(values), stdev(values)
    return results.Estimate(middle, middle - sd, middle + sd)


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
    complete: bool
    """Whether all sides were evaluated."""
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
        self._tests = {tuple(tests.pair): tests for tests in (computed.comparisons if computed and tested else ())}
        self._runs = {n: [_entries(run.result, kind, metric, aggregate) for run in sides[n].runs] for n in self.indices}
        every = [run for runs in self._runs.values() for run in runs]
        _add_average(every, kind)
        columns = sorted(_first(every).items(), key=lambda item: item[1].average)
        self.columns = [self._column(title, entry) for title, entry in columns]

    def _column(self, title: str, entry: Entry) -> Column:
        """The scores under a title, with the tests against the best of them."""
        scores, data = dict[int, results.Estimate](), set[str]()
        for n, runs in self._runs.items():
            score = _score(self.sides[n], [_known(run, title) for run in runs])
            if score is None:
                continue
            scores[n] = score
            for run, entries in zip(self.sides[n].runs, runs if score.score is not None else (), strict=False):
                known = run.result.all_tasks
                data.add(str([fingerprints(run, task) if task in known else None for task in entries[title].tasks]))
        column = Column(title, entry, scores, comparable=len(data) < 2, complete=len(scores) == len(self.indices))
        for n in column.untested:
            if test := self._test(entry, n, column.best[0]):
                column.tests[n] = test
        return column

    def _test(self, entry: Entry, *pair: int) -> results.PairedTest | None:
        """The test of a score of two sides, where there is one."""
        tests = self._tests.get(tuple(sorted(pair)))
        tasks = {task: row for task, row in tests.tasks.items() if row.metric == entry.metric} if tests else {}
        if tests is None or not tasks.keys() >= {*entry.tasks}:
            return None
        averages = [one for one in tests.averages.values() if {*one.tasks} == {*entry.tasks}]
        rows: Sequence[results.PairedTest] = averages if entry.average else [tasks[entry.tasks[0]]]
        return next((row for row in rows if row.difference is not None), None)

    def blocks(self, caption: str) -> list[Block]:
        """The table, with a row for each side, and for a few sides and columns a chart."""
        blocks: list[Block] = [self.table(caption)]
        if 1 < len(self.indices) <= MAX_DOTS // max(len(self.columns), 1):
            lines = []
            for place, n in enumerate(self.indices):
                scores = [column.scores.get(n) or results.Estimate(None, None, None) for column in self.columns]
                spans = [None if one.low is None or one.high is None else (one.low, one.high) for one in scores]
                lines.append(
                    Line(self.sides[n].name, [one.score for one in scores], range(len(scores)), place, spans=spans)
                )
            several = any(len(self.sides[n].runs) > 1 for n in self.indices)
            words = f"Scores with their 95% intervals{', of several seeds with the standard deviation' * several}."
            blocks.append(Figure(words, [Chart(caption, "", lines, labels=[column.title for column in self.columns])]))
        return blocks

    def table(self, caption: str) -> Table:
        """A row for each side."""
        runs = [len(self.sides[n].runs) for n in self.indices]
        shown = ["[95% interval]"] * (1 in runs) + ["for several seeds the mean ± standard deviation"] * (max(runs) > 1)
        rows = [[_name(self.sides[n]), *(self._cell(column, n) for column in self.columns)] for n in self.indices]
        header = ["model", *(column.title for column in self.columns)]
        return Table(
            title=f"{caption}; {', '.join(shown)}",
            columns=header,
            rows=rows,
            notes=notes("scores", self.columns, {n: self.sides[n] for n in self.indices}),
        )

    def _cell(self, column: Column, side: int) -> Cell:
        """The score of a side, marked where it is the best or not told apart from it."""
        score, test = column.scores.get(side), column.tests.get(side)
        if score is None or score.score is None:
            return Cell("undefined" if score else DASH)
        near = test is not None and not tells_apart(test)
        mark: Literal["best", "near", ""] = "best" if side in column.best else "near" if near else ""
        return Cell(f"{score.score:.2f}", self._spread(score, side), mark)

    def _spread(self, score: results.Estimate, side: int) -> str:
        """The interval or the standard deviation in short."""
        if score.score is None or score.low is None or score.high is None:
            return ""
        of_runs = f"± {score.high - score.score:.2f}"
        return of_runs if len(self.sides[side].runs) > 1 else f"[{score.low:.1f}, {score.high:.1f}]"

    def headline(self, kind: str, metric: str) -> str:
        """The best side on the average that most sides have, and what the tests say of the others."""
        enough = min(2, len(self.indices))
        averages = [column for column in self.columns if column.entry.average and len(column.values) >= enough]
        chosen = max(averages or self.columns, key=lambda column: len(column.values))
        what = f"{kind}, {'' if chosen.entry.average else 'task '}{chosen.title} ({metric})"
        names = {n: self.sides[n].name for n in self.indices}
        spreads = {n: self._spread(chosen.scores[n], n) for n in chosen.values}
        shown = {n: f"{names[n]} with {value:.2f} {spreads[n]}".strip() for n, value in chosen.values.items()}
        if not chosen.comparable:
            return f"{what}: scored on different data, so no best score is marked."
        if not chosen.best:
            return f"{what}: {' '.join(shown.values()) or 'no score'}."
        best, *equal = chosen.best
        if equal:
            return f"{what}: {' and '.join(names[n] for n in chosen.best)} have the same highest score."
        parts = defaultdict[str, list[str]](list)
        for n, test in chosen.tests.items():
            level = "It is level with" if test.verdict == "level" else "It cannot be told apart from"
            numbers = [value or 0.0 for value in (test.difference, test.low, test.high)]
            by, low, high = [-value for value in (numbers[0], *numbers[:0:-1])] if best > n else numbers
            lead = f"{names[n]} (by {by:.2f} [{low:.2f}, {high:.2f}])"
            parts["It is better than" if tells_apart(test) else level].append(lead)
        parts["Not tested against it:"] = [names[n] for n in chosen.untested]
        parts["No score:"] = [name for n, name in names.items() if n not in chosen.values]
        sentence = f"{what}: the best of {len(chosen.values)} is {shown[best]}."
        return " ".join([sentence, *(f"{words} {', '.join(known)}." for words, known in parts.items() if known)])


def _name(side: EvaluatedModel) -> Cell:
    if len(side.runs) == 1:
        return Cell(side.name)
    known = [str(seed) for seed in side.seeds if seed is not None]
    return Cell(side.name, f"{len(side.runs)} seeds{': ' if known else ''}{', '.join(known)}")
