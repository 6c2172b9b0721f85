"""``nearfar study``: cells as jobs, resuming, sharing, shards, missing data, dry runs."""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from nearfar.evaluation.results import StudyTable
from nearfar.jobs import JobsFailedError
from nearfar.studies import TABLE, dry_run, steps, study
from nearfar.studies.cells import Cell, load_study, plan_jobs
from nearfar.types import NearfarError
from tests.studies.helpers import STUDY, write_study
from tests.tiny import save_tiny

OUTPUTS = ("page.md", "study.json", "table.csv", "table.tex")
SETTINGS: dict[str, Any] = {"scale": "tiny", "start": "start", "engine": "inline", "resamples": 20}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the study, and ``whole``: the study at the scale tiny, run without interruption."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_study(folder)
        study("study.toml", output="whole", **SETTINGS)
        yield folder


@pytest.fixture
def inside(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workspace)
    return workspace


def cells_of(text: str, folder: Path, start: str = "start") -> list[Cell]:
    file = folder / "other.toml"
    file.write_text(text, encoding="utf-8")
    return plan_jobs(load_study(file, placeholders={"start": start}))


def contents(folder: Path) -> dict[str, Any]:
    """The table and the files of the cells that must not depend on how often a run was stopped."""
    table = json.loads((folder / TABLE).read_text(encoding="utf-8"))
    cells = [cell | {"values": {**cell["values"], "seconds": None}} for cell in table["cells"]]
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for pattern in ("*.safetensors", "*.csv")
        for file in sorted((folder / "cells").rglob(pattern))
    }
    names = sorted(str(file.relative_to(folder)) for file in (folder / "cells").rglob("*"))
    return {"cells": cells, "groups": table["groups"], "files": files, "names": names}


@pytest.mark.long
def test_a_study_writes_its_table(inside: Path) -> None:
    table = StudyTable.load(inside / "whole" / TABLE)
    assert [(cell.row, cell.coordinates, cell.replicate) for cell in table.cells] == [
        ("untrained", {}, {"seed": 1}),
        ("untrained", {}, {"seed": 2}),
        ("sbert", {"rate": "0.01"}, {"seed": 1}),
        ("sbert", {"rate": "0.01"}, {"seed": 2}),
    ]
    untrained = [cell for cell in table.cells if cell.row == "untrained"]
    assert untrained[0].values == untrained[1].values
    trained = [cell for cell in table.cells if cell.row == "sbert"]
    assert trained[0].values["pairs.tsv"] != trained[1].values["pairs.tsv"]
    for cell in trained:
        evaluated = json.loads((inside / "whole" / "cells" / cell.key / "result.json").read_text(encoding="utf-8"))
        spearman = evaluated["tasks"]["pairs.tsv"]["spearman"]["all"]["score"]
        assert cell.values["pairs.tsv"] == pytest.approx(spearman)
        parts = [cell.values[name] for name in ("pairs.tsv", "other.tsv")]
        assert cell.values["average"] == pytest.approx(sum(parts) / 2, abs=1e-4)  # of rounded scores
        assert {"validation", "seconds"} <= cell.values.keys()
    for name in OUTPUTS:
        assert (inside / "whole" / name).stat().st_size, name
    assert str(inside) not in (inside / "whole" / TABLE).read_text(encoding="utf-8")


def test_a_finished_study_runs_nothing_again(inside: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (inside / "whole" / "cells").rglob("*")}
    study("study.toml", output="whole", **SETTINGS)
    assert {file: file.stat().st_mtime_ns for file in (inside / "whole" / "cells").rglob("*")} == before


def test_cells_are_shared_by_their_content(inside: Path) -> None:
    """Two studies with one folder of cells run a common cell once, wherever their files and models are."""
    (inside / "elsewhere").mkdir()
    for name in ("start", "nli.tsv", "dev.tsv"):
        source = inside / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, inside / "elsewhere" / name)
    moved = STUDY.replace('"nli.tsv"', '"elsewhere/nli.tsv"').replace('"dev.tsv"', '"elsewhere/dev.tsv"')
    moved = moved.replace("A tiny study", "Another").replace('id = "sbert"', 'id = "other-name"')
    moved = moved.replace('"sbert"]', '"other-name"]')
    first = cells_of(STUDY, inside)
    second = cells_of(moved, inside, start=str(inside / "elsewhere" / "start"))
    assert [cell.key for cell in first] == [cell.key for cell in second]
    (inside / "elsewhere" / "nli.tsv").write_text((inside / "nli.tsv").read_text(encoding="utf-8") + "\n")
    third = cells_of(moved, inside, start=str(inside / "elsewhere" / "start"))
    changed = [one.key != two.key for one, two in zip(second, third, strict=True)]
    assert changed == [cell.row.id != "untrained" for cell in second]


def test_a_setting_changes_the_key_and_a_default_does_not(inside: Path) -> None:
    keys = [cell.key for cell in cells_of(STUDY, inside)]
    same = STUDY.replace("max_steps = 2", 'max_steps = 2\nwarmup = 0.1\ndevice = "cpu"').replace(
        "resamples = 10", 'resamples = 10\nprobe_preset = "senteval"'
    )
    assert [cell.key for cell in cells_of(same, inside)] == keys
    for other in ("max_steps = 2\nwarmup = 0.2", "max_steps = 3"):
        found = [cell.key for cell in cells_of(STUDY.replace("max_steps = 2", other), inside)]
        assert [one != two for one, two in zip(found, keys, strict=True)] == [False] * 2 + [True] * 8


@pytest.mark.long
def test_an_unfinished_training_whose_start_has_moved_is_trained_again(inside: Path, tmp_path: Path) -> None:
    """The job is the same, because the content is, but its run folder names the start by another path."""
    shutil.copytree("start", "moved")
    before, after = (
        next(cell for cell in cells_of(STUDY, inside, start=start) if cell.last_training)
        for start in ("start", "moved")
    )
    jobs = [job for cell in (before, after, after) if (job := cell.last_training) is not None]
    assert len({job.key for job in jobs}) == 1
    results = []
    for job in jobs:
        steps.train({**job.settings, **job.local}, {}, tmp_path)
        results.append((tmp_path / "run" / "model" / "model.safetensors").read_bytes())
        (tmp_path / "numbers.json").unlink()
    assert results[0] == results[1] == results[2]
    assert 'model = "moved"' in (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")


@pytest.mark.long
def test_only_runs_the_named_rows(inside: Path) -> None:
    table = study("study.toml", output="only", start="start", engine="inline", only=["untrained"], resamples=20)
    assert {cell.row for cell in table.cells if any(cell.values.values())} == {"untrained"}
    assert len(table.missing) == 8
    assert len(list((inside / "only" / "cells").glob("*/job.json"))) == 1
    with pytest.raises(NearfarError, match="--only: no row is called 'sbrt'"):
        study("study.toml", output="only", start="start", only=["sbrt"])


@pytest.mark.long
def test_rows_whose_data_are_missing_are_not_run(inside: Path) -> None:
    text = STUDY.replace('data = ["nli.tsv"]', 'data = ["gone.tsv"]')
    (inside / "gone.toml").write_text(text, encoding="utf-8")
    planned = dry_run("gone.toml", output="gone", scale="tiny", start="start")
    assert planned.missing == ("gone.tsv: no such file",)
    assert not (inside / "gone").exists()
    table = study("gone.toml", output="gone", **SETTINGS)
    assert {cell.row for cell in table.missing} == {"sbert"}
    assert "gone.tsv" in (inside / "gone" / "page.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_failed_cell_leaves_the_others(inside: Path) -> None:
    """The table is written, then the error names the job; it is run again by the same command."""
    text = STUDY.replace('evaluate_on = "dev.tsv"', 'evaluate_on = "bad.tsv"')
    (inside / "bad.toml").write_text(text, encoding="utf-8")
    (inside / "bad.tsv").write_text("sentence1\tsentence2\tscore\na\tb\tnonsense\n", encoding="utf-8")
    with pytest.raises(JobsFailedError, match=r"train: sbert \(rate 0.01, seed 1\): .*nonsense"):
        study("bad.toml", output="bad", **SETTINGS)
    table = StudyTable.load(inside / "bad" / TABLE)
    assert {cell.row for cell in table.missing} == {"sbert"}
    assert "nonsense" in str(table.missing)
    shutil.copy(inside / "dev.tsv", inside / "bad.tsv")
    assert not study("bad.toml", output="bad", **SETTINGS).missing


@pytest.mark.parametrize(("name", "content"), [("result.json", "{"), ("numbers.json", "[]")])
def test_a_damaged_cell_is_named(inside: Path, name: str, content: str) -> None:
    shutil.rmtree(inside / "damaged", ignore_errors=True)
    shutil.copytree(inside / "whole" / "cells", inside / "damaged")
    for file in (inside / "damaged").glob(f"*/{name}"):
        file.write_text(content, encoding="utf-8")
    with pytest.raises(NearfarError, match=r"damaged/\w+(/result.json)?: (is|its results are) "):
        study("study.toml", output="repaired", cells="damaged", scale="tiny", start="start", engine="inline")


def test_dry_run_counts_and_writes_nothing(inside: Path) -> None:
    planned = dry_run("study.toml", output="planned", start="start")
    counts = [line for line in planned.lines() if line.startswith("  cells: ")]
    assert counts == ["  cells: 2, 0 finished", "  cells: 4, 0 finished", "  cells: 4, 0 finished"]
    assert (len(planned.cells), planned.jobs, planned.finished) == (10, 17, 0)
    assert not (inside / "planned").exists()
    planned = dry_run("study.toml", output="planned", start="start", cells="whole/cells")
    assert planned.finished == 5
    assert {"  cells: 4, 2 finished", "10 cells, 17 jobs of cells whose data are here or on the hub, 5 finished"} <= {
        *planned.lines()
    }
    assert dry_run("study.toml", output="whole", scale="tiny", start="start").finished == 5


@pytest.mark.long
def test_discarded_models_are_trained_again_when_they_are_needed(inside: Path) -> None:
    first = study("study.toml", output="small", discard_models=True, **SETTINGS)
    assert not list((inside / "small" / "cells").glob("*/run/model"))
    assert study("study.toml", output="small", **SETTINGS).cells == first.cells
    text = STUDY.replace('"pairs.tsv", "other.tsv"]\nresamples', '"pairs.tsv"]\nresamples')
    text = text.replace('columns = ["pairs.tsv", "other.tsv", ', 'columns = ["pairs.tsv", ')
    (inside / "less.toml").write_text(text, encoding="utf-8")
    again = study("less.toml", output="less", cells="small/cells", **SETTINGS)
    places = [
        [(cell.row, cell.replicate, cell.values["pairs.tsv"]) for cell in table.cells] for table in (again, first)
    ]
    assert places[0] == places[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "no study given: nearfar study FILE.toml --output FOLDER"),
        ("study.toml --output o", "{start} has no value. Give one: --start VALUE"),
        ("study.toml --output o --start start --scale hre", "no scale is called 'hre'. There are: tiny, paper."),
        ("study.toml --output o --start start --report x", "--report FOLDER stands alone"),
        ("--report", "--report: needs a value"),
        ("--report missing", "missing/study.json"),
        ("study.toml --output study.toml --start start", "--output study.toml: is a file; name a folder"),
        ("second.toml --output whole --start start", "holds the table of another study, 'A tiny study'"),
        ("gone-file.toml --output o", "gone-file.toml: cannot be read as TOML"),
        ("study.toml --output o --start ./nowhere", "data or models of every row are missing"),
        ("study.toml --output o --start whole", "whole: is no model folder (it has no config.json)"),
    ],
)
def test_bad_arguments(inside: Path, arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from nearfar.cli import main

    (inside / "second.toml").write_text(STUDY.replace("A tiny study", "Another"), encoding="utf-8")
    needed = "" if "--output" in arguments or "--report" in arguments else " --output o"
    status = main(["study", *arguments.split(), *needed.split()])
    shown = capsys.readouterr()
    assert message in shown.err + shown.out
    assert status == 2


FINETUNE = """
title = "Fine-tuning"
columns = ["accuracy", "validation", "updates_per_second"]
finetune = { task = "colours.tsv", validation_rows = 10, batch_size = 8, max_steps = 2, evaluate_every = 1 }
rows = [
    { id = "one", model = "start" },
    { id = "two", model = "start", steps = [{ finetune = { seed = 5 } }, { finetune = { max_steps = 1 } }] },
]
"""


@pytest.mark.long
def test_finetuning_from_the_model_of_the_step_before(inside: Path) -> None:
    (inside / "finetune.toml").write_text(FINETUNE, encoding="utf-8")
    table = study("finetune.toml", output="finetuned", engine="inline", resamples=20)
    assert not table.missing
    one, two = table.cells
    assert one.values["accuracy"] is not None
    assert two.values["accuracy"] is not None
    assert one.values["updates_per_second"] > 0  # type: ignore[operator]
    folders = {folder.name: folder for folder in (inside / "finetuned" / "cells").iterdir()}
    jobs = {name: json.loads((folder / "job.json").read_text()) for name, folder in folders.items()}
    first = next(name for name, job in jobs.items() if job["settings"]["keep_model"])
    assert jobs[two.key]["inputs"] == {"model": first}
    assert [(folders[name] / "run" / "model").is_dir() for name in (first, one.key, two.key)] == [True, False, False]
    config = tomllib.loads((folders[two.key] / "run" / "config.toml").read_text(encoding="utf-8"))
    assert config["model"] == str(folders[first] / "run")


@pytest.mark.usefixtures("nearfar_data")
@pytest.mark.realdata
def test_named_sets_are_known_by_the_content_of_their_files(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        "title": "t",
        "columns": ["stsb"],
        "evaluate": {"tasks": ["stsb"]},
        "rows": [{"id": "a", "model": "start"}],
    }
    (before,) = cells_of(tomli_w.dumps(content), inside)
    assert before.jobs[0].settings["sources"]["stsb"] not in (None, "hub")  # type: ignore[index,call-overload]
    monkeypatch.delenv("NEARFAR_DATA")
    (after,) = cells_of(tomli_w.dumps(content), inside)
    assert after.jobs[0].settings["sources"] == {"stsb": "hub"}
    assert [one.on_hub for one in after.sources if one.spec == "stsb"] == [
        ("stsb:test: nearfar get-data stsb downloads it.",)
    ]


@pytest.mark.long
def test_a_study_that_is_stopped_again_and_again_ends_with_the_same_files(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C at a flush to the disk; each attempt goes on from what is there."""
    fsync, flushes, stopped = os.fsync, 0, 0

    def counted(file: int) -> None:
        nonlocal flushes
        flushes -= 1
        if flushes == 0:
            raise KeyboardInterrupt
        fsync(file)

    monkeypatch.setattr(os, "fsync", counted)
    for allowed in (3, 8, 13, 18, 23):
        flushes = allowed
        with suppress(KeyboardInterrupt):
            study("study.toml", output="stopped", **SETTINGS)
        stopped += not (inside / "stopped" / TABLE).exists()
    assert stopped > 3
    flushes = 0
    study("study.toml", output="stopped", **SETTINGS)
    assert contents(inside / "stopped") == contents(inside / "whole")


DISTILLED = """
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
train = { TRAINING }
"""
WITH_TEACHER = (
    'method = "distill", teacher = "TEACHER", keep_layers = "1"',
    'method = "simcse-unsup", sets = [{ method = "distill", data = ["texts.txt"], teacher = "TEACHER" }]',
)


def cell(training: str, teacher: str = "") -> Cell:
    """The only cell of the study with this training."""
    (only,) = cells_of(DISTILLED.replace("TRAINING", training).replace("TEACHER", teacher), Path())
    return only


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the rows of a study, and a teacher."""
    write_study(tmp_path)
    save_tiny(tmp_path / "teacher", seed=1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("training", WITH_TEACHER)
def test_a_teacher_is_known_by_its_content(folder: Path, training: str) -> None:
    first = cell(training, "teacher")
    assert not first.missing
    save_tiny(folder / "teacher", seed=2)
    assert cell(training, "teacher").key != first.key
    (missing,) = cell(training, "nowhere/at/all").missing
    assert missing.missing == ("nowhere/at/all: no such model folder",)
