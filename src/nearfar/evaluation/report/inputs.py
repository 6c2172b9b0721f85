"""Inputs of a report: evaluated sides, comparisons, training runs and geometries, and their names on the page."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from nearfar.evaluation import results
from nearfar.evaluation.comparison import EvaluationRun
from nearfar.types import metric_title


class EvaluatedModel(NamedTuple):
    """One model that was evaluated, or one method with several training seeds."""

    name: str
    runs: tuple[EvaluationRun, ...]


class TrainingRun(NamedTuple):
    """One training run, finished or not."""

    name: str
    source: str
    group_name: str
    """The name that it shares with runs that differ only in the seed; else its own."""
    settings: dict[str, Any]
    """From config.toml, or where there is none from run.json."""
    files: Mapping[str, str]
    """The text of config.toml, where it is there."""
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
    keys = [run_groups.get(of) or (of, name_without_seed(run.result)) for of, run in zip(folders, runs, strict=True)]
    joined = _of_distinct_seeds(keys, [run.result.training_seed for run in runs])
    sides = defaultdict[object, list[EvaluationRun]](list)
    for number, (run, key) in enumerate(zip(runs, keys, strict=True)):
        sides[key if key in joined else number].append(run)
    return [combine_runs(members, default_name=members[0].result.model) for members in sides.values()]


def assign_seed_groups(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The runs; those that differ only in the seed get one group name, the common start of their names."""
    keys = [
        (_strip_seed(run.name, run.seed), str(sorted((run.settings | {"seed": "", "output": ""}).items(), key=str)))
        for run in runs
    ]
    joined, taken = _of_distinct_seeds(keys, [run.seed for run in runs]), {run.group_name for run in runs}
    return [
        run._replace(group_name=key[0]) if key in joined and key[0] not in taken else run
        for run, key in zip(runs, keys, strict=True)
    ]


def _of_distinct_seeds(keys: Sequence[object], seeds: Sequence[Any]) -> set[object]:
    """The keys that several have, whose seeds are all known and distinct."""
    of_key = defaultdict[object, list[Any]](list)
    for key, seed in zip(keys, seeds, strict=True):
        of_key[key].append(seed)
    return {key for key, own in of_key.items() if len({*own} - {None}) == len(own) > 1}


def disambiguate_names(sides: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """The sides; where several have the same name, each with its first file."""
    times = Counter(side.name for side in sides)
    return [one._replace(name=f"{one.name} ({one.runs[0].source})") if times[one.name] > 1 else one for one in sides]


def name_side(side: EvaluatedModel, runs: Mapping[str, TrainingRun]) -> EvaluatedModel:
    """The side, under the name of the run that made it, or of the setting of its runs; ``runs`` are by their paths."""
    folders = (os.path.realpath(one.result.model.removesuffix("/model")) for one in side.runs)
    made_by = [runs[folder] for folder in folders if folder in runs]
    names = {run.name if len(side.runs) == 1 else run.group_name for run in made_by}
    return side._replace(name=names.pop()) if len(names) == 1 else side


def _strip_seed(name: str, seed: Any) -> str:
    ends = None if seed is None else re.fullmatch(rf"(.+?)[-_/ ](?:seed[-_ ]?)?{re.escape(str(seed))}", name)
    return ends[1] if ends else name
