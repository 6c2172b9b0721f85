"""Sections of a report besides scores and tests: training, geometry, and settings with their provenance."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Block, Chart, Code, Figure, Line, Section
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import GeometryResult, ModelGeometry, Provenance
from nearfar.evaluation.tables import geometry_table

CHART_POINTS, LINE_POINTS = 600, 30
"""About how many points a chart of losses has, and the fewest of each of its lines."""
_IGNORED_KEYS = {"output"}
"""Settings that always differ."""
_MEASURES = {
    "alignment": "Alignment (lower is better)",
    "uniformity": "Uniformity (lower is more even)",
    "mean_cosine": "Mean cosine (closer to 0 is more even)",
    "effective_rank": "Effective rank (higher is more even)",
}


class Outcome(NamedTuple):
    """Dev scores of a run, x 100; None where not known."""

    before: float | None
    best: float | None
    best_step: float | None


def outcome(run: TrainingRun) -> Outcome:
    """From run.json, or from the evaluations so far where the run is not finished."""
    record, scores = run.record, run.scores()
    if record and record.best_score is not None and record.start_score is not None:
        return Outcome(100 * record.start_score, 100 * record.best_score, record.best_step)
    before = next((score for step, score in scores if step == 0), None)
    after = [(score, -step) for step, score in scores if step > 0]
    best, step = max(after, default=(None, None))
    return Outcome(before, best, None if step is None else -step)


def training(runs: Sequence[TrainingRun]) -> list[Block]:
    """A table of the runs, then figures."""
    groups = list(dict.fromkeys(run.group_name for run in runs))
    dev, losses, geometry = (defaultdict[str, list[Line]](list) for _ in range(3))
    points, size = max(LINE_POINTS, CHART_POINTS // len(runs)), 1
    for run in runs:
        line = partial(Line, run.name, number=groups.index(run.group_name))
        best = outcome(run).best_step
        if scores := run.scores():
            dev[f"{run.metric} × 100 on {run.dev}"].append(line(*zip(*scores, strict=True), best=best))
        if run.steps:
            chunk = max(1, math.ceil(len(run.steps) / points))
            losses[_method(run)].append(line(*thinned([(one.step, one.loss) for one in run.steps], chunk)))
            size = max(size, chunk)
        for name in dict.fromkeys(name for evaluation in run.evaluations for name in evaluation.measures):
            known = [(one.step, one.measures.get(name)) for one in run.evaluations]
            if values := [(step, value) for step, value in known if isinstance(value, int | float)]:
                geometry[name].append(line(*zip(*values, strict=True), best=best))
    averaged = f" A point is the mean of up to {size} steps." if size > 1 else ""
    measures = [
        *(name for name in _MEASURES if name in geometry),
        *(name for name in geometry if name not in _MEASURES),
    ]
    figures = {
        "Dev scores by step; a ring marks the best step.": [Chart(title, "step", dev[title]) for title in dev],
        f"Training loss. Losses of different methods are not comparable.{averaged}": [
            _loss_chart(method, lines) for method, lines in losses.items()
        ],
        "Geometry of the embeddings of the dev sentences, by step.": [
            Chart(_MEASURES.get(name, name.replace("_", " ")), "step", geometry[name]) for name in measures
        ],
    }
    counts = Counter(run.group_name for run in runs)
    legend = [(f"{name}, {counts[name]} runs" if counts[name] > 1 else name, n) for n, name in enumerate(groups)]
    return [_table(runs, counts), *(Figure(caption, charts, legend) for caption, charts in figures.items() if charts)]


def thinned(points: Sequence[tuple[float, float]], size: int) -> tuple[list[float], list[float]]:
    """The x and y of the means of chunks of ``size`` successive points."""
    chunks = [zip(*points[start : start + size], strict=True) for start in range(0, len(points), size)]
    means = [[sum(values) / len(values) for values in chunk] for chunk in chunks]
    return [x for x, _ in means], [y for _, y in means]


def _table(runs: Sequence[TrainingRun], groups: Mapping[str, int]) -> Table:
    header = ["run", "method", "encoder", "seed", "steps", "dev before", "dev best", "at step", "minutes", "state"]
    rows: list[list[Cell | str]] = []
    for group_name in groups:
        members = [run for run in runs if run.group_name == group_name]
        rows += [_row(run) for run in members]
        found = [outcome(run) for run in members if run.record]
        if len(found) > 1:
            which = f"all {len(found)}" if len(found) == len(members) else f"the {len(found)} finished"
            spreads = [_spread([one[place] for one in found]) for place in (0, 1)]
            rows.append([f"{group_name}, {which}", *[""] * 4, *spreads, *[""] * 3])
    notes = []
    if devs := dict.fromkeys(f"{run.metric} × 100 on {run.dev}" for run in runs if run.scores()):
        notes.append(f"dev before and dev best: {', or '.join(devs)}. They chose the step, so they are no test.")
    if len(groups) < len(runs):
        notes.append(
            "Rows of several runs: mean ± standard deviation over the finished runs, which differ only in the seed."
        )
    return Table(title="Training runs", columns=header, rows=rows, notes=notes)


def _row(run: TrainingRun) -> list[Cell | str]:
    record, result = run.record, outcome(run)
    last = max([*(line.step for line in run.steps), *(line.step for line in run.evaluations)], default=None)
    done = (record.step if record else None) or last
    seconds = record.seconds if record else None
    minutes = None if seconds is None else seconds / 60
    numbers = ((run.seed, ""), (done, ","), (result.before, ".2f"), (result.best, ".2f"), (result.best_step, ","))
    shown = [DASH if value is None else format(value, how) for value, how in (*numbers, (minutes, ".1f"))]
    state = "finished" if run.record else "not finished"
    return [run.name, _method(run), str(run.settings.get("model", DASH)), *shown, state]


def _spread(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return Cell(f"{mean(known):.2f}", f"± {stdev(known):.2f}") if len(known) == len(values) else Cell(DASH)


def _method(run: TrainingRun) -> str:
    return str(run.settings.get("method", DASH))


def _loss_chart(method: str, lines: Sequence[Line]) -> Chart:
    """Logarithmic where the first losses are much larger than the others."""
    losses = [loss for line in lines for loss in line.y] or [0.0]
    steep = min(losses) > 0 and max(losses) > 20 * median(losses)
    title = f"Loss of {method}{', logarithmic' if steep else ''}"
    return Chart(title, "step", lines, logarithmic="y" if steep else "neither")


def geometry_blocks(geometries: Sequence[tuple[str, GeometryResult]]) -> list[Block]:
    """Each geometry file, under its own heading where there are several."""
    sections = [Section(f"From {source}", _geometry(result)) for source, result in geometries]
    return list(sections[0].blocks) if len(sections) == 1 else [*sections]


def _geometry(result: GeometryResult) -> list[Block]:
    maps = {name: model.layers for name, model in result.models.items() if model.layers}
    known = [score for layers in maps.values() for score in chain(*layers.values()) if score is not None]
    task = result.task.spec if result.task else "the task"
    tables = [_layers(name, layers, task, (min(known), max(known))) for name, layers in maps.items() if known]
    missing = [name for name in result.models if name not in maps]
    notes = [f"There are no scores of layers for {', '.join(missing)}."] * bool(missing)
    return [geometry_table(result), _spectra(result.models), *tables, *notes]


def _spectra(models: Mapping[str, ModelGeometry]) -> Figure:
    lines = []
    for number, (name, model) in enumerate(models.items()):
        kept = [(float(place), value) for place, value in enumerate(model.spectrum, 1) if value > FLOAT32_RESOLUTION]
        # All of the first 32 values, then fewer and fewer, because the axis is logarithmic.
        shown = [point for place, point in enumerate(kept) if place < 32 or place % (1 + place // 32) == 0]
        lines.append(Line(name, [x for x, _ in shown], [y for _, y in shown], number))
    chart = Chart("Size, relative to the largest", "singular value, from the largest", lines, logarithmic="both")
    return Figure(
        "Singular values of the embeddings, on logarithmic axes; a flatter line is a more even space.", [chart]
    )


def _layers(name: str, layers: Mapping[str, Sequence[float | None]], task: str, limits: tuple[float, float]) -> Table:
    low, high = limits

    def cell(score: float | None) -> Cell:
        if score is None:
            return Cell("undefined")
        return Cell(f"{score:.1f}", shade=(score - low) / (high - low) if high > low else 0.5)

    rows: list[list[Cell | str]] = [
        [f"{layer} (embeddings)" if layer == 0 else str(layer), *map(cell, scores)]
        for layer, scores in enumerate(zip_longest(*layers.values()))
    ]
    caption = (
        f"{name}: Spearman × 100 on {task} by layer and pooling; a stronger colour is higher, the last layer on top"
    )
    return Table(title=caption, columns=["layer", *(pooling.replace("_", " ") for pooling in layers)], rows=rows[::-1])


def settings(inputs: ReportInputs) -> list[Block]:
    """Configs of training and evaluation, and the provenance of every result."""
    trained = defaultdict[str, list[Mapping[str, Any]]](list)
    for run in inputs.runs:
        trained[run.group_name].append(run.settings)
    evaluated = {side.name: [run.result.config for run in side.runs] for side in inputs.sides}
    blocks: list[Block] = [
        *_differences("Differences between the training runs", "run", trained),
        *_differences("Differences between the evaluations", "model", evaluated),
    ]
    if origins := _provenance_by_source(inputs):
        commands = "\n".join(
            f"# {source}, {origin.date or 'unknown date'}\n{origin.command or '# unknown command'}"
            for source, origin in origins.items()
        )
        blocks.append(Section("Commands", [Code(commands)]))
        blocks.append(Section("Machines and versions", [_environments(origins)]))
    configs = [Section(f"Training of {run.name}", _run_config_blocks(run), folded=True) for run in inputs.runs]
    for side in inputs.sides:
        files = [Code(f"# {run.source}\n{_lines(run.result.config)}") for run in side.runs]
        configs.append(Section(f"Evaluation of {side.name}", files, folded=True))
    return [*blocks, *([Section("All settings", configs)] if configs else [])]


def _differences(caption: str, title: str, configs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Block]:
    """A row for each group, with the values of all its runs, and a column for each key that differs."""
    every = [config for members in configs.values() for config in members]
    if len(every) < 2:
        return []
    keys = dict.fromkeys(key for config in every for key in config if key not in _IGNORED_KEYS)
    differ = [key for key in keys if len({_value(config.get(key)) for config in every}) > 1]
    if not differ:
        return [[f"{caption}: none, except for the output folder."]]
    rows = [
        [name, *(", ".join(dict.fromkeys(_value(config.get(key)) for config in members)) for key in differ)]
        for name, members in configs.items()
    ]
    notes = [f"{DASH}: off, empty, or not a setting of this method."]
    columns = [title, *differ]
    return [Table(title=caption, columns=columns, rows=rows, notes=notes, left=len(columns))]


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or DASH
    return DASH if value is None or value is False or value in ("", 0) else str(value)


def _run_config_blocks(run: TrainingRun) -> list[Block]:
    files = [f"# {name}\n{text.rstrip()}" for name, text in run.files.items()] or [_lines(run.settings)]
    facts = run.record.data if run.record else []
    return [*map(Code, files), *([list(facts)] if facts else [])]


def _lines(config: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in config.items())


def _provenance_by_source(inputs: ReportInputs) -> dict[str, Provenance]:
    """Source -> its provenance, where it is known."""
    origins: dict[str, Provenance] = {run.source: run.record for run in inputs.runs if run.record}
    origins |= {run.source: run.result.provenance for side in inputs.sides for run in side.runs}
    origins |= {source: result.provenance for source, result in inputs.comparisons}
    origins |= {source: result.provenance for source, result in inputs.geometries}
    keys = ("command", "date", "commit", "versions", "hardware")
    return {source: origin for source, origin in origins.items() if any(getattr(origin, key) for key in keys)}


def _environments(origins: Mapping[str, Provenance]) -> Table:
    """A row for each combination of commit, versions and machine, with the files computed there."""
    made = defaultdict[tuple[str, ...], list[str]](list)
    for source, origin in origins.items():
        known = (
            ", ".join(f"{name} {value}" for name, value in (values or {}).items() if value)
            for values in (origin.versions, origin.hardware)
        )
        made[origin.commit or DASH, *(words or DASH for words in known)].append(source)
    rows = [[*where, ", ".join(sources)] for where, sources in made.items()]
    columns = ["commit", "versions", "hardware", "files"]
    return Table(title="Commits, versions and hardware", columns=columns, rows=rows, left=4)
