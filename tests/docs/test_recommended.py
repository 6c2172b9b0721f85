"""The guide's table of recommended settings is what ``nearfar train --data`` takes."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.cli.parsing import parse
from nearfar.cli.train import split_sets
from nearfar.commands.train.choose import resolve_config
from nearfar.commands.train.recipes import FEWEST_ROWS
from nearfar.registry import METHODS
from tests.docs.pages import ROOT, text_of

GUIDE = ROOT / "docs" / "guides" / "train.md"
COLUMNS = {
    "pairs": "anchor positive",
    "triplets": "anchor positive negative",
    "triplets with scores": "anchor positive negative positive_score negative_score",
    "NLI rows": "premise hypothesis label",
    "labelled texts": "text label",
    "few labelled texts": "text label",
    "few pairs": "anchor positive",
    "scored pairs": "sentence1 sentence2 score",
    "sentences": "text",
    "documents": "title text",
}
OF_THE_FILES = ("model", "data", "output", "anchor_column", "positive_column", "negative_column", "text_column")


def _rows() -> list[list[str]]:
    """Rows, start, method and settings of each line of the guide."""
    block = text_of(GUIDE).partition("<!-- recommended -->")[2].partition("<!-- end of recommended -->")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:5]] for line in block.strip().splitlines()[2:]]


def test_every_kind_of_rows_is_there() -> None:
    assert {row[0] for row in _rows()} == set(COLUMNS)


@pytest.mark.parametrize(("rows", "start", "method", "flags"), _rows())
def test_its_flags_are_what_rows_alone_take(
    rows: str, start: str, method: str, flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps({"hidden_size": 384}), encoding="utf-8")
    if start == "sentence-transformers":
        Path("model/modules.json").write_text("[]", encoding="utf-8")
    line = COLUMNS[rows].replace(" ", "\t") + "\n"
    count = FEWEST_ROWS if rows.startswith("few") else 1  # of the other recipes, the number of rows does not matter
    Path("rows.tsv").write_text(line + count * line, encoding="utf-8")
    files = {"model": "model", "data": "rows.tsv", "output": "run"}
    alone = resolve_config(None, files)
    words = [f"--{name}={value}" for name, value in files.items()] + shlex.split(flags)
    words, of_sets = split_sets(words)
    written, _ = parse(METHODS[method], words, prog="nearfar train", values=of_sets)
    same = {name: getattr(alone, name) for name in OF_THE_FILES if hasattr(alone, name)}
    assert replace(written, **same) == alone
