"""Several seeds on rows of one's own: held-out rows, the start as a row, and where the trained models are."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearfar
from nearfar.cli import main
from nearfar.commands.train.choose import resolve_config
from nearfar.evaluation.results import StudyTable
from nearfar.runs.held_out import load_held_out
from nearfar.studies import MODELS, TABLE, dry_run, study
from nearfar.studies.cells import load_study, plan_cells
from nearfar.studies.table import compare_again
from nearfar.studies.units import UNITS
from nearfar.types import NearfarError
from tests.tiny import save_tiny, write_anchors, write_pairs

SEEDS = """
title = "Seeds"
columns = ["held-out", "validation"]
replicates = { seed = [1, 2] }
compare_with = "start"

[train]
method = "info-nce"
model = "{start}"
data = ["pairs.tsv"]
batch_size = 16
max_steps = 3
learning_rate = 1e-3
evaluate_every = 1

[evaluate]
held_out = true

[[rows]]
id = "start"
name = "before training"
model = "{start}"
steps = ["evaluate"]
evaluate = { held_out_of = "trained" }

[[rows]]
id = "trained"
train = {}
"""
SETTINGS: dict[str, Any] = {"start": "tiny", "engine": "inline"}
BY_HAND: dict[str, Any] = {
    **{"data": ("pairs.tsv",), "model": "tiny", "batch_size": 16, "max_steps": 3, "learning_rate": 1e-3},
    **{"evaluate_every": 1, "hold_out": 40},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with pairs, an encoder, and ``seeds``: the study of two seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    save_tiny(folder / "tiny")
    write_anchors(folder / "pairs.tsv", 200)
    write_pairs(folder / "dev.tsv", 20)
    (folder / "texts.txt").write_text("a dog\na cat\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("seeds.toml").write_text(SEEDS, encoding="utf-8")
        study("seeds.toml", output="seeds", **SETTINGS)
        yield folder


@pytest.mark.long
def test_a_study_can_take_the_recipe_of_the_rows_and_the_start(inside: Path) -> None:
    """The settings are those of ``nearfar train --data``; ``method = "info-nce"`` has the method's defaults."""
    given = {"data": ("pairs.tsv",), "model": "tiny", "output": "cell"}
    file = inside / "auto.toml"
    for method, expected in (("auto", resolve_config(None, given)), ("info-nce", resolve_config("info-nce", given))):
        file.write_text(SEEDS.replace('"info-nce"', f'"{method}"').split("batch_size")[0] + SEEDS.split("= 1\n", 1)[1])
        cells = plan_cells(load_study(file, placeholders={"start": "tiny"}))
        assert expected in [step.config for cell in cells for step in cell.steps]
    assert resolve_config(None, given) != resolve_config("info-nce", given)


@pytest.fixture
def inside(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workspace)
    return workspace


def listed(folder: str) -> list[dict[str, str]]:
    with Path(folder, MODELS).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def run_folders() -> list[Path]:
    """The run folders of the study, by seed."""
    return [Path("seeds", one["folder"]) for one in listed("seeds")]


@pytest.mark.long
def test_scores_and_difference_are_those_of_single_runs(inside: Path) -> None:
    table = StudyTable.load(inside / "seeds" / TABLE)
    by_hand = [nearfar.train(nearfar.InfoNceConfig(output=f"by-hand-{seed}", seed=seed, **BY_HAND)) for seed in (1, 2)]
    start, trained = ([cell for cell in table.cells if cell.row == row] for row in ("start", "trained"))
    compared = [one.comparison.tasks["held-out"] for one in by_hand if one.comparison is not None]
    assert len(compared) == len(trained) == 2
    for cell, run, single in zip(trained, by_hand, compared, strict=True):
        assert cell.values["held-out"] == pytest.approx(single.first)
        assert cell.values["validation"] == pytest.approx(100 * (run.best_score or 0))
    assert compared[0].first != compared[1].first
    assert {cell.values["held-out"] for cell in start} == {compared[0].second}
    assert start[0].key == start[1].key  # one run, whatever the seed

    (row,) = table.comparisons
    assert (row.first, row.second) == ("trained", "start")
    assert row.difference == pytest.approx(sum(one.first - one.second for one in compared) / 2, abs=1e-3)
    assert row.low < row.difference < row.high
    assert row.units == load_held_out(run_folders()[0]).anchors("test")
    assert compare_again(table, inside / "seeds" / UNITS) == table.comparisons


@pytest.mark.long
def test_all_seeds_hold_out_the_same_rows(inside: Path) -> None:
    held_out = [load_held_out(folder) for folder in run_folders()]
    assert held_out[0] == held_out[1]
    assert held_out[0].anchors("test") > 0


def test_the_start_is_evaluated_once(inside: Path) -> None:
    jobs = [json.loads(file.read_text(encoding="utf-8")) for file in Path("seeds/cells").glob("*/job.json")]
    inputs = sorted(tuple(job["inputs"]) for job in jobs)
    assert inputs == [(), (), ("held_out",), ("model",), ("model",)]
    assert str(inside) not in json.dumps(jobs)
    planned = dry_run("seeds.toml", output="seeds", **SETTINGS)
    assert (planned.jobs, planned.finished) == (5, 5)
    planned = dry_run("seeds.toml", output="new", only=["start"], **SETTINGS)
    assert planned.jobs == 2  # with the training that holds out the rows


@pytest.mark.long
def test_the_command_names_the_models(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("study seeds.toml --output seeds --start tiny --engine inline".split()) == 0
    shown = capsys.readouterr().out
    keys = [one["folder"] for one in listed("seeds")]
    assert [(one["row"], one["seed"]) for one in listed("seeds")] == [("trained", "1"), ("trained", "2")]
    assert "The run folders of the trained models are listed in seeds/models.csv.\n" in shown
    for seed, key in enumerate(keys, 1):
        assert json.loads(Path("seeds", key, "run.json").read_text(encoding="utf-8"))["config"]["seed"] == seed
    assert main(["study", "--report", "seeds"]) == 0
    assert capsys.readouterr().out in shown


@pytest.mark.long
@pytest.mark.parametrize("discard", [True, False])
def test_the_start_needs_no_model(inside: Path, discard: bool) -> None:
    """A discarded model is not trained again for its held-out rows."""
    shutil.rmtree("less", ignore_errors=True)
    shutil.copytree("seeds/cells", "less/cells")
    for file in Path("less/cells").glob("*/job.json"):
        if "held_out" in json.loads(file.read_text(encoding="utf-8"))["inputs"]:
            shutil.rmtree(file.parent)
    for model in Path("less/cells").glob("*/run/model"):
        shutil.rmtree(model)
    before = {file: file.stat().st_mtime_ns for file in Path("less/cells").glob("*/run/run.json")}
    table = study("seeds.toml", output="less", discard_models=discard, **SETTINGS)
    assert not table.missing
    assert {file: file.stat().st_mtime_ns for file in Path("less/cells").glob("*/run/run.json")} == before
    assert not Path("less", MODELS).exists()


BAD = {
    "no row": ('"trained" }', '"traind" }', "'traind': must be the id of another row: .* Did you mean 'trained'"),
    "the row itself": ('"trained" }', '"start" }', "'start': must be the id of another row"),
    "a dev set": ("train = {}", 'train = { evaluate_on = "dev.tsv" }', "'trained': this row holds out no rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_row_whose_held_out_rows_cannot_be_used(inside: Path, case: str) -> None:
    old, new, message = BAD[case]
    assert old in SEEDS
    Path("bad.toml").write_text(SEEDS.replace(old, new), encoding="utf-8")
    with pytest.raises(NearfarError, match=message):
        dry_run("bad.toml", output="bad", **SETTINGS)
