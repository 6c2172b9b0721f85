"""Drawing of a study's plots: figures without pyplot, saved as PNG and SVG with the same bytes for the same numbers."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from nearfar.disk import write_bytes
from nearfar.evaluation.render import one_line

# Okabe & Ito 2008: distinct for people with any common colour vision deficiency. Its yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_WIDTH, _HEIGHT = 7.0, 4.4
_LABEL_GAP = 0.055
"""Smallest distance of two labels, as a share of a figure of the usual height."""

_LABEL_WIDTH = 34
_DODGE = 0.006
"""Distance of the intervals of two lines at the same x, as a share of the range of x."""


@dataclass(frozen=True)
class Series:
    """One line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    reference: bool = False
    """A number of the paper: a dashed line with hollow markers, in the colour of ``partner``."""
    partner: str = ""
    constant: bool = False
    """A value without an x: a horizontal line."""


def line_plot(
    series: Sequence[Series],
    *,
    title: str,
    labels: tuple[str, str],
    ticks: Sequence[tuple[float, str]] = (),
    log: tuple[bool, bool] = (False, False),
    band: bool = False,
) -> Any:
    """Lines with intervals and their names at the right; ``log`` are logarithmic axes, ``ticks`` named x values."""
    height = max(_HEIGHT, 1.0 + _LABEL_GAP * _HEIGHT * _lines(series))
    figure = _figure(_WIDTH, height)
    axes = figure.subplots()
    names = [one.name for one in series if not one.reference]
    ends: list[tuple[float, str, str]] = []
    dodge = 0.0 if log[0] or band else _DODGE * _range([x for one in series for x in one.x])
    for one in series:
        place = names.index(one.partner if one.reference else one.name)
        colour, marker = COLOURS[place % len(COLOURS)], _MARKERS[place % len(_MARKERS)]
        name = f"{one.partner}, paper" if one.reference else one.name
        if one.constant:
            axes.axhline(one.y[0], color=colour, linestyle=":" if one.reference else "-.", linewidth=1.2)
        elif one.reference:
            axes.plot(one.x, one.y, color=colour, marker=marker, linestyle="--", linewidth=1.2, markerfacecolor="white")
        else:
            marked = marker if len(one.x) <= 20 else None
            axes.plot(one.x, one.y, color=colour, marker=marked, linewidth=1.8)
            _draw_intervals(axes, one, colour, band=band, shift=dodge * (place - (len(names) - 1) / 2))
        ends.append((one.y[-1], name, colour))
    axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
    axes.set_title(wrapped(title, 70), fontsize=10)
    if log[0]:
        axes.set_xscale("log")
    if log[1]:
        axes.set_yscale("log")
    if ticks:
        axes.set_xticks([x for x, _ in ticks], [plain(label) for _, label in ticks])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _label_ends(axes, ends, _LABEL_GAP * _HEIGHT / height)
    return figure


def _range(numbers: Sequence[float]) -> float:
    return max(numbers) - min(numbers) if numbers else 0.0


def _draw_intervals(axes: Any, one: Series, colour: str, *, band: bool, shift: float) -> None:
    known = [
        (x, y, low, high)
        for x, y, low, high in zip(one.x, one.y, one.low, one.high, strict=False)
        if low is not None and high is not None
    ]
    if not known:
        return
    x, y, low, high = (np.array(column, dtype=np.float64) for column in zip(*known, strict=True))
    if band:
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    else:
        axes.errorbar(x + shift, y, yerr=[y - low, high - y], color=colour, fmt="none", capsize=3, linewidth=1)


def _lines(series: Sequence[Series]) -> float:
    """Space for the names of all lines, in lines of text."""
    return len(series) * (1.6 if any("\n" in wrapped(one.name, _LABEL_WIDTH) for one in series) else 1)


def _label_ends(axes: Any, ends: Sequence[tuple[float, str, str]], gap: float) -> None:
    """Names at the right of the axes, each at the height of its last point or as near as there is space."""
    to_share = axes.transLimits.transform
    shares = [float(to_share(axes.transScale.transform((axes.get_xlim()[0], value)))[1]) for value, _, _ in ends]
    order = sorted(range(len(ends)), key=lambda place: shares[place])
    wraps = any("\n" in wrapped(name, _LABEL_WIDTH) for _, name, _ in ends)
    gap *= 1.6 if wraps else 1
    heights = spread([shares[place] for place in order], gap)
    last = len(heights) - 1
    heights = [min(max(height, number * gap), 1 - (last - number) * gap) for number, height in enumerate(heights)]
    for place, height in zip(order, heights, strict=True):
        _, name, colour = ends[place]
        axes.text(
            1.015,
            height,
            wrapped(name, _LABEL_WIDTH),
            color=colour,
            transform=axes.transAxes,
            va="center",
            ha="left",
            fontsize=8,
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved apart to at least ``gap``, as little as possible, around their own centres."""
    clusters: list[tuple[float, int]] = []  # sum of the wished places of the first member, and number of members
    for place in places:
        clusters.append((place, 1))
        while len(clusters) > 1:
            (first, many), (second, more) = clusters[-2:]
            if first / many + many * gap <= second / more:
                break
            clusters[-2:] = [(first + second - more * many * gap, many + more)]
    return [total / count + number * gap for total, count in clusters for number in range(count)]


def heat_map(
    values: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    title: str,
    legend: str,
    digits: int = 2,
    limits: tuple[float, float] | None = None,
) -> Any:
    """A matrix in colours that are distinct in grey too, its numbers in the cells; the first row is at the bottom.

    ``limits`` are the values at the ends of the colour scale, for several maps to share.
    """
    grid = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=np.float64)
    known = grid[np.isfinite(grid)]
    low, high = limits or ((float(known.min()), float(known.max())) if known.size else (0.0, 1.0))
    figure = _figure(2.8 + 0.85 * len(columns), 1.7 + 0.42 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(
        grid, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high if high > low else low + 1
    )
    for (row, column), value in np.ndenumerate(grid):
        shown = math.isfinite(value)
        bright = shown and value > low + 0.6 * (high - low)
        text = f"{value:.{digits}f}" if shown else "none"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=8, color="black" if bright or not shown else "white"
        )
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
