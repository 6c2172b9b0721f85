"""The blocks of a report before they are HTML or Markdown. All text is plain; the renderers escape it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

DASH = "–"
"""The text of a cell without a value."""


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    detail: str = ""
    """An interval or a standard deviation, in a smaller font after the text."""
    mark: Literal["", "best", "near"] = ""
    """``best``: the best of its column; ``near``: not significantly different from the best."""
    shade: float | None = None
    """Strength of the background colour, from 0 to 1."""


class Table(NamedTuple):
    """The first cell of each row is the row's header."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()
    text_cells: bool = False
    """The cells hold words and are aligned left."""


class Line(NamedTuple):
    """A line of a chart; points that are not finite are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    """Index of the colour; lines of one group share it."""
    best: float | None = None
    """The x of the point to mark."""


class Chart(NamedTuple):
    """Lines over one pair of axes; the title names the y values."""

    title: str
    x_label: str
    lines: Sequence[Line]
    logarithmic: Literal["neither", "y", "both"] = "neither"
    """Which axes are logarithmic."""


class Figure(NamedTuple):
    """Charts side by side that share a legend of names and colours."""

    caption: str
    charts: Sequence[Chart]
    legend: Sequence[tuple[str, int]]


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class BulletList(NamedTuple):
    """A list with bullets."""

    items: Sequence[str]


class Code(NamedTuple):
    """Preformatted text."""

    text: str


class Details(NamedTuple):
    """Blocks that are hidden until the reader opens them."""

    summary: str
    blocks: "Sequence[Block]"


class Section(NamedTuple):
    """A heading and the blocks below it."""

    title: str
    blocks: "Sequence[Block]"


class Page(NamedTuple):
    """A whole report."""

    title: str
    sections: Sequence[Section]


Block: TypeAlias = Table | Figure | Paragraph | BulletList | Code | Details | Section
