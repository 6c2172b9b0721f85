"""Training runs in a report: their dev scores, and curves of loss, dev score and geometry over the steps."""

from collections.abc import Callable, Sequence
from statistics import mean, median, stdev
from typing import Any, NamedTuple

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
    group_names = list(dict.fromkeys(run.group_name for run in runs))
    colours = {group_name: number for number, group_name in enumerate(group_names)}
    counts = {group_name: sum(run.group_name == group_name for run in runs) for group_name in group_names}
    legend = [
        (f"{group_name}, {counts[group_name]} runs" * (counts[group_name] > 1) or group_name, colours[group_name])
        for group_name in group_names
    ]

    def figure(caption: str, charts: Sequence[Chart]) -> list[Block]:
        drawn = [chart for chart in charts if chart.lines]
        return [Figure(caption, drawn, legend)] if drawn else []

    def lines(points: Callable[[TrainingRun], tuple[Sequence[float], Sequence[float]]], chosen: Any) -> list[Line]:
        found = [(run, *points(run)) for run in chosen]
        return [Line(run.name, x, y, colours[run.group_name], outcome(run).best_step) for run, x, y in found if len(x)]

    devs = list(dict.fromkeys((run.metric, run.dev) for run in runs if run.scores()))
    dev_charts = [
        Chart(
            f"{metric} × 100 on {dev}",
            "step",
            lines(_scores, [run for run in runs if (run.metric, run.dev) == (metric, dev)]),
        )
        for metric, dev in devs
    ]
    methods = list(dict.fromkeys(_method(run) for run in runs))
    size = max((downsample(*_losses(run))[2] for run in runs), default=1)
    loss_charts = [
        _loss_chart(method, lines(_downsampled_losses, [run for run in runs if _method(run) == method]))
        for method in methods
    ]
    measures = dict.fromkeys([*_MEASURES, *(key for run in runs for line in run.evaluations for key in line.measures)])
    geometry = [
        Chart(_MEASURES.get(name, name.replace("_", " ")), "step", lines(_measure(name), runs)) for name in measures
    ]
    averaged = f" A point is the mean of up to {size} steps." if size > 1 else ""
    return [
        _table(runs, group_names),
        *figure("Dev scores by step; a ring marks the best step.", dev_charts),
        *figure(f"Training loss. Losses of different methods are not comparable.{averaged}", loss_charts),
        *figure("Geometry of the embeddings of the dev sentences, by step.", geometry),
    ]


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


def _scores(run: TrainingRun) -> tuple[list[float], list[float]]:
    points = run.scores()
    return [step for step, _ in points], [score for _, score in points]


def _losses(run: TrainingRun) -> tuple[list[float], list[float]]:
    return [line.step for line in run.steps], [line.loss for line in run.steps]


def _loss_chart(method: str, lines: Sequence[Line]) -> Chart:
    """Logarithmic where the first losses are much larger than the others."""
    lines = [line._replace(best=None) for line in lines]
    losses = [loss for line in lines for loss in line.y]
    steep = bool(losses) and min(losses) > 0 and max(losses) > 20 * median(losses)
    title = f"Loss of {method}{', logarithmic' if steep else ''}"
    return Chart(title, "step", lines, logarithmic="y" if steep else "neither")


def _downsampled_losses(run: TrainingRun) -> tuple[list[float], list[float]]:
    x, y, _ = downsample(*_losses(run))
    return x, y


def _measure(name: str) -> Callable[[TrainingRun], tuple[list[float], list[float]]]:
    def points(run: TrainingRun) -> tuple[list[float], list[float]]:
        kept = [line for line in run.evaluations if isinstance(line.measures.get(name), int | float)]
        return [line.step for line in kept], [line.measures[name] for line in kept]

    return points
