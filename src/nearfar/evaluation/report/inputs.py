"""Inputs of a report: evaluated sides, comparisons, training runs and geometries, and their names on the page."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    def method(self) -> str | None:
        """The name of the method."""
        return self.settings.get("method")

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
        """The metric of the dev scores, and the dev set."""
        task = self.settings.get("task")
        named = self.settings.get("evaluate_on") or (task and f"{task}, validation") or "held-out rows"
        known = self.evaluations[0].metric if self.evaluations else self.record and self.record.metric
        return f"{metric_title(known or 'spearman')} × 100 on {(self.record and self.record.dev) or named}"

    @property
    def scores(self) -> list[tuple[float, float]]:
        """Step and score x 100 of each evaluation on the dev set."""
        record = self.record
        scored: list[tuple[float, float | None]] = [(one.step, one.score) for one in self.evaluations]
        if record and not scored:
            scored = [(0, record.start_score), *record.history]
        return [(step, 100 * score) for step, score in scored if score is not None]


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
    missing: Sequence[str] = ()
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
    names = [run_groups.get(folder, run.result.model) for folder, run in zip(folders, runs, strict=True)]
    settings = [run_groups.get(folder, f"{folder}/") for folder in folders]
    shared = _shared_names(names, [run.result.training_seed for run in runs], settings)
    sides = defaultdict[object, list[EvaluationRun]](list)
    for number, (run, name, setting) in enumerate(zip(runs, shared, settings, strict=True)):
        sides[number if name is None else (name, setting)].append(run)
    return [combine_runs(members, default_name=members[0].result.model) for members in sides.values()]


def assign_seed_groups(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The runs; those that differ only in the seed get one group name, the common start of their names."""
    settings = [str(sorted((run.settings | {"seed": "", "output": ""}).items(), key=str)) for run in runs]
    shared = _shared_names([run.name for run in runs], [run.seed for run in runs], settings)
    taken = {None, *(run.group_name for run in runs)}
    return [
        run if name in taken else run._replace(group_name=str(name)) for run, name in zip(runs, shared, strict=True)
    ]


def _shared_names(names: Iterable[str], seeds: Sequence[Any], settings: Iterable[str]) -> list[str | None]:
    """For each name the start that it shares with those of equal settings that differ only in the seed.

    None for one that is alone, or where a seed is not known or occurs twice.
    """
    starts = [(_strip_seed(*known), setting) for *known, setting in zip(names, seeds, settings, strict=True)]
    of_start = defaultdict[tuple[str, str], list[Any]](list)
    for start, seed in zip(starts, seeds, strict=True):
        of_start[start].append(seed)
    joined = {start for start, own in of_start.items() if len({*own} - {None}) == len(own) > 1}
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
        runs = [run for one in side.runs for run in self._matching(one.result.model)]
        names = {run.name if len(side.runs) == 1 else run.group_name for run in runs}
        return side._replace(name=names.pop()) if len(names) == 1 else side

    def geometry(self, result: results.GeometryResult) -> results.GeometryResult:
        """The geometry, its models under the names of their runs."""
        named = {}
        for name, model in result.models.items():
            names = {run.name for run in self._matching(model.model or name)}
            named[names.pop() if len(names) == 1 else name] = model
        return replace(result, models=named) if len(named) == len(result.models) else result

    def _matching(self, model: str) -> list[TrainingRun]:
        """Runs whose folder ends as a model's name, as it was typed; one word is not enough."""
        parts = tuple(part for part in PurePath(model.removesuffix("/model")).parts if part != "..")
        return [run for folder, run in self._runs if len(parts) > 1 and folder[-len(parts) :] == parts]


def _strip_seed(name: str, seed: Any) -> str:
    ends = None if seed is None else re.fullmatch(rf"(.+?)[-_/ ](?:seed[-_ ]?)?{re.escape(str(seed))}", name)
    return ends[1] if ends else name
