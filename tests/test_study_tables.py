"""The studies in studies/tables: they run at scale ``tiny``, on generated data and an encoder with random weights.

Three of them run in ``make test``, and all of them at night, so that a new study costs no time by day.
"""

from pathlib import Path

import pytest

import nearfar
from nearfar.studies.dry_run import dry_run
from nearfar.studies.inputs import ENCODER, write_inputs
from nearfar.studies.read import load_study
from tests.scripts import call_here

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "studies" / "tables").glob("*.toml"))
CELLS = {
    "baselines-similarity": 10,
    "baselines-similarity-wmean": 10,
    "baselines-tracks": 10,
    "baselines-transfer": 20,
    "baselines-transfer-pairs": 20,
    "fast-settings": 18,
    "methods-from-raw": 3 + 14 * 3 + 5,
    "nli-from-minilm": 1 + 3 * 3,
    "published-scores": 1,
    "recipes-labels": 1 + 3 * 5 + 2,
    "recipes-labels-choice": 5 * 3 + 13,
    "recipes-labels-minilm": 1 + 3 * 5 + 2,
    "recipes-labels-minilm-choice": 1 + 9 + 4 + 6 + 2,
    "recipes-labels-more-choice": 1 + 3 + 9,
    "recipes-nli": 1 + 2 * 5 + 2,
    "recipes-nli-choice": 2 + 2 * 3 + 5,
    "recipes-nli-minilm": 1 + 3 * 5,
    "recipes-nli-minilm-choice": 3 * 3 + 3,
    "recipes-nli-minilm-start-choice": 15,
    "recipes-nli-more-choice": 32,
    "recipes-nli-peers-choice": 2 + 3 + 3,
    "recipes-nli-sentences": 1 + 4 * 5,
    "recipes-nli-start-choice": 13,
    "recipes-pairs": 1 + 2 * 5,
    "recipes-pairs-choice": 2 * 3 + 12,
    "recipes-pairs-minilm": 1 + 2 * 5 + 1,
    "recipes-pairs-minilm-choice": 1 + 6 + 17,
    "recipes-pairs-minilm-more-choice": 1 + 2 + 9,
    "recipes-pairs-sentences": 1 + 4 * 5 + 1,
    "recipes-pairs-sentences-minilm": 1 + 4 * 5,
    "recipes-pairs-sentences-minilm-choice": 3 + 2,
    "recipes-pairs-sentences-choice": 2 * 3 + 6,
    "recipes-scored-minilm": 1 + 3 * 5,
    "recipes-scored-minilm-choice": 1 + 1 + 5 * 3 + 1 + 5,
    "recipes-sentences": 1 + 2 * 5 + 2,
    "recipes-sentences-last-choice": 1 + 9,
    "recipes-sentences-more-choice": 6,
    "recipes-sentences-minilm": 1 + 3 * 5,
    "recipes-sentences-minilm-choice": 17,
    "recipes-sentences-minilm-more-choice": 2 + 11,
    "recipes-sentences-choice": 2 * 3 + 16,
    "recipes-scored": 1 + 3 * 5 + 1,
    "recipes-scored-choice": (9 * 3 + 6) * 2,
    "recipes-soup-choice": 4,
    "recipes-soup-minilm-choice": 8,
    "recipes-teacher": 2 + 2 * 5 + 1,
    "recipes-teacher-average-choice": 3 * 5,
    "recipes-teacher-choice": 25,
    "recipes-teacher-more-choice": 7 + 3 * 5,
    "recipes-teacher-nli": 2 + 3 * 5,
    "recipes-teacher-nli-choice": 10,
    "recipes-triplets": 1 + 4 * 5 + 1,
    "recipes-triplets-choice": 3 * 3 + 14,
    "recipes-triplets-minilm": 1 + 3 * 5,
    "recipes-triplets-minilm-choice": 1 + 5 + 1 + 4 + 3,
    "recipes-triplets-minilm-more-choice": 5 * 5,
    "sentences-from-minilm": 12,
    "students": 3 + 4 * 5,
    "students-choice": 3 + 6 + 6 + 8 + 4,
    "students-narrow": 2 + 4 * 5,
    "students-narrow-choice": 2 + 8 + 6,
    "students-narrow-more-choice": 5,
    "stsb-regression": 6,
    "widths": 90,
}
BY_DAY = ("baselines-transfer", "recipes-triplets", "students")
"""Baselines and probes; a script of another library beside nearfar's own training; distillation and static models."""
STUDIES = [pytest.param(file, id=file.stem, marks=[] if file.stem in BY_DAY else pytest.mark.nightly) for file in FILES]
TINY = [study for study in STUDIES if study.id != "stsb-regression" and not str(study.id).endswith("-choice")]
"""The studies that run here. No data are generated for fine-tuning on scored pairs. The choices of recipes have no step
that others do not have; their losses of another library are in test_peer_losses.py."""


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
@pytest.mark.parametrize("file", STUDIES)
def test_the_study_has_its_cells(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_DATA", str(folder / "no-data"))
    planned = dry_run(file, output=folder / "nothing", start=folder / "inputs" / ENCODER)
    assert len(planned.cells) == CELLS[file.stem]
    assert not (folder / "nothing").exists()


@pytest.mark.long
@pytest.mark.realdata
@pytest.mark.parametrize("file", STUDIES)
def test_no_data_are_missing(file: Path, folder: Path, nearfar_data: Path) -> None:
    planned = dry_run(file, output=folder / "nothing", start=folder / "inputs" / ENCODER)
    assert [one for row in planned.rows for one in row.missing] == []


def test_the_fast_settings_can_be_tried_one_by_one() -> None:
    study = load_study(ROOT / "studies" / "tables" / "fast-settings.toml", "each", placeholders={"start": "start"})
    assert study.axis("settings").labels == ("plain", "premise", "bf16", "fast")
    assert study.axis("settings").baseline == "plain"
