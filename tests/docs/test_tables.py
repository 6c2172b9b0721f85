"""The pages of the studies in studies/tables are those of the committed results."""

from pathlib import Path

import pytest

from nearfar.commands.study.dry_run import dry_run
from tests.docs.pages import ROOT, study_script, text_of

TABLES = sorted((ROOT / "studies" / "tables").glob("*.toml"))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_table_can_be_planned(file: Path, tmp_path: Path) -> None:
    assert dry_run(file, output=tmp_path / "table", start="owner/model").cells


def test_the_pages_are_up_to_date() -> None:
    pages = sorted((ROOT / "docs" / "tables").glob("*.md"))
    results = sorted(file.parent.name for file in (ROOT / "studies" / "results" / "tables").glob("*/study.json"))
    assert [page.stem for page in pages] == results != []
    with study_script("tables") as study:
        for page in pages:
            assert study.page_of(page.stem) == text_of(page), "run: python studies/tables.py report"
