"""Scores of a report: a row for each side, a column for each task and average, with the best of each marked."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from nearfar.evaluation import results
from nearfar.evaluation.comparison import fingerprints
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Bar, Bars, Figure
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.statistics import NO_REASON, mean_estimate
from nearfar.evaluation.tables.comparison import tells_apart
from nearfar.types import metric_title

AnyComparison: TypeAlias = results.ComparisonResult | results.PairwiseResult
Kind: TypeAlias = Literal["similarity", "transfer", "retrieval"]
_OVERLAPS = {"sickr-full": "sickr"}
"""Task -> a task that is part of it; the two are not averaged together."""
_AVERAGES = {"similarity": "overall", "transfer": "overall_transfer", "retrieval": "overall_retrieval"}
MAX_BARS = 48
"""A figure with more bars than this is left out: it would be taller than its table."""


class Entry(NamedTuple):
    """One score of an evaluation: on a task, or the average over several."""

    tasks: tuple[str, ...]
    metric: str
    """``spearman``, ``accuracy`` and so on; of retrieval the measure."""
    estimate: results.Estimate | None
    average: bool = False


class Score(NamedTuple):
    """The score of one side; for several runs, the mean."""

    value: float | None = None
    ends: tuple[float, float] | None = None
    """Of the interval; for several runs, one standard deviation to each side."""
    sd: float | None = None
    """Standard deviation over the runs of a side."""
    reason: str | None = None
    """Why it is undefined."""

    @property
    def spread(self) -> str:
        """The interval or the standard deviation in short."""
        if self.sd is not None:
            return f"± {self.sd:.2f}"
        return f"[{self.ends[0]:.1f}, {self.ends[1]:.1f}]" if self.ends else ""


def scores_of(result: results.EvaluationResult, kind: Kind) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The tasks of one kind, and the named averages over them."""
    if kind == "similarity":
        return result.tasks, result.averages
    if kind == "retrieval":
        return result.retrieval, {}
    return (result.transfer.tasks, result.transfer.averages) if result.transfer else ({}, {})


def _entries(
    result: results.EvaluationResult, kind: Kind, metric: str | None, aggregate: Aggregate | None
) -> dict[str, Entry]:
    """The scores of an evaluation by their titles, those of tasks, then the named averages.

    Of transfer tasks there is accuracy, F1 and Matthews where there are any, or the correlations of learned
    relatedness; retrieval has the main measure of each task unless ``metric`` names one.
    """

    def entry(tasks: Sequence[str], name: str, scored: Any, *, average: bool = False) -> Entry:
        known = scored.metric(name)
        estimate = known.of(aggregate or "all") if isinstance(known, results.AggregateEstimates) else known
        return Entry(tuple(tasks), name, estimate, average)

    entries: dict[str, Entry] = {}
    tasks, averages = scores_of(result, kind)
    for task, scored in tasks.items():
        main = metric or (scored.main if kind == "retrieval" else "spearman")
        for name in sorted(scored.METRICS) if kind == "transfer" else [main]:
            plain = kind == "similarity" or name in ("accuracy", metric)
            title = task if plain else f"{task}, {name if kind == 'retrieval' else metric_title(name)}"
            entries[title] = entry([task], name, scored)
    name = "accuracy" if kind == "transfer" else metric or "spearman"
    for title, average in averages.items():
        entries[f"average of {title}"] = entry(average.tasks, name, average, average=True)
    return {title: own for title, own in entries.items() if own.estimate is not None or kind != "transfer"}


def _add_average(runs: Sequence[dict[str, Entry]], kind: Kind) -> None:
    """Where no evaluation has a named average, the mean over the tasks that all have, as in comparisons."""
    if any(entry.average and entry.estimate for run in runs for entry in run.values()):
        return
    averaged = {
        title: entry
        for title, entry in _first(runs).items()
        if not entry.average and (kind != "transfer" or entry.metric == "accuracy")
    }
    everywhere = [title for title in averaged if all(title in run and run[title].estimate for run in runs)]
    shared = {averaged[title].tasks[0]: title for title in everywhere}
    members = [task for task in shared if _OVERLAPS.get(task) not in shared]
    metric, *others = {entry.metric for entry in averaged.values()} or {""}
    if len(members) < 2 or others:
        return
    name = f"these {len(members)}" if len(members) == len(averaged) else ", ".join(members)
    for run in runs:
        estimates = {task: estimate for task in members if (estimate := run[shared[task]].estimate)}
        of_run = mean_estimate(estimates, [np.zeros(0)])
        run[f"average of {name}"] = Entry(tuple(members), metric, of_run, average=True)


def _score(side: EvaluatedModel, estimates: Sequence[results.Estimate | None]) -> Score | None:
    """The side's score from those of its runs; None where it was not evaluated."""
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    if len(known) < len(estimates):
        return Score(reason=f"only {len(known)} of {len(estimates)} runs were evaluated on it")
    for run, estimate in zip(side.runs, known, strict=True):
        if estimate.score is None:
            return Score(reason=f"{run.source}: " * (len(known) > 1) + (estimate.reason or NO_REASON))
    values = [estimate.score for estimate in known if estimate.score is not None]
    if len(values) > 1:
        middle, sd = mean(values), stdev(values)
        return Score(middle, (middle - sd, middle + sd), sd)
    low, high = known[0].low, known[0].high
    return Score(values[0], None if low is None or high is None else (low, high))


def _first(runs: Sequence[Mapping[str, Entry]]) -> dict[str, Entry]:
    """The entries of all runs; where several have a title, that of the first one."""
    merged: dict[str, Entry] = {}
    for run in runs:
        merged |= {title: entry for title, entry in run.items() if title not in merged}
    return merged


class Column(NamedTuple):
    """A score of each side, under one title."""

    title: str
    entry: Entry
    """Of the first evaluation that has it."""
    scores: list[Score | None]
    best: Sequence[int] = ()
    """The sides with the highest score; empty where only one side has a score, or where their data differ."""
    tests: Mapping[tuple[int, int], results.PairedTest | None] = {}
    """(Side with a lower score, one of the best) -> the test between the two, if any; of the lower number first."""
    problem: str | None = None
    """Why no best score is marked."""

    @property
    def values(self) -> dict[int, float]:
        """The scores of the sides that have one."""
        return {side: score.value for side, score in enumerate(self.scores) if score and score.value is not None}

    def cell(self, side: int) -> Cell:
        """The score of a side, marked where it is the best or not told apart from it."""
        score = self.scores[side]
        if score is None or score.value is None:
            return Cell("undefined" if score else DASH)
        near = any(other == side and test and not tells_apart(test) for (other, _), test in self.tests.items())
        return Cell(f"{score.value:.2f}", score.spread, "best" if side in self.best else "near" if near else "")


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
        aggregate: Aggregate | None = None,
        indices: Sequence[int] | None = None,
    ) -> None:
        scored = [n for n, side in enumerate(sides) if any(scores_of(run.result, kind)[0] for run in side.runs)]
        self.sides, self.kind, self.indices = sides, kind, scored if indices is None else indices
        self._computed = None if computed and aggregate not in (None, computed.config.aggregate) else computed
        self._runs = {n: [_entries(run.result, kind, metric, aggregate) for run in sides[n].runs] for n in self.indices}
        every = [run for runs in self._runs.values() for run in runs]
        _add_average(every, kind)
        columns = sorted(_first(every).items(), key=lambda item: item[1].average)
        self.columns = [self._column(title, entry) for title, entry in columns]

    def _column(self, title: str, entry: Entry) -> Column:
        """The scores under a title, with the best of them."""
        scores: list[Score | None] = [None] * len(self.sides)
        for n, runs in self._runs.items():
            scores[n] = _score(self.sides[n], [run[title].estimate if title in run else None for run in runs])
        column = Column(title, entry, scores)
        values, data = column.values, set[str]()
        for n in values:  # scores on different data are not ranked
            for run, entries in zip(self.sides[n].runs, self._runs[n], strict=True):
                tasks = scores_of(run.result, self.kind)[0]
                data.add(str([fingerprints(run, task) if task in tasks else None for task in entries[title].tasks]))
        if len(data) > 1:
            return column._replace(problem="scored on different data, so no best score is marked")
        if len(values) < 2:
            return column
        best = [n for n, value in values.items() if value == max(values.values())]
        others = [n for n in values if n not in best]
        return column._replace(best=best, tests={(n, top): self._test(entry, [n, top]) for top in best for n in others})

    def _test(self, entry: Entry, pair: list[int]) -> results.PairedTest | None:
        """The test of a score of two sides, where there is one."""
        compared = self._computed.comparisons if self._computed else []
        tests = next((tests for tests in compared if tests.pair == sorted(pair)), None)
        ranked = self.kind == "retrieval"
        if tests is None or not (ranked or entry.metric in ("spearman", "accuracy")):
            return None
        tested = [tests.tasks.get(task) for task in entry.tasks]
        if any(row is None or row.measure != (entry.metric if ranked else None) for row in tested):
            return None
        row: results.PairedTest | None = tested[0]
        if entry.average:
            average = tests.averages.get(_AVERAGES[self.kind])
            row = average if average and set(average.tasks) == set(entry.tasks) else None
        return row if row is not None and row.difference is not None else None

    def table(self, caption: str) -> Table:
        """A row for each side."""
        runs = [len(self.sides[n].runs) for n in self.indices]
        shown = ["[95% interval]"] * (1 in runs) + ["for several seeds the mean ± standard deviation"] * (max(runs) > 1)
        rows = [[_name(self.sides[n]), *(column.cell(n) for column in self.columns)] for n in self.indices]
        header = ["model", *(column.title for column in self.columns)]
        return Table(title=f"{caption}; {', '.join(shown)}", columns=header, rows=rows, notes=self._notes())

    def figure(self, title: str) -> list[Figure]:
        """Bars of the scores with their intervals, for a few sides and columns; empty for one side."""
        if not 1 < len(self.indices) <= MAX_BARS // max(len(self.columns), 1):
            return []
        bars = []
        for number, n in enumerate(self.indices):
            scores = [column.scores[n] or Score() for column in self.columns]
            values, ends = [score.value for score in scores], [score.ends for score in scores]
            bars.append(Bar(self.sides[n].name, number, values, ends))
        several = any(len(self.sides[n].runs) > 1 for n in self.indices)
        caption = f"Scores with their 95% intervals{', of several seeds with the standard deviation' * several}."
        return [Figure(caption, [Bars(title, [column.title for column in self.columns], bars)])]

    def headline(self, kind: str, metric: str) -> str:
        """The best side on the average that most sides have, and what the tests say of the others."""
        enough = min(2, len(self.indices))

        def reach(column: Column) -> tuple[bool, int]:
            return column.entry.average and len(column.values) >= enough, len(column.values)

        chosen = max(self.columns, key=reach)
        what = f"{kind}, {'' if chosen.entry.average else 'task '}{chosen.title} ({metric})"
        if chosen.problem:
            return f"{what}: {chosen.problem}."
        if not chosen.best:
            alone = next(iter(chosen.values), None)
            return f"{what}: {'no score' if alone is None else self._in_words(chosen, alone)}."
        if len(chosen.best) > 1:
            return f"{what}: {' and '.join(self.sides[n].name for n in chosen.best)} have the same highest score."
        (best,) = chosen.best
        parts: dict[str, list[str]] = {}
        for (n, _), test in chosen.tests.items():
            lead = ""
            if test is None:
                words = "Not tested against it:"
            else:
                level = "It is level with" if test.verdict == "level" else "It cannot be told apart from"
                words = "It is better than" if tells_apart(test) else level
                sign = -1 if best > n else 1
                by, *ends = (sign * (value or 0.0) for value in (test.difference, test.low, test.high))
                lead = f" (by {by:.2f} [{min(ends):.2f}, {max(ends):.2f}])"
            parts.setdefault(words, []).append(self.sides[n].name + lead)
        parts["No score:"] = [self.sides[n].name for n in self.indices if n not in chosen.values]
        sentence = f"{what}: the best of {len(chosen.values)} is {self._in_words(chosen, best)}."
        return " ".join([sentence, *(f"{words} {', '.join(names)}." for words, names in parts.items() if names)])

    def _in_words(self, column: Column, side: int) -> str:
        """The name of a side and its score."""
        score = column.scores[side] or Score()
        spread = f" {score.spread}" if score.spread else ""
        if score.sd is not None:
            spread = f" (mean of {len(self.sides[side].runs)} seeds, standard deviation {score.sd:.2f})"
        return f"{self.sides[side].name} with {score.value:.2f}{spread}"

    def _notes(self) -> list[str]:
        notes, tests = list[str](), [list(column.tests.values()) for column in self.columns]
        if any(map(any, tests)):
            notes.append(
                "Bold: the best of its column; = not told apart from it, after Holm's correction where there are "
                "several tests."
            )
            untested = [column.title for column, own in zip(self.columns, tests, strict=True) if None in own]
            notes += [f"Not all scores were tested against the best in: {', '.join(untested)}."] * bool(untested)
        elif any(column.best for column in self.columns):
            notes.append("Bold: the highest score of its column; no comparison tests the differences.")
        notes += [f"{column.title}: {column.problem}." for column in self.columns if column.problem]
        averages = {column.entry.tasks: column.title for column in self.columns if column.entry.average}
        notes += [f"{title}: mean over {', '.join(tasks)}." for tasks, title in averages.items()]
        shown = [
            (f"{self.sides[n].name}, {column.title}", column.scores[n]) for column in self.columns for n in self.indices
        ]
        notes += [f"{name}: undefined, {score.reason}." for name, score in shown if score and score.reason]
        notes += [f"{DASH}: not evaluated."] * any(score is None for _, score in shown)
        return notes + [
            f"{self.sides[n].name}: fitted on the texts of each task, without their scores (transductive)."
            for n in self.indices
            if any(run.result.transductive for run in self.sides[n].runs)
        ]


def _name(side: EvaluatedModel) -> Cell:
    if len(side.runs) == 1:
        return Cell(side.name)
    known = [str(seed) for seed in side.seeds if seed is not None]
    return Cell(side.name, f"{len(side.runs)} seeds{': ' if known else ''}{', '.join(known)}")
