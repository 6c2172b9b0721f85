"""Links between pages have an existing page and heading as target."""

import re
from pathlib import Path

import nearfar
from tests.docs.pages import PAGES, ROOT, anchors, name, text_of, without_blocks

SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def resolves(page: Path, target: str) -> bool:
    if target.startswith(("https://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.is_file() and file.is_relative_to(ROOT) and (not anchor or anchor in anchors(file))


def test_links_resolve() -> None:
    targets = [(page, target) for page in PAGES for target in LINK.findall(without_blocks(page))]
    assert len(targets) > 100
    assert [(name(page), target) for page, target in targets if not resolves(page, target)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page not in reached:
            reached.add(page)
            targets = [target.partition("#")[0] for target in LINK.findall(without_blocks(page))]
            queue += [(page.parent / target).resolve() for target in targets if target.endswith(".md")]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_public_name_is_in_the_reference() -> None:
    shown = {name for page in (ROOT / "docs" / "reference").glob("*.md") for name in SHOWN.findall(text_of(page))}
    assert sorted(set(nearfar.__all__) - {name.removeprefix("nearfar.") for name in shown}) == []
