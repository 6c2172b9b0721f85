"""``nearfar demo`` runs from start to end and writes all its files, with a tiny encoder and few steps."""

from pathlib import Path

import pytest

from nearfar.cli import main
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


def test_demo_leaves_report_plots_and_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "tiny")
    folder = tmp_path / "demo"
    assert main(["demo", "--output", str(folder), "--model", str(model), "--max-steps", "2"]) == 0
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

    assert main(["demo", "--output", str(folder), "--model", str(tmp_path / "nowhere")]) == 2  # an old demo is replaced
    assert "no such model folder" in capsys.readouterr().err


def test_demo_never_removes_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("")
    assert main(["demo", "--output", str(tmp_path)]) == 2
    assert "is not the folder of a demo" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()
