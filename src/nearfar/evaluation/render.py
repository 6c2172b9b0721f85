"""Tables of numbers, and text from files and users, as Markdown, HTML, LaTeX, CSV and on the screen.

A :class:`Table` holds plain text. Each renderer escapes it once, for its format: a text is shown as it is, never as
markup, a link, a command or a formula.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nearfar.data.cells import parse_number
from nearfar.types import metric_title

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup
    from rich.table import Table as RichTable

_LINE_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_HTML = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"\](?=\s*\(|:)")
_SAFE_TARGET = re.compile(r"\](?:\(|:[ \t]*)<?(?:https?://|mailto:|#|[\w./-]+(?:[\s)>#?]|$))")
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What formulas begin with, also in the full width of East Asian keyboards."""
_LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "\N{EM SPACE}": r"\quad ",
    "λ": r"$\lambda$",
    "τ": r"$\tau$",
}
"""Other letters, such as dashes and ±, are those of LaTeX's standard encoding, UTF-8."""


@dataclass(frozen=True)
class Cell:
    """A cell with more than its text."""

    text: str
    detail: str = ""
    """An interval, a standard deviation or the mark of a note; in HTML in a smaller font."""
    mark: Literal["", "best", "near"] = ""
    """``best``: the best of its column, in bold; ``near``: not significantly different from the best, with ``=``."""
    shade: float | None = None
    """Strength of the background colour in HTML, from 0 to 1."""


Row: TypeAlias = Sequence[Cell | str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of plain texts; its numbers are formatted.

    >>> table = Table(columns=["model", "sts12"], rows=[["a_b", Cell("61.20", "(0.40)", "best")], ["c", "58.00"]])
    >>> print(to_markdown(table))
    | model | sts12 |
    | --- | ---: |
    | a\\_b | **61.20** (0.40) |
    | c | 58.00 |
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    """Sentences below the table."""
    left: int = 1
    """How many columns hold words and are aligned left, from the first; the others are aligned right."""
    breaks: Sequence[int] = ()
    """Numbers of rows that begin a group, which a line separates from the rows before; also 0 and that of all rows."""

    @property
    def cells(self) -> list[list[Cell]]:
        """All rows, every cell as a :class:`Cell`."""
        return [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]

    @property
    def groups(self) -> list[list[list[Cell]]]:
        """The cells of each group of rows."""
        return [self.cells[start:end] for start, end in pairwise([0, *self.breaks, len(self.rows)]) if end > start]


def _cell_text(cell: Cell, escape: Callable[[str], str], bold: str = "", end: str = "") -> str:
    """Text, sign and detail of a cell, escaped; the text of the best is between ``bold`` and ``end``."""
    text = escape(cell.text)
    text = f"{bold}{text}{end}" if cell.mark == "best" and text else text
    parts = [text, "=" * (cell.mark == "near"), escape(cell.detail)]
    return " ".join(part for part in parts if part)


def to_markdown(table: Table, *, level: int = 0) -> str:
    """The table in GitHub's Markdown, without a line break at its end.

    Title and notes are paragraphs before and after it; with ``level``, the title is a heading of that level.
    """
    rule = ["---" if place < table.left else "---:" for place in range(len(table.columns))]
    rows = [[_cell_text(cell, markdown_text, "**", "**") for cell in row] for row in table.cells]
    lines = [f"| {' | '.join(row)} |" for row in ([markdown_text(name) for name in table.columns], rule, *rows)]
    title = f"{'#' * level} {markdown_text(table.title)}".strip()
    head = [title, ""] if table.title else []
    return "\n".join([*head, *lines, *(part for note in table.notes for part in ("", markdown_text(note)))])


def to_html(table: Table, *, name: str) -> "Markup":
    """The table as a ``figure`` with a caption, a region that scrolls, and notes.

    The first cell of a row is its header. ``name`` is the id of the caption. A jinja2 template shows the result as it
    is.
    """
    from markupsafe import Markup

    return Markup(template("nearfar.evaluation", "table.html").render(table=table, name=name))


def to_latex(table: Table) -> str:
    """The table in LaTeX, with the title and the notes as its caption; needs the package booktabs."""
    title = [f"{latex_text(table.title).rstrip('.')}."] if table.title else []
    caption = " ".join([*title, *map(latex_text, table.notes)])
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{'l' * table.left}{'r' * (len(table.columns) - table.left)}}}",
        r"\toprule",
        " & ".join(map(latex_text, table.columns)) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(table.cells):
        lines += [r"\midrule"] if number and number in table.breaks else []
        lines.append(" & ".join(_cell_text(cell, latex_text, r"\textbf{", "}") for cell in row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_rich(table: Table) -> "RichTable":
    """The table for a console of rich."""
    from rich.table import Table as RichTable
    from rich.text import Text

    def shown(cell: Cell) -> Text:  # Text: brackets are not markup; control characters could change the terminal
        return Text(_cell_text(cell, one_line), style="bold" if cell.mark == "best" else "")

    notes = Text("\n".join(map(one_line, table.notes)))
    rich = RichTable(title=Text(one_line(table.title)), caption=notes, caption_justify="left")
    for place, name in enumerate(table.columns):
        rich.add_column(Text(one_line(name)), justify="left" if place < table.left else "right")
    for number, row in enumerate(table.cells, start=1):
        rich.add_row(*map(shown, row), end_section=number in table.breaks)
    return rich


def to_text(table: Table, *, width: int = 120) -> str:
    """The table in plain letters, as a console of this width shows it, without spaces at the ends of lines."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(to_rich(table))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _environment(escape: Callable[[str], str], **settings: Any) -> "Environment":
    """Templates that show each text as ``escape`` does, and other values as they are; Markup is shown unchanged."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        return escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    lines: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    return Environment(finalize=shown, **lines, **settings)


@cache
def template(package: str, name: str) -> "Template":
    """A template of HTML beside the modules of a package; all values are escaped, as by :func:`html_text`."""
    from jinja2 import PackageLoader

    return _environment(html_text, autoescape=True, loader=PackageLoader(package, "")).get_template(name)


@cache
def _sentences() -> Any:
    environment = _environment(one_line)
    environment.filters |= {"share": format_share, "metric": metric_title}
    text = Path(__file__).with_name("notes.txt").read_text(encoding="utf-8")
    return environment.from_string(text).module


def notes(name: str, *values: object) -> list[str]:
    """The lines that a macro of ``notes.txt`` writes about the values, each as plain text, without blank ones."""
    lines = getattr(_sentences(), name)(*values).split("\n")
    return [line.strip() for line in lines if line.strip()]


def one_line(text: str) -> str:
    """The text with spaces for line breaks and tabs, and replacement characters for other control characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _LINE_BREAKS.sub(" ", text))


def markdown_text(text: str) -> str:
    """One line, with everything escaped that Markdown or a browser would read as markup.

    >>> print(markdown_text("# a_b <script> [x](javascript:y)"))
    \\# a\\_b \\<script\\> [x]\\(javascript:y)
    """
    line = re.sub(r"([\\`_|<>&~]|\*(?=\S)|(?<=\S)\*)", r"\\\1", " ".join(one_line(text).split()))
    line = re.sub(
        r"\](?=[(:\[])" if line.startswith("[") else r"\](?=[(\[])", r"]\\", line
    )  # no link, no target of one
    return re.sub(r"^(\d*)([#+.)*-])(?=[#\s]|$)", r"\1\\\2", line)  # no heading, no item of a list


def code_span(text: str) -> str:
    """The text in a code span, which no text can leave.

    >>> print(code_span("a`b"))
    `` a`b ``
    """
    line = one_line(text)
    if "`" not in line:
        return f"`{line}`" if line.strip() else ""
    fence = "`" * (1 + max(map(len, re.findall("`+", line))))
    return f"{fence} {line} {fence}"


def code_block(text: str) -> str:
    """The text in a code block, which no text can leave."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join([fence, *map(one_line, text.splitlines()), fence])


def safe_markdown(text: str) -> str:
    """Markdown that keeps its formatting, without HTML, and with links to web pages, mail and files alone.

    >>> print(safe_markdown("*p* < 0.05 <b> [a](b.md) [c](javascript:d)"))
    *p* < 0.05 &lt;b> [a](b.md) [c]\\(javascript:d)
    """

    def escape(found: re.Match[str]) -> str:
        return "]" if _SAFE_TARGET.match(text, found.start()) else "]\\"

    from markdown_it import MarkdownIt

    *_, last = MarkdownIt("commonmark").parse(f"{text}\nend")  # a code block that is left open would not end here
    end = f"\n{last.markup}" if last.type == "fence" else ""
    return _HTML.sub("&lt;", _LINK.sub(escape, text)) + end


def fill_template(template: Path, **values: Any) -> str:
    """Markdown of a jinja2 template file, whose values are escaped as one line of text each.

    The filter ``code`` makes a code span of a value, ``code_block`` a block of lines, ``safe`` leaves it as it is.
    Blank lines are never repeated.
    """
    from markupsafe import Markup

    environment = _environment(markdown_text)
    environment.filters["code"] = lambda value: Markup(code_span(str(value)))
    environment.filters["code_block"] = lambda lines: Markup(code_block("\n".join(lines)))
    text = environment.from_string(template.read_text(encoding="utf-8")).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def html_text(text: str) -> "Markup":
    """Escaped text; control characters, which HTML forbids, become replacement characters."""
    from markupsafe import escape

    return escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is, also after the end of a row, where ``[`` and ``*`` would be arguments."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in one_line(text))
    return f"{{}}{escaped}" if escaped.lstrip().startswith(("[", "*")) else escaped


def csv_text(text: str) -> str:
    """A cell of a table for spreadsheets: a text that a spreadsheet would compute gets an apostrophe before it.

    Numbers are unchanged. A carriage return, which would end a row, becomes a line feed.

    >>> [csv_text(text) for text in ("=1+1", "-0.5", "-x", "a=b")]
    ["'=1+1", '-0.5', "'-x", 'a=b']
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_text = text.lstrip().startswith(_FORMULA) and math.isnan(parse_number(text))
    return f"'{text}" if is_text else text


def csv_lines(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV: None is an empty cell, and no text is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([csv_text(value) if isinstance(value, str) else value for value in row] for row in rows)
    return text.getvalue()


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """For each path its last parts, as many as make the names distinct."""
    parts = {path: PurePath(path).parts or (path,) for path in paths}
    for depth in range(1, max(map(len, parts.values()), default=0) + 1):
        names = {path: "/".join(of_path[-depth:]) for path, of_path in parts.items()}
        if len({*names.values()}) == len(names):
            return names
    return {path: path for path in paths}


def format_share(share: float) -> str:
    """A share in percent.

    >>> [format_share(share) for share in (0, 0.0002, 0.0087, 0.3227, 0.998, 1)]
    ['0%', '<0.1%', '0.9%', '32%', '>99%', '100%']
    """
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.1%}" if 0 < share < 0.095 else f"{share:.0%}"


def format_score(score: float | None) -> str:
    """Two decimals, or ``undefined``."""
    return "undefined" if score is None else f"{score:.2f}"


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {seconds % 60:.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
