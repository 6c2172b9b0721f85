"""Bad settings and outputs of ``nearfar export``, which are found before a package of the extra is needed."""

import importlib.util
from pathlib import Path

import pytest

from nearfar.encoder.exported import RUNTIMES
from tests.invalid_input.cli_runner import assert_refused


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("export model --output out --format openvino --opset 18", ["--opset 18: needs --format onnx"]),
        ("export model --output out --calibrate t.txt", ["--calibrate t.txt", "needs --"]),
        ("export model --output taken", ["--output taken: exists and is not an earlier export"]),
        ("export model --output taken --overwrite", ["--output taken: exists and is not an earlier export"]),
        ("export model --output file", ["--output file: is a file; name a folder"]),
    ],
)
def test_bad_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert_refused(flags.split(), *words)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "notes.txt", "taken"]


@pytest.mark.parametrize("kind", ["onnx", "openvino"])
def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    output = str(tmp_path / "out")
    assert_refused(
        ["export", "model", "--format", kind, "--output", output],
        f"onnxscript and {RUNTIMES[kind]}",
        "pip install 'nearfar[export]'",
    )
