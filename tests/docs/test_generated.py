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
TRAIN = "docs/guides/train.md"
FILLED = {"readme": "README.md", "recommended": TRAIN, "own_data": TRAIN}
"""Script that fills tables -> the page."""


@contextmanager
def filling(script: str) -> Iterator[Callable[[str], str]]:
    if script == "own_data":
        with study_script(script) as study:
            yield study.fill
    else:
        yield docs_script(script).fill


@pytest.mark.long
@pytest.mark.parametrize("script", FILLED)
def test_its_tables_are_up_to_date(script: str) -> None:
    text = text_of(ROOT / FILLED[script])
    with filling(script) as fill:
        assert fill(text) == text, f"run {script}.py"
        with pytest.raises((ValueError, SystemExit), match="block"):
            fill("# Title\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "cell"), [("readme", r"(\+)8(\.41)"), ("own_data", r"(\| TREC.*?\| \d+\.\d+ \| )\d()")]
)
def test_a_changed_figure_is_noticed(script: str, cell: str) -> None:
    text = text_of(ROOT / FILLED[script])
    changed, count = re.subn(cell, r"\g<1>0\g<2>", text)
    assert count >= 1
    assert changed != text
    with filling(script) as fill:
        assert fill(changed) == text


def test_a_claim_is_a_row_with_its_interval_and_verdict() -> None:
    claim = {"rows": "pairs", "metric": "MRR@10", "start": 60.0, "peer": 61.5, "ours": 61.75, "difference": 0.25}
    claim |= {"low": -0.125, "high": 0.4, "verdict": "level", "settings_ours": 12, "settings_peer": 14, "page": "a.md"}
    *_, row = docs_script("readme").claims([claim])
    assert row == "| [pairs](a.md) | MRR@10 | 60.00 | 61.50 | 61.75 | +0.25 [-0.12, +0.40] | level | 14, 12 |"


@pytest.fixture
def papers() -> Iterator[ModuleType]:
    with study_script("papers") as module:
        yield module


def test_the_commands_on_own_data_were_measured() -> None:
    with study_script("own_data") as study:
        commands = [one["command"] for one in study.load(study.file_of("captions"))["commands"]]
    assert len(commands) == 4
    for command in commands:
        assert command.replace(" --texts-limit 1000", "").replace("'", '"') in text_of(ROOT / TRAIN)


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
