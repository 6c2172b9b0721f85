"""Line charts as small SVG drawings that take their colours from the page, also in dark mode.

They are 360 units wide, the width of a phone, so labels stay readable there; wider pages show several side by side.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from nearfar.evaluation.report.blocks import Chart, Line
from nearfar.evaluation.report.style import COLOURS

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 26, 36
MAX_DOTTED_POINTS = 40
"""Lines with no more points than this show them."""
MAX_DESCRIBED_LINES = 16
"""Number of lines that the text alternative for screen readers describes."""


class _Axis(NamedTuple):
    ticks: list[float]
    position: Callable[[float], float]


def svg(chart: Chart) -> str:
    """One chart; without a finite point it says so."""
    x_log, y_log = chart.logarithmic == "both", chart.logarithmic != "neither"
    lines = [kept for line in chart.lines if (kept := _drawable(line, x_log, y_log)).x]
    parts = [f'<text class="title" x="2" y="14">{escape(chart.title)}</text>']
    if not lines:
        parts.append(f'<text x="{LEFT}" y="{HEIGHT / 2:.0f}">no data</text>')
    else:
        x_axis = _axis([x for line in lines for x in line.x], LEFT, WIDTH - RIGHT, logarithmic=x_log, tight=True)
        y_axis = _axis([y for line in lines for y in line.y], HEIGHT - BOTTOM, TOP, logarithmic=y_log)
        parts += [
            *_grid(x_axis, y_axis, chart.x_label),
            *(part for line in lines for part in _line(line, x_axis, y_axis)),
        ]
    words = escape(
        "; ".join([f"{chart.title}, by {chart.x_label}", *map(_describe_line, lines[:MAX_DESCRIBED_LINES])]), quote=True
    )
    return f'<svg role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {HEIGHT}">\n' + "\n".join(parts) + "\n</svg>"


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """Names with their lines, as an HTML list."""
    items = (
        f'<li><svg viewBox="0 0 32 8" aria-hidden="true"><path class="{_style(colour)}" d="M0 4H32"/></svg>'
        f"{escape(name)}</li>"
        for name, colour in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def downsample(x: Sequence[float], y: Sequence[float], *, points: int = 120) -> tuple[list[float], list[float], int]:
    """At most ``points`` points, each the mean of a chunk of successive ones, and the size of the chunks."""
    size = max(1, math.ceil(len(x) / points))
    cuts = range(0, len(x), size)
    means = ([sum(values[cut : cut + size]) / len(values[cut : cut + size]) for cut in cuts] for values in (x, y))
    return next(means), next(means), size


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart), from at or below ``low`` to at or above ``high``."""
    if high <= low:
        low, high = low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 times them where there are few."""
    least, most = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    factors = (1, 2, 5) if most - least <= 2 else (1,)
    marks = [factor * 10.0**power for power in range(least, most + 2) for factor in factors]
    first = max(position for position, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    last = min(position for position, mark in enumerate(marks) if mark >= high * (1 - 1e-9))
    return marks[first : max(last, first + 1) + 1]


def _axis(values: Sequence[float], start: float, end: float, *, logarithmic: bool, tight: bool = False) -> _Axis:
    """An axis from tick to tick; a ``tight`` one ends at the smallest and largest value."""
    low, high = min(values), max(values)
    marks = _powers(low, high) if logarithmic else ticks(low, high)
    if tight and high > low:
        marks = [mark for mark in marks if low <= mark <= high] or [low, high]
    else:
        low, high = marks[0], marks[-1]
    scale: Callable[[float], float] = math.log10 if logarithmic else float
    return _Axis(marks, lambda value: start + (end - start) * (scale(value) - scale(low)) / (scale(high) - scale(low)))


def _grid(x_axis: _Axis, y_axis: _Axis, label: str) -> list[str]:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = "".join(f"M{LEFT} {y_axis.position(tick):.1f}H{right}" for tick in y_axis.ticks)
    lines += "".join(f"M{x_axis.position(tick):.1f} {TOP}V{floor}" for tick in x_axis.ticks)
    heights = [
        f'<text x="{LEFT - 4}" y="{y_axis.position(tick) + 3.5:.1f}" text-anchor="end">{_short(tick)}</text>'
        for tick in y_axis.ticks
    ]
    steps = [
        f'<text x="{position:.1f}" y="{floor + 14}" text-anchor="{"end" if position > right - 12 else "middle"}">'
        f"{_short(tick)}</text>"
        for tick, position in ((tick, x_axis.position(tick)) for tick in x_axis.ticks)
    ]
    name = f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(label)}</text>'
    return [f'<path class="grid" d="{lines}"/>', *heights, *steps, name]


def _line(line: Line, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    points = [(x_axis.position(x), y_axis.position(y)) for x, y in zip(line.x, line.y, strict=True)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    parts = [f'<path class="{_style(line.colour)}" d="M{path}"/>']
    colour = f"c{line.colour % len(COLOURS)}"
    if len(points) <= MAX_DOTTED_POINTS:
        parts += [f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in points]
    best = [point for point, x in zip(points, line.x, strict=True) if x == line.best]
    return parts + [f'<circle class="ring {colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in best]


def _style(colour: int) -> str:
    dash = (colour // len(COLOURS)) % 3
    return f"line c{colour % len(COLOURS)}" + (f" dash{dash}" if dash else "")


def _drawable(line: Line, x_log: bool, y_log: bool) -> Line:
    """The line without points that are not finite, or not positive on a logarithmic axis."""
    kept = [
        (x, y)
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not x_log) and (y > 0 or not y_log)
    ]
    return line._replace(x=[x for x, _ in kept], y=[y for _, y in kept])


def _describe_line(line: Line) -> str:
    first, last = (f"{_short(line.y[end], 4)} at {_short(line.x[end])}" for end in (0, -1))
    return f"{line.name}: from {first} to {last}, lowest {_short(min(line.y), 4)}, highest {_short(max(line.y), 4)}"


def _short(value: float, digits: int = 4) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:.{digits}g}k"
    return f"{0.0 if abs(value) < 1e-12 else value:.{digits}g}"
