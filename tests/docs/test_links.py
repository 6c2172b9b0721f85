"""Links between pages have an existing page and heading as target."""

import re
from pathlib import Path

import pytest

import nearfar
from tests.docs.pages import PAGES, ROOT, anchors, name, text_of, without_blocks

SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(without_blocks(page)):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{name(page)} links to {target}"
        assert file.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(file), f"{name(page)} links to {target}; there is {sorted(anchors(file))}"


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
