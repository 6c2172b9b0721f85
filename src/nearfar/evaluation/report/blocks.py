"""The blocks of a report, and the page that they make in HTML and in Markdown.

All text is plain; the renderers escape it. The HTML file is self-contained: it loads nothing and runs nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple, TypeAlias

from markupsafe import Markup

from nearfar.evaluation.render import Cell, Table, code_block, markdown_text, template
from nearfar.evaluation.render import to_html as table_html
from nearfar.evaluation.render import to_markdown as table_markdown
from nearfar.evaluation.report.charts import Chart, data_address, describe, line_of

DASH = "–"
"""The text of a cell without a value."""
GENERATOR = '<meta name="generator" content="nearfar">'
"""Marks a page as a report, which a new report may replace."""


class Figure(NamedTuple):
    """Charts side by side that share a legend of names and numbers of lines."""

    caption: str
    charts: Sequence[Chart]
    legend: Sequence[tuple[str, int]]


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class BulletList(NamedTuple):
    """A list with bullets."""

    items_shown: Sequence[str]


class Code(NamedTuple):
    """Preformatted text."""

    text: str


class Details(NamedTuple):
    """Blocks that are hidden until the reader opens them."""

    title: str
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


def words_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], *notes: str) -> Table:
    """A table whose cells hold words and are aligned left."""
    return Table(title=title, columns=columns, rows=rows, notes=notes, left=len(columns))


def to_html(page: Page) -> str:
    """The page as one HTML document."""
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


def to_markdown(page: Page) -> str:
    """The page in GitHub's Markdown: the same tables, and only the captions of figures."""
    parts = [f"# {markdown_text(page.title)}"]
    for section in page.sections:
        parts += _markdown(section, 2)
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block, level: int) -> Iterator[str]:
    match block:
        case Section():
            yield f"{'#' * min(level, 6)} {markdown_text(block.title)}"
        case Details():
            yield f"**{markdown_text(block.title)}**"
        case Table():
            yield table_markdown(block)
        case Figure():
            yield f"(Figure, see the HTML page: {markdown_text(block.caption)})"
        case Paragraph():
            yield markdown_text(block.text)
        case BulletList():
            yield "\n".join(f"- {markdown_text(item)}" for item in block.items_shown)
        case Code():
            yield "\n".join(code_block(block.text))
    if isinstance(block, Section | Details):
        for inner in block.blocks:
            yield from _markdown(inner, level + isinstance(block, Section))
