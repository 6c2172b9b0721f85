"""Scores of a report: a row for each side, a column for each task and average, with the best of each marked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from nearfar.evaluation import results
from nearfar.evaluation.comparison import EvaluationRun, fingerprints
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.statistics import verdict

AnyComparison: TypeAlias = results.ComparisonResult | results.PairwiseResult
Kind: TypeAlias = Literal["similarity", "transfer", "retrieval"]
Scored: TypeAlias = results.SimilarityScores | results.TransferScores | results.RetrievalScores
Average: TypeAlias = results.SimilarityAverage | results.TransferAverage
METRICS = {"spearman": "Spearman", "pearson": "Pearson", "accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
_OVERLAPS = {"sickr-full": "sickr"}
"""Task -> a task that is part of it; the two are not averaged together."""
_AVERAGES = {"similarity": "overall", "transfer": "overall_transfer", "retrieval": "overall_retrieval"}
NO_REASON = "no reason is given"
Entry = TypeVar("Entry")


class Column(NamedTuple):
    """One score of evaluations: that of a task, or the average over several."""

    kind: Kind
    title: str
    tasks: tuple[str, ...]
    """The task, or those of an average."""
    metric: str
    """``spearman``, ``accuracy`` and so on; of retrieval the measure."""
    aggregate: Aggregate | None = None
    average: str | None = None
    """The name of an average in the results; empty for one that is computed from their tasks, None for a task."""

    def estimate(self, result: results.EvaluationResult) -> results.Estimate | None:
        """The score of an evaluation; None where it has none."""
        if self.average == "":
            return _mean({task: self.of_task(task).estimate(result) for task in self.tasks})
        tasks, averages = scores_of(result, self.kind)
        scored = averages.get(self.average) if self.average else tasks.get(self.tasks[0])
        estimate = None if scored is None else scored.metric(self.metric)
        return estimate.of(self.aggregate or "all") if isinstance(estimate, results.AggregateEstimates) else estimate

    def data(self, run: EvaluationRun) -> object:
        """A fingerprint of the scored data; scores on different data are not ranked."""
        tasks, averages = scores_of(run.result, self.kind)
        average = averages.get(self.average or "")
        averaged = average.tasks if average else self.tasks
        return [(task, fingerprints(run, task) if task in tasks else None) for task in averaged]

    def of_task(self, task: str) -> "Column":
        """The column of one of the tasks, by the same metric."""
        return self._replace(title=task, tasks=(task,), average=None)

    def test(self, tests: results.PairTests) -> results.PairedTest | None:
        """The test of this score among the tests of two sides, where it has one."""
        if self.kind != "retrieval" and self.metric not in ("spearman", "accuracy"):
            return None
        measure = self.metric if self.kind == "retrieval" else None
        if any(task not in tests.tasks or tests.tasks[task].measure != measure for task in self.tasks):
            return None
        average = tests.average(_AVERAGES[self.kind])
        row: results.PairedTest | None = tests.tasks[self.tasks[0]]
        if self.average is not None:
            row = average if average and set(average.tasks) == set(self.tasks) else None
        return row if row is not None and row.difference is not None else None


class Score(NamedTuple):
    """The score of one side; for several runs, the mean."""

    value: float | None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    """Standard deviation over the runs of a side."""
    reason: str | None = None
    """Why it is undefined."""


def score_of(side: EvaluatedModel, column: Column) -> Score | None:
    """The side's score in the column; None where it was not evaluated."""
    estimates = [column.estimate(run.result) for run in side.runs]
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    if len(known) < len(estimates):
        return Score(None, reason=f"only {len(known)} of {len(estimates)} runs were evaluated on it")
    for run, estimate in zip(side.runs, known, strict=True):
        if estimate.score is None:
            source = f"{run.source}: " if len(side.runs) > 1 else ""
            return Score(None, reason=source + (estimate.reason or NO_REASON))
    values = [estimate.score for estimate in known if estimate.score is not None]
    if len(values) > 1:
        return Score(mean(values), sd=stdev(values))
    return Score(values[0], known[0].low, known[0].high)


def columns_of(
    evaluations: Sequence[results.EvaluationResult], kind: Kind, metric: str | None, aggregate: Aggregate | None
) -> list[Column]:
    """All tasks of one kind in the order of the results, then the averages over those with one metric.

    Of transfer tasks there is accuracy, F1 and Matthews where there are any, or the correlations of learned
    relatedness; retrieval has the main measure of each task unless ``metric`` names one.
    """
    columns = []
    for task, scored in first_entries(scores_of(one, kind)[0] for one in evaluations).items():
        for name in _metrics(scored, metric):
            plain = kind == "similarity" or name in ("accuracy", metric)
            title = task if plain else f"{task}, {METRICS.get(name, name)}"
            column = Column(kind, title, (task,), name, aggregate)
            if kind != "transfer" or any(column.estimate(one) for one in evaluations):
                columns.append(column)
    averaged = [one for one in columns if kind != "transfer" or one.metric == "accuracy"]
    one_metric = len({column.metric for column in averaged}) == 1
    return [*columns, *(_average_columns(evaluations, averaged) if one_metric else [])]


def _metrics(scored: Scored, metric: str | None) -> Sequence[str]:
    if isinstance(scored, results.RetrievalScores):
        return [metric or scored.main]
    if isinstance(scored, results.SimilarityScores):
        return [metric or "spearman"]
    return ("accuracy", "f1", "matthews") if scored.kind == "classification" else ("pearson", "spearman")


def _average_columns(evaluations: Sequence[results.EvaluationResult], columns: Sequence[Column]) -> list[Column]:
    """The named averages of the results; where none has a score, the mean over the tasks that all of them have.

    That mean is the one of comparisons. ``columns`` are those of the tasks, all by the same metric.
    """
    named = [
        columns[0]._replace(title=f"average of {name}", tasks=tuple(one.tasks), average=name)
        for name, one in first_entries(scores_of(result, columns[0].kind)[1] for result in evaluations).items()
    ]
    if any(column.estimate(result) is not None for column in named for result in evaluations):
        return named
    shared = [one.tasks[0] for one in columns if all(one.estimate(result) is not None for result in evaluations)]
    members = tuple(task for task in shared if _OVERLAPS.get(task) not in shared)
    if len(members) < 2:
        return named
    title = f"average of these {len(members)}" if len(members) == len(columns) else f"average of {', '.join(members)}"
    return [*named, columns[0]._replace(title=title, tasks=members, average="")]


def _mean(estimates: Mapping[str, results.Estimate | None]) -> results.Estimate:
    known = {task: estimate for task, estimate in estimates.items() if estimate is not None}
    for task, estimate in known.items():
        if estimate.score is None:
            return results.Estimate(None, None, None, f"undefined on {task}: {estimate.reason or NO_REASON}")
    return results.Estimate(
        mean(estimate.score for estimate in known.values() if estimate.score is not None), None, None
    )


def scores_of(result: results.EvaluationResult, kind: Kind) -> tuple[Mapping[str, Scored], Mapping[str, Average]]:
    """The tasks of one kind, and the named averages over them."""
    if kind == "retrieval":
        return result.retrieval, {}
    if kind == "similarity":
        return result.tasks, result.averages
    return (result.transfer.tasks, result.transfer.averages) if result.transfer else ({}, {})


def first_entries(mappings: Iterable[Mapping[str, Entry]]) -> dict[str, Entry]:
    """The entries of all mappings; where several have a key, that of the first one."""
    merged: dict[str, Entry] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            merged.setdefault(key, value)
    return merged


def find_test(computed: AnyComparison | None, column: Column, first: int, second: int) -> results.PairedTest | None:
    """The test of two sides in a column, by their positions; differences are ``first`` minus ``second``."""
    if computed is None or column.aggregate not in (None, computed.config.aggregate):
        return None
    pair = sorted((first, second))
    row = next((column.test(tests) for tests in computed.comparisons if tests.pair == pair), None)
    return _swap_sides(row, computed.config.margin) if row is not None and first > second else row


def _swap_sides(row: results.PairedTest, margin: float) -> results.PairedTest:
    difference, low, high = (None if value is None else -value for value in (row.difference, row.high, row.low))
    says = None if low is None or high is None else verdict(low, high, margin, p_holm=row.p_holm or 0.0)
    return replace(row, first=row.second, second=row.first, difference=difference, low=low, high=high, verdict=says)


class RankedColumn(NamedTuple):
    """A column with the score of each side."""

    column: Column
    scores: list[Score | None]
    best: list[int]
    """The sides with the highest score; empty where only one side has a score, or where their data differ."""
    tests: Mapping[tuple[int, int], results.PairedTest | None]
    """(Side, one of the best) -> the test between the two, where there is one."""
    problem: str | None = None
    """Why no best score is marked."""

    @property
    def scored(self) -> list[int]:
        """The sides that have a score."""
        return [side for side, score in enumerate(self.scores) if score is not None and score.value is not None]

    def mark(self, side: int) -> Literal["best", "near", ""]:
        """How the score of a side is marked: the best, or not significantly different from it."""
        if side in self.best:
            return "best"
        near = any(test and not _differs(test) for (other, _), test in self.tests.items() if other == side)
        return "near" if near else ""


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
        self.sides, self.indices = sides, scored if indices is None else indices
        evaluations = [run.result for n in self.indices for run in sides[n].runs]
        self.columns = [self._rank(column, computed) for column in columns_of(evaluations, kind, metric, aggregate)]

    def _rank(self, column: Column, computed: AnyComparison | None) -> RankedColumn:
        """The scores of a column, with the best of them."""
        scores = [score_of(side, column) if n in self.indices else None for n, side in enumerate(self.sides)]
        ranked = RankedColumn(column, scores, [], {})
        data = {str(column.data(run)) for n in ranked.scored for run in self.sides[n].runs}
        if len(data) > 1:
            return ranked._replace(problem="scored on different data, so no best score is marked")
        if len(ranked.scored) < 2:
            return ranked
        values = {n: score.value for n, score in enumerate(scores) if score and score.value is not None}
        best = [n for n, value in values.items() if value == max(values.values())]
        others = [n for n in range(len(scores)) if n not in best]
        tests = {(n, top): find_test(computed, column, top, n) for top in best for n in others}
        return ranked._replace(best=best, tests=tests)

    def table(self, caption: str) -> Table:
        """A row for each side."""
        shown = [self.sides[n] for n in self.indices]
        rows = [
            [_name(self.sides[n]), *(_cell(one.scores[n], one.mark(n)) for one in self.columns)] for n in self.indices
        ]
        header = ["model", *(one.column.title for one in self.columns)]
        notes = [*self._legend(), *self._notes()]
        return Table(title=caption + _interval_caption(shown), columns=header, rows=rows, notes=notes)

    def headline(self, kind: str, metric: str) -> str:
        """The best side on the average that most sides have, and those not significantly different from it."""
        enough = min(2, len(self.indices))
        chosen = max(
            self.columns,
            key=lambda one: (one.column.average is not None and len(one.scored) >= enough, len(one.scored)),
        )
        title = chosen.column.title if chosen.column.average is not None else f"task {chosen.column.title}"
        what = f"{kind}, {title} ({metric})"
        if chosen.problem:
            return f"{what}: {chosen.problem}."
        if not chosen.best:
            return f"{what}: {self._score(chosen, chosen.scored[0]) if chosen.scored else 'no score'}."
        best = chosen.best[0]
        if len(chosen.best) > 1:
            return f"{what}: {' and '.join(self.sides[n].name for n in chosen.best)} have the same highest score."
        tests = {n: chosen.tests[n, best] for n in chosen.scored if n != best}
        parts = {
            "It is significantly better than": [
                _format_test(self.sides[n], test) for n, test in tests.items() if test and _differs(test)
            ],
            "It is not significantly different from": [
                _format_test(self.sides[n], test) for n, test in tests.items() if test and not _differs(test)
            ],
            "Not tested against it:": [self.sides[n].name for n, test in tests.items() if not test],
            "No score:": [self.sides[n].name for n in self.indices if n not in chosen.scored],
        }
        sentence = f"{what}: the best of {len(chosen.scored)} is {self._score(chosen, best)}."
        return " ".join([sentence, *(f"{words} {', '.join(names)}." for words, names in parts.items() if names)])

    def _score(self, one: RankedColumn, side: int) -> str:
        """The name of a side and its score, in words."""
        score = one.scores[side] or Score(None)
        if score.sd is not None:
            spread = f" (mean of {len(self.sides[side].runs)} seeds, standard deviation {score.sd:.2f})"
        else:
            spread = f" [{score.low:.1f}, {score.high:.1f}]" if score.low is not None and score.high is not None else ""
        return f"{self.sides[side].name} with {score.value:.2f}{spread}"

    def _legend(self) -> list[str]:
        if not any(one.best for one in self.columns):
            return []
        if not any(test is not None for one in self.columns for test in one.tests.values()):
            return ["Bold: the highest score of its column; no comparison tests whether the difference is significant."]
        untested = [
            one.column.title
            for one in self.columns
            if any(test is None and side in one.scored for (side, _), test in one.tests.items())
        ]
        return [
            "Bold: the best of its column; = not told apart from it, after Holm's correction where there are several "
            "tests.",
            *([f"Not all scores were tested against the best in: {', '.join(untested)}."] * bool(untested)),
        ]

    def _notes(self) -> list[str]:
        notes = [f"{one.column.title}: {one.problem}." for one in self.columns if one.problem]
        averages = [one.column for one in self.columns if one.column.average is not None]
        for members, title in {column.tasks: column.title for column in averages}.items():
            notes.append(f"{title}: mean over {', '.join(members)}.")
        shown = [(one, n, one.scores[n]) for one in self.columns for n in self.indices]
        notes += [
            f"{self.sides[n].name}, {one.column.title}: undefined, {score.reason}."
            for one, n, score in shown
            if score is not None and score.reason
        ]
        notes += [f"{DASH}: not evaluated."] * any(score is None for *_, score in shown)
        return notes + [
            f"{self.sides[n].name}: fitted on the texts of each task, without their scores (transductive)."
            for n in self.indices
            if any(run.result.transductive for run in self.sides[n].runs)
        ]


def _interval_caption(sides: Sequence[EvaluatedModel]) -> str:
    single = any(len(side.runs) == 1 for side in sides)
    several = any(len(side.runs) > 1 for side in sides)
    shown = [*(["[95% interval]"] * single), *(["for several seeds the mean ± standard deviation"] * several)]
    return f"; {', '.join(shown)}"


def _name(side: EvaluatedModel) -> Cell:
    if len(side.runs) == 1:
        return Cell(side.name)
    known = [str(seed) for seed in side.seeds if seed is not None]
    return Cell(side.name, f"{len(side.runs)} seeds{': ' if known else ''}{', '.join(known)}")


def _cell(score: Score | None, mark: Literal["best", "near", ""]) -> Cell:
    if score is None:
        return Cell(DASH)
    if score.value is None:
        return Cell("undefined")
    detail = "" if score.low is None or score.high is None else f"[{score.low:.1f}, {score.high:.1f}]"
    return Cell(f"{score.value:.2f}", detail if score.sd is None else f"± {score.sd:.2f}", mark)


def _format_test(side: EvaluatedModel, test: results.PairedTest) -> str:
    return f"{side.name} (by {test.difference:.2f} [{test.low:.2f}, {test.high:.2f}])"


def _differs(test: results.PairedTest) -> bool:
    """Whether one of two sides is better."""
    return test.verdict in ("better", "worse")
