"""The pages of the studies in studies/tables are those of the committed results."""

import pytest

from tests.docs.pages import ROOT, study_script, text_of


@pytest.mark.long
def test_the_pages_are_up_to_date() -> None:
    pages = sorted((ROOT / "docs" / "tables").glob("*.md"))
    results = sorted(file.parent.name for file in (ROOT / "studies" / "results" / "tables").glob("*/study.json"))
    assert sorted(page.stem for page in pages) == results != []
    with study_script("tables") as study:
        for page in pages:
            assert study.page_of(page.stem) == text_of(page), "run: python studies/tables.py report"


def test_the_findings_of_a_study_are_on_its_page() -> None:
    for file in sorted((ROOT / "studies" / "tables").glob("*.md")):
        assert text_of(file).strip() in text_of(ROOT / "docs" / "tables" / file.name)
