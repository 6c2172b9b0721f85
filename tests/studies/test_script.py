"""The step ``script``: a script of the study's author trains the model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.evaluation.results import StudyTable
from nearfar.studies import dry_run, steps, study
from nearfar.studies.cells import Cell, load_study, plan_jobs
from nearfar.types import NearfarError
from tests.studies.helpers import write_study

STUDY = """
title = "A study with a script"
columns = ["pairs.tsv", "validation", "words"]
replicates = { seed = [1, 2] }

[evaluate]
pairs = ["pairs.tsv"]
resamples = 10

[[rows]]
id = "untrained"
model = "{start}"
steps = ["evaluate"]
replicates = {}

[[rows]]
id = "peer"
model = "{start}"

[[rows.steps]]
[rows.steps.script]
file = "peers/copy.py"
numbers = ["words"]
data = "nli.tsv"
learning_rate = 2e-5
languages = ["de", "fr"]
lower-case = true
verbose = false

[[rows.steps]]
evaluate = {}
"""
PEER = """
import json, pathlib, shutil, sys
words = sys.argv[1:]
given = dict(zip(words[::2], words[1::2]))
output = pathlib.Path(given["--output"])
shutil.copytree(given["--model"], output / "model")
(output / "arguments.json").write_text(json.dumps(words))
(output / "numbers.json").write_text(json.dumps({"words": len(words), "validation": 70 + int(given["--seed"])}))
print("trained with seed", given["--seed"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the study, run from another working directory."""
    write_study(tmp_path, STUDY)
    write_script(tmp_path, PEER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_script(folder: Path, text: str) -> None:
    (folder / "peers").mkdir(exist_ok=True)
    (folder / "peers" / "copy.py").write_text(text, encoding="utf-8")


def cells_of(folder: Path) -> list[Cell]:
    return plan_jobs(load_study(folder / "study.toml", placeholders={"start": "start"}))


def run(**settings: Any) -> StudyTable:
    return study("study.toml", start="start", output="done", resamples=20, **{"engine": "inline"} | settings)


@pytest.mark.long
def test_the_script_trains_and_its_numbers_are_columns(folder: Path) -> None:
    table = run()
    untrained, *trained = table.cells
    for seed, cell in enumerate(trained, start=1):
        assert cell.values["pairs.tsv"] == untrained.values["pairs.tsv"]  # the script copies the start
        assert cell.values["validation"] == 70 + seed
        assert cell.values["words"] == 14
        assert cell.values["seconds"] is not None
    (first, *_) = sorted((folder / "done" / "cells").glob("*/run/arguments.json"))
    words = json.loads(first.read_text())
    assert words[:2] == ["--model", "start"]
    assert words[2] == "--output"
    assert Path(words[3]).name == "run"
    assert words[4] == "--seed"
    expected = ["--data", "nli.tsv", "--learning-rate", "2e-05", "--languages", "de", "fr", "--lower-case"]
    assert words[6:] == expected


def test_the_key_depends_on_script_and_data_and_not_on_places(folder: Path) -> None:
    keys = [cell.key for cell in cells_of(folder)]
    moved = folder / "elsewhere"
    moved.mkdir()
    write_study(moved, STUDY.replace('"nli.tsv"', f'"{moved}/nli.tsv"'))
    write_script(moved, PEER)
    assert [cell.key for cell in cells_of(moved)] == keys
    write_script(folder, PEER + "# changed\n")
    changed = [cell.key for cell in cells_of(folder)]
    assert changed[0] == keys[0]
    assert set(changed[1:]).isdisjoint(keys)
    write_script(folder, PEER)
    (folder / "nli.tsv").write_text((folder / "nli.tsv").read_text() + "a\tb\tneutral\n")
    assert set([cell.key for cell in cells_of(folder)][1:]).isdisjoint(keys)


def test_a_dry_run_names_the_script(folder: Path) -> None:
    planned = dry_run("study.toml", start="start", output="done")
    assert planned.scripts == ("peers/copy.py",)
    shown = "\n".join(planned.lines())
    assert "runs code of the study's author:\n  peers/copy.py" in shown
    assert "script then evaluate" in shown
    assert not (folder / "done").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys\nsys.exit(3)", "copy.py: ended with exit status 3; a worker keeps what it printed in log.txt"),
        ("", "copy.py: wrote no model. It must write a sentence-transformers model to OUTPUT/model."),
        (PEER.replace('"words": len', '"other": len'), "numbers.json lacks 'words'"),
        (PEER.replace("len(words)", "'many'"), "numbers.json: words = 'many': must be a number."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_script_is_named(folder: Path, script: str, message: str) -> None:
    write_script(folder, script)
    job = cells_of(folder)[1].jobs[0].inputs["model"]
    (folder / "job").mkdir()
    with pytest.raises(NearfarError, match=re.escape(message)):
        steps.script({**job.settings, **job.local}, {}, folder / "job")


def test_a_script_that_is_changed_while_the_study_runs_is_an_error(folder: Path) -> None:
    job = cells_of(folder)[1].jobs[0].inputs["model"]
    write_script(folder, "print(1)")
    with pytest.raises(NearfarError, match=r"copy.py: was changed while the study ran"):
        steps.script({**job.settings, **job.local}, {}, folder / "job")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("peers/copy.py", "peers/none.py", "row 'peer': script: peers/none.py: no such file; its path is relative"),
        ('file = "peers/copy.py"', "", "row 'peer': script: lacks file."),
        ("learning_rate", "Learning-Rate", "row 'peer': script: 'Learning_Rate' is no name of a flag"),
        ("learning_rate = 2e-5", 'output = "x"', "row 'peer': script: 'output' is no name of a flag, or is set by"),
        ("learning_rate = 2e-5", "rate = { low = 1 }", "arguments[rate] = {'low': 1}: must be"),
        ('id = "peer"\nmodel = "{start}"', 'id = "peer"\nmodel = "wk:start"', "not the baseline wk:start"),
        ('id = "peer"\nmodel = "{start}"', 'id = "peer"', "has no model to start from"),
    ],
)
def test_mistakes_are_named(folder: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert old in STUDY
    (folder / "study.toml").write_text(STUDY.replace(old, new))
    assert main(["study", "study.toml", "--start", "start", "--output", "new", "--engine", "inline"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (folder / "new").exists()
