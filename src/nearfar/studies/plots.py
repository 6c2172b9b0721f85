"""The plots of a study, from its record alone: heat maps, lines over an axis, spectra, layers, curves of training.

Figures are made without pyplot, and saved as PNG and SVG with the same bytes for the same numbers.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from nearfar.disk import write_bytes
from nearfar.evaluation.plots import connected_pairs, labelled_texts
from nearfar.evaluation.render import one_line
from nearfar.evaluation.results import StudyGroup
from nearfar.studies.layout import Layout, digits_of, our_number
from nearfar.studies.spec import AVERAGE, Axis, Plot
from nearfar.types import NearfarError

# Okabe & Ito 2008: distinct for people with any common colour vision deficiency. Its yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_POOLINGS = {"cls": "CLS", "mean_without_cls": "mean, no CLS"}
_WIDE_RANGE = 20
"""The ratio of the largest to the smallest x from which the axis is logarithmic."""
_MAX_MARKED = 20
"""Number of points up to which each has a marker."""
_DODGE = 0.006
"""Distance of the intervals of two lines at the same x, as a share of the range of x."""


class Series(NamedTuple):
    """One line of a plot, and beside it the paper's numbers, dashed with hollow markers."""

    name: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    """x, y, and the ends of an interval."""
    paper: Sequence[tuple[float, float]] = ()
    is_constant: bool = False
    """Whether it is a value without an x, which is a horizontal line."""


def study_plots(layout: Layout) -> dict[str, Any]:
    """Name of a file, without ending -> figure, for the plots that the study file asks for.

    Without any, lines over each axis that is an x axis, and spectra. Plots without numbers are left out.

    Raises:
        NearfarError: an unknown axis, column or curve of a plot.
    """
    table, plots = layout.table, layout.study.plots
    if plots is None:
        wishes = [Plot("lines", x=axis.name) for axis in layout.study.axes if axis.use == "x"]
        plots = [*wishes, *[Plot("spectrum")] * any(group.spectrum for group in table.groups)]
    figures: dict[str, Any] = {}
    for plot in plots:
        for name, figure in _DRAWN[plot.kind](layout, plot):
            taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in figures)
            figures[f"{name}-{taken + 1}" if taken else name] = figure
    return figures


_Figures = Iterator[tuple[str, Any]]


def _axis(layout: Layout, name: str | None, key: str) -> Axis:
    known = {axis.name: axis for axis in layout.study.axes}
    if name not in known:
        raise NearfarError(
            f"plot: {key} = {name!r} is not an axis of the study; there are: {', '.join(known) or 'none'}."
        )
    return known[name]


def _column(layout: Layout, plot: Plot) -> str:
    columns = layout.table.columns
    value = plot.value or (AVERAGE if AVERAGE in columns else columns[-1])
    if value not in columns:
        raise NearfarError(f"plot: value = {value!r} is not a column of the study; there are {', '.join(columns)}.")
    return value


def _groups(layout: Layout, row: str | None = None) -> list[StudyGroup]:
    """The groups of a row or of all, without averages over axes."""
    groups = [group for group in layout.table.groups if AVERAGE not in group.coordinates.values()]
    return [group for group in groups if row is None or group.row == row]


def _without(coordinates: Mapping[str, str], *axes: str) -> dict[str, str]:
    return {name: label for name, label in coordinates.items() if name not in axes}


def _heat_maps(layout: Layout, plot: Plot) -> _Figures:
    """One picture for each row, and for each label of the other axes."""
    across, up, column = _axis(layout, plot.x, "x"), _axis(layout, plot.y, "y"), _column(layout, plot)
    both = {across.name, up.name}
    parts: dict[tuple[Any, ...], dict[tuple[str, str], float | None]] = {}
    beside = []
    for group in _groups(layout):
        score = group.scores[column]
        if both <= group.coordinates.keys() and plot.row in (None, group.row):
            part = parts.setdefault((group.row, *_without(group.coordinates, *both).items()), {})
            part[group.coordinates[up.name], group.coordinates[across.name]] = score.mean
        if not both & group.coordinates.keys() and score.mean is not None:
            beside.append(f"{layout.name(group.row, group.coordinates)}: {our_number(score, column)}")
    limits = _limits([value for part in parts.values() for value in part.values()])
    for (row, *others), part in parts.items():
        rows, columns = (
            [label for label in axis.labels if any(place[end] == label for place in part)]
            for end, axis in enumerate((up, across))
        )
        if any(value is not None for value in part.values()):
            figure = heat_map(
                [[part.get((high, wide)) for wide in columns] for high in rows],
                rows=rows,
                columns=columns,
                labels=(across.name, up.name),
                title="; ".join([plot.title or layout.name(row, dict(others)), *beside]),
                legend=layout.heading(column),
                digits=digits_of(column),
                limits=limits,
            )
            yield _slug("heat-map", column, row, *dict(others).values()), figure


def _lines(layout: Layout, plot: Plot) -> _Figures:
    axis, column = _axis(layout, plot.x, "x"), _column(layout, plot)
    places = axis.places
    parts: dict[str, list[StudyGroup]] = {}
    for group in _groups(layout, plot.row):
        parts.setdefault(layout.name(group.row, _without(group.coordinates, axis.name)), []).append(group)
    series = []
    for name, groups in parts.items():
        scores = [(places.get(group.coordinates.get(axis.name, ""), 0.0), group.scores[column]) for group in groups]
        scores.sort(key=lambda point: point[0])
        points = [(x, score.mean, score.low, score.high) for x, score in scores if score.mean is not None]
        paper = [(x, score.paper) for x, score in scores if score.paper is not None]
        if points:
            series.append(Series(name, points, paper, any(axis.name not in group.coordinates for group in groups)))
    if not series:
        return
    drawn = [one for one in series if not one.is_constant]
    used = [x for one in drawn for x, *_ in one.points] + [x for one in drawn for x, _ in one.paper]
    figure = line_plot(
        series,
        title=plot.title or layout.table.title,
        labels=(axis.name, f"{layout.heading(column)}, 95% interval"),
        ticks=[(x, label) for label, x in places.items() if x in used],
        log=(bool(used) and min(used) > 0 and max(used) / min(used) > _WIDE_RANGE, False),
    )
    yield _slug("lines", axis.name, column), figure


def _spectrum(layout: Layout, plot: Plot) -> _Figures:
    # LayerNorm removes one direction; its value is rounding error and would stretch the axis.
    series = [
        Series(layout.name(one.row, one.coordinates), [(x, y, None, None) for x, y in one.spectrum if y > 1e-6])
        for one in _groups(layout, plot.row)
        if one.spectrum
    ]
    if series:
        labels = ("singular value, from the largest", "size, relative to the largest")
        title = plot.title or "Singular spectrum of the embeddings"
        yield "spectrum", line_plot(series, title=title, labels=labels, log=(True, True))


def _positions(layout: Layout, plot: Plot) -> _Figures:
    """A panel for each line of the table: its pairs of texts, or its labelled texts, by t-SNE."""
    shown = {
        layout.name(group.row, group.coordinates): group.projection
        for group in _groups(layout, plot.row)
        if (one := group.projection) is not None and (one.labelled if plot.kind == "labels" else one.similar)
    }
    panels = {name: one for name, one in shown.items() if one is not None}
    if panels:
        figure = labelled_texts(panels) if plot.kind == "labels" else connected_pairs(panels)
        if plot.title:
            figure.suptitle(wrapped(plot.title, 70), fontsize=10)
        yield plot.kind, figure


def _layers(layout: Layout, plot: Plot) -> _Figures:
    groups = {_slug("layers", one.row, *one.coordinates.values()): one for one in _groups(layout, plot.row)}
    limits = _limits([score for one in groups.values() for scores in (one.layers or {}).values() for score in scores])
    for name, group in groups.items():
        layers = group.layers or {}
        depth = max(map(len, layers.values()), default=0)
        if depth:
            figure = heat_map(
                [[scores[at] if at < len(scores) else None for scores in layers.values()] for at in range(depth)],
                rows=["0 (embeddings)", *map(str, range(1, depth))],
                columns=[_POOLINGS.get(pooling, pooling) for pooling in layers],
                labels=("pooling", "layer"),
                title=plot.title or layout.name(group.row, group.coordinates),
                legend="Spearman x 100",
                digits=1,
                limits=limits,
            )
            yield name, figure


def _curves(layout: Layout, plot: Plot) -> _Figures:
    """A measure over training: mean and, over several runs, one standard deviation around it."""
    name = str(plot.y)
    groups = [group for group in _groups(layout, plot.row) if name in group.curves]
    if not groups:
        known = sorted({name for group in layout.table.groups for name in group.curves})
        if known or not layout.table.missing:
            raise NearfarError(
                f"plot: y = {name!r} is not a curve of the runs; there are: {', '.join(known) or 'none'}."
            )
        return
    series = []
    for group in groups:
        curve = group.curves[name]
        spread = [sd or 0.0 for sd in curve.sd] if any(curve.sd) else [None] * len(curve.steps)
        points = [
            (step, mean, None if sd is None else mean - sd, None if sd is None else mean + sd)
            for step, mean, sd in zip(curve.steps, curve.mean, spread, strict=True)
        ]
        series.append(Series(layout.name(group.row, group.coordinates), points))
    title = plot.title or f"{name.capitalize()} over training"
    yield _slug("curves", name), line_plot(series, title=title, labels=("step", name), band=True)


_DRAWN = {
    "heat map": _heat_maps,
    "lines": _lines,
    "spectrum": _spectrum,
    "layers": _layers,
    "curves": _curves,
    "pairs": _positions,
    "labels": _positions,
}


def _limits(values: Sequence[float | None]) -> tuple[float, float]:
    """The smallest and the largest value, for several maps to share as the ends of their colour scales."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else (0.0, 1.0)


def _slug(*parts: str) -> str:
    """Part of a file name."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9.+]+", "-", part.lower()).strip("-.") for part in parts)))


def line_plot(
    series: Sequence[Series],
    *,
    title: str,
    labels: tuple[str, str],
    ticks: Sequence[tuple[float, str]] = (),
    log: tuple[bool, bool] = (False, False),
    band: bool = False,
) -> Any:
    """Lines with intervals and a legend at the right; ``log`` are logarithmic axes, ``ticks`` named x values."""
    names = [wrapped(name, 34) for one in series for name in (one.name, *([f"{one.name}, paper"] * bool(one.paper)))]
    figure = _figure(8.5, max(4.4, 0.6 + sum(0.06 + 0.15 * len(name.splitlines()) for name in names)))
    axes = figure.subplots()
    width = np.ptp([point[0] for one in series if not one.is_constant for point in one.points] or [0.0])
    for place, one in enumerate(series):
        colour, marker = COLOURS[place % len(COLOURS)], _MARKERS[place % len(_MARKERS)]
        name, of_paper = wrapped(one.name, 34), wrapped(f"{one.name}, paper", 34)
        x, y, *_ = zip(*one.points, strict=True)
        if one.is_constant:
            axes.axhline(y[0], color=colour, linestyle="-.", linewidth=1.2, label=name)
            if one.paper:
                axes.axhline(one.paper[0][1], color=colour, linestyle=":", label=of_paper)
            continue
        axes.plot(x, y, color=colour, marker=marker if len(x) <= _MAX_MARKED else None, linewidth=1.8, label=name)
        known = [point for point in one.points if point[2] is not None and point[3] is not None]
        if known:
            at, middle, low, high = np.array(known, dtype=np.float64).T
            if band:
                axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            else:
                at = at + (0.0 if log[0] else _DODGE * width * (place - (len(series) - 1) / 2))
                ends = [middle - low, high - middle]
                axes.errorbar(at, middle, yerr=ends, color=colour, fmt="none", capsize=3, linewidth=1)
        if one.paper:
            style = {"marker": marker, "linestyle": "--", "markerfacecolor": "white", "linewidth": 1.2}
            axes.plot(*zip(*one.paper, strict=True), color=colour, label=of_paper, **style)
    axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
    axes.set_title(wrapped(title, 70), fontsize=10)
    for scale, is_log in zip((axes.set_xscale, axes.set_yscale), log, strict=True):
        if is_log:
            scale("log")
    if ticks:
        axes.set_xticks([x for x, _ in ticks], [plain(label) for _, label in ticks])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


def heat_map(
    values: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    title: str,
    legend: str,
    digits: int,
    limits: tuple[float, float],
) -> Any:
    """A matrix in colours that are distinct in grey too, its numbers in the cells; the first row is at the bottom."""
    grid = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=np.float64)
    low, high = limits
    figure = _figure(2.8 + 0.85 * len(columns), 1.7 + 0.42 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(
        grid, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high if high > low else low + 1
    )
    for (row, column), value in np.ndenumerate(grid):
        shown = np.isfinite(value)
        dark = shown and value <= low + 0.6 * (high - low)
        text = f"{value:.{digits}f}" if shown else "none"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), [*map(plain, columns)])
    axes.set_yticks(range(len(rows)), [*map(plain, rows)])
    axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
    axes.set_title(wrapped(title, 16 + 11 * len(columns)), fontsize=10)
    figure.colorbar(image, ax=axes, label=plain(legend))
    return figure


def wrapped(text: str, width: int) -> str:
    """Text in lines of at most ``width`` characters; dollar signs are no formulas."""
    return "\n".join(map(plain, wrap(text, width))) or plain(text)


def plain(text: str) -> str:
    """One line of text as Matplotlib shows it: dollar signs are no formulas, and no control characters."""
    return one_line(text).replace("$", r"\$")


def save(figure: Any, file: Path) -> None:
    """Write FILE.png and FILE.svg, without date and with fixed identifiers.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "nearfar", "svg.fonttype": "none"}):
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            content = io.BytesIO()
            figure.savefig(content, format=ending, dpi=120, metadata=metadata)
            write_bytes(file.with_name(f"{file.name}.{ending}"), content.getvalue())


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
