"""Training runs in a report: their dev scores, and curves of loss, dev score and geometry over the steps."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import mean, median, stdev
from typing import NamedTuple

from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Block, Figure
from nearfar.evaluation.report.charts import Chart, Line, downsample
from nearfar.evaluation.report.inputs import TrainingRun

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
    counts = Counter(run.group_name for run in runs)
    names = [f"{name}, {counts[name]} runs" if counts[name] > 1 else name for name in groups]
    dev: dict[str, list[Line]] = {}
    losses: dict[str, list[Line]] = {}
    geometry: dict[str, list[Line]] = {name: [] for name in _MEASURES}
    size = 1
    for run in runs:
        line = partial(Line, run.name, number=groups.index(run.group_name))
        best = outcome(run).best_step
        if scores := run.scores():
            x, y = [step for step, _ in scores], [score for _, score in scores]
            dev.setdefault(f"{run.metric} × 100 on {run.dev}", []).append(line(x, y, best=best))
        if run.steps:
            x, y, thinned = downsample([one.step for one in run.steps], [one.loss for one in run.steps])
            losses.setdefault(_method(run), []).append(line(x, y))
            size = max(size, thinned)
        for name in dict.fromkeys(key for one in run.evaluations for key in one.measures):
            kept = [one for one in run.evaluations if isinstance(one.measures.get(name), int | float)]
            if kept:
                x, y = [one.step for one in kept], [one.measures[name] for one in kept]
                geometry.setdefault(name, []).append(line(x, y, best=best))
    averaged = f" A point is the mean of up to {size} steps." if size > 1 else ""
    figures = (
        ("Dev scores by step; a ring marks the best step.", [Chart(title, "step", dev[title]) for title in dev]),
        (
            f"Training loss. Losses of different methods are not comparable.{averaged}",
            [_loss_chart(method, lines) for method, lines in losses.items()],
        ),
        (
            "Geometry of the embeddings of the dev sentences, by step.",
            [Chart(_title(name), "step", lines) for name, lines in geometry.items() if lines],
        ),
    )
    legend = [(name, number) for number, name in enumerate(names)]
    return [_table(runs, groups), *(Figure(caption, charts, legend) for caption, charts in figures if charts)]


def _title(measure: str) -> str:
    return _MEASURES.get(measure, measure.replace("_", " "))


def _table(runs: Sequence[TrainingRun], group_names: Sequence[str]) -> Table:
    header = ["run", "method", "encoder", "seed", "steps", "before", "best", "at step", "minutes", "state"]
    rows: list[list[Cell | str]] = []
    spread = len(group_names) < len(runs)
    for group_name in group_names:
        members = [run for run in runs if run.group_name == group_name]
        rows += [_row(run) for run in members]
        found = [outcome(run) for run in members if run.record]
        if len(found) > 1:
            which = f"all {len(found)}" if len(found) == len(members) else f"the {len(found)} finished"
            spreads = [_spread([one[place] for one in found]) for place in (0, 1)]
            rows.append([f"{group_name}, {which}", *[""] * 4, *spreads, *[""] * 3])
    devs = dict.fromkeys(f"{run.metric} × 100 on {run.dev}" for run in runs if run.scores())
    notes = [
        *([f"before and best: {', or '.join(devs)}."] * bool(devs)),
        *(
            ["Rows of several runs: mean ± standard deviation over the finished runs, which differ only in the seed."]
            * bool(spread)
        ),
    ]
    return Table(title="Training runs", columns=header, rows=rows, notes=notes)


def _row(run: TrainingRun) -> list[Cell | str]:
    record, result = run.record, outcome(run)
    last = max([*(line.step for line in run.steps), *(line.step for line in run.evaluations)], default=None)
    done = (record.step if record else None) or last
    seconds = record.seconds if record else None
    return [
        run.name,
        _method(run),
        str(run.settings.get("model", DASH)),
        DASH if run.seed is None else str(run.seed),
        DASH if done is None else f"{done:,}",
        *(DASH if score is None else f"{score:.2f}" for score in result[:2]),
        DASH if result.best_step is None else f"{result.best_step:,}",
        DASH if seconds is None else f"{seconds / 60:.1f}",
        "finished" if run.record else "not finished",
    ]


def _spread(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Cell(DASH)
    return Cell(f"{mean(known):.2f}", f"± {stdev(known):.2f}")


def _method(run: TrainingRun) -> str:
    return str(run.settings.get("method", DASH))


def _loss_chart(method: str, lines: Sequence[Line]) -> Chart:
    """Logarithmic where the first losses are much larger than the others."""
    losses = [loss for line in lines for loss in line.y]
    steep = bool(losses) and min(losses) > 0 and max(losses) > 20 * median(losses)
    title = f"Loss of {method}{', logarithmic' if steep else ''}"
    return Chart(title, "step", lines, logarithmic="y" if steep else "neither")
