"""The folder of held-out rows: what is written is read, and damage is found."""

import json
from pathlib import Path

import pytest

from nearfar.data.hold_out import hold_out
from nearfar.data.rows import TextData
from nearfar.runs.held_out import has_held_out, held_out_files, load_held_out
from nearfar.types import NearfarError, NliRow

ROWS = {
    "pairs": TextData([(f"q {n}", f"a {n}") for n in range(60)], None, (), 0, 0),
    "triplets": TextData([(f"q {n}", f"a {n}", f"n {n}") for n in range(60)], None, (), 0, 0),
    "nli": TextData(
        [NliRow(f"p {n}", f"h {n} {label}", label) for n in range(60) for label in range(3)], None, (), 0, 0
    ),
    "labelled": TextData([(f"t {n}",) for n in range(60)], [n % 3 for n in range(60)], (), 0, 0, ("x", "y", "z")),
    "scored": TextData([(f"s {n}", f"t {n}") for n in range(60)], [n / 59 for n in range(60)], (), 0, 0),
}


def write(folder: Path, rows: object) -> Path:
    for name, text in held_out_files(hold_out(rows, source="mine.tsv").held_out).items():  # type: ignore[arg-type]
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("kind", ROWS)
def test_what_is_written_is_read(kind: str, tmp_path: Path) -> None:
    assert not has_held_out(tmp_path)
    write(tmp_path, ROWS[kind])
    assert has_held_out(tmp_path)
    assert load_held_out(tmp_path) == hold_out(ROWS[kind], source="mine.tsv").held_out
    summary = json.loads((tmp_path / "held_out" / "held_out.json").read_text())
    assert summary["source"] == "mine.tsv"
    assert summary["anchors"] == {"dev": 6, "test": 6}


def test_a_run_without_held_out_rows(tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match="is not a run that holds out rows"):
        load_held_out(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "mention"),
    [
        ("rows.tsv", lambda text: text.replace("q ", "r ", 1), r"rows\.tsv: is damaged: it is not what was written"),
        ("held_out.json", lambda text: text[:-20], "not a complete JSON file"),
        ("held_out.json", lambda text: text.replace('"pairs"', '"couples"'), "damaged"),
    ],
)
def test_damage_is_found(name, change, mention: str, tmp_path: Path) -> None:
    file = write(tmp_path, ROWS["pairs"]) / "held_out" / name
    file.write_text(change(file.read_text()))
    with pytest.raises(NearfarError, match=mention):
        load_held_out(tmp_path)
