"""The blocks of a report, charts among them, and the page that they make in HTML and in Markdown.

All text is plain; the renderers escape it. The HTML file is self-contained: it loads nothing and runs nothing. Charts
are SVG images by matplotlib, shown on any background, also in dark mode. They are small, so that labels stay readable
on a phone; wider pages show several side by side. Each image is an address of its own, so that nothing in it can reach
the page; it has some 10 kB, because coordinates are rounded and long lines thinned.
"""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import count
from textwrap import wrap
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from nearfar.evaluation.plots import file_content, new_figure
from nearfar.evaluation.render import Table, code_block, markdown_text, one_line, template
from nearfar.evaluation.render import to_html as table_html
from nearfar.evaluation.render import to_markdown as table_markdown

DASH = "–"
"""The text of a cell without a value."""
GENERATOR = '<meta name="generator" content="nearfar">'
"""Marks a page as a report, which a new report may replace."""
COLOURS = ("#0b62a8", "#c2410c", "#117a4b", "#a21caf", "#8a6d00", "#0e7490", "#be123c", "#52525b")
"""Line colours; each has a contrast of at least 4.5 with white."""
STYLES = ("solid", "dashed", "dotted")
MAX_DOTTED_POINTS = 40
"""Lines with no more points than this show them."""
MAX_DESCRIBED_LINES = 16
"""Number of lines that the text alternative for screen readers describes."""


class Line(NamedTuple):
    """A line of a chart; points that are not finite are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    number: int
    """Gives the colour and the style; lines of one group share it."""
    best: float | None = None
    """The x of the point to mark."""


class Chart(NamedTuple):
    """Lines over one pair of axes; the title names the y values."""

    title: str
    x_label: str
    lines: Sequence[Line]
    logarithmic: Literal["neither", "y", "both"] = "neither"
    """Which axes are logarithmic."""


class Bar(NamedTuple):
    """The bars of one side or time: a value for each label, None where there is none."""

    name: str
    number: int
    """Gives the colour."""
    values: Sequence[float | None]
    spans: Sequence[tuple[float, float] | None]
    """The ends of the line on each bar."""


class Bars(NamedTuple):
    """Horizontal bars from 0 in groups, each with its value and a line for its uncertainty."""

    title: str
    labels: Sequence[str]
    """The names of the groups, from the top."""
    lines: Sequence[Bar]


class Figure(NamedTuple):
    """Charts side by side that share a legend of names and numbers of lines or bars, by default those of the first."""

    caption: str
    charts: Sequence[Chart | Bars]
    names: Sequence[tuple[str, int]] = ()

    @property
    def legend(self) -> Sequence[tuple[str, int]]:
        """The names and numbers."""
        return self.names or [(line.name, line.number) for line in self.charts[0].lines]


class Code(NamedTuple):
    """Preformatted text."""

    text: str


class Section(NamedTuple):
    """A heading and the blocks below it."""

    title: str
    blocks: "Sequence[Block]"
    folded: bool = False
    """Whether the blocks are hidden until the reader opens them."""


Block: TypeAlias = str | list[str] | Table | Figure | Code | Section
"""A text is a paragraph, and a list of texts one with bullets."""


def to_html(page: Section) -> str:
    """The page as one HTML document; its blocks are the sections of the report."""
    numbers = count(1)
    document = template("nearfar.evaluation.report", "page.html").render(
        page=page,
        generator=Markup(GENERATOR),
        kind_of=lambda block: type(block).__name__,
        table=lambda table: table_html(table, name=f"table-{next(numbers)}"),
        image=data_address,
        describe=describe,
        line_of=line_of,
    )
    return document.lstrip() + "\n"


def to_markdown(page: Section) -> str:
    """The page in GitHub's Markdown: the same tables, and only the captions of figures."""
    return "\n\n".join(_markdown(page, 1)) + "\n"


def _markdown(block: Block, level: int) -> Iterator[str]:
    match block:
        case Section():
            title = markdown_text(block.title)
            yield f"**{title}**" if block.folded else f"{'#' * min(level, 6)} {title}"
            for inner in block.blocks:
                yield from _markdown(inner, level + (not block.folded))
        case Table():
            yield table_markdown(block)
        case Figure():
            yield f"(Figure, see the HTML page: {markdown_text(block.caption)})"
        case Code():
            yield code_block(block.text)
        case str():
            yield markdown_text(block)
        case _:
            yield "\n".join(f"- {markdown_text(item)}" for item in block)


def line_of(number: int) -> tuple[str, str]:
    """The colour and the style of a line by its number."""
    return (COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)])


def svg(chart: Chart | Bars) -> str:
    """One chart, always in the same bytes; without a finite point it says so."""
    from matplotlib import rc_context

    groups = len(chart.labels) if isinstance(chart, Bars) else 0
    height = 0.7 + 0.2 * (groups * len(chart.lines)) + 0.1 * groups if isinstance(chart, Bars) else 3
    fonts: Any = {"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8}
    with rc_context(fonts), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that its font lacks; the browser has them
        figure = new_figure(4.5, height)
        axes = figure.subplots()
        title = "\n".join(wrap(one_line(chart.title), 56))
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold", parse_math=False)
        if not (_draw_bars(axes, chart) if isinstance(chart, Bars) else _draw_lines(axes, chart)):
            axes.text(0.5, 0.5, "no data", ha="center", transform=axes.transAxes)
        axes.grid(alpha=0.3, axis="x" if isinstance(chart, Bars) else "both")
        axes.tick_params(which="both", bottom=False, left=False)
        text = file_content(figure, "svg", transparent=True).decode()
    # Without what is not shown (metadata, comments, names of groups), and with rounded coordinates.
    text = re.sub(r'<metadata>.*?</metadata>|<!--.*?-->|<[?!][^>]*>|(?<=<g) id="\w*?_\d+"', "", text, flags=re.DOTALL)
    coordinate = re.compile(r"(\.\d\d)\d+")
    return re.sub(r"<[^>]*>", lambda tag: coordinate.sub(r"\1", tag[0]), " ".join(text.split()).replace("> <", "><"))


def _draw_lines(axes: Any, chart: Chart) -> bool:
    axes.set_xlabel(one_line(chart.x_label), parse_math=False)
    scales = {"neither": ("linear", "linear"), "y": ("linear", "log"), "both": ("log", "log")}[chart.logarithmic]
    axes.set(xscale=scales[0], yscale=scales[1])
    lines = _drawable_lines(chart)
    for line in lines:
        colour, style = line_of(line.number)
        marker = "." if len(line.x) <= MAX_DOTTED_POINTS else ""
        axes.plot(line.x, line.y, color=colour, linestyle=style, linewidth=1.4, marker=marker)
        if line.best is not None and line.best in line.x:
            y = line.y[list(line.x).index(line.best)]
            axes.plot(line.best, y, color=colour, marker="o", markersize=8, fillstyle="none")
    return bool(lines)


def _draw_bars(axes: Any, chart: Bars) -> bool:
    shown, width = False, 0.8 / max(len(chart.lines), 1)
    for position, bar in enumerate(chart.lines):
        for group, (value, span) in enumerate(zip(bar.values, bar.spans, strict=True)):
            if value is None or not math.isfinite(value):
                continue
            y = group + width * (position - (len(chart.lines) - 1) / 2)
            axes.barh(y, value, 0.9 * width, color=line_of(bar.number)[0], alpha=0.75)
            ends = [end for end in span or () if math.isfinite(end)]
            axes.plot(ends, [y] * len(ends), color="black", linewidth=1.2)
            at = max([value, 0.0, *ends]), y
            axes.annotate(f"{value:.2f}", at, (3, 0), textcoords="offset points", va="center")
            shown = True
    names = ["\n".join(wrap(one_line(label), 24)) for label in chart.labels]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    return shown


def data_address(chart: Chart | Bars) -> str:
    """The chart as an address for an ``img`` element."""
    return "data:image/svg+xml," + quote(svg(chart).encode(errors="replace"), safe=" =/;,.-+)!*@?$_~")


def describe(chart: Chart | Bars) -> str:
    """The text alternative of a chart."""
    if isinstance(chart, Chart):
        lines = _drawable_lines(chart)[:MAX_DESCRIBED_LINES]
        return "; ".join([f"{chart.title}, by {chart.x_label}", *map(_describe_line, lines)])
    parts = [chart.title]
    for bar in chart.lines:
        values = zip(chart.labels, bar.values, strict=True)
        words = ", ".join(f"{label} {value:.2f}" for label, value in values if value is not None)
        parts.append(f"{bar.name}: {words or 'no value'}")
    return "; ".join(parts)


def _drawable_lines(chart: Chart) -> list[Line]:
    """The lines without points that are not finite, or not positive on a logarithmic axis; none without a point."""
    x_log, y_log = chart.logarithmic == "both", chart.logarithmic != "neither"
    kept = []
    for line in chart.lines:
        x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
        drawn = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not x_log)) & ((y > 0) | (not y_log))
        kept.append(line._replace(x=x[drawn].tolist(), y=y[drawn].tolist()))
    return [line for line in kept if line.x]


def _describe_line(line: Line) -> str:
    first, last = (f"{_short(line.y[end])} at {_short(line.x[end])}" for end in (0, -1))
    return f"{line.name}: from {first} to {last}, lowest {_short(min(line.y))}, highest {_short(max(line.y))}"


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:.4g}k"
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"
