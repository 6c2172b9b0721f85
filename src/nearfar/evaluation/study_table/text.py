"""Text in Markdown: names that are shown as they are, tables, and p values."""

import re
from collections.abc import Sequence

from nearfar.evaluation.render import one_line


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, also in a table."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text)


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table of cells that are escaped; the first ``left`` columns are aligned left."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def p_value(p: float) -> str:
    """A p value with four decimals; smaller ones as such."""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
