"""A report in Markdown: the same tables, and only the captions of figures."""

from collections.abc import Iterator, Sequence

from nearfar.evaluation.render import code_block, markdown_text
from nearfar.evaluation.report.blocks import (
    Block,
    BulletList,
    Cell,
    Code,
    Details,
    Figure,
    Page,
    Paragraph,
    Section,
    Table,
)

_MARKS = {"": "", "best": " \\*", "near": " ="}


def to_markdown(page: Page) -> str:
    """The page in GitHub's Markdown; all text is escaped."""
    lines = [f"# {markdown_text(page.title)}"]
    for section in page.sections:
        lines += _block(section, 2)
    return "\n".join(lines) + "\n"


def _block(block: Block, level: int) -> Iterator[str]:
    yield ""
    match block:
        case Section():
            yield f"{'#' * min(level, 6)} {markdown_text(block.title)}"
            for inner in block.blocks:
                yield from _block(inner, level + 1)
        case Details():
            yield f"**{markdown_text(block.summary)}**"
            for inner in block.blocks:
                yield from _block(inner, level)
        case Table():
            yield from _table(block)
        case Figure():
            yield f"(Figure, see the HTML page: {markdown_text(block.caption)})"
        case Paragraph():
            yield markdown_text(block.text)
        case BulletList():
            yield from (f"- {markdown_text(item)}" for item in block.items)
        case Code():
            yield from code_block(block.text)


def _table(table: Table) -> Iterator[str]:
    yield markdown_text(table.caption)
    yield ""
    yield _row(table.header)
    yield "|" + "|".join([" --- ", *[" --- " if table.text_cells else " ---: "] * (len(table.header) - 1)]) + "|"
    yield from (_row(row) for row in table.rows)
    for note in table.notes:
        yield ""
        yield markdown_text(note)


def _row(cells: Sequence[Cell | str]) -> str:
    return "| " + " | ".join(_cell(Cell(cell) if isinstance(cell, str) else cell) for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    if cell.mark == "best":
        text = f"**{text}**"
    return text + _MARKS[cell.mark] + (f" {markdown_text(cell.detail)}" if cell.detail else "")
