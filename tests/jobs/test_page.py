"""The example of the page about jobs runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = "docs/reference/jobs.md"


@pytest.mark.long
def test_the_example_runs(tmp_path: Path) -> None:
    module, program = [block.text for block in blocks("python") if block.page == PAGE]
    (tmp_path / "measure.py").write_text(module, encoding="utf-8")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")  # without a main guard
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "14\n", done.stderr
    assert program.strip().endswith("# 14")
    assert (ROOT / PAGE).exists()
    assert len(list((tmp_path / "cells").iterdir())) == 4
