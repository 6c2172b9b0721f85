"""The states of a run folder, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearfar import SbertConfig, SclConfig
from nearfar.runs.folder import LEFTOVERS, RunFolder, check_folder, read_input_fingerprints
from nearfar.training.processes import Processes
from nearfar.types import NearfarError


@pytest.fixture
def config(tmp_path: Path) -> SclConfig:
    return SclConfig(output=str(tmp_path / "run"))


def start(config: SclConfig) -> Path:
    """Start a run: lock its folder, record an input, write its settings."""
    with RunFolder(config, Processes()) as folder:
        assert folder.acquire(resume=False) == "fresh"
        folder.verify_input("data", lambda: "0123")
        folder.begin()
        return folder.path


def test_a_fresh_folder(config: SclConfig) -> None:
    assert check_folder(config, resume=False) == "fresh"
    with pytest.raises(NearfarError, match="there is no run to resume"):
        check_folder(config, resume=True)
    Path(config.output).mkdir()
    for name in LEFTOVERS:
        (Path(config.output) / name).write_text("")
    assert check_folder(config, resume=False) == check_folder(config, resume=True) == "fresh"
    (Path(config.output) / "thesis.txt").write_text("")
    with pytest.raises(NearfarError, match=r"already exists and holds no run \(no config\.toml\); choose another"):
        check_folder(config, resume=False)


def test_an_unfinished_run(config: SclConfig) -> None:
    folder = start(config)
    assert {path.name for path in folder.iterdir()} >= {"config.toml", "inputs.json"}
    assert read_input_fingerprints(folder) == {"data": "0123"}
    assert check_folder(config, resume=True) == "unfinished"
    with pytest.raises(NearfarError, match=r"already holds this run, unfinished\. Continue it with --resume"):
        check_folder(config, resume=False)


def test_other_settings(config: SclConfig) -> None:
    start(config)
    with pytest.raises(NearfarError, match=r"other settings \(--epochs, --temperature\); choose another --output"):
        check_folder(replace(config, temperature=0.5, epochs=9), resume=True)
    with pytest.raises(NearfarError, match="holds a run of another method"):
        check_folder(SbertConfig(output=config.output), resume=True)


def test_changed_inputs(config: SclConfig) -> None:
    start(config)
    with RunFolder(config, Processes()) as folder:
        assert folder.acquire(resume=True) == "unfinished"
        folder.verify_input("data", lambda: "0123")
        with pytest.raises(NearfarError, match="data changed since this run started"):
            folder.verify_input("data", lambda: "4567")
        with pytest.raises(NearfarError, match="model changed since this run started"):
            folder.verify_input("model", lambda: "0123")


def test_a_finished_run(config: SclConfig) -> None:
    path = start(config)
    (path / "run.json").write_text(json.dumps({"config": {"seed": 1}, "inputs": {"data": "0123"}}))
    assert check_folder(config, resume=True) == "finished"
    with pytest.raises(NearfarError, match="already holds this run, and it is finished; its model is"):
        check_folder(config, resume=False)


def test_a_finished_run_that_was_killed_before_its_last_deletion_is_cleaned(config: SclConfig) -> None:
    path = start(config)
    (path / "run.json").write_text(json.dumps({"config": {"seed": 1}, "inputs": {"data": "0123"}}))
    for name in ("checkpoint", ".checkpoint.old", "best.safetensors.new", "model"):
        (path / name).mkdir()
        (path / name / "file").write_text("")
    for name in ("best.safetensors", "metrics.jsonl"):
        (path / name).write_text("")
    with RunFolder(config, Processes()) as folder:
        assert folder.acquire(resume=True) == "finished"
    assert {file.name for file in path.iterdir()} == {"config.toml", "metrics.jsonl", "model", "run.json"}


def test_one_process_at_a_time(config: SclConfig) -> None:
    start(config)
    with RunFolder(config, Processes()) as folder:
        folder.acquire(resume=True)
        with RunFolder(config, Processes()) as second, pytest.raises(NearfarError, match="another process"):
            second.acquire(resume=True)
    with RunFolder(config, Processes()) as again:
        assert again.acquire(resume=True) == "unfinished"
