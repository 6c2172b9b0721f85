"""The columns of score tables, one per task or average: the score of each side in them, and tests between the sides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import (
    AggregateEstimates,
    ComparedSide,
    ComparisonResult,
    Estimate,
    EvaluationResult,
    PairedTest,
    PairTests,
    PairwiseResult,
    RetrievalScores,
    SimilarityAverage,
    SimilarityScores,
    TransferAverage,
    TransferScores,
)

AnyComparison: TypeAlias = ComparisonResult | PairwiseResult
Kind: TypeAlias = Literal["similarity", "transfer", "retrieval"]
Scored: TypeAlias = SimilarityScores | TransferScores | RetrievalScores
Average: TypeAlias = SimilarityAverage | TransferAverage
METRICS = {"spearman": "Spearman", "pearson": "Pearson", "accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
_OVERLAPS = {"sickr-full": "sickr"}
"""Task -> a task that is part of it; the two are not averaged together."""
_AVERAGES = {"similarity": "overall", "transfer": "overall_transfer", "retrieval": "overall_retrieval"}
_ROUNDING_TOLERANCE = 0.006
"""Scores x 100 that differ by less are equal up to rounding."""
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

    @property
    def tested(self) -> bool:
        """Whether comparisons test this score."""
        return self.kind == "retrieval" or self.metric in ("spearman", "accuracy")

    def estimate(self, result: EvaluationResult) -> Estimate | None:
        """The score of an evaluation; None where it has none."""
        if self.average == "":
            return _mean({task: self.of_task(task).estimate(result) for task in self.tasks})
        entries: Mapping[str, Scored | Average]
        entries = _averages(result, self.kind) if self.average else _scores(result, self.kind)
        scored = entries.get(self.average or self.tasks[0])
        found = None if scored is None else scored.metric(self.metric)
        return found.of(self.aggregate or "all") if isinstance(found, AggregateEstimates) else found

    def data(self, result: EvaluationResult) -> object:
        """A fingerprint of the scored data; scores on different data are not ranked."""
        average = _averages(result, self.kind).get(self.average) if self.average else None
        scores = _scores(result, self.kind)
        return [(task, _digest(scores.get(task))) for task in (average.tasks if average else self.tasks)]

    def of_task(self, task: str) -> "Column":
        """The column of one of the tasks, by the same metric."""
        return self._replace(title=task, tasks=(task,), average=None)

    def find_test(self, tests: PairTests) -> PairedTest | None:
        """The test of this score among the tests of two sides."""
        measure = self.metric if self.kind == "retrieval" else None
        if any(task not in tests.tasks or tests.tasks[task].measure != measure for task in self.tasks):
            return None
        if self.average is None:
            return tests.tasks[self.tasks[0]]
        average = tests.average(_AVERAGES[self.kind])
        return average if average and set(average.tasks) == set(self.tasks) else None


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


def similarity_columns(sides: Sequence[EvaluatedModel], metric: str, aggregate: Aggregate) -> list[Column]:
    """All similarity tasks, then all averages over them, in the order of the sides."""
    results = _results(sides)
    tasks = dict.fromkeys(task for result in results for task in result.tasks)
    columns = [Column("similarity", task, (task,), metric, aggregate) for task in tasks]
    return [*columns, *_average_columns(results, columns)]


def transfer_columns(sides: Sequence[EvaluatedModel]) -> list[Column]:
    """Of transfer tasks: accuracy, and F1 and Matthews where there are any; the correlations of learned relatedness."""
    results = _results(sides)
    columns = []
    for task, first in first_entries(_scores(result, "transfer") for result in results).items():
        for metric in ("accuracy", "f1", "matthews") if first.kind == "classification" else ("pearson", "spearman"):
            title = task if metric == "accuracy" else f"{task}, {METRICS[metric]}"
            column = Column("transfer", title, (task,), metric)
            columns += [column] if any(column.estimate(result) for result in results) else []
    return [*columns, *_average_columns(results, [one for one in columns if one.metric == "accuracy"])]


def retrieval_columns(sides: Sequence[EvaluatedModel], measure: str | None) -> list[Column]:
    """All retrieval tasks with ``measure``, by default with their main ones, and the average if it is the same."""
    results = _results(sides)
    columns = []
    for task, scored in first_entries(result.retrieval for result in results).items():
        title = task if measure else f"{task}, {scored.main}"
        columns.append(Column("retrieval", title, (task,), measure or scored.main))
    one_measure = len({column.metric for column in columns}) == 1
    return [*columns, *(_average_columns(results, columns) if one_measure else [])]


def _average_columns(results: Sequence[EvaluationResult], columns: Sequence[Column]) -> list[Column]:
    """The named averages of the results; where none has a score, the mean over the tasks that all of them have.

    That mean is the one of comparisons. ``columns`` are those of the tasks, all by the same metric.
    """
    if not columns:
        return []
    named = [
        columns[0]._replace(title=f"average of {name}", tasks=tuple(one.tasks), average=name)
        for name, one in first_entries(_averages(result, columns[0].kind) for result in results).items()
    ]
    if any(column.estimate(result) is not None for column in named for result in results):
        return named
    shared = [one.tasks[0] for one in columns if all(one.estimate(result) is not None for result in results)]
    members = tuple(task for task in shared if _OVERLAPS.get(task) not in shared)
    if len(members) < 2:
        return named
    title = f"average of these {len(members)}" if len(members) == len(columns) else f"average of {', '.join(members)}"
    return [*named, columns[0]._replace(title=title, tasks=members, average="")]


def _mean(estimates: Mapping[str, Estimate | None]) -> Estimate:
    known = {task: estimate for task, estimate in estimates.items() if estimate is not None}
    for task, estimate in known.items():
        if estimate.score is None:
            return Estimate(None, None, None, f"undefined on {task}: {estimate.reason or NO_REASON}")
    return Estimate(mean(estimate.score for estimate in known.values() if estimate.score is not None), None, None)


def _results(sides: Sequence[EvaluatedModel]) -> list[EvaluationResult]:
    return [run.result for side in sides for run in side.runs]


def _scores(result: EvaluationResult, kind: Kind) -> Mapping[str, Scored]:
    """The tasks of one kind."""
    if kind == "transfer":
        return result.transfer.tasks if result.transfer else {}
    return result.tasks if kind == "similarity" else result.retrieval


def _averages(result: EvaluationResult, kind: Kind) -> Mapping[str, Average]:
    """The named averages over tasks of one kind."""
    if kind == "transfer":
        return result.transfer.averages if result.transfer else {}
    return result.averages if kind == "similarity" else {}


def _digest(scored: Scored | None) -> object:
    if isinstance(scored, SimilarityScores):
        return {name: subset.digest for name, subset in scored.subsets.items()}
    return None if scored is None else scored.digest


def first_entries(mappings: Iterable[Mapping[str, Entry]]) -> dict[str, Entry]:
    """The entries of all mappings; where several have a key, that of the first one."""
    merged: dict[str, Entry] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            merged.setdefault(key, value)
    return merged


class _ComparedPair(NamedTuple):
    """Two sides of a comparison, each as the positions of the matching sides of the report, and their tests."""

    first: frozenset[int]
    second: frozenset[int]
    tests: PairTests
    aggregate: str


class SignificanceLookup:
    """Looks up the test between two sides, in comparison files and in a comparison that was computed.

    ``computed`` is a comparison of exactly these ``sides``. Sides of comparisons in ``from_files`` are matched by the
    names and training seeds of their runs and by their scores, so a comparison of an older evaluation is not used.
    """

    def __init__(
        self,
        sides: Sequence[EvaluatedModel],
        *,
        computed: AnyComparison | None = None,
        from_files: Sequence[AnyComparison] = (),
    ) -> None:
        self.sides = sides
        positions = [frozenset([number]) for number in range(len(sides))]
        self.pairs = [] if computed is None else _pairs(computed, positions)
        for comparison in from_files:
            self.pairs += _pairs(comparison, [self._matching_models(side) for side in comparison.sides])

    def test(self, column: Column, first: int, second: int, scores: Sequence[Score | None]) -> PairedTest | None:
        """The test of ``first`` against ``second`` in the column, with differences first minus second."""
        if not column.tested:
            return None
        for pair in self.pairs:
            if column.aggregate is not None and pair.aggregate != column.aggregate:
                continue
            for a, b, swapped in ((first, second, False), (second, first, True)):
                row = column.find_test(pair.tests) if a in pair.first and b in pair.second else None
                if row is not None and _equal_scores(row.first, scores[a]) and _equal_scores(row.second, scores[b]):
                    return _swap_sides(row) if swapped else row
        return None

    def _matching_models(self, described: ComparedSide) -> frozenset[int]:
        wanted = _signature(described.models, described.training_seeds or [None] * len(described.models))
        return frozenset(
            number
            for number, side in enumerate(self.sides)
            if _signature([run.result.model for run in side.runs], side.seeds) == wanted
        )


def _pairs(comparison: AnyComparison, matching: Sequence[frozenset[int]]) -> list[_ComparedPair]:
    return [
        _ComparedPair(matching[tests.pair[0]], matching[tests.pair[1]], tests, comparison.config.aggregate)
        for tests in comparison.comparisons
    ]


def _equal_scores(value: float | None, score: Score | None) -> bool:
    if score is None or score.value is None or value is None:
        return False
    return abs(value - score.value) < _ROUNDING_TOLERANCE


def _swap_sides(row: PairedTest) -> PairedTest:
    difference, low, high = (None if value is None else -value for value in (row.difference, row.high, row.low))
    return replace(row, first=row.second, second=row.first, difference=difference, low=low, high=high)


def _signature(models: Sequence[str], seeds: Sequence[int | None]) -> list[tuple[str, str]]:
    return sorted((model, str(seed)) for model, seed in zip(models, seeds, strict=False))
