"""Downloads that are incomplete, damaged or not what they should be."""

from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from tests.commands.get_data import downloads
from tests.commands.get_data.downloads import convert
from tests.data.files import error_of


def test_a_failed_conversion_leaves_the_old_file(data: Path, tmp_path: Path) -> None:
    (data / "senteval/TREC").mkdir(parents=True)
    old = data / "senteval/TREC/test.tsv"
    old.write_text("label\ttext\tfine_label\nNUM\told\tNUM:x\n")
    source = downloads.write_folder(tmp_path / "raw", {"TREC_10.label": "NUM:dist How far ?\nWHO:x Who ?\n"})
    message = error_of(nearfar.get_data, "trec", source=source, overwrite=True)
    assert (
        message == f"{source / 'TREC_10.label'}, line 2: the label 'WHO' is not one of ABBR, DESC, ENTY, HUM, LOC, NUM."
    )
    assert old.read_text().endswith("NUM:x\n")
    assert sorted(path.name for path in old.parent.iterdir()) == ["test.tsv"]


def test_a_damaged_file_does_not_keep_others_from_being_made(data: Path, tmp_path: Path) -> None:
    empty = {f"MRPC/msr_paraphrase_{split}.txt": "" for split in ("train", "test")}  # SentEval's script may leave these
    message = error_of(convert, tmp_path / "raw", {**downloads.classification(), **empty})
    assert message.startswith("2 files could not be made; the others are complete.\n")
    assert message.count("is empty; its first line should name the columns Quality") == 2
    assert (data / "senteval/MR.tsv").exists()
    assert (data / "senteval/SST5/test.tsv").exists()
    assert not (data / "senteval/MRPC/train.tsv").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sts-dev.csv", "main\tMSRvid\t2012\t1\t5.0\tonly one\n", "line 1: 6 tab-separated fields, but at least 7"),
        ("sts-dev.csv", "main\tMSRvid\t2012\t1\thigh\tone\ttwo\n", "line 1: 'high' is not a score from 0 to 5"),
        ("sts-dev.csv", "main\tMSRvid\t2012\t1\t7\tone\ttwo\n", "line 1: '7' is not a score from 0 to 5"),
        ("sts-dev.csv", b"main\tMSRvid\t2012\t1\t5\tcaf\xe9\ttwo\n", "line 1: not UTF-8 (byte 25 of the line is 0xe9)"),
        ("sts-dev.csv", "", "sts-dev.csv: no rows for sts/STSB/dev.tsv; the download is incomplete"),
        ("RTE/dev.tsv", "index\tsentence1\tsentence2\n", "line 1: no column 'label'"),
        ("RTE/dev.tsv", "", "is empty; its first line should name the columns label, sentence1, sentence2"),
        ("RTE/dev.tsv", "sentence1\tsentence2\tlabel\none\ttwo\n", "line 2: 2 tab-separated fields, too few"),
        ("RTE/dev.tsv", "sentence1\tsentence2\tlabel\na\tb\tyes\n", "line 2: the label 'yes' is not one of entailment"),
        ("snli_1.0_dev.jsonl", "[1]\n", "line 1: a JSON list, not an object"),
        ("snli_1.0_dev.jsonl", "{\n", "line 1: not a JSON object: Expecting"),
        ("snli_1.0_dev.jsonl", '{"gold_label": "neutral", "sentence1": "a"}\n', "line 1: not a JSON object with"),
        ("yelp_review_polarity_csv/test.csv", '"1"\n', "line 1: 1 fields, but 2 are expected"),
        ("yelp_review_polarity_csv/test.csv", '"1","open\n', "line 1: not well-formed CSV"),
        ("yelp_review_polarity_csv/test.csv", '"3","x"\n', "line 1: the label '3' is not one of 1, 2"),
        ("CoLA/dev.tsv", "gj04\t1\tno\n", "line 1: 3 tab-separated fields, but at least 4"),
        ("SST/fine/sentiment-dev", "5 good\n", "line 1: the label '5' is not one of 0, 1, 2, 3, 4"),
    ],
)
def test_a_damaged_download_names_file_and_line(
    data: Path, tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    assert message in error_of(convert, tmp_path / "raw", {name: content})


def test_pairs_and_scores_must_match(data: Path, tmp_path: Path) -> None:
    files = downloads.sts_package("test-gs", ("FNWN",))
    short = {
        name: text.rpartition("\n")[0].rpartition("\n")[0] + "\n" if ".gs." in name else text
        for name, text in files.items()
    }
    short = {name: "1\n" if ".gs." in name else text for name, text in short.items()}
    assert "STS.gs.FNWN.txt: has fewer lines than" in error_of(convert, tmp_path / "a", short)
    long = {name: text + "1.0\n" if ".gs." in name else text for name, text in files.items()}
    assert "STS.input.FNWN.txt: has fewer lines than" in error_of(convert, tmp_path / "b", long)
    one = {name: "alone\n" if ".input." in name else "1\n" for name in files}
    assert "line 1: two tab-separated sentences are expected" in error_of(convert, tmp_path / "c", one)


def test_an_unrecognised_source(data: Path, tmp_path: Path) -> None:
    message = error_of(convert, tmp_path / "raw", {"notes.txt": "x\n"})
    assert (
        "raw: has no file of a known data set, such as sts-dev.csv, or STS-B/dev.tsv, or rt-polarity.pos and" in message
    )
    message = error_of(convert, tmp_path / "raw", {"rt-polarity.pos": "x\n", "rt-polarity.neg": "y\n"}, "trec")
    assert message.endswith("has no file of trec. It is made from train_5500.label, or TREC_10.label.")
    assert "no such file" in error_of(nearfar.get_data, source=tmp_path / "nowhere")


def test_files_of_a_set_that_the_source_lacks_are_reported(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = downloads.write_folder(tmp_path / "raw", {"TREC_10.label": "NUM:dist How far ?\n"})
    assert main(["get-data", "trec", "--source", str(source)]) == 0
    assert "Not in the source: senteval/TREC/train.tsv\n" in capsys.readouterr().out
    assert nearfar.get_data(source=source).missing == ()  # nothing was asked for by name


def test_an_unreadable_archive_in_a_folder_is_skipped_and_reported(data: Path, tmp_path: Path) -> None:
    files = {
        "mr.zip": downloads.zip_of(downloads.classification()),
        "a.zip": b"broken",
        "b.zip": downloads.zip_of({"../x": "x"}),
    }
    result = convert(tmp_path / "raw", files)
    assert (data / "senteval/MR.tsv").exists()
    assert [warning.partition(":")[0] for warning in result.skipped] == [
        f"{tmp_path}/raw/a.zip",
        f"{tmp_path}/raw/b.zip",
    ]
    assert set(result.skipped) <= set(result.warnings)
    message = error_of(convert, tmp_path / "raw", {}, "snli")
    assert "has no file of snli." in message
    assert "a.zip: is not a readable archive" in message
