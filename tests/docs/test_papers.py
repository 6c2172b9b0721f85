"""The pages of the papers are those of the committed results, and every table is on one of them."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from nearfar.evaluation.results import StudyTable
from nearfar.studies.papers import table_names
from tests.docs.pages import ROOT, study_script, text_of

PAPERS = ROOT / "docs" / "papers"


@pytest.fixture
def study() -> Iterator[ModuleType]:
    with study_script("papers") as module:
        yield module


@pytest.mark.long
def test_the_pages_are_up_to_date(study: ModuleType) -> None:
    for paper, page in study.PAGES.items():
        assert study.page_of(paper) == text_of(PAPERS / f"{page}.md"), "run: python studies/papers.py report"


def test_every_table_has_results_or_a_command(study: ModuleType) -> None:
    for paper, page in study.PAGES.items():
        text = text_of(PAPERS / f"{page}.md")
        for name in table_names(paper):
            file = study.RESULTS / name / "study.json"
            shown = StudyTable.load(file).title.partition(": ")[2] if file.exists() else f"nearfar reproduce {name} "
            assert shown in text, name
