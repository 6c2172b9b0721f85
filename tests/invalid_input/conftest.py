"""A workspace of small valid files, created once; each test gets a copy of it as its working directory."""

from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import copy_workspace, run_cli
from tests.invalid_input.runs import FINETUNE, TRAIN, link_runs, make_runs
from tests.tiny import make_workspace, sentences, write_colours


@pytest.fixture(scope="session")
def valid_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tiny`` (an encoder), ``nli.tsv``, ``pairs.tsv``, ``labelled.tsv``, ``texts.txt``, ``texts.jsonl``;
    ``run`` (a finished training run), ``classifier`` (a finished fine-tuning run), ``result.json`` (an evaluation)."""
    folder = tmp_path_factory.mktemp("workspace")
    make_workspace(folder)
    texts = sentences(60, longest=5)
    write_colours(folder / "labelled.tsv")
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (folder / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for argv in (
            [*TRAIN, "--output", "run"],
            [*FINETUNE, "--output", "classifier"],
            ["evaluate", "tiny", "--tasks", "pairs.tsv", "--output", "result.json"],
        ):
            result = run_cli(argv)
            assert result.status == 0, result.err
    return folder


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the valid files as the working directory; without hub and data folder."""
    copy_workspace(valid_workspace, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def valid_runs(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders, created once: finished ones and stopped ones."""
    return make_runs(tmp_path_factory.mktemp("runs"), valid_workspace)


@pytest.fixture
def runs(valid_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folders in the working directory."""
    return link_runs(valid_runs, tmp_path, monkeypatch)
