"""A report as one self-contained HTML file: no network, no script, no image file."""

from collections.abc import Sequence
from html import escape
from itertools import count

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
from nearfar.evaluation.report.charts import legend, svg
from nearfar.evaluation.report.style import STYLE

_MARKS = {"best": ("*", "the best"), "near": ("=", "not significantly different from the best")}
_LONG = ' class="long"'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy: the page loads nothing, runs nothing and sends nothing."""
GENERATOR = '<meta name="generator" content="nearfar">'
"""Marks a page as a report, which a new report may replace."""


def to_html(page: Page) -> str:
    """The page as one HTML document; all text is escaped."""
    numbers = count(1)
    places = {f"part-{number}": section for number, section in enumerate(page.sections, start=1)}
    contents = "".join(f'<li><a href="#{place}">{_text(each.title)}</a></li>' for place, each in places.items())
    body = "\n".join(
        f'<section id="{place}">\n<h2>{_text(section.title)}</h2>\n{_blocks(section.blocks, 3, numbers)}\n</section>'
        for place, section in places.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{GENERATOR}
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(page.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{_text(page.title)}</h1>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _blocks(blocks: Sequence[Block], level: int, numbers: "count[int]") -> str:
    return "\n".join(_block(block, level, numbers) for block in blocks)


def _block(block: Block, level: int, numbers: "count[int]") -> str:
    inside = (
        _blocks(block.blocks, level + isinstance(block, Section), numbers)
        if isinstance(block, Details | Section)
        else ""
    )
    match block:
        case Table():
            html = _table(block, f"table-{next(numbers)}")
        case Figure():
            html = _figure(block)
        case Paragraph():
            html = f"<p>{_text(block.text)}</p>"
        case BulletList():
            html = f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in block.items)}</ul>"
        case Code():
            html = f'<pre tabindex="0"><code>{_text(block.text)}</code></pre>'
        case Details():
            html = f"<details>\n<summary>{_text(block.summary)}</summary>\n{inside}\n</details>"
        case Section():
            html = f"<h{min(level, 6)}>{_text(block.title)}</h{min(level, 6)}>\n{inside}"
    return html


def _table(table: Table, name: str) -> str:
    head = "".join(f'<th scope="col"{_LONG * (len(title) > 14)}>{_text(title)}</th>' for title in table.header)
    rows = "\n".join(_row(row) for row in table.rows)
    notes = "".join(f"<li>{_text(note)}</li>" for note in table.notes)
    kind = ' class="words"' if table.text_cells else ""
    return f"""<figure>
<figcaption id="{name}">{_text(table.caption)}</figcaption>
<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">
<table aria-labelledby="{name}"{kind}>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>{
        f'''
<ul class="notes">{notes}</ul>'''
        if notes
        else ""
    }
</figure>"""


def _row(cells: Sequence[Cell | str]) -> str:
    first, *others = (Cell(cell) if isinstance(cell, str) else cell for cell in cells)
    return f'<tr><th scope="row">{_cell_content(first)}</th>{"".join(map(_cell, others))}</tr>'


def _cell(cell: Cell) -> str:
    kind = f' class="{cell.mark}"' if cell.mark else ""
    shade = "" if cell.shade is None else f' style="--shade:{min(max(cell.shade, 0.0), 1.0):.2f}"'
    return f"<td{kind}{shade}>{_cell_content(cell)}</td>"


def _cell_content(cell: Cell) -> str:
    text = f"<strong>{_text(cell.text)}</strong>" if cell.mark == "best" else _text(cell.text)
    if cell.mark:
        sign, meaning = _MARKS[cell.mark]
        text += f' <abbr title="{meaning}">{sign}</abbr>'
    return text + (f" <small>{_text(cell.detail)}</small>" if cell.detail else "")


def _figure(figure: Figure) -> str:
    charts = "\n".join(svg(chart) for chart in figure.charts)
    return f"""<figure>
<figcaption>{_text(figure.caption)}</figcaption>
<div class="charts">
{charts}
</div>
{legend(figure.legend)}
</figure>"""


def _text(text: str) -> str:
    """Escaped text; control characters, which HTML forbids, become replacement characters."""
    kept = (letter if letter >= " " or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return escape("".join(kept))
