"""The examples of the guide to other libraries run, with a tiny model in place of the one they name."""

import os
from pathlib import Path
from typing import Any

import pytest

from nearfar import Encoder
from nearfar.cli import main
from tests.docs.pages import blocks
from tests.tiny import save_tiny

PAGE = "docs/guides/integrations.md"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return save_tiny(tmp_path / "tiny")


def run(word: str, model: Path) -> dict[str, Any]:
    """Run the only Python example of the page with this word; returns its names."""
    (text,) = [block.text for block in blocks("python") if block.page == PAGE and word in block.text]
    assert text.count(MODEL) == 1
    names: dict[str, Any] = {}
    exec(compile(text.replace(MODEL, model.as_posix()), PAGE, "exec"), names)
    return names


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_trainer(model: Path) -> None:
    names = run("SentenceTransformerTrainer", model)
    assert names["trainer"].state.global_step == 3
    vectors = [Encoder.from_pretrained(place).encode(["my password"]) for place in (model, "trained/model")]
    assert abs(vectors[0] - vectors[1]).max() > 1e-6


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = run("GridSearchCV", model)["search"]
    assert set(search.best_params_) == {"vectors__dimensions", "classifier__C"}
    assert "classifier__C" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_mteb(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mteb = pytest.importorskip("mteb", reason="the extra mteb is not installed: pip install 'nearfar[mteb]'")
    from tests.mteb import local_task

    monkeypatch.setattr(mteb, "get_task", lambda name: local_task.LocalSTS())
    monkeypatch.setenv("MTEB_CACHE", os.fspath(model.parent / "cache"))
    names = run("mteb.evaluate", model)
    score = names["result"].task_results[0].get_score()
    assert -1 <= score <= 1
    assert main(["evaluate", str(model), "--mteb", "STSBenchmark", "--resamples", "20", "--output", "mteb.json"]) == 0
    assert main(["compare", "mteb.json", "mteb.json", "--resamples", "20"]) == 0
