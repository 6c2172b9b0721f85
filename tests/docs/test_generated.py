"""The pages and tables that are generated are those of the committed results, and every table is on one of them."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from nearfar.evaluation.results import StudyTable
from nearfar.studies.papers import table_names
from tests.docs.pages import ROOT, docs_script, study_script, text_of

PAPERS, TABLES, RESULTS = ROOT / "docs/papers", ROOT / "docs/tables", ROOT / "studies/results/tables"
OWN_DATA = "docs/guides/train.md"
FILLED = {"README.md": "readme", "docs/guides/train.md": "recommended", OWN_DATA: "own_data"}
"""Page -> the script that fills its tables."""


@contextmanager
def filling(page: str) -> Iterator[Callable[[str], str]]:
    if page == OWN_DATA:
        with study_script(FILLED[page]) as study:
            yield study.fill
    else:
        yield docs_script(FILLED[page]).fill


@pytest.mark.parametrize("page", FILLED)
def test_its_tables_are_up_to_date(page: str) -> None:
    text = text_of(ROOT / page)
    with filling(page) as fill:
        assert fill(text) == text, f"run {FILLED[page]}.py"
        if page != OWN_DATA:
            with pytest.raises(ValueError, match="one block"):
                fill("# Title\n")


@pytest.mark.parametrize(
    ("page", "cell"), [("README.md", r"(\+)3(\.91)"), (OWN_DATA, r"(\| TREC.*?\| \d+\.\d+ \| )\d()")]
)
def test_a_changed_figure_is_noticed(page: str, cell: str) -> None:
    text = text_of(ROOT / page)
    changed, count = re.subn(cell, r"\g<1>0\g<2>", text)
    assert count >= 1
    assert changed != text
    with filling(page) as fill:
        assert fill(changed) == text


@pytest.fixture
def papers() -> Iterator[ModuleType]:
    with study_script("papers") as module:
        yield module


def test_the_commands_on_own_data_were_measured() -> None:
    with study_script("own_data") as study:
        commands = [one["command"] for one in study.load(study.file_of("captions"))["commands"]]
    assert len(commands) == 4
    for command in commands:
        assert command.replace(" --texts-limit 1000", "").replace("'", '"') in text_of(ROOT / OWN_DATA)


@pytest.mark.long
def test_the_pages_of_papers_are_up_to_date(papers: ModuleType) -> None:
    for paper, page in papers.PAGES.items():
        assert papers.page_of(paper) == text_of(PAPERS / f"{page}.md"), "run: python studies/papers.py report"


def test_every_table_of_a_paper_has_results_or_a_command(papers: ModuleType) -> None:
    for paper, page in papers.PAGES.items():
        for name in table_names(paper):
            file = papers.RESULTS / name / "study.json"
            shown = StudyTable.load(file).title.partition(": ")[2] if file.exists() else f"nearfar reproduce {name} "
            assert shown in text_of(PAPERS / f"{page}.md"), name


@pytest.mark.long
def test_the_pages_of_studies_are_up_to_date() -> None:
    pages = sorted(TABLES.glob("*.md"))
    assert (
        sorted(page.stem for page in pages) == sorted(file.parent.name for file in RESULTS.glob("*/study.json")) != []
    )
    with study_script("tables") as study:
        for page in pages:
            assert study.page_of(page.stem) == text_of(page), "run: python studies/tables.py report"
    for file in sorted((ROOT / "studies" / "tables").glob("*.md")):
        assert text_of(file).strip() in text_of(TABLES / file.name)
