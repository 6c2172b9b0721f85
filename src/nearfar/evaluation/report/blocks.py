"""The blocks of a report, charts among them, and the page that they make in HTML and in Markdown.

All text is plain; the renderers escape it. The HTML file is self-contained: it loads nothing and runs nothing. Charts
are SVG images by matplotlib, shown on any background, also in dark mode. They are small, so that labels stay readable
on a phone; wider pages show several side by side. Each image is an address of its own, so that nothing in it can reach
the page; it has some 10 kB, because long lines are thinned.
"""

import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from markupsafe import Markup

from nearfar.evaluation.plots import file_content, new_figure
from nearfar.evaluation.render import Table, fill_template, one_line, template
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


class Line(NamedTuple):
    """A line of a chart; points that are not finite, or on logarithmic axes not positive, are not drawn."""

    name: str
    x: Sequence[float | None]
    y: Sequence[float]
    number: int
    """Gives the colour and the style; lines of one group share it."""
    best: float | None = None
    """The x of the point to mark."""
    spans: Sequence[tuple[float, float] | None] = ()
    """The ends, in x, of a line through each point."""


class Chart(NamedTuple):
    """Lines over one pair of axes; the title names the y values.

    With ``labels``, lines are dots beside them: y is the number of the label, from the top.
    """

    title: str
    x_label: str
    lines: Sequence[Line]
    logarithmic: bool = False
    """Whether both axes are."""
    labels: Sequence[str] = ()


class Figure(NamedTuple):
    """Charts side by side that share a legend of lines, by default those of the first."""

    caption: str
    charts: Sequence[Chart]
    legend: Sequence[Line] = ()


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
        kind_of=_kind_of,
        table=lambda table: table_html(table, name=f"table-{next(numbers)}"),
        image=data_address,
        describe=describe,
        line_of=line_of,
    )
    return document.lstrip() + "\n"


def to_markdown(page: Section) -> str:
    """The page in GitHub's Markdown: the same tables, and only the captions of figures."""
    return fill_template(Path(__file__).with_name("page.md"), page=page, kind_of=_kind_of, table=table_markdown)


def _kind_of(block: Block) -> str:
    return type(block).__name__


def line_of(number: int) -> tuple[str, str]:
    """The colour and the style of a line by its number."""
    return (COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)])


def svg(chart: Chart) -> str:
    """One chart, always in the same bytes."""
    from matplotlib import rc_context

    height = 0.8 + len(chart.labels) * (0.1 + 0.15 * len(chart.lines)) if chart.labels else 3
    fonts: Any = {"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8}
    with rc_context(fonts), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that its font lacks; the browser has them
        figure = new_figure(4.5, height)
        title = "\n".join(wrap(one_line(chart.title), 56))
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold", parse_math=False)
        _draw(figure.subplots(), chart)
        return file_content(figure, "svg", transparent=True).decode()


def _draw(axes: Any, chart: Chart) -> None:
    if chart.logarithmic:
        axes.loglog(nonpositive="mask")
    for place, line in enumerate(chart.lines):
        colour, style = line_of(line.number)
        shift = 0.8 * ((place + 0.5) / len(chart.lines) - 0.5) if chart.labels else 0.0
        y = [at + shift for at in line.y]
        look = {"color": colour, "linewidth": 1.4, "linestyle": "none" if chart.labels else style}
        axes.plot(line.x, y, marker="." if len(y) <= MAX_DOTTED_POINTS else "", **look)
        if line.best is not None and line.best in line.x:
            axes.plot(line.best, y[line.x.index(line.best)], color=colour, marker="o", markersize=8, fillstyle="none")
        for at, span in zip(y, line.spans, strict=False):
            axes.plot(span or (), [at] * len(span or ()), color=colour, linewidth=1.4)
    if chart.labels:
        names = ["\n".join(wrap(one_line(label), 24)) for label in chart.labels]
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.invert_yaxis()
    axes.set_xlabel(one_line(chart.x_label), parse_math=False)
    axes.grid(alpha=0.3)
    axes.tick_params(which="both", bottom=False, left=False)


def data_address(chart: Chart) -> str:
    """The chart as an address for an ``img`` element."""
    return "data:image/svg+xml," + quote(svg(chart).encode(errors="replace"), safe=" =/;,.-+)!*@?$_~")


def describe(chart: Chart) -> str:
    """The text alternative of a chart: its title and what it shows; the numbers are in the tables of the page."""
    names = ", ".join(dict.fromkeys([*chart.labels, *(line.name for line in chart.lines)]))
    return f"{chart.title}{f', by {chart.x_label}' if chart.x_label else ''}, of {names}"
