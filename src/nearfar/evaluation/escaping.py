"""Text from result files and names, as Markdown and CSV show it: never as markup, a link or a formula."""

import re

_LINE_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_HTML = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"\](?=\s*\(|:)")
_SAFE_TARGET = re.compile(r"\](?:\(|:[ \t]*)<?(?:https?://|mailto:|#|[\w./-]+(?:[\s)>#?]|$))")
_FENCE = re.compile(" {0,3}(`{3,}|~{3,})(.*)")
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What formulas begin with, also in the full width of East Asian keyboards."""


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


def code_block(text: str) -> list[str]:
    """The lines of a code block, which no text can leave."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [fence, *(one_line(line) for line in text.splitlines()), fence]


def safe_markdown(text: str) -> str:
    """Markdown that keeps its formatting, without HTML, and with links to web pages, mail and files alone.

    >>> print(safe_markdown("*p* < 0.05 <b> [a](b.md) [c](javascript:d)"))
    *p* < 0.05 &lt;b> [a](b.md) [c]\\(javascript:d)
    """

    def escape(found: re.Match[str]) -> str:
        return "]" if _SAFE_TARGET.match(text, found.start()) else "]\\"

    return _HTML.sub("&lt;", _LINK.sub(escape, text)) + _end_of_code_block(text)


def _end_of_code_block(text: str) -> str:
    """What closes the code block that the text leaves open; without it, the text after it would be code."""
    fence = ""
    for line in re.split("\r\n|\n|\r", text):
        found = _FENCE.match(line)
        if not found or (not fence and found[1][0] == "`" and "`" in found[2]):
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"\n{fence}" if fence else ""


def csv_text(text: str) -> str:
    """A cell of a table for spreadsheets: a text that a spreadsheet would compute gets an apostrophe before it.

    Numbers are unchanged. A carriage return, which would end a row, becomes a line feed.

    >>> [csv_text(text) for text in ("=1+1", "-0.5", "-x", "a=b")]
    ["'=1+1", '-0.5', "'-x", 'a=b']
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.lstrip().startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
