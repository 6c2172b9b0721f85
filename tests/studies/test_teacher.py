"""A study with distillation: the teacher is known by its content, like data and start model."""

import shutil
from pathlib import Path

import pytest

from nearfar.studies.cells import Cell, load_study
from nearfar.studies.plan import plan_jobs
from tests.studies.helpers import write_study
from tests.tiny import save_tiny

STUDY = """
title = "Distillation"
columns = ["pairs.tsv"]

[train]
model = "start"
data = ["texts.txt"]
evaluate_on = "dev.tsv"
max_steps = 2
batch_size = 6

[evaluate]
pairs = ["pairs.tsv"]
resamples = 10

[[rows]]
id = "student"
train = { method = "distill", teacher = "TEACHER", keep_layers = "1" }
"""
SECOND = 'method = "distill"\ndata = ["texts.txt"]\nteacher = "TEACHER"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_study(tmp_path)
    save_tiny(tmp_path / "teacher", seed=1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cell(teacher: str, text: str = STUDY) -> Cell:
    Path("other.toml").write_text(text.replace("TEACHER", teacher), encoding="utf-8")
    (found,) = plan_jobs(load_study("other.toml", None))
    return found


def test_the_teacher_is_known_by_its_content(folder: Path) -> None:
    first = cell("teacher")
    shutil.copytree("teacher", "moved")
    assert cell(str(folder / "moved")).key == first.key
    save_tiny(folder / "moved", seed=2)
    assert cell("moved").key != first.key
    assert not first.missing
    (missing,) = cell("nowhere/at/all").missing
    assert missing.problem == "nowhere/at/all: no such model folder"


def test_the_teacher_of_a_second_objective_is_known_too(folder: Path) -> None:
    text = STUDY.replace('method = "distill", teacher = "TEACHER"', 'method = "simcse-unsup", second = "second.toml"')

    def second_cell(teacher: str) -> Cell:
        Path("second.toml").write_text(SECOND.replace("TEACHER", teacher), encoding="utf-8")
        return cell(teacher, text)

    first = second_cell("teacher")
    assert not first.missing
    save_tiny(folder / "teacher", seed=2)
    assert second_cell("teacher").key != first.key
    assert [one.spec for one in second_cell("nowhere/at/all").missing] == ["nowhere/at/all"]


@pytest.mark.parametrize("second", ["simcse-unsup", "second.toml"])
def test_the_default_data_of_a_second_objective_are_data_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    monkeypatch.setenv("NEARFAR_DATA", str(folder / "data"))
    Path("second.toml").write_text('method = "simcse-unsup"\n', encoding="utf-8")
    text = STUDY.replace('method = "distill", teacher = "TEACHER"', f'method = "simcse-unsup", second = "{second}"')
    assert [one.spec for one in cell("", text).missing] == ["wiki1m"]
    (folder / "data" / "text").mkdir(parents=True)
    file = folder / "data" / "text" / "wiki1m_for_simcse.txt"
    keys = set()
    for line in ("one text", "another text"):
        file.write_text(f"{line}\n", encoding="utf-8")
        found = cell("", text)
        assert not found.missing
        keys.add(found.key)
    assert len(keys) == 2
