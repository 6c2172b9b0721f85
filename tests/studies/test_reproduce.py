"""The verb: the list, the plan of a table, and every table at scale ``tiny``."""

import json
from pathlib import Path

import pytest

import nearfar
from nearfar import ReproduceConfig
from nearfar.cli import main
from nearfar.studies import DryRun, command_line
from nearfar.studies.papers import PAPERS, plan, table_names, write_inputs

BY_DAY = ("kim-table-6", "kim-table-9")
"""Time and numbers of parameters, and a baseline by its layers; the other tables run at night."""
TABLES = [pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly) for name in table_names()]
UNDEFINED = {
    "kim-figure-1": {"layer.0.cls"},  # [CLS] has the same embedding in every text
    "kim-table-6": {"training_seconds"},  # of rows that are not trained
}
"""Table -> columns that a run may leave empty."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tables, which share cells."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(autouse=True)
def _without_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("realdata") is None:
        monkeypatch.delenv("NEARFAR_DATA", raising=False)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_tiny_table_runs(name: str, output: Path) -> None:
    table = nearfar.reproduce(name, scale="tiny", output=output, engine="inline", resamples=20)[name]
    assert not table.missing
    assert table.scale == "tiny"
    assert table.runs.hardware  # which is known of a timing too
    for cell in table.cells:
        empty = {column for column in table.columns if cell.values.get(column) is None}
        assert empty <= UNDEFINED.get(name, set()), cell
    folder = output / name
    assert f"nearfar reproduce {name} --scale tiny" in (folder / "page.md").read_text(encoding="utf-8")
    assert {"study.json", "table.csv", "table.tex"} <= {file.name for file in folder.iterdir()}


@pytest.mark.long
def test_a_plan_names_each_split_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a task whose other split is here, and of two sets of which one is here: nothing is read from the hub."""
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path / "data"))
    for name in ("glue/QNLI/dev", "nli/MNLI/dev_matched", "nli/SNLI/train", "sts/SICK/train"):
        file = tmp_path / "data" / f"{name}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("some rows\n", encoding="utf-8")

    def planned(name: str) -> DryRun:
        return plan([name], scale="paper", output=tmp_path / "reproduced")[name]

    few_shot, transfer, similarity = map(planned, ("gunel-table-2", "kim-table-4", "kim-table-1"))
    absent = ["sst2-glue:train", "sst2-glue:dev", "FacebookAI/roberta-large", "mnli:train"]
    assert [line.partition(": ")[0] for line in few_shot.downloads] == [*absent[:3], "qnli:train", absent[3]]
    assert "  qnli:train: nearfar get-data qnli downloads it." in few_shot.lines()
    assert "mnli:train: nearfar get-data mnli downloads it." in transfer.downloads
    assert not any(line.startswith("snli") for line in transfer.downloads)
    assert "sickr:test: nearfar get-data sickr downloads it." in similarity.missing
    (tmp_path / "data" / "glue" / "QNLI" / "train.tsv").write_text("some rows\n", encoding="utf-8")
    assert [line.partition(": ")[0] for line in planned("gunel-table-2").downloads] == absent


@pytest.mark.nightly
@pytest.mark.long
def test_the_list_has_all_tables_by_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    printed = capsys.readouterr().out
    places = [printed.index(f"  {name} ") for name in table_names()]
    assert places == sorted(places)
    assert all(title in printed for title in PAPERS.values())
    assert "missing: " in printed  # without NEARFAR_DATA


@pytest.mark.long
def test_inputs_are_the_same_files_every_time(tmp_path: Path) -> None:
    one, other = write_inputs(tmp_path / "one"), write_inputs(tmp_path / "deep" / "other")
    files = sorted(file.relative_to(one) for file in one.rglob("*") if file.is_file())
    assert len(files) >= 6
    assert [(one / file).read_bytes() for file in files] == [(other / file).read_bytes() for file in files]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "deep", tmp_path / "one"]
    assert json.loads((one / "encoder" / "config.json").read_text())["num_hidden_layers"] == 2


def test_the_command_is_the_one_to_type() -> None:
    config = ReproduceConfig(output="my tables", start="models/raw", workers=2)
    assert (
        command_line("reproduce", "kim-table-1", config)
        == "nearfar reproduce kim-table-1 --scale here --start models/raw --output 'my tables'"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("liao-tabel-2", "no table is called 'liao-tabel-2'. Did you mean 'liao-table-2'?"),
        ("kim", "no table is called 'kim'."),
        ("kim-table-1 kim-table-5 --only sg", "--only names rows of one table; give one table."),
        ("kim-table-1 --only sg-optt", "--only: no row is called 'sg-optt'."),
        ("kim-table-1 --scale paper --start m", "--start is for the scales here and tiny"),
    ],
)
def test_mistakes_are_named(arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", *arguments.split(), "--output", str(tmp_path / "new")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()
