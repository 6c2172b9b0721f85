"""A table before it is rendered, and its renderings: rich for screens, Markdown for files."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from nearfar.evaluation.render import code_span, markdown_text, one_line
from nearfar.evaluation.results import Estimate, Provenance


class Grid(NamedTuple):
    """A table before it is Markdown or rich: sections are groups of rows, notes are shown below."""

    title: str
    header: list[str]
    sections: list[list[list[str]]]
    notes: list[str]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section]


def format_score(score: float | None) -> str:
    """Two decimals, or ``undefined``."""
    return "undefined" if score is None else f"{score:.2f}"


def format_estimate(estimate: Estimate) -> str:
    """A score with its interval, where it has one."""
    if estimate.score is None or estimate.low is None or estimate.high is None:
        return format_score(estimate.score)
    return f"{estimate.score:.2f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def rich_table(grid: Grid) -> Table:
    """A grid for the screen."""
    notes = "\n".join(map(one_line, grid.notes))
    table = Table(title=Text(one_line(grid.title)), caption=Text(notes), caption_justify="left")
    for number, name in enumerate(grid.header):
        table.add_column(Text(one_line(name)), justify="left" if number == 0 else "right")
    for section in grid.sections:
        for row in section:
            # Text: brackets in names and intervals are not markup. Control characters could change the terminal.
            table.add_row(*(Text(one_line(cell)) for cell in row))
        table.add_section()
    return table


def markdown_page(title: str, grids: Iterable[Grid], provenance: Provenance) -> str:
    """Grids in Markdown, and their provenance."""
    lines = [f"# {markdown_text(title)}"]
    for grid in grids:
        notes = (f"\n{markdown_text(note)}" for note in grid.notes)
        lines += ["", f"## {markdown_text(grid.title)}", "", *markdown_table(grid), *notes]
    versions = ", ".join(f"{name} {version}" for name, version in (provenance.versions or {}).items() if version)
    hardware = ", ".join(str(value) for value in (provenance.hardware or {}).values() if value)
    facts = f"{provenance.date}, commit {provenance.commit}; {versions}; {hardware}."
    lines += ["", f"{code_span(str(provenance.command))}, {markdown_text(facts)}"]
    return "\n".join(lines) + "\n"


def markdown_table(grid: Grid) -> list[str]:
    """The rows of a grid as a Markdown table, without title and notes; all text is escaped."""
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    header, *rows = ([*map(markdown_text, row)] for row in (grid.header, *grid.rows))
    return [_markdown_row(row) for row in (header, rule, *rows)]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
