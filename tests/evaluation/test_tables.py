"""Pages of results of every kind, letter by letter."""

import pytest

from tests.evaluation.pages import FOLDER, pages


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    return pages()


NAMES = sorted(file.stem for file in FOLDER.glob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_the_committed_one(name: str, shown: dict[str, str]) -> None:
    expected = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert shown[name] == expected, "where this is meant, run: python -m tests.evaluation.pages"


def test_every_page_is_committed(shown: dict[str, str]) -> None:
    assert sorted(shown) == NAMES
    assert len(NAMES) > 10
