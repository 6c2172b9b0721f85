"""Inputs of a report: evaluated sides, comparisons, training runs and geometries, and their names on the page."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple

from nearfar.evaluation import results
from nearfar.evaluation.comparison import EvaluationRun
from nearfar.types import metric_title


class EvaluatedModel(NamedTuple):
    """One model that was evaluated, or one method with several training seeds."""

    name: str
    runs: tuple[EvaluationRun, ...]

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The training seed of each run, None where it is not known."""
        return tuple(run.result.training_seed for run in self.runs)


class TrainingRun(NamedTuple):
    """One training run, finished or not."""

    name: str
    source: str
    group_name: str
    """The name that it shares with runs that differ only in the seed; else its own."""
    settings: dict[str, Any]
    """From config.toml, or where there is none from run.json."""
    files: Mapping[str, str]
    """The text of config.toml and second.toml."""
    steps: Sequence[results.TrainingStep]
    """Training steps, from metrics.jsonl."""
    evaluations: Sequence[results.DevEvaluation]
    """Evaluations on the dev set, from metrics.jsonl."""
    record: results.TrainingRecord | None
    """The content of run.json; None where the run is not finished."""
    tested: results.ComparisonResult | None = None
    """The model against the one that training started from, on the test rows that the run held out."""
    held_out: str | None = None
    """The digest of all rows that the run holds out."""

    @property
    def seed(self) -> Any:
        """The training seed, where it is known."""
        return self.settings.get("seed", self.record.config.get("seed") if self.record else None)

    @property
    def tests(self) -> dict[str, results.TaskTest]:
        """The test on each task of :attr:`tested`."""
        return self.tested.tasks if self.tested else {}

    @property
    def dev(self) -> str:
        """The name of the dev set."""
        task = self.settings.get("task")
        named = self.settings.get("evaluate_on") or (task and f"{task}, validation") or "held-out rows"
        return str((self.record.dev if self.record else None) or named)

    @property
    def metric(self) -> str:
        """The metric of dev scores."""
        named = self.evaluations[0].metric if self.evaluations else self.record.metric if self.record else None
        return metric_title(named or "spearman")

    def scores(self) -> list[tuple[float, float]]:
        """Step and score x 100 of each evaluation."""
        if self.evaluations:
            return [(line.step, 100 * line.score) for line in self.evaluations if line.score is not None]
        return [(step, 100 * score) for step, score in (self.record.history if self.record else [])]


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything that the report shows."""

    title: str = ""
    """The names of the sides, runs and spaces, shortened."""
    sides: Sequence[EvaluatedModel] = ()
    comparisons: Sequence[tuple[str, results.ComparisonResult | results.PairwiseResult]] = ()
    """Comparison files: source and content."""
    geometries: Sequence[tuple[str, results.GeometryResult]] = ()
    runs: Sequence[TrainingRun] = ()
    missing: Sequence[str] = field(default_factory=tuple)
    """Sentences about missing files and tasks."""


def name_without_seed(result: results.EvaluationResult) -> str:
    """The model's name without the training seed at its end: ``scl-1`` -> ``scl``, ``a/seed-1`` -> ``a``."""
    return _strip_seed(result.model, result.training_seed)


def combine_runs(runs: Sequence[EvaluationRun], *, default_name: str) -> EvaluatedModel:
    """The runs as one side, under their common name without the seed, or ``default_name`` where they have none."""
    for names in ({run.result.model for run in runs}, {name_without_seed(run.result) for run in runs}):
        if len(names) == 1:
            return EvaluatedModel(names.pop(), tuple(runs))
    return EvaluatedModel(default_name, tuple(runs))


def group_by_setting(runs: Sequence[EvaluationRun], run_groups: Mapping[str, str]) -> list[EvaluatedModel]:
    """Sides of evaluations that were named one by one: those of one method with different training seeds are one side.

    They are of one method where they are in one folder and their names differ only in the training seed at the end, or
    where they are in run folders that differ only in the seed: ``run_groups`` is run folder -> name of the group.
    """
    folders = [str(PurePath(run.source).parent) for run in runs]
    settings = [("", run_groups[folder]) if folder in run_groups else (folder, "") for folder in folders]
    named = [
        (name or run.result.model, run.result.training_seed) for (_, name), run in zip(settings, runs, strict=True)
    ]
    sides = defaultdict[object, list[EvaluationRun]](list)
    for number, name in enumerate(_shared_names(named, settings)):
        sides[number if name is None else (name, settings[number])].append(runs[number])
    return [combine_runs(members, default_name=members[0].result.model) for members in sides.values()]


def assign_seed_groups(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The runs; those that differ only in the seed get one group name, the common start of their names."""
    settings = [str(sorted((run.settings | {"seed": "", "output": ""}).items(), key=str)) for run in runs]
    shared = _shared_names([(run.name, run.seed) for run in runs], settings)
    taken = {run.group_name for run in runs}
    return [
        run if name is None or name in taken else run._replace(group_name=name)
        for run, name in zip(runs, shared, strict=True)
    ]


def _shared_names(items: Sequence[tuple[str, Any]], settings: Iterable[object]) -> list[str | None]:
    """For each name and seed the start that it shares with those of equal settings that differ only in the seed.

    None for one that is alone, or where a seed is not known or occurs twice.
    """
    starts = [(_strip_seed(name, seed), setting) for (name, seed), setting in zip(items, settings, strict=True)]
    seeds = defaultdict[tuple[str, object], list[Any]](list)
    for start, (_, seed) in zip(starts, items, strict=True):
        seeds[start].append(seed)
    joined = {start for start, own in seeds.items() if len(own) > 1 and None not in own and len({*own}) == len(own)}
    return [start[0] if start in joined else None for start in starts]


def disambiguate_names(sides: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """The sides; where several have the same name, each with its file or folder."""
    times = Counter(side.name for side in sides)
    sources = (side.runs[0].source if len(side.runs) == 1 else PurePath(side.runs[0].source).parent for side in sides)
    return [
        side if times[side.name] == 1 else side._replace(name=f"{side.name} ({source})")
        for side, source in zip(sides, sources, strict=True)
    ]


class RunNames:
    """Names of the training runs of a report, so that a model has the same name everywhere on the page."""

    def __init__(self, runs: Sequence[tuple[str, TrainingRun]]) -> None:
        """``runs``: for each run its folder, as an absolute path."""
        self._runs = [(PurePath(folder).parts, run) for folder, run in runs]

    def side(self, side: EvaluatedModel) -> EvaluatedModel:
        """The side, under the name of its run, or of the setting of its runs."""
        models = [run.result.model for run in side.runs]
        found = {name for model in models for name in self._matching_names(model, single=len(models) == 1)}
        return side._replace(name=found.pop()) if len(found) == 1 else side

    def geometry(self, result: results.GeometryResult) -> results.GeometryResult:
        """The geometry, its models under the names of their runs."""
        named = {}
        for name, model in result.models.items():
            matching = self._matching_names(model.model or name, single=True)
            named[matching.pop() if len(matching) == 1 else name] = model
        return replace(result, models=named) if len(named) == len(result.models) else result

    def _matching_names(self, model: str, *, single: bool) -> set[str]:
        """Of runs whose folder ends as a model's name, as it was typed; one word is not enough."""
        parts = PurePath(model).parts
        parts = tuple(part for part in (parts[:-1] if parts[-1:] == ("model",) else parts) if part != "..")
        runs = [run for folder, run in self._runs if len(parts) > 1 and folder[-len(parts) :] == parts]
        return {run.name if single else run.group_name for run in runs}


def _strip_seed(name: str, seed: Any) -> str:
    ends = None if seed is None else re.fullmatch(rf"(.*?)[-_/ ](?:seed[-_ ]?)?{re.escape(str(seed))}", name)
    return ends[1] if ends and ends[1] else name
