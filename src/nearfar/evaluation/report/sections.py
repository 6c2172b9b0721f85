"""Sections of a report besides scores and tests: training, geometry, and settings with their provenance."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from statistics import mean, stdev
from typing import Any

import numpy as np
import pandas as pd

from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION
from nearfar.evaluation.render import Cell, Row, Table, notes
from nearfar.evaluation.report.blocks import DASH, Block, Chart, Code, Figure, Line, Section
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import GeometryResult, Provenance
from nearfar.evaluation.tables import geometry_table

CHART_POINTS, LINE_POINTS = 600, 30
"""About how many points a chart of losses has, and the fewest of each of its lines."""


def outcome(run: TrainingRun) -> tuple[float | None, float | None, float | None]:
    """The score x 100 before training, the best one after a step, and that step, the first of equal ones."""
    scores = run.scores
    before = next((score for step, score in scores if step == 0), None)
    step, best = max((one for one in scores if one[0] > 0), key=lambda one: one[1], default=(None, None))
    return before, best, step


def training(runs: Sequence[TrainingRun]) -> list[Block]:
    """A table of the runs, then figures."""
    if not runs:
        return []
    counts = Counter(run.group_name for run in runs)
    dev, losses, geometry = (defaultdict[str, list[Line]](list) for _ in range(3))
    size = math.ceil(max(1, *(len(run.steps) for run in runs)) / max(LINE_POINTS, CHART_POINTS // len(runs)))
    for run in runs:
        means = thinned([(one.step, one.loss) for one in run.steps], size)
        curves = [(dev, run.dev, run.scores), (losses, f"Loss of {run.settings.get('method')}", means)]
        for name in dict.fromkeys(name for one in run.evaluations for name in one.measures):
            values = ((float(one.step), one.measures.get(name)) for one in run.evaluations)
            known = [(step, value) for step, value in values if value is not None]
            curves.append((geometry, name.replace("_", " ").capitalize(), known))
        best, number = outcome(run)[2], list(counts).index(run.group_name)
        for figure, title, points in curves:
            if points:
                x, y = zip(*points, strict=True)
                figure[title].append(Line(run.name, x, y, number, best=best))
    averaged = f" A point is the mean of up to {size} steps." if size > 1 else ""
    figures = {
        "Dev scores by step; a ring marks the best step.": dev,
        f"Training loss. Losses of different methods are not comparable.{averaged}": losses,
        "Geometry of the embeddings of the dev sentences, by step.": geometry,
    }
    names = [f"{name}, {count} runs" if count > 1 else name for name, count in counts.items()]
    legend = [Line(name, [], [], number) for number, name in enumerate(names)]
    charts = {caption: [Chart(title, "step", lines) for title, lines in of.items()] for caption, of in figures.items()}
    return [_runs_table(runs, counts), *(Figure(caption, of, legend) for caption, of in charts.items() if of)]


def thinned(points: Sequence[tuple[float, float]], size: int) -> list[tuple[float, float]]:
    """The means of chunks of ``size`` successive points."""
    chunks = (points[start : start + size] for start in range(0, len(points), size))
    return [tuple(np.mean(chunk, axis=0).tolist()) for chunk in chunks]


def _runs_table(runs: Sequence[TrainingRun], groups: Mapping[str, int]) -> Table:
    header = ["run", "method", "encoder", "seed", "steps", "dev before", "dev best", "at step", "minutes", "state"]
    rows: list[Row] = []
    for group_name in groups:
        members = [run for run in runs if run.group_name == group_name]
        rows += map(_row_of_run, members)
        finished = [outcome(run) for run in members if run.record]
        if len(finished) > 1:
            which = f"all {len(finished)}" if len(finished) == len(members) else f"the {len(finished)} finished"
            spreads = [_spread([one[place] for one in finished]) for place in (0, 1)]
            rows.append([f"{group_name}, {which}", *[""] * 4, *spreads, *[""] * 3])
    return Table(title="Training runs", columns=header, rows=rows, notes=notes("runs", runs, groups))


def _row_of_run(run: TrainingRun) -> list[str]:
    record = run.record
    before, best, best_step = outcome(run)
    last = max([*(one.step for one in run.steps), *(one.step for one in run.evaluations)], default=None)
    done = (record.step if record else None) or last
    minutes = None if record is None or record.seconds is None else record.seconds / 60
    numbers = ((run.seed, ""), (done, ","), (before, ".2f"), (best, ".2f"), (best_step, ","))
    shown = [DASH if value is None else format(value, how) for value, how in (*numbers, (minutes, ".1f"))]
    known = [str(run.settings.get(key, DASH)) for key in ("method", "model")]
    return [run.name, *known, *shown, "finished" if record else "not finished"]


def _spread(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return Cell(f"{mean(known):.2f}", f"± {stdev(known):.2f}") if len(known) == len(values) else Cell(DASH)


def geometry(geometries: Sequence[tuple[str, GeometryResult]]) -> list[Block]:
    """Each geometry file, under its own heading where there are several."""
    sections = [Section(f"From {source}", _geometry(result)) for source, result in geometries]
    return [*sections[0].blocks] if len(sections) == 1 else [*sections]


def _geometry(result: GeometryResult) -> list[Block]:
    lines: list[Line] = []
    for number, (name, model) in enumerate(result.models.items()):
        kept = [value for value in model.spectrum if value > FLOAT32_RESOLUTION]
        places = np.unique(np.geomspace(1, len(kept), 100).astype(int)).tolist() if kept else []
        lines.append(Line(name, places, [kept[place - 1] for place in places], number))
    chart = Chart("Size, relative to the largest", "singular value, from the largest", lines, logarithmic=True)
    caption = "Singular values of the embeddings, on logarithmic axes; a flatter line is a more even space."
    maps = {name: model.layers for name, model in result.models.items() if model.layers}
    known = [score for layers in maps.values() for score in chain(*layers.values()) if score is not None]
    task = result.task.spec if result.task else "the task"
    tables = [_layers(name, layers, task, (min(known), max(known))) for name, layers in maps.items() if known]
    return [geometry_table(result), Figure(caption, [chart]), *tables]


def _layers(name: str, layers: Mapping[str, Sequence[float | None]], task: str, limits: tuple[float, float]) -> Table:
    def cell(score: float | None) -> Cell:
        return Cell("undefined") if score is None else Cell(f"{score:.1f}", shade=np.interp(score, limits, (0, 1)))

    rows: list[Row] = [
        [f"{layer} (embeddings)" if layer == 0 else str(layer), *map(cell, scores)]
        for layer, scores in enumerate(zip_longest(*layers.values()))
    ]
    caption = (
        f"{name}: Spearman × 100 on {task} by layer and pooling; a stronger colour is higher, the last layer on top"
    )
    return Table(title=caption, columns=["layer", *(pooling.replace("_", " ") for pooling in layers)], rows=rows[::-1])


def settings(inputs: ReportInputs) -> list[Block]:
    """Configs of training and evaluation, and the provenance of every result."""
    trained = [(run.group_name, run.settings) for run in inputs.runs]
    evaluated = [(side.name, run.result.config) for side in inputs.sides for run in side.runs]
    blocks = _differences("training runs", "run", trained) + _differences("evaluations", "model", evaluated)
    origins: dict[str, Provenance] = {run.source: run.record for run in inputs.runs if run.record}
    origins |= {run.source: run.result.provenance for side in inputs.sides for run in side.runs}
    origins |= {source: result.provenance for source, result in (*inputs.comparisons, *inputs.geometries)}
    origins = {source: origin for source, origin in origins.items() if origin.date or origin.command}
    if origins:
        commands = [f"# {source}, {origin.date}\n{origin.command}" for source, origin in origins.items()]
        blocks.append(Section("Commands", [Code("\n".join(commands))]))
        blocks.append(Section("Machines and versions", [_environments(origins)]))
    configs = list[Section]()
    for run in inputs.runs:
        texts = [f"# {name}\n{text.rstrip()}" for name, text in run.files.items()] or [_lines(run.settings)]
        facts = [run.record.data] if run.record and run.record.data else []
        configs.append(Section(f"Training of {run.name}", [*map(Code, texts), *facts], folded=True))
    for side in inputs.sides:
        files = [Code(f"# {run.source}\n{_lines(run.result.config)}") for run in side.runs]
        configs.append(Section(f"Evaluation of {side.name}", files, folded=True))
    return [*blocks, *([Section("All settings", configs)] if configs else [])]


def _differences(what: str, title: str, configs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Block]:
    """A row for each name, with the values of all its configs, and a column for each key that differs."""
    if len(configs) < 2:
        return []
    values = [{key: _value(value) for key, value in config.items() if key != "output"} for _, config in configs]
    every = pd.DataFrame(values, index=[name for name, _ in configs]).fillna(DASH)
    differ = every.loc[:, every.nunique() > 1]
    if differ.empty:
        return [[f"Differences between the {what}: none, except for the output folder."]]
    rows = differ.groupby(level=0, sort=False).agg(lambda column: ", ".join(column.unique()))
    legend = f"{DASH}: off, empty, or not a setting of this method."
    caption, columns = f"Differences between the {what}", [title, *differ]
    return [Table(title=caption, columns=columns, rows=[*rows.itertuples()], notes=[legend], left=len(columns))]


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or DASH
    return DASH if value is None or value is False or value in ("", 0) else str(value)


def _lines(config: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in config.items())


def _environments(origins: Mapping[str, Provenance]) -> Table:
    """A row for each combination of commit, versions and machine, with the files computed there."""
    columns = ["commit", "versions", "hardware", "files"]
    made = [(one.commit or DASH, _facts(one.versions), _facts(one.hardware), name) for name, one in origins.items()]
    by_machine = pd.DataFrame(made, columns=columns).groupby(columns[:3], sort=False)["files"].agg(", ".join)
    rows = by_machine.reset_index().to_numpy().tolist()
    return Table(title="Commits, versions and hardware", columns=columns, rows=rows, left=4)


def _facts(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items() if value) or DASH
