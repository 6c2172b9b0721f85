"""The columns of score tables, one per task or average, and the score of each side in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Literal, NamedTuple, TypeVar

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import Estimate, EvaluationResult

METRICS = {"spearman": "Spearman", "pearson": "Pearson", "accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
_OVERLAPS = {"sickr-full": "sickr"}
"""Task -> a task that is part of it; the two are not averaged together."""
Entry = TypeVar("Entry")
NO_REASON = "no reason is given"


class Column(NamedTuple):
    """One score of evaluations."""

    title: str
    group: Literal["tasks", "overall", "overall_transfer", "overall_retrieval"]
    """The part of a comparison that holds its test."""
    name: str
    members: tuple[str, ...]
    """The tasks of an average."""
    aggregate: Aggregate | None
    estimate: Callable[[EvaluationResult], Estimate | None]
    data: Callable[[EvaluationResult], object]
    """A fingerprint of the scored data; scores on different data are not ranked."""
    tested: bool = True
    """Whether comparisons test this score."""
    measure: str | None = None
    """Of retrieval: the measure."""


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
    results = [run.result for side in sides for run in side.runs]
    tasks = dict.fromkeys(task for result in results for task in result.tasks)
    tested = metric == "spearman"

    def of_task(task: str) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            return result.tasks[task].metric(metric).of(aggregate) if task in result.tasks else None

        return Column(task, "tasks", task, (), aggregate, estimate, lambda result: _subsets(result, task), tested)

    def of_average(name: str, members: tuple[str, ...]) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            return result.averages[name].metric(metric).of(aggregate) if name in result.averages else None

        def data(result: EvaluationResult) -> object:
            return [(task, _subsets(result, task)) for task in result.averages[name].tasks]

        title = f"average of {name}"
        return Column(title, "overall", name, members, aggregate, estimate, data, tested)

    columns = {task: of_task(task) for task in tasks}
    averages = [of_average(name, tuple(one.tasks)) for name, one in first_entries(r.averages for r in results).items()]
    return [*columns.values(), *averages, *common_average(sides, columns, averages, "overall")]


def transfer_columns(sides: Sequence[EvaluatedModel]) -> list[Column]:
    """Of transfer tasks: accuracy, and F1 and Matthews where there are any; the correlations of learned relatedness."""
    results = [run.result.transfer for side in sides for run in side.runs if run.result.transfer]

    def of_task(task: str, metric: str) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            scored = result.transfer.tasks.get(task) if result.transfer else None
            return scored.metric(metric) if scored else None

        title = task if metric == "accuracy" else f"{task}, {METRICS[metric]}"
        tested = metric in ("accuracy", "spearman")
        return Column(title, "tasks", task, (), None, estimate, lambda result: _digests(result, [task]), tested)

    def of_average(name: str, members: tuple[str, ...]) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            average = result.transfer.averages.get(name) if result.transfer else None
            return average.accuracy if average else None

        def data(result: EvaluationResult) -> object:
            return _digests(result, result.transfer.averages[name].tasks if result.transfer else [])

        return Column(f"average of {name}", "overall_transfer", name, members, None, estimate, data)

    accuracies: dict[str, Column] = {}
    columns: list[Column] = []
    for task, scored in first_entries(result.tasks for result in results).items():
        classifies = scored.kind == "classification"
        for metric in ("accuracy", "f1", "matthews") if classifies else ("pearson", "spearman"):
            if any(task in result.tasks and result.tasks[task].metric(metric) for result in results):
                columns.append(of_task(task, metric))
                accuracies |= {task: columns[-1]} if metric == "accuracy" else {}
    averages = [
        of_average(name, tuple(one.tasks)) for name, one in first_entries(result.averages for result in results).items()
    ]
    return [*columns, *averages, *common_average(sides, accuracies, averages, "overall_transfer")]


def retrieval_columns(sides: Sequence[EvaluatedModel], measure: str | None) -> list[Column]:
    """All retrieval tasks with ``measure``, by default with their main ones, and the average if it is the same."""
    tasks = first_entries(run.result.retrieval for side in sides for run in side.runs)

    def of_task(task: str, chosen: str) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            return result.retrieval[task].metric(chosen) if task in result.retrieval else None

        def data(result: EvaluationResult) -> object:
            return result.retrieval[task].digest if task in result.retrieval else None

        title = task if measure else f"{task}, {chosen}"
        return Column(title, "tasks", task, (), None, estimate, data, measure=chosen)

    columns = {task: of_task(task, measure or scored.main) for task, scored in tasks.items()}
    if len({column.measure for column in columns.values()}) > 1:
        return list(columns.values())
    return [*columns.values(), *common_average(sides, columns, [], "overall_retrieval")]


def common_average(
    sides: Sequence[EvaluatedModel],
    columns: Mapping[str, Column],
    averages: Sequence[Column],
    group: Literal["overall", "overall_transfer", "overall_retrieval"],
) -> list[Column]:
    """Where no side has a named average: the mean over the tasks that all sides have, as in comparisons."""
    results = [run.result for side in sides for run in side.runs]
    if any(column.estimate(result) is not None for column in averages for result in results):
        return []
    shared = [task for task, column in columns.items() if all(column.estimate(r) is not None for r in results)]
    members = tuple(task for task in shared if _OVERLAPS.get(task) not in shared)
    if len(members) < 2:
        return []

    def estimate(result: EvaluationResult) -> Estimate:
        found = {task: one for task in members if (one := columns[task].estimate(result)) is not None}
        for task, one in found.items():
            if one.score is None:
                return Estimate(None, None, None, f"undefined on {task}: {one.reason or NO_REASON}")
        return Estimate(mean(one.score for one in found.values() if one.score is not None), None, None)

    def data(result: EvaluationResult) -> object:
        return [columns[task].data(result) for task in members]

    title = f"average of these {len(members)}" if len(members) == len(columns) else f"average of {', '.join(members)}"
    first = columns[members[0]]
    tested = all(columns[task].tested for task in members)
    return [Column(title, group, title, members, first.aggregate, estimate, data, tested, first.measure)]


def _subsets(result: EvaluationResult, task: str) -> object:
    scored = result.tasks.get(task)
    return {} if scored is None else {name: subset.digest for name, subset in scored.subsets.items()}


def _digests(result: EvaluationResult, tasks: Iterable[str]) -> object:
    scored = result.transfer.tasks if result.transfer else {}
    return [(task, scored[task].digest if task in scored else None) for task in tasks]


def first_entries(mappings: Iterable[Mapping[str, Entry]]) -> dict[str, Entry]:
    """The entries of all mappings; where several have a key, that of the first one."""
    merged: dict[str, Entry] = {}
    for mapping in mappings:
        merged |= {key: value for key, value in mapping.items() if key not in merged}
    return merged
