"""The columns of score tables, one a task or an average, and what each side has in them."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Literal, NamedTuple

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import Result

METRICS = {"spearman": "Spearman", "pearson": "Pearson", "accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
_OVERLAPS = {"sickr-full": "sickr"}
"""Tasks that hold another one, and are not averaged with it."""


class Column(NamedTuple):
    """One number that evaluations have."""

    title: str
    group: Literal["tasks", "overall", "overall_transfer"]
    """Where a comparison has its test."""
    name: str
    members: tuple[str, ...]
    """The tasks of an average."""
    aggregate: Aggregate | None
    estimate: Callable[[Result], Mapping[str, Any] | None]
    data: Callable[[Result], object]
    """A fingerprint of what was scored: scores on other data are not set beside each other."""
    tested: bool = True
    """Whether comparisons speak of this number."""


class Score(NamedTuple):
    """Of one side; of several runs, the mean."""

    value: float | None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    """Over the runs of a side."""
    reason: str | None = None
    """Why it is undefined."""


def score_of(side: EvaluatedModel, column: Column) -> Score | None:
    """What the side has in the column; None where it was not evaluated."""
    estimates = [column.estimate(run.result) for run in side.runs]
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    if len(known) < len(estimates):
        return Score(None, reason=f"only {len(known)} of {len(estimates)} runs were evaluated on it")
    for run, estimate in zip(side.runs, known, strict=True):
        if estimate["score"] is None:
            of_run = f"{run.source}: " if len(side.runs) > 1 else ""
            return Score(None, reason=of_run + str(estimate.get("reason", "no reason is given")))
    values = [estimate["score"] for estimate in known]
    if len(values) > 1:
        return Score(mean(values), sd=stdev(values))
    return Score(values[0], known[0]["low"], known[0]["high"])


def similarity_columns(sides: Sequence[EvaluatedModel], metric: str, aggregate: Aggregate) -> list[Column]:
    """All similarity tasks, then all averages over them, in the order in which they are first met."""
    results = [run.result for side in sides for run in side.runs]
    tasks = dict.fromkeys(task for result in results for task in result["tasks"])
    tested = metric == "spearman"

    def of_task(task: str) -> Column:
        def estimate(result: Result) -> Mapping[str, Any] | None:
            return result["tasks"][task][metric][aggregate] if task in result["tasks"] else None

        return Column(task, "tasks", task, (), aggregate, estimate, lambda result: _subsets(result, task), tested)

    def of_average(name: str, members: tuple[str, ...]) -> Column:
        def estimate(result: Result) -> Mapping[str, Any] | None:
            return result["averages"][name][metric][aggregate] if name in result["averages"] else None

        def data(result: Result) -> object:
            return [(task, _subsets(result, task)) for task in result["averages"][name]["tasks"]]

        title = f"average of {name}"
        return Column(title, "overall", name, members, aggregate, estimate, data, tested)

    columns = {task: of_task(task) for task in tasks}
    averages = [of_average(name, tuple(one["tasks"])) for name, one in _first(r["averages"] for r in results).items()]
    return [*columns.values(), *averages, *_common(sides, columns, averages, "overall")]


def transfer_columns(sides: Sequence[EvaluatedModel]) -> list[Column]:
    """Of transfer tasks: accuracy, with F1 and Matthews where they are there, or learned relatedness' correlations."""
    results = [run.result["transfer"] for side in sides for run in side.runs]

    def of(group: Literal["tasks", "overall_transfer"], name: str, metric: str, **rest: Any) -> Column:
        place = "tasks" if group == "tasks" else "averages"

        def estimate(result: Result) -> Mapping[str, Any] | None:
            found: Mapping[str, Any] | None = result["transfer"][place].get(name, {}).get(metric)
            return found

        def data(result: Result) -> object:
            held = result["transfer"]["tasks"]
            members = [name] if group == "tasks" else result["transfer"]["averages"][name]["tasks"]
            return [(task, held.get(task, {}).get("digest")) for task in members]

        title = f"average of {name}" if group != "tasks" else name
        title += "" if metric == "accuracy" else f", {METRICS[metric]}"
        return Column(title, group, name, aggregate=None, estimate=estimate, data=data, **rest)

    accuracies: dict[str, Column] = {}
    columns: list[Column] = []
    for task, scored in _first(result["tasks"] for result in results).items():
        classifies = scored["kind"] == "classification"
        for metric in ("accuracy", "f1", "matthews") if classifies else ("pearson", "spearman"):
            if any(metric in result["tasks"].get(task, {}) for result in results):
                tested = metric in ("accuracy", "spearman")
                columns.append(of("tasks", task, metric, members=(), tested=tested))
                accuracies |= {task: columns[-1]} if metric == "accuracy" else {}
    averages = [
        of("overall_transfer", name, "accuracy", members=tuple(one["tasks"]))
        for name, one in _first(result["averages"] for result in results).items()
    ]
    return [*columns, *averages, *_common(sides, accuracies, averages, "overall_transfer")]


def _common(
    sides: Sequence[EvaluatedModel],
    columns: Mapping[str, Column],
    averages: Sequence[Column],
    group: Literal["overall", "overall_transfer"],
) -> list[Column]:
    """Where no named average is everybody's: the mean over the tasks that all have, as a comparison has it."""
    results = [run.result for side in sides for run in side.runs]
    if any(column.estimate(result) is not None for column in averages for result in results):
        return []
    shared = [task for task, column in columns.items() if all(column.estimate(r) is not None for r in results)]
    members = tuple(task for task in shared if _OVERLAPS.get(task) not in shared)
    if len(members) < 2:
        return []

    def estimate(result: Result) -> Mapping[str, Any]:
        found = {task: columns[task].estimate(result) or {} for task in members}
        for task, one in found.items():
            if one["score"] is None:
                return {**one, "reason": f"undefined on {task}: {one.get('reason', 'no reason is given')}"}
        return {"score": mean(one["score"] for one in found.values()), "low": None, "high": None}

    def data(result: Result) -> object:
        return [columns[task].data(result) for task in members]

    title = f"average of these {len(members)}" if len(members) == len(columns) else f"average of {', '.join(members)}"
    aggregate = columns[members[0]].aggregate
    tested = all(columns[task].tested for task in members)
    return [Column(title, group, title, members, aggregate, estimate, data, tested)]


def _subsets(result: Result, task: str) -> object:
    held = result["tasks"].get(task, {"subsets": {}})
    return {name: subset["digest"] for name, subset in held["subsets"].items()}


def _first(found: Any) -> dict[str, Any]:
    """All entries of several objects; of one name the first."""
    merged: dict[str, Any] = {}
    for one in found:
        merged = {**one, **merged} if not merged else {**merged, **{k: v for k, v in one.items() if k not in merged}}
    return merged
