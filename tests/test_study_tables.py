"""The studies in studies/tables: they run at scale ``tiny``, on generated data and an encoder with random weights.

One of them runs in ``make test``, and all of them at night, so that a new study costs no time by day.
"""

from pathlib import Path

import pandas as pd
import pytest

import nearfar
from nearfar.evaluation.results import StudyTable
from nearfar.studies import dry_run
from nearfar.studies.cells import load_study, plan_cells
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import call_here

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "studies" / "tables").glob("*.toml"))
CHOICES = pd.read_csv(ROOT / "studies" / "results" / "choices.csv", dtype=str, keep_default_na=False)
BY_DAY = ("published-scores",)
"""One cell, which trains nothing."""
ADDED_TO = ("students-narrow-choice",)
"""Studies whose file has a row more than their record."""
STUDIES = [pytest.param(file, id=file.stem, marks=[] if file.stem in BY_DAY else pytest.mark.nightly) for file in FILES]
TINY = [study for study in STUDIES if study.id != "stsb-regression" and not str(study.id).endswith("-choice")]
"""The studies that run here. No data are generated for fine-tuning on scored pairs. The choices of recipes have no step
that others do not have; their losses of another library are in test_study_scripts.py."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the generated inputs; all tables share its cells."""
    folder = tmp_path_factory.mktemp("tables")
    write_inputs(folder / "inputs")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("file", TINY)
def test_a_tiny_table_runs(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.studies.steps._call", call_here)
    monkeypatch.setenv("NEARFAR_DATA", str(folder / "no-data"))
    settings = {"output": folder / file.stem, "cells": folder / "cells", "start": folder / "inputs" / ENCODER}
    table = nearfar.study(file, scale="tiny", engine="inline", resamples=20, **settings)
    assert not table.missing
    untrained = {row["id"] for row in table.study["rows"] if row.get("steps") == ["evaluate"]}
    for cell in table.cells:
        empty = {column for column in table.columns if cell.values.get(column) is None}
        assert empty <= ({"validation"} if cell.row in untrained else set()), cell
    if "average.unseen_by_all" in table.columns:  # the dev pairs of generated data are not the tested ones
        assert set(table.unseen_pairs) == {"microworld"}


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_study_has_the_cells_of_its_record(file: Path) -> None:
    """The committed numbers are those of the committed study, but for studies that were not run."""
    record = ROOT / "studies" / "results" / "tables" / file.stem / "study.json"
    cells = [
        (cell.row.id, cell.coordinates, cell.replicate)
        for cell in plan_cells(load_study(file, placeholders={"start": "start", "data": "data"}))
    ]
    assert cells
    if record.exists():
        table = StudyTable.load(record)
        recorded = [(cell.row, cell.coordinates, cell.replicate) for cell in (*table.cells, *table.missing)]
        assert sorted(map(str, recorded)) == sorted(map(str, cells))
    kept = CHOICES[CHOICES.study == file.stem]
    if len(kept) and file.stem not in ADDED_TO:
        values = {(row, " ".join(axes.values()), str(same.get("seed", ""))) for row, axes, same in cells}
        assert set(kept[["row", "setting", "seed"]].itertuples(index=False, name=None)) == values


@pytest.mark.long
@pytest.mark.realdata
@pytest.mark.parametrize("file", STUDIES)
def test_no_data_are_missing(file: Path, folder: Path, nearfar_data: Path) -> None:
    planned = dry_run(file, output=folder / "nothing", start=folder / "inputs" / ENCODER)
    assert not planned.missing
