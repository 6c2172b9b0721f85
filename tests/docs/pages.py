"""The Markdown pages of the repository, their code and their links."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(
    r"^(?P<fence>```+)(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block of code."""

    page: str
    language: str
    text: str


def name(page: Path) -> str:
    """The page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """The text of the page."""
    return page.read_text(encoding="utf-8")


@contextmanager
def study_script(name: str) -> Iterator[ModuleType]:
    """The script ``studies/NAME.py`` as a module; inside, the working directory is the repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.delitem(sys.modules, "common", raising=False)  # benchmarks/ has a module of this name too
        patch.syspath_prepend(ROOT / "studies")
        yield load_script(f"studies/{name}.py")
        sys.modules.pop("common", None)


def docs_script(name: str) -> ModuleType:
    """The script ``docs/NAME.py`` as a module."""
    return load_script(f"docs/{name}.py")


def blocks(*languages: str) -> Iterator[Block]:
    """All fenced blocks in one of the languages."""
    for page in PAGES:
        for found in FENCE.finditer(text_of(page)):
            if found["language"] in languages:
                yield Block(name(page), found["language"], found["body"])


def without_blocks(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", text_of(page))


def spans(page: Path) -> list[str]:
    """The inline code of a page."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(page))]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}
