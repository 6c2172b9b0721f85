"""Sections of a report besides scores and tests: training, geometry, and settings with their provenance."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION
from nearfar.evaluation.render import Cell, Row, Table, notes
from nearfar.evaluation.report.blocks import DASH, Block, Chart, Code, Figure, Line, Section
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import GeometryResult, Provenance
from nearfar.evaluation.tables import geometry_table

CHART_POINTS, LINE_POINTS = 600, 30
"""About how many points a chart of losses has, and the fewest of each of its lines."""
_MEASURES = {
    "alignment": "Alignment (lower is better)",
    "uniformity": "Uniformity (lower is more even)",
    "mean_cosine": "Mean cosine (closer to 0 is more even)",
    "effective_rank": "Effective rank (higher is more even)",
}


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
    size = math.ceil(max(len(run.steps) for run in runs) / max(LINE_POINTS, CHART_POINTS // len(runs)))
    for run in runs:
        line = partial(Line, run.name, number=list(counts).index(run.group_name))
        best = outcome(run)[2]
        if scores := run.scores:
            dev[run.dev].append(line(*zip(*scores, strict=True), best=best))
        if run.steps:
            losses[f"Loss of {run.method}"].append(line(*thinned([(one.step, one.loss) for one in run.steps], size)))
        measured = defaultdict[str, list[tuple[float, float]]](list)
        for one in run.evaluations:
            for name, value in one.measures.items():
                if value is not None:
                    measured[_MEASURES.get(name, name.replace("_", " "))].append((one.step, value))
        for name, points in measured.items():
            geometry[name].append(line(*zip(*points, strict=True), best=best))
    averaged = f" A point is the mean of up to {size} steps." if size > 1 else ""
    figures = {
        "Dev scores by step; a ring marks the best step.": dev,
        f"Training loss. Losses of different methods are not comparable.{averaged}": losses,
        "Geometry of the embeddings of the dev sentences, by step.": geometry,
    }
    names = [f"{name}, {count} runs" if count > 1 else name for name, count in counts.items()]
    legend = [Line(name, [], [], number) for number, name in enumerate(names)]
    return [
        _runs_table(runs, counts),
        *(Figure(caption, [*map(_chart, of, of.values())], legend) for caption, of in figures.items() if of),
    ]


def thinned(points: Sequence[tuple[float, float]], size: int) -> list[list[float]]:
    """The x and y of the means of chunks of ``size`` successive points."""
    chunks = np.split(np.array(points), range(size, len(points), size))
    return np.transpose([chunk.mean(axis=0) for chunk in chunks]).tolist()


def _chart(title: str, lines: Sequence[Line]) -> Chart:
    """A chart over steps, logarithmic where some values are much larger than most."""
    values = [*chain(*(line.y for line in lines))]
    steep = min(values) > 0 and max(values) > 20 * median(values)
    return Chart(f"{title}, logarithmic" if steep else title, "step", lines, logarithmic="y" if steep else "neither")


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
    chart = Chart("Size, relative to the largest", "singular value, from the largest", lines, logarithmic="both")
    caption = "Singular values of the embeddings, on logarithmic axes; a flatter line is a more even space."
    maps = {name: model.layers for name, model in result.models.items() if model.layers}
    known = [score for layers in maps.values() for score in chain(*layers.values()) if score is not None]
    task = result.task.spec if result.task else "the task"
    tables = [_layers(name, layers, task, (min(known), max(known))) for name, layers in maps.items() if known]
    return [geometry_table(result), Figure(caption, [chart]), *tables]


def _layers(name: str, layers: Mapping[str, Sequence[float | None]], task: str, limits: tuple[float, float]) -> Table:
    low, high = limits

    def cell(score: float | None) -> Cell:
        if score is None:
            return Cell("undefined")
        return Cell(f"{score:.1f}", shade=(score - low) / (high - low) if high > low else 0.5)

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
    evaluations = [(side.name, run) for side in inputs.sides for run in side.runs]
    blocks: list[Block] = [
        *_differences("Differences between the training runs", "run", trained),
        *_differences(
            "Differences between the evaluations", "model", [(n, one.result.config) for n, one in evaluations]
        ),
    ]
    origins: dict[str, Provenance] = {run.source: run.record for run in inputs.runs if run.record}
    origins |= {run.source: run.result.provenance for _, run in evaluations}
    origins |= {source: result.provenance for source, result in (*inputs.comparisons, *inputs.geometries)}
    origins = {source: origin for source, origin in origins.items() if origin.date or origin.command}
    if origins:
        commands = [f"# {source}, {origin.date}\n{origin.command}" for source, origin in origins.items()]
        blocks.append(Section("Commands", [Code("\n".join(commands))]))
        blocks.append(Section("Machines and versions", [_environments(origins)]))
    configs = [Section(f"Training of {run.name}", _run_settings(run), folded=True) for run in inputs.runs]
    for side in inputs.sides:
        files = [Code(f"# {run.source}\n{_lines(run.result.config)}") for run in side.runs]
        configs.append(Section(f"Evaluation of {side.name}", files, folded=True))
    return [*blocks, *([Section("All settings", configs)] if configs else [])]


def _differences(caption: str, title: str, configs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Block]:
    """A row for each name, with the values of all its configs, and a column for each key that differs."""
    if len(configs) < 2:
        return []
    values = defaultdict[str, defaultdict[str, list[str]]](lambda: defaultdict(list))
    for key in dict.fromkeys(key for _, config in configs for key in config if key != "output"):
        for name, config in configs:
            values[key][name].append(_value(config.get(key)))
    differ = {key: of for key, of in values.items() if len({*chain(*of.values())}) > 1}
    if not differ:
        return [[f"{caption}: none, except for the output folder."]]
    rows = [
        [name, *(", ".join(dict.fromkeys(of[name])) for of in differ.values())]
        for name in dict.fromkeys(name for name, _ in configs)
    ]
    legend = f"{DASH}: off, empty, or not a setting of this method."
    return [Table(title=caption, columns=[title, *differ], rows=rows, notes=[legend], left=1 + len(differ))]


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or DASH
    return DASH if value is None or value is False or value in ("", 0) else str(value)


def _run_settings(run: TrainingRun) -> list[Block]:
    files = [f"# {name}\n{text.rstrip()}" for name, text in run.files.items()] or [_lines(run.settings)]
    return [*map(Code, files), *([[*run.record.data]] if run.record and run.record.data else [])]


def _lines(config: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in config.items())


def _environments(origins: Mapping[str, Provenance]) -> Table:
    """A row for each combination of commit, versions and machine, with the files computed there."""
    made = defaultdict[tuple[str, ...], list[str]](list)
    for source, origin in origins.items():
        made[origin.commit or DASH, _facts(origin.versions), _facts(origin.hardware)].append(source)
    rows = [[*where, ", ".join(sources)] for where, sources in made.items()]
    columns = ["commit", "versions", "hardware", "files"]
    return Table(title="Commits, versions and hardware", columns=columns, rows=rows, left=4)


def _facts(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items() if value) or DASH
