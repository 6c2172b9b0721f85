"""The study files in the guides: each is valid, and the one with several seeds runs as it is."""

import random
import re
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.commands.study.command import TABLE
from nearfar.config.study import load_study
from nearfar.evaluation.results import StudyTable
from tests.docs.pages import Block, blocks
from tests.tiny import WORDS, save_tiny

STUDIES = {
    found[1]: block
    for block in blocks("toml")
    if "[[rows]]" in block.text and (found := re.match(r"# ([\w-]+\.toml)\n", block.text))
}
"""Name of a study file -> its block."""


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_file_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(STUDIES[name].text, encoding="utf-8")
    assert load_study(file, placeholders={"start": "tiny"}).rows


def test_all_study_files_have_a_name() -> None:
    assert [block for block in blocks("toml") if "[[rows]]" in block.text] == list(STUDIES.values())
    assert {"lambda.toml", "seeds.toml"} <= STUDIES.keys()


def _command(block: Block, name: str) -> list[str]:
    """The command below the file, with a tiny start."""
    found = {
        line.split("nearfar ", 1)[1]
        for other in blocks("sh")
        if other.page == block.page
        for line in other.text.splitlines()
        if line.startswith(f"nearfar study {name}")
    }
    (command,) = found
    return re.sub(r"--start \S+", "--start tiny", command).split()


@pytest.mark.long
def test_several_seeds_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    draw = random.Random(0)
    rows = [draw.choices(WORDS, k=6) for _ in range(400)]
    lines = [f"{' '.join(row)}\t{' '.join([*row[:3], *draw.choices(WORDS, k=3)])}" for row in rows]
    Path("pairs.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n", encoding="utf-8")
    Path("seeds.toml").write_text(STUDIES["seeds.toml"].text, encoding="utf-8")
    command = _command(STUDIES["seeds.toml"], "seeds.toml")
    assert main([*command, "--engine", "inline"]) == 0
    shown = capsys.readouterr().out
    folder = Path(command[-1])
    table = StudyTable.load(folder / TABLE)
    assert not table.missing
    assert [group.runs for group in table.groups] == [1, 3]
    (row,) = [row for row in table.comparisons if row.column == "held-out"]
    assert row.pairs is not None
    for seed in (1, 2, 3):
        assert f"trained (seed {seed}): {folder}/cells/" in shown
