"""The demo runs from end to end and leaves what it promises; with a tiny encoder and few steps here."""

from pathlib import Path

import pytest

from nearfar.commands import demo
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


def test_demo_leaves_report_plots_and_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "tiny")
    folder = tmp_path / "demo"
    assert demo.main(["--output", str(folder), "--model", str(model), "--max-steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert "query: An attorney chases a thief." in printed
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "| scl - sbert |" in report
    assert report.count("| before |") == 1
    for plot in ("training.png", "tsne.png"):
        assert plot in report
        assert (folder / plot).read_bytes().startswith(b"\x89PNG")
        assert (folder / plot).stat().st_size > 10_000
    assert (folder / "scl" / "model" / "modules.json").exists()
    assert (folder / "scl-before.json").exists()

    assert demo.main(["--output", str(folder), "--model", str(tmp_path / "nowhere")]) == 2  # an old demo is replaced
    assert "no such model folder" in capsys.readouterr().err


def test_demo_never_removes_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("")
    assert demo.main(["--output", str(tmp_path)]) == 2
    assert "is not a demo's folder" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()
