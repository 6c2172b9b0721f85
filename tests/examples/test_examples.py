"""The examples are short, use only the public API, and run on generated data."""

import ast
import inspect
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nearfar
from nearfar.registry import unregister_method
from tests.tiny import save_tiny, sentences, write_pairs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
EXTENSION_MODULES = ("nearfar.methods", "nearfar.data.rows", "nearfar.data.triplets")
"""What a method from outside the package is built from."""
NOTEBOOK = FOLDER / "first_steps.ipynb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a tiny model and a file of each kind of data."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny")
    save_tiny(tmp_path / "other", seed=1)
    write_pairs(tmp_path / "scored.tsv")
    texts = sentences(180, seed=3)
    triplets = zip(texts[:60], texts[60:120], texts[120:], strict=True)
    (tmp_path / "pairs.tsv").write_text(
        "anchor\tpositive\tnegative\n" + "".join(f"{a} {n}\t{b} {n}\t{c}\n" for n, (a, b, c) in enumerate(triplets))
    )
    (tmp_path / "labelled.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text} {n}\t{('cat', 'dog')[n % 2]}\n" for n, text in enumerate(texts[:60]))
    )
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts[:50]))
    return tmp_path


def main_of(name: str) -> Callable[..., None]:
    main: Callable[..., None] = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="example")["main"]
    return main


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_short_and_public(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("nearfar.") for alias in node.names)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "nearfar":
            assert node.module in ("nearfar", *EXTENSION_MODULES)
            if node.module == "nearfar":
                assert {alias.name for alias in node.names} <= set(nearfar.__all__)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_default_files_exist(script: Path) -> None:
    defaults = [str(one.default) for one in inspect.signature(main_of(script.stem)).parameters.values()]
    assert all((ROOT / name).is_file() for name in defaults if name.startswith("examples/"))


@pytest.mark.long
def test_own_pairs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_of("own_pairs")("pairs.tsv", "tiny", "run")
    assert (folder / "run" / "model" / "modules.json").is_file()
    assert "before" in capsys.readouterr().out


@pytest.mark.long
def test_own_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_of("own_labels")("labelled.tsv", "texts.txt", "tiny", "run")
    labels = [line.split("\t")[1] for line in (folder / "run" / "labels.tsv").read_text().splitlines()[1:]]
    assert len(labels) == 50
    assert set(labels) <= {"cat", "dog"}
    assert "Accuracy" in capsys.readouterr().out


@pytest.mark.long
def test_plain_sentences(folder: Path) -> None:
    main_of("plain_sentences")("texts.txt", "scored.tsv", "tiny", "run")
    assert (folder / "run" / "model" / "modules.json").is_file()


@pytest.mark.long
def test_evaluation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_of("evaluation")("tiny", "other", "scored.tsv")
    output = capsys.readouterr().out
    assert output.count("95% interval") == 3
    assert any(f": {told}" in output for told in ("better", "worse", "level", "no worse", "cannot tell"))


@pytest.mark.long
def test_custom_objective(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        main_of("custom_objective")("pairs.tsv", "scored.tsv", "tiny", "run")
    finally:
        unregister_method("margin")
    assert 'method = "margin"' in (folder / "run" / "config.toml").read_text()
    assert (folder / "run" / "model" / "modules.json").is_file()


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="gloo's file store does not work on Windows")
def test_two_processes(folder: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(FOLDER / "two_processes.py"), "pairs.tsv", "scored.tsv", "tiny", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("2 processes") == 1
    assert json.loads((folder / "run" / "run.json").read_text())["processes"] == 2


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_notebook(folder: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (index,) = (n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    notebook.cells.insert(index + 1, nbformat.v4.new_code_cell('MODEL = "tiny"\nTASK = "scored.tsv"'))
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "Spearman" in printed


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
