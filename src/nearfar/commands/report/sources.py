"""What ``nearfar report`` is given, opened and checked: runs, groups, evaluations, comparisons, geometries."""

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.data.paths import is_folder
from nearfar.disk import read_json, read_text
from nearfar.evaluation import results
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.report import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.checks import EVALUATION, GEOMETRY, NUMBER, STEP, check, check_record, check_tests
from nearfar.evaluation.report.inputs import (
    RunNames,
    assign_seed_groups,
    combine_runs,
    disambiguate_names,
    group_by_setting,
    name_without_seed,
    short_names,
)
from nearfar.types import NearfarError

_RUN = ("config.toml", "metrics.jsonl", "run.json")
_MODEL = ("modules.json", "config.json")


class Sources:
    """What was opened so far, in the order in which it was named."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.sides: list[EvaluatedModel] = []
        self.single_results: list[EvaluationRun] = []
        """Result files that were named one by one."""
        self.comparisons: list[tuple[str, results.Result]] = []
        self.geometries: list[tuple[str, results.Result]] = []
        self.runs: list[tuple[Path, Path | None, TrainingRun]] = []
        """With the folder of its group."""
        self.missing: list[str] = []
        self.read: list[Path] = []
        """Every file that was opened."""
        self.result_order: dict[str, int] = {}
        """Of each result file."""

    def add(self, path: Path, group: Path | None = None) -> None:
        """Open a file or folder; what was opened before is not opened again.

        Raises:
            NearfarError: it is damaged, or nothing that a report can show.
        """
        folder = is_folder(path)  # first: it refuses what no name can be
        if os.path.realpath(path) in self.seen:
            return
        self.seen.add(os.path.realpath(path))
        if not folder:
            self._file(path)
        elif (path / "group.json").is_file():
            self._file(path / "group.json")
        elif any((path / name).is_file() for name in _RUN):
            self._run(path, group)
        elif begun := [one for one in sorted(path.glob("seed-*")) if any((one / name).is_file() for name in _RUN)]:
            self.missing.append(f"{path}: is not a finished group of runs (no group.json).")
            for run in begun:
                self.add(run, path)
        elif (files := sorted(path.glob("*.json"))) and not any((path / name).is_file() for name in _MODEL):
            self._folder(path, files)
        else:
            raise NearfarError(
                f"{path}: holds neither a run, nor a group of runs, nor result files. A model is evaluated first: "
                f"nearfar evaluate {path} --output RESULT.json"
            )

    def collect(self) -> ReportInputs:
        """All of it, everything with a name of its own."""
        sides = sorted(
            [*self.sides, *group_by_setting(self.single_results)],
            key=lambda side: self.result_order[side.runs[0].source],
        )
        group_names = short_names([str(group or folder) for folder, group, _ in self.runs])
        runs = []
        for folder, group, run in self.runs:
            group_name = group_names[str(group or folder)]
            runs.append(
                run._replace(group_name=group_name, name=f"{group_name}/{folder.name}" if group else group_name)
            )
        runs = assign_seed_groups(runs)
        places = [
            (os.path.realpath(folder), None if group is None else os.path.realpath(group), run)
            for (folder, group, _), run in zip(self.runs, runs, strict=True)
        ]
        names = RunNames(places)
        return ReportInputs(
            sides=disambiguate_names(map(names.side, sides)),
            comparisons=self.comparisons,
            geometries=[(source, names.geometry(result)) for source, result in self.geometries],
            runs=runs,
            missing=self.missing,
        )

    def _folder(self, folder: Path, files: Sequence[Path]) -> None:
        before = len(self.single_results)
        for file in files:
            self.add(file)
        runs = self.single_results[before:]
        seeds = [run.result["config"].get("training_seed") for run in runs]
        known = [seed for seed in seeds if seed is not None]
        one_setting = len({name_without_seed(run.result) for run in runs}) == 1 or len(known) == len(seeds)
        if runs and one_setting and len(set(known)) == len(known):  # else they are taken as if named one by one
            del self.single_results[before:]
            self.sides.append(combine_runs(runs, default_name=str(folder)))

    def _file(self, file: Path) -> None:
        value = self._read_json(file)
        kind = value.get("kind")
        if kind in ("evaluation", "sts", "comparison", "comparisons", "geometry") and value.get("schema") != 1:
            raise NearfarError(f"{file}: has schema {value.get('schema')!r}; this version of nearfar reads 1.")
        if kind in ("evaluation", "sts"):
            results.validate(value, source=file)
            check(value, EVALUATION, source=file)
            self.result_order[str(file)] = len(self.result_order)
            self.single_results.append(EvaluationRun(str(file), value))
        elif kind in ("comparison", "comparisons"):
            check_tests(value, source=file)
            self.comparisons.append((str(file), value))
        elif kind == "geometry":
            check(value, GEOMETRY, source=file)
            self.geometries.append((str(file), value))
        elif kind == "group":
            check(value, {"runs": [str]}, source=file)
            for name in value["runs"]:
                if (file.parent / name).is_dir():
                    self.add(file.parent / name, file.parent)
                else:
                    self.missing.append(f"{file.parent / name}: a run of the group, is not there.")
        elif kind is None and "config" in value and ("history" in value or "best_score" in value):
            self._record(file, value)
        else:
            raise NearfarError(
                f"{file}: is of no kind that a report shows (kind {kind!r}): a run, a group, an evaluation, a "
                "comparison or a geometry."
            )

    def _run(self, folder: Path, group: Path | None) -> None:
        record = self._read_json(folder / "run.json") if (folder / "run.json").is_file() else None
        if record is not None:
            check_record(record, source=folder / "run.json")
        files = {
            name: self._read(folder / name) for name in ("config.toml", "second.toml") if (folder / name).is_file()
        }
        settings: dict[str, Any] = dict(record["config"]) if record else {}
        if "config.toml" in files:
            try:
                settings = tomllib.loads(files["config.toml"])
            except tomllib.TOMLDecodeError as error:
                raise NearfarError(f"{folder / 'config.toml'}: cannot be read as TOML: {error}") from error
        if record and settings.get("precision") == "auto" and "precision" in record:
            settings["precision"] = record["precision"]  # what auto was there
        metrics = folder / "metrics.jsonl"
        steps, evaluations = self._metrics(metrics) if metrics.is_file() else ([], [])
        for name, why in (
            ("config.toml", "so what is said of its settings is from run.json"),
            ("metrics.jsonl", "so it has no curves but that of the dev scores in run.json"),
            ("run.json", "which a finished run has; it was stopped, or it is still going on"),
        ):
            if not (folder / name).is_file():
                self.missing.append(f"{folder}: has no {name}, {why}.")
        run = TrainingRun("", str(folder), "", settings, files, steps, evaluations, record)
        self.runs.append((folder, group, run))

    def _record(self, file: Path, record: dict[str, Any]) -> None:
        """The run.json of a run whose folder is not here."""
        if file.name == "run.json":
            self.add(file.parent)
            return
        check_record(record, source=file)
        self.missing.append(f"{file}: is the account of a run alone, without the losses of its steps.")
        place = file.with_name(file.name.removesuffix(".json").removesuffix(".run"))
        self.runs.append((place, None, TrainingRun("", str(file), "", record["config"], {}, [], [], record)))

    def _metrics(self, file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Training steps and evaluations; of a run that was killed the last line may be cut, and is left out."""
        steps: list[dict[str, Any]] = []
        evaluations: list[dict[str, Any]] = []
        lines = self._read(file).splitlines()
        for number, text in enumerate(lines, start=1):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    self.missing.append(f"{file}: its last line is cut, and was left out.")
                    break
                raise NearfarError(f"{file}, line {number}: is no JSON ({error}).") from error
            where = f"{file}, line {number}"
            if isinstance(line, dict) and ("metric" in line or "spearman" in line):
                check(line, {"step": int, "?metric": str}, source=where)
                metric = line.get("metric", "spearman")
                check(line, {metric: NUMBER}, source=where)
                evaluations.append({**line, "metric": metric, "score": line[metric]})
            else:
                check(line, STEP, source=where)
                steps.append(line)
        return steps, evaluations

    def _read(self, file: Path) -> str:
        self.read.append(file)
        return read_text(file)

    def _read_json(self, file: Path) -> dict[str, Any]:
        self.read.append(file)
        value = read_json(file, otherwise="Leave it out of the report, or make it anew.")
        if not isinstance(value, dict):
            raise NearfarError(f"{file}: is no result of nearfar, whose files hold a JSON object.")
        return value
