"""The study of several seeds in the guide runs as it is printed, but from a tiny model."""

import re
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.commands.study.command import TABLE
from nearfar.evaluation.results import StudyTable
from tests.docs.pages import blocks
from tests.tiny import save_tiny, write_anchors

PAGE = "docs/guides/prove.md"


@pytest.mark.long
def test_the_study_of_several_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_anchors(Path("pairs.tsv"), 400)
    (text,) = [block.text for block in blocks("toml") if block.page == PAGE and "[[rows]]" in block.text]
    shell = [block.text.strip() for block in blocks("sh") if block.page == PAGE]
    (command,) = [text.removeprefix("nearfar ") for text in shell if text.startswith("nearfar study seeds.toml")]
    Path("seeds.toml").write_text(text, encoding="utf-8")
    assert main([*re.sub(r"--start \S+", "--start tiny", command).split(), "--engine", "inline"]) == 0
    shown = capsys.readouterr().out
    folder = Path(command.split()[-1])
    table = StudyTable.load(folder / TABLE)
    assert not table.missing
    assert [group.runs for group in table.groups] == [1, 3]
    (compared,) = [row for row in table.comparisons if row.column == "held-out"]
    assert (compared.first, compared.second, compared.pairs is not None) == ("trained", "start", True)
    for seed in (1, 2, 3):
        assert f"trained (seed {seed}): {folder}/cells/" in shown
