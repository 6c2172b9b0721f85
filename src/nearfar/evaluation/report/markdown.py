"""A report in Markdown: the same tables, and only the captions of figures."""

import re
from collections.abc import Iterator, Sequence

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
    lines = [f"# {_text(page.title)}"]
    for section in page.sections:
        lines += _block(section, 2)
    return "\n".join(lines) + "\n"


def _block(block: Block, level: int) -> Iterator[str]:
    yield ""
    match block:
        case Section():
            yield f"{'#' * min(level, 6)} {_text(block.title)}"
            for inner in block.blocks:
                yield from _block(inner, level + 1)
        case Details():
            yield f"**{_text(block.summary)}**"
            for inner in block.blocks:
                yield from _block(inner, level)
        case Table():
            yield from _table(block)
        case Figure():
            yield f"(Figure, see the HTML page: {_text(block.caption)})"
        case Paragraph():
            yield _text(block.text)
        case BulletList():
            yield from (f"- {_text(item)}" for item in block.items)
        case Code():
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
            yield from (fence, *block.text.splitlines(), fence)


def _table(table: Table) -> Iterator[str]:
    yield _text(table.caption)
    yield ""
    yield _row(table.header)
    yield "|" + "|".join([" --- ", *[" --- " if table.text_cells else " ---: "] * (len(table.header) - 1)]) + "|"
    yield from (_row(row) for row in table.rows)
    for note in table.notes:
        yield ""
        yield _text(note)


def _row(cells: Sequence[Cell | str]) -> str:
    return "| " + " | ".join(_cell(Cell(cell) if isinstance(cell, str) else cell) for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    text = _text(cell.text)
    if cell.mark == "best":
        text = f"**{text}**"
    return text + _MARKS[cell.mark] + (f" {_text(cell.detail)}" if cell.detail else "")


def _text(text: str) -> str:
    """One line, with everything escaped that Markdown or a browser would read as markup."""
    line = re.sub(r"([\\`*_|<>&~])", r"\\\1", " ".join(text.split()))
    line = line.replace("](", "]\\(")
    return re.sub(r"^(\d*)([#+.)-])(?=[#\s]|$)", r"\1\\\2", line)  # no heading, no item of a list
