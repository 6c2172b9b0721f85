"""What a report is made of, before it is HTML or Markdown. All text is plain; who renders it escapes it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

DASH = "–"
"""What stands where there is nothing to show."""


class Cell(NamedTuple):
    """One place of a table."""

    text: str
    detail: str = ""
    """In smaller letters after it: an interval or a standard deviation."""
    mark: Literal["", "best", "near"] = ""
    """The best of its column, or not separable from it."""
    shade: float | None = None
    """How strongly it is coloured, from 0 to 1."""


class Table(NamedTuple):
    """The first cell of each row is the row's header."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()
    text_cells: bool = False
    """The cells hold words, which stand at the left."""


class Line(NamedTuple):
    """A line of a chart; points that are not finite are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    """Lines of one colour belong together."""
    best: float | None = None
    """The x of the point to be marked."""


class Chart(NamedTuple):
    """Lines over one pair of axes; the title says what the heights are."""

    title: str
    x_label: str
    lines: Sequence[Line]
    logarithmic: Literal["neither", "y", "both"] = "neither"
    """Which axes are."""


class Figure(NamedTuple):
    """Charts side by side that share a legend: names by colour."""

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
    """Text to be shown as it is."""

    text: str


class Details(NamedTuple):
    """What is shown when it is opened."""

    summary: str
    blocks: "Sequence[Block]"


class Section(NamedTuple):
    """A heading and what is below it."""

    title: str
    blocks: "Sequence[Block]"


class Page(NamedTuple):
    """A whole report."""

    title: str
    sections: Sequence[Section]


Block: TypeAlias = Table | Figure | Paragraph | BulletList | Code | Details | Section
