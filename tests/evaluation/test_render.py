"""Tables and text are shown as they are, whatever they hold: as Markdown, HTML, LaTeX, CSV and on a console."""

import io
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from nearfar.evaluation.render import (
    Cell,
    Table,
    code_block,
    code_span,
    csv_text,
    latex_text,
    markdown_text,
    safe_markdown,
    to_html,
    to_latex,
    to_markdown,
    to_rich,
)
from tests.evaluation.report.cases import ParsedPage
from tests.hostile_text import HOSTILE, RAN, active_parts, rendered

SIGNS = (*"<>[]()`*_\\|!&#:~\"' \n\r\t1.-+", "a", "javascript:", "script", "&colon;", "```", "](", "]:")
PIECES = st.lists(st.sampled_from(SIGNS), max_size=10).map("".join)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def page(text: str) -> str:
    """A text in each place of a page."""
    places = [f"# {text}", f"- {text}", text, f"**{text}**", f"| {text} | b |\n| --- | --- |\n| {text} | {text} |"]
    return "\n\n".join([*places, "[click] [a] [b]"])


TAGS_OF_TABLES = set(
    "figure figcaption div table thead tbody tr th td ul li small abbr strong id class role aria-labelledby tabindex "
    "scope title style".split()
)


def tags_of(html: str) -> set[str]:
    """Names of all tags and attributes."""
    return {name for tag, attributes in ParsedPage(html).tags for name in (tag, *attributes)}


def hostile_table(text: str) -> Table:
    """A text in each place of a table."""
    rows = [[text, Cell(text, text, "best", 0.5)], [Cell(text), Cell(text, text, "near")]]
    return Table(columns=[text, text], rows=rows, title=text, notes=[text])


def test_the_reader_finds_what_is_not_escaped() -> None:
    found = [bool(active_parts(page(text))) for text in HOSTILE]
    assert sum(found) > 12


def assert_names_are_inert(text: str) -> None:
    assert active_parts(page(markdown_text(text))) == []
    assert active_parts(page(f"a {code_span(text)} b")) == []
    assert active_parts("\n".join(["x", code_block(text), "y"])) == []
    assert active_parts(to_markdown(hostile_table(text), level=2)) == []
    assert tags_of(to_html(hostile_table(text), name="one")) <= TAGS_OF_TABLES


def assert_notes_are_inert(text: str) -> None:
    assert active_parts(f"{safe_markdown(text)}\n\n[click] [a] [b]") == []
    after = code_block("~~~\n<b>\n~~~\n```\n<b>\n````````\n<b>")
    assert active_parts(f"{safe_markdown(text)}\n\n{after}") == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_notes(text: str) -> None:
    assert_names_are_inert(text)
    assert_notes_are_inert(text)


@pytest.mark.long
@FEW
@given(text=PIECES)
def test_any_name_and_note(text: str) -> None:
    assert_names_are_inert(text)
    assert_notes_are_inert(text)


@pytest.mark.parametrize("text", ["a_b *c* `d` <e> & f|g", "# 1. - + [x](y) [z]", "0.5 * 3 = 1.5 \\ ~", "3) 4"])
def test_names_are_shown_as_they_are(text: str) -> None:
    for escaped, expected in ((markdown_text(text), text), (f"x {markdown_text(text)}", f"x {text}")):
        inline = MarkdownIt("commonmark").enable("table").parse(escaped)
        (content,) = [one for one in inline if one.type == "inline"]
        assert "".join(child.content for child in content.children or ()) == expected
    assert re.sub("</?(?:p|code)>", "", rendered(code_span("a`b <c>"))).strip() == "a`b &lt;c&gt;"


@pytest.mark.parametrize(
    "text",
    [
        "*p* < 0.05 > 0; [page](docs/page.md#part), [web](https://a.org/b?c), <mark>\n\n- a list\n\n```\ncode\n```",
        "See [1].\n\n[1]: https://a.org",
    ],
)
def test_notes_keep_their_formatting(text: str) -> None:
    assert rendered(safe_markdown(text)) == rendered(text).replace("<mark>", "&lt;mark&gt;")


LATEX = ("\\input{/etc/passwd}", "\\write18{ls}", "^^5cinput", "$\\input x$", "% a")
FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1", "=cmd|' /C calc'!A0")


@pytest.mark.parametrize("text", [*HOSTILE, *LATEX])
def test_latex_has_no_command(text: str) -> None:
    escaped = latex_text(text)
    commands = set(re.findall(r"\\([a-zA-Z]+)", escaped))
    assert commands <= {"textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"}
    assert not re.search(r"(?<!\\)[%$&#_^~]", escaped)
    assert not re.search("[\x00-\x1f\x7f]", escaped)


@pytest.mark.parametrize("text", ["[2mm] x", "* x", " [2mm]"])
def test_a_cell_is_no_argument_of_the_end_of_a_row(text: str) -> None:
    assert latex_text(text).startswith("{}")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_spreadsheet_computes_no_text(text: str) -> None:
    assert csv_text(text) == "'" + text.replace("\r", "\n")


@pytest.mark.parametrize("text", ["", "a", "-0.5", "+3", "-1e-05", "a=b", "a\nb", RAN, "'=1"])
def test_other_cells_are_unchanged(text: str) -> None:
    assert csv_text(text) == text


TABLE = Table(
    columns=["model", "sts12", "95% interval"],
    rows=[
        ["a_b", Cell("61.20", "(0.40)", "best", 1.5), "[60, 62]"],
        ["c", Cell("58.00", mark="near"), ""],
        ["", "1", "2"],
    ],
    title="Spearman & more",
    notes=["Means.", "Over 3 runs."],
    breaks=[2],
)


def test_a_table_in_html() -> None:
    html = to_html(TABLE, name="table-1")
    assert '<figcaption id="table-1">Spearman &amp; more</figcaption>' in html
    assert '<th scope="row">a_b</th><td class="best" style="--shade:1.00"><strong>61.20</strong> ' in html
    assert '<abbr title="the best">*</abbr> <small>(0.40)</small></td>' in html
    assert html.count("<tbody>") == 2
    assert "<li>Over 3 runs.</li>" in html


def test_a_table_in_latex() -> None:
    assert to_latex(TABLE).splitlines()[3:] == [
        r"\caption{Spearman \& more. Means. Over 3 runs.}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"model & sts12 & 95\% interval \\",
        r"\midrule",
        r"a\_b & \textbf{61.20} (0.40) & {}[60, 62] \\",
        r"c & 58.00 = &  \\",
        r"\midrule",
        r" & 1 & 2 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_table_on_a_console_is_no_markup_and_no_control_sequence() -> None:
    console = Console(width=60, record=True, file=io.StringIO(), force_terminal=False)
    console.print(
        to_rich(Table(columns=["a", "b"], rows=[["[red]x[/red]", "1\x1b[31m"]], title="[bold]t", notes=["n"]))
    )
    shown = console.export_text(styles=True)
    assert "[red]x[/red]" in shown
    assert "[bold]t" in shown
    assert "\x1b[31m" not in shown
