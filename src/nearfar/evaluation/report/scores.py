"""Scores of a report: a row for each side, a column for each task and average, with the best of each marked."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean, stdev
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from nearfar.evaluation import results
from nearfar.evaluation.comparison import EvaluationRun, fingerprints
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Bar, Bars, Figure
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.statistics import NO_REASON, mean_estimate
from nearfar.evaluation.tables.comparison import tells_apart
from nearfar.types import metric_title

AnyComparison: TypeAlias = results.ComparisonResult | results.PairwiseResult
Kind: TypeAlias = Literal["similarity", "transfer", "retrieval"]
Scored: TypeAlias = results.SimilarityScores | results.TransferScores | results.RetrievalScores
Average: TypeAlias = results.SimilarityAverage | results.TransferAverage
_OVERLAPS = {"sickr-full": "sickr"}
"""Task -> a task that is part of it; the two are not averaged together."""
_AVERAGES = {"similarity": "overall", "transfer": "overall_transfer", "retrieval": "overall_retrieval"}
MAX_BARS = 48
"""A figure with more bars than this is left out: it would be taller than its table."""
_Value = TypeVar("_Value")


class Entry(NamedTuple):
    """One score of an evaluation: on a task, or the average over several."""

    tasks: tuple[str, ...]
    metric: str
    """``spearman``, ``accuracy`` and so on; of retrieval the measure."""
    estimate: results.Estimate | None
    average: bool = False


class Score(NamedTuple):
    """The score of one side; for several runs, the mean."""

    value: float | None
    low: float | None = None
    high: float | None = None
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

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of the line on a bar."""
        if self.value is not None and self.sd is not None:
            return self.value - self.sd, self.value + self.sd
        return None if self.low is None or self.high is None else (self.low, self.high)


def scores_of(result: results.EvaluationResult, kind: Kind) -> tuple[Mapping[str, Scored], Mapping[str, Average]]:
    """The tasks of one kind, and the named averages over them."""
    if kind == "retrieval":
        return result.retrieval, {}
    if kind == "similarity":
        return result.tasks, result.averages
    return (result.transfer.tasks, result.transfer.averages) if result.transfer else ({}, {})


def _entries(
    result: results.EvaluationResult, kind: Kind, metric: str | None, aggregate: Aggregate | None
) -> dict[str, Entry]:
    """The scores of an evaluation by their titles, those of tasks, then the named averages.

    Of transfer tasks there is accuracy, F1 and Matthews where there are any, or the correlations of learned
    relatedness; retrieval has the main measure of each task unless ``metric`` names one.
    """

    def estimate(scored: Scored | Average, name: str) -> results.Estimate | None:
        known = scored.metric(name)
        return known.of(aggregate or "all") if isinstance(known, results.AggregateEstimates) else known

    tasks, averages = scores_of(result, kind)
    entries = {}
    for task, scored in tasks.items():
        names = [metric or (scored.main if isinstance(scored, results.RetrievalScores) else "spearman")]
        for name in sorted(scored.METRICS) if kind == "transfer" else names:
            plain = kind == "similarity" or name in ("accuracy", metric)
            entry = Entry((task,), name, estimate(scored, name))
            if entry.estimate is not None or kind != "transfer":
                entries[task if plain else f"{task}, {name if kind == 'retrieval' else metric_title(name)}"] = entry
    name = "accuracy" if kind == "transfer" else metric or "spearman"
    for title, average in averages.items():
        entries[f"average of {title}"] = Entry(tuple(average.tasks), name, estimate(average, name), average=True)
    return entries


def _add_average(runs: Sequence[dict[str, Entry]], kind: Kind) -> None:
    """Where no evaluation has a named average, the mean over the tasks that all have, as in comparisons."""
    if any(entry.average and entry.estimate for run in runs for entry in run.values()):
        return
    averaged = {
        title: entry
        for title, entry in _first(runs).items()
        if not entry.average and (kind != "transfer" or entry.metric == "accuracy")
    }
    shared = {
        entry.tasks[0]: title
        for title, entry in averaged.items()
        if all(title in run and run[title].estimate for run in runs)
    }
    members = [task for task in shared if _OVERLAPS.get(task) not in shared]
    if len(members) < 2 or len({entry.metric for entry in averaged.values()}) > 1:
        return
    name = f"these {len(members)}" if len(members) == len(averaged) else ", ".join(members)
    for run in runs:
        metric = run[shared[members[0]]].metric
        estimates = {task: estimate for task in members if (estimate := run[shared[task]].estimate)}
        of_run = mean_estimate(estimates, [np.zeros(0)])
        run[f"average of {name}"] = Entry(tuple(members), metric, of_run, average=True)


def _score(side: EvaluatedModel, estimates: Sequence[results.Estimate | None]) -> Score | None:
    """The side's score from those of its runs; None where it was not evaluated."""
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    if len(known) < len(estimates):
        return Score(None, reason=f"only {len(known)} of {len(estimates)} runs were evaluated on it")
    for run, estimate in zip(side.runs, known, strict=True):
        if estimate.score is None:
            return Score(None, reason=f"{run.source}: " * (len(known) > 1) + (estimate.reason or NO_REASON))
    values = [estimate.score for estimate in known if estimate.score is not None]
    return Score(mean(values), sd=stdev(values)) if len(values) > 1 else Score(values[0], known[0].low, known[0].high)


def _first(mappings: Iterable[Mapping[str, _Value]]) -> dict[str, _Value]:
    """The entries of all mappings; where several have a key, that of the first one."""
    merged: dict[str, _Value] = {}
    for key, value in chain.from_iterable(mapping.items() for mapping in mappings):
        merged.setdefault(key, value)
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

    def mark(self, side: int) -> Literal["best", "near", ""]:
        """How the score of a side is marked: the best, or not told apart from it."""
        if side in self.best:
            return "best"
        near = (other == side and test and not tells_apart(test) for (other, _), test in self.tests.items())
        return "near" if any(near) else ""


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
        found = {n: [run.get(title) for run in runs] for n, runs in self._runs.items()}
        scores = [
            _score(side, [one and one.estimate for one in found[n]]) if n in found else None
            for n, side in enumerate(self.sides)
        ]
        column = Column(title, entry, scores)
        values = column.values
        scored = ((run, one) for n in values for run, one in zip(self.sides[n].runs, found[n], strict=True) if one)
        if len({str(self._data(run, one)) for run, one in scored}) > 1:
            return column._replace(problem="scored on different data, so no best score is marked")
        if len(values) < 2:
            return column
        best = [n for n, value in values.items() if value == max(values.values())]
        others = [n for n in values if n not in best]
        return column._replace(best=best, tests={(n, top): self._test(entry, [n, top]) for top in best for n in others})

    def _data(self, run: EvaluationRun, entry: Entry) -> object:
        """A fingerprint of the scored data; scores on different data are not ranked."""
        tasks, _ = scores_of(run.result, self.kind)
        return [(task, fingerprints(run, task) if task in tasks else None) for task in entry.tasks]

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
            average = tests.average(_AVERAGES[self.kind])
            row = average if average and set(average.tasks) == set(entry.tasks) else None
        return row if row is not None and row.difference is not None else None

    def table(self, caption: str) -> Table:
        """A row for each side."""
        runs = [len(self.sides[n].runs) for n in self.indices]
        shown = ["[95% interval]"] * (1 in runs) + ["for several seeds the mean ± standard deviation"] * (max(runs) > 1)
        rows = [
            [_name(self.sides[n]), *(_cell(one.scores[n], one.mark(n)) for one in self.columns)] for n in self.indices
        ]
        header = ["model", *(one.title for one in self.columns)]
        notes = [*self._legend(), *self._notes()]
        return Table(title=f"{caption}; {', '.join(shown)}", columns=header, rows=rows, notes=notes)

    def figure(self, title: str) -> list[Figure]:
        """Bars of the scores with their intervals, for a few sides and columns; empty for one side."""
        if not 1 < len(self.indices) <= MAX_BARS // max(len(self.columns), 1):
            return []
        bars = []
        for number, n in enumerate(self.indices):
            scores = [one.scores[n] or Score(None) for one in self.columns]
            bars.append(Bar(self.sides[n].name, number, [one.value for one in scores], [one.ends for one in scores]))
        several = any(len(self.sides[n].runs) > 1 for n in self.indices)
        caption = f"Scores with their 95% intervals{', of several seeds with the standard deviation' * several}."
        chart = Bars(title, [one.title for one in self.columns], bars)
        return [Figure(caption, [chart], [(bar.name, bar.number) for bar in bars])]

    def headline(self, kind: str, metric: str) -> str:
        """The best side on the average that most sides have, and what the tests say of the others."""
        enough = min(2, len(self.indices))
        chosen = max(self.columns, key=lambda one: (one.entry.average and len(one.values) >= enough, len(one.values)))
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
            if test is None:
                words = "Not tested against it:"
            elif tells_apart(test):
                words = "It is better than"
            else:
                words = "It is level with" if test.verdict == "level" else "It cannot be told apart from"
            parts.setdefault(words, []).append(self.sides[n].name + _lead(test, -1 if best > n else 1))
        parts["No score:"] = [self.sides[n].name for n in self.indices if n not in chosen.values]
        sentence = f"{what}: the best of {len(chosen.values)} is {self._in_words(chosen, best)}."
        return " ".join([sentence, *(f"{words} {', '.join(names)}." for words, names in parts.items() if names)])

    def _in_words(self, column: Column, side: int) -> str:
        """The name of a side and its score."""
        score = column.scores[side] or Score(None)
        spread = f" {score.spread}" if score.spread else ""
        if score.sd is not None:
            spread = f" (mean of {len(self.sides[side].runs)} seeds, standard deviation {score.sd:.2f})"
        return f"{self.sides[side].name} with {score.value:.2f}{spread}"

    def _legend(self) -> list[str]:
        if not any(one.best for one in self.columns):
            return []
        if not any(test for one in self.columns for test in one.tests.values()):
            return ["Bold: the highest score of its column; no comparison tests the differences."]
        untested = ", ".join(one.title for one in self.columns if None in one.tests.values())
        return [
            "Bold: the best of its column; = not told apart from it, after Holm's correction where there are several "
            "tests.",
            *[f"Not all scores were tested against the best in: {untested}."] * bool(untested),
        ]

    def _notes(self) -> list[str]:
        notes = [f"{one.title}: {one.problem}." for one in self.columns if one.problem]
        averages = {one.entry.tasks: one.title for one in self.columns if one.entry.average}
        notes += [f"{title}: mean over {', '.join(tasks)}." for tasks, title in averages.items()]
        shown = [(one, n, one.scores[n]) for one in self.columns for n in self.indices]
        notes += [
            f"{self.sides[n].name}, {one.title}: undefined, {score.reason}."
            for one, n, score in shown
            if score and score.reason
        ]
        notes += [f"{DASH}: not evaluated."] * any(score is None for *_, score in shown)
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


def _cell(score: Score | None, mark: Literal["best", "near", ""]) -> Cell:
    if score is None:
        return Cell(DASH)
    return Cell("undefined") if score.value is None else Cell(f"{score.value:.2f}", score.spread, mark)


def _lead(test: results.PairedTest | None, sign: int) -> str:
    """By how much the best side leads: the test's difference, or with ``sign`` -1 its opposite."""
    if test is None:
        return ""
    difference, low, high = (sign * (value or 0.0) for value in (test.difference, test.low, test.high))
    return f" (by {difference:.2f} [{min(low, high):.2f}, {max(low, high):.2f}])"
