"""Fingerprints of rows and models: equal content gives equal fingerprints, and any change shows."""

import shutil
from pathlib import Path

from nearfar.disk.model_folder import SEEN_FILE
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from tests.tiny import save_tiny

ROWS = [("a dog", "a cat", 1), ("the sea", "the hill", 0)]


def test_rows() -> None:
    found = fingerprint_rows(ROWS, ["x"])
    assert found == fingerprint_rows([list(row) for row in ROWS], ("x",))
    assert len(found) == 16
    others = [
        fingerprint_rows(ROWS),
        fingerprint_rows(ROWS[::-1], ["x"]),
        fingerprint_rows([*ROWS, "x"]),
        fingerprint_rows(["x"], ROWS),
        fingerprint_rows([("a dog", "a cat", 2), ROWS[1]], ["x"]),
        fingerprint_rows(["\udcff"]),
    ]
    assert len({found, *others}) == 1 + len(others)


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    """It is stored in run folders, which later versions resume."""
    assert fingerprint_rows(ROWS, ["x"]) == "577b342fa21d7f8a"
    assert fingerprint_rows() == "e3b0c44298fc1c14"


def test_the_fingerprint_of_a_model_depends_on_its_files(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    found = fingerprint_model(folder)
    shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint_model(tmp_path / "copy") == fingerprint_model(str(folder)) == found

    (tmp_path / "copy" / "README.md").write_text("not part of the model")
    (tmp_path / "copy" / SEEN_FILE).write_text("changes no vector")
    (tmp_path / "copy" / "run" / "model").mkdir(parents=True)
    shutil.copy(folder / "config.json", tmp_path / "copy" / "run" / "model")
    assert fingerprint_model(tmp_path / "copy") == found

    weights = tmp_path / "copy" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert fingerprint_model(tmp_path / "copy") != found
