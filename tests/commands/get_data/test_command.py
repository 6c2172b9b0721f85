"""The list of sets, and bad input."""

import re
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from nearfar.data.named_sets import CATALOG
from tests.data.files import error_of, write_lines


@pytest.mark.parametrize("argv", [["get-data"], ["get-data", "--list"]])
def test_every_set_is_listed(data: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^([\w-]+): missing$", printed, re.MULTILINE) == [
        name for name, entry in CATALOG.items() if not entry.packaged
    ]
    assert max(map(len, printed.splitlines())) <= max(110, len(f"Data folder: {data}"))
    assert not data.exists()


def test_the_list_shows_rows_licence_and_use(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(data / "senteval/TREC/train.tsv", "label\ttext", "NUM\tone", "", "LOC\ttwo")
    write_lines(data / "senteval/TREC/own.tsv", "label\ttext", "NUM\tone")
    (tmp_path / "cache/mteb___sts12-sts").mkdir(parents=True)
    assert main(["get-data", "trec", "sts12", "--list"]) == 0
    flat = " ".join(capsys.readouterr().out.split())
    assert (
        "trec: local, in part rows: train 2 (published: 5,452), test missing (500), own 1 licence: distributed" in flat
    )
    assert "cite: Li and Roth 2002" in flat
    assert "needed for: Liao 2021, Tables 3 to 5; Kim 2021, Table 4 get it: nearfar get-data trec downloads it." in flat
    assert "sts12: hub cache rows: MSRpar missing (750)," in flat
    assert "with its subsets, which the hub copy mteb/sts12-sts lacks" in flat
    write_lines(data / "senteval/TREC/test.tsv", "label\ttext", "NUM\tone")
    (status,) = nearfar.get_data("trec", list=True).listed
    assert status.place == "local"


def test_without_a_data_folder(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NEARFAR_DATA")
    assert main(["get-data", "mr", "--list"]) == 0
    assert "Data folder: none; set NEARFAR_DATA" in capsys.readouterr().out
    assert error_of(nearfar.get_data, "mr").startswith("No data folder: name one by --output, or set the environment")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["trek"], "trek: no such data set. Did you mean 'trec'? nearfar get-data --list lists them"),
        (["mr:train"], "mr:train: name the whole set, mr; its splits belong together."),
        (["sentences"], "sentences: cannot be downloaded. Name a file of your own instead"),
        (["mr", "amazon5"], "amazon5: cannot be downloaded. It is a sample without a public source."),
    ],
)
def test_bad_names(data: Path, capsys: pytest.CaptureFixture[str], names: list[str], message: str) -> None:
    assert main(["get-data", *names]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not data.exists() or not any(data.iterdir())


def test_bad_folders(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert main(["get-data", "mr", "--output", str(tmp_path / "file")]) == 2
    assert "file: is a file; name a folder." in capsys.readouterr().err
    data.mkdir()
    for content in ("[1]", "{", '{"downloads": {"a": 1}}'):
        (data / "sources.json").write_text(content)
        message = error_of(nearfar.get_data, "mr")
        assert message.startswith(f"{data / 'sources.json'}: is ")
        assert "Move it away; it is written again" in message


@pytest.mark.long
@pytest.mark.realdata
def test_the_data_folder_has_the_published_numbers_of_rows(nearfar_data: Path) -> None:
    found = {file for one in nearfar.get_data(list=True).listed for file in one.files if file.rows and file.published}
    assert len(found) > 40
    assert {file.file: file.rows for file in found if file.rows != file.published} == {
        "senteval/CR.tsv": 3771,  # without 4 and 3 empty texts
        "senteval/MPQA.tsv": 10_603,
    }


def test_a_suite_names_its_sets(data: Path) -> None:
    listed = nearfar.get_data("sts", list=True).listed
    assert [one.name for one in listed] == [
        *("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "sickr-full")
    ]
    assert [one.name for one in nearfar.get_data(["snli+mnli", "sick-e", "amazon2"], list=True).listed] == [
        *("snli", "mnli", "sickr", "amazon5")
    ]
