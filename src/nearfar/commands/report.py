"""``nearfar report``: runs and results are read and compared, and written as one page in HTML and Markdown."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import ReportConfig
from nearfar.data.paths import as_path
from nearfar.disk import read_json, read_text, write_text
from nearfar.disk.checks import path_errors, refuse_overwriting_inputs
from nearfar.disk.model_folder import model_of_run
from nearfar.evaluation import results
from nearfar.evaluation.comparison import EvaluationRun, compare_sides
from nearfar.evaluation.render import short_names
from nearfar.evaluation.report import blocks, compose, inputs
from nearfar.runs.folder import HELD_OUT, HELD_OUT_SUMMARY
from nearfar.runs.held_out import COMPARISON
from nearfar.settings import read_toml
from nearfar.types import NearfarError
from nearfar.validation import convert

MAX_COMPARED = 6
"""The largest number of sides that are compared; each pair of sides takes some seconds."""
_RUN = ("config.toml", "metrics.jsonl", "run.json")
"""A folder with one of these files is a run folder."""
_MODEL = ("modules.json", "config.json")


@accepts_settings(ReportConfig)
@path_errors()
def report(what: str | Path | Sequence[str | Path], config: ReportConfig, *, progress: bool = True) -> Path:
    """Write one self-contained HTML file about runs and results, and a Markdown file beside it.

    Settings can be given by name: ``report(["runs/a", "b.json"], output="report.html")``; see
    :class:`nearfar.ReportConfig`. The same files give the same page, byte for byte.

    Args:
        what: run folders, result files, folders of result files (the seeds of one method), comparison files, geometry
            files or their folders. Result files that are named one by one are the seeds of one method
            if they are in one folder and their names differ only in the training seed at the end.
        config: the settings.
        progress: show progress bars.

    Returns:
        The path of the HTML file.

    Raises:
        NearfarError: a source is damaged or cannot be shown, or an output cannot be written.
    """
    file = _check_output(config.output, overwrite=config.overwrite)
    paths = [as_path(one) for one in ([what] if isinstance(what, str | Path) else what)]
    if not paths:
        raise NearfarError("nothing to report on: name runs, result files, comparisons or geometries.")
    opened = Sources()
    for path in paths:
        opened.add(path)
    for written in (file, file.with_suffix(".md")):
        refuse_overwriting_inputs(written, (inner for path in paths for inner in (path, *path.rglob("*"))))
    found, computed = opened.collect(), None
    if 2 <= len(found.sides) <= MAX_COMPARED:
        how = {name: getattr(config, name) for name in ("aggregate", "resamples", "seed")}
        try:
            computed = compare_sides([side.runs for side in found.sides], **how, progress=progress)
        except NearfarError as error:
            found = replace(found, missing=[*found.missing, f"No comparison was computed: {error}"])
    page = compose(found, title=config.title or found.title, aggregate=config.aggregate, computed=computed)
    write_text(file, blocks.to_html(page))
    write_text(file.with_suffix(".md"), blocks.to_markdown(page))
    return file


def _check_output(output: str | Path, *, overwrite: bool) -> Path:
    """The HTML file; refuses one that is not an earlier report, unless ``overwrite``."""
    file, is_report = Path(output), False
    if file.suffix != ".html":
        raise NearfarError(f"--output {file}: a report ends in .html (its Markdown is written beside it).")
    results.check_both(file)
    with suppress(OSError, UnicodeDecodeError), file.open(encoding="utf-8") as stream:
        is_report = blocks.GENERATOR in stream.read(2**12)
    if not is_report:
        results.refuse_both(file, "a report", overwrite=overwrite)
    return file


class Sources:
    """The sources opened so far, in the order in which they were named."""

    def __init__(self) -> None:
        self.opened: dict[str, None] = {}
        """The real path of each source, in order."""
        self.sides: list[inputs.EvaluatedModel] = []
        self.single_results: list[EvaluationRun] = []
        """Result files that were named one by one."""
        self.comparisons: list[tuple[str, results.ComparisonResult | results.PairwiseResult]] = []
        self.geometries: list[tuple[str, results.GeometryResult]] = []
        self.runs: list[inputs.TrainingRun] = []
        self.missing: list[str] = []

    def add(self, path: Path) -> None:
        """Open a file or folder, unless it was opened before.

        Raises:
            NearfarError: it is damaged, or a report cannot show it.
        """
        if os.path.realpath(path) in self.opened:
            return
        self.opened[os.path.realpath(path)] = None
        if not path.is_dir():
            self._file(path)
        elif any((path / name).is_file() for name in _RUN):
            self._run(path)
        elif (files := sorted(path.glob("*.json"))) and not any((path / name).is_file() for name in _MODEL):
            self._folder(path, files)
        else:
            model_of_run(path)  # raises for other folders with runs
            raise NearfarError(
                f"{path}: holds no run and no result files. Evaluate a model first: "
                f"nearfar evaluate {path} --output RESULT.json"
            )

    def collect(self) -> inputs.ReportInputs:
        """All sources, each with a distinct name."""
        short = short_names([run.source for run in self.runs])
        runs = [run._replace(name=short[run.source], group_name=short[run.source]) for run in self.runs]
        runs, order = inputs.assign_seed_groups(runs), list(self.opened)
        made = {os.path.realpath(run.source): run for run in runs}
        grouped = inputs.group_by_setting(self.single_results, {run.source: run.group_name for run in runs})
        sides = sorted(
            (inputs.name_side(side, made) for side in [*self.sides, *grouped]),
            key=lambda side: order.index(os.path.realpath(side.runs[0].source)),
        )
        spaces = (name for _, result in self.geometries for name in result.models)
        shown = list(dict.fromkeys([*(side.name for side in sides), *(run.group_name for run in runs), *spaces]))
        more = f" and {len(shown) - 3} more" if len(shown) > 4 else ""
        return inputs.ReportInputs(
            title=f"Report: {', '.join(shown[: 3 if more else 4]) or 'comparisons'}{more}",
            sides=inputs.disambiguate_names(sides),
            comparisons=self.comparisons,
            geometries=self.geometries,
            runs=runs,
            missing=self.missing,
        )

    def _folder(self, folder: Path, files: Sequence[Path]) -> None:
        before = len(self.single_results)
        for file in files:
            self.add(file)
        runs = self.single_results[before:]
        seeds = [run.result.training_seed for run in runs]
        known = [seed for seed in seeds if seed is not None]
        one_setting = len({inputs.name_without_seed(run.result) for run in runs}) == 1 or len(known) == len(seeds)
        if runs and one_setting and len(set(known)) == len(known):  # else they are treated as if named one by one
            del self.single_results[before:]
            self.sides.append(inputs.combine_runs(runs, default_name=str(folder)))

    def _file(self, file: Path) -> None:
        if file.name == "run.json":
            self.add(file.parent)
            return
        match results.load_result(file):
            case results.EvaluationResult() as result:
                self.single_results.append(EvaluationRun(str(file), result))
            case results.ComparisonResult() | results.PairwiseResult() as result:
                self.comparisons.append((str(file), result))
            case results.GeometryResult() as result:
                self.geometries.append((str(file), result))
            case other:
                raise NearfarError(
                    f"{file}: is {other.WHAT}, which a report cannot show; name runs, evaluations, comparisons or "
                    "geometries."
                )

    def _run(self, folder: Path) -> None:
        record, info = None, folder / "run.json"
        if info.is_file():
            record = results.TrainingRecord.from_dict(read_json(info), source=info)
        else:
            self.missing.append(
                f"{folder}: has no run.json, so it is not finished: it was stopped or is still running."
            )
        config = folder / "config.toml"
        files = {config.name: read_text(config)} if config.is_file() else {}
        settings = read_toml(config) if files else {}
        if record is not None:
            settings = settings or dict(record.config)
            if settings.get("precision") == "auto" and record.precision:
                settings["precision"] = record.precision  # what auto was resolved to
        tested, summary = (folder / HELD_OUT / name for name in (COMPARISON, HELD_OUT_SUMMARY))
        comparison = results.ComparisonResult.load(tested) if tested.is_file() else None
        held_out = convert(read_json(summary), dict[str, Any], source=summary) if summary.is_file() else {}
        steps, evaluations = self._metrics(folder / "metrics.jsonl")
        self.runs.append(
            inputs.TrainingRun(
                "", str(folder), "", settings, files, steps, evaluations, record, comparison, held_out.get("digest")
            )
        )
        if (folder / "result.json").is_file():  # of fine-tuning: the scores on its test rows
            self.add(folder / "result.json")

    def _metrics(self, file: Path) -> tuple[list[results.TrainingStep], list[results.DevEvaluation]]:
        """Training steps and evaluations. An incomplete last line, as a killed run leaves it, is skipped."""
        steps: list[results.TrainingStep] = []
        evaluations: list[results.DevEvaluation] = []
        lines = read_text(file).splitlines() if file.is_file() else []
        for number, text in enumerate(lines, start=1):
            source = f"{file}, line {number}"
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    self.missing.append(f"{file}: its last line is incomplete and was skipped.")
                    break
                raise NearfarError(f"{source}: is not valid JSON ({error}).") from error
            if isinstance(line, dict) and "metric" in line:
                evaluations.append(results.DevEvaluation.from_line(line, source=source))
            else:
                steps.append(results.TrainingStep.from_dict(line, source=source))
        return steps, evaluations
