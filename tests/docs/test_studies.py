"""The studies in the guides: each can be planned; those on labelled rows and of several seeds run."""

from pathlib import Path

import pytest

import nearfar
from nearfar.studies import dry_run
from tests.docs.pages import Block, blocks
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import write_anchors, write_colours

STUDIES = [block for block in blocks("toml") if "[[rows]]" in block.text]
CLASSIFY, PROVE = "docs/guides/classify.md", "docs/guides/evaluate.md"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A start model, in a working directory with the files that the guides name."""
    monkeypatch.chdir(tmp_path)
    write_colours(tmp_path / "mine.tsv", 400)
    write_anchors(tmp_path / "pairs.tsv", 400)
    return str(save_tiny_for_pairs(tmp_path / "start"))


@pytest.mark.long
@pytest.mark.parametrize("block", STUDIES, ids=lambda block: block.page)
def test_a_study_of_a_guide_has_its_data(block: Block, start: str) -> None:
    Path("study.toml").write_text(block.text, encoding="utf-8")
    planned = dry_run("study.toml", output="table", start=start)
    assert planned.jobs >= len(planned.cells) > 0
    assert not planned.missing


@pytest.mark.long
def test_the_study_of_labelled_rows_compares_the_losses(start: str) -> None:
    (text,) = (block.text for block in STUDIES if block.page == CLASSIFY)
    short = text.replace("epochs = 30", "max_steps = 2").replace("[1, 2, 3, 4, 5]", "[1, 2]")
    assert short.count("max_steps = 2") == 1
    assert short.count("[1, 2]") == 2
    Path("few-shot.toml").write_text(short, encoding="utf-8")
    table = nearfar.study("few-shot.toml", output="table", start=start, engine="inline", resamples=20)
    assert len(table.cells) == 8
    assert all(0 <= cell.values["accuracy"] <= 100 for cell in table.cells)
    rows = {(cell.row, cell.coordinates["training rows"]) for cell in table.cells}
    assert rows == {(row, size) for row in ("ce", "scl") for size in ("20", "100")}
    compared = [one for one in table.comparisons if one.column == "accuracy"]
    assert [(one.first, one.second, one.first_coordinates["training rows"]) for one in compared] == [
        ("scl", "ce", "20"),
        ("scl", "ce", "100"),
    ]
    assert [one.first_coordinates == one.second_coordinates for one in compared] == [True, True]
