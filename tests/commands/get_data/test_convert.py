"""Downloads become the files of the data folder: every recipe, the list of sets, the command line, bad downloads."""

import json
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from nearfar.commands.get_data.recipes import RECIPES, examples
from nearfar.data.classification import load_classification
from nearfar.data.labelled import load_transfer
from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, PROBE_TASKS, PUBLISHED_ROWS, files_of, sources_of
from nearfar.data.rows import load_nli, load_task
from tests.commands.get_data import downloads
from tests.commands.get_data.downloads import convert
from tests.data.files import error_of, write_lines


def test_the_list_shows_rows_licence_and_use(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(data / "senteval/TREC/train.tsv", "label\ttext", "NUM\tone", "", "LOC\ttwo")
    assert main(["get-data", "trec", "sts12", "--list"]) == 0
    flat = " ".join(capsys.readouterr().out.split())
    assert "trec: local, in part rows: train 2 (published: 5,452), test missing (500) licence: distributed" in flat
    assert "cite: Li and Roth 2002" in flat
    assert "needed for: Liao 2021, Tables 3 to 5; Kim 2021, Table 4 get it: nearfar get-data trec downloads it." in flat
    assert "sts12: missing rows: MSRpar missing (750)," in flat
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
        (["trek"], "no data set or suite is called 'trek'. Did you mean 'trec'?"),
        (["mr:train"], "mr:train: name the whole set, mr; its splits belong together."),
        (["sentences"], "sentences: cannot be downloaded. Name a file of your own instead"),
        (["mr", "amazon5"], "amazon5: cannot be downloaded. It is a sample without a public source."),
    ],
)
def test_bad_names(data: Path, capsys: pytest.CaptureFixture[str], names: list[str], message: str) -> None:
    assert main(["get-data", *names]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not data.exists() or not any(data.iterdir())


def test_bad_folders(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "file: is a file; name a folder." in error_of(nearfar.get_data, "mr", output=tmp_path / "file")
    data.mkdir()
    (data / "sources.json").write_text('{"downloads": {"a": 1}}')
    assert "Move it away; it is written again" in error_of(nearfar.get_data, "mr")


@pytest.mark.long
@pytest.mark.realdata
def test_the_data_folder_has_the_published_numbers_of_rows(nearfar_data: Path) -> None:
    counted = {file: rows for one in nearfar.get_data(list=True).listed for file, rows in one.rows.items() if rows}
    published = PUBLISHED_ROWS.keys() & counted.keys()
    assert len(published) > 40
    assert {file: counted[file] for file in published if counted[file] != PUBLISHED_ROWS[file]} == {
        "senteval/CR.tsv": 3771,  # without 4 and 3 empty texts
        "senteval/MPQA.tsv": 10_603,
    }


def rows(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]


def test_every_file_with_a_published_count_has_a_recipe_and_a_source() -> None:
    assert {recipe.target for recipe in RECIPES} == set(PUBLISHED_ROWS)
    assert all(sources_of(file) for file in PUBLISHED_ROWS)
    for name, rows_of_set in {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}.items():
        assert sum(PUBLISHED_ROWS[file] for file in files_of(name)) == rows_of_set
    assert not {"\\", "("} & set("".join(examples([file]) for file in PUBLISHED_ROWS))


@pytest.mark.long
def test_the_folder_of_senteval_is_loaded_by_name(data: Path, tmp_path: Path) -> None:
    result = convert(tmp_path / "senteval", downloads.senteval())
    names = [f"sts{year}" for year in downloads.SUBSETS]
    assert {file.file for file in result.converted} == {
        file for name in (*names, *"stsb sickr mr cr subj mpqa trec sst2 sst5 mrpc".split()) for file in files_of(name)
    }
    scored = {name: load_task(name) for name in (*names, "stsb", "sickr", "sickr-full")}
    assert list(scored["sts12"]) == list(downloads.SUBSETS[12])
    assert all(len(pairs) == 4 for name in names for pairs in scored[name].values())
    for name in set(PROBE_TASKS) - {"trec-dev"}:
        assert all(part.texts for part in load_transfer(name).splits.values()), name
    for file, row, expected in (
        ("senteval/MR.tsv", 0, "label text"),
        ("senteval/MR.tsv", 1, "1 a good caf\xe9 0"),
        ("senteval/MR.tsv", -1, "0 a bad caf\xe9 29"),
        ("senteval/SUBJ.tsv", 1, "1 a good caf\xe9 0"),  # 1 is objective
        ("senteval/TREC/test.tsv", 0, "label text fine_label"),
        ("senteval/TREC/test.tsv", 1, "ABBR What is caf\xe9 0 ? ABBR:abb"),
        ("senteval/SST2/train_phrases.tsv", 2, "1 a film 1"),
        ("senteval/SST2/train.tsv", 2, "1 a whole film 1"),
        ("senteval/SST2/dev.tsv", 2, "1 a whole film 1"),
        ("senteval/SST5/test.tsv", 5, "4 a fine film 4"),
        ("senteval/MRPC/train.tsv", 1, '0 He said "yes 0 She said no 0'),
        ("sts/STS12/MSRpar.tsv", 2, "1.5 The Dog 1 runs in the Park . The Cat of MSRpar 1 sleeps ."),
        ("sts/STSB/test.tsv", 2, '1.000 A Man 1 said "hi . A Person 1 spoke .'),
        ("sts/SICK/test.tsv", 0, "score sentence1 sentence2 label"),
        ("sts/SICK/test.tsv", 1, "1.0 A Kid 0 plays The Kid 0 sits NEUTRAL"),
    ):
        assert " ".join(rows(data / file)[row]) == expected, file
    of = {file.file: file for file in result.converted}
    assert of["senteval/CR.tsv"].dropped == {"with an empty text": 2}
    assert of["sts/STS12/MSRpar.tsv"].dropped == {"without a label or score": 2}
    record = json.loads((data / "sources.json").read_text())["files"]["senteval/CR.tsv"]
    assert (record["rows"], record["source"]) == (60, str(tmp_path / "senteval"))
    assert record["inputs"][0].endswith("CR/custrev.pos")


def test_glue_is_fine_tuned_on_by_name(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "glue"
    folder.mkdir()
    files = downloads.glue()
    for name in {path.partition("/")[0] for path in files}:
        members = {path: text for path, text in files.items() if path.startswith(f"{name}/")}
        (folder / f"{name}.zip").write_bytes(downloads.zip_of(members))
    nearfar.get_data(source=folder)
    for name in ("sst2", "cola", "mrpc-glue", "rte", "qnli", "mnli"):
        task = load_classification(name, validation_rows=6)
        assert (len(task.train.texts), len(task.validation.texts), len(task.test.texts)) == (14, 6, 20), name
        assert task.label_names == FINETUNING_TASKS[name].label_names
    assert rows(data / "glue/CoLA/dev.tsv")[2] == ["1", 'They "drank 1 .']
    assert rows(data / "glue/QNLI/dev.tsv")[0] == ["label", "question", "sentence"]
    assert rows(data / "nli/MNLI/dev_mismatched.tsv")[1] == ["It rains 0 .", "It is wet 0 .", "neutral"]
    assert list(load_task("stsb:train+dev")) == ["train", "dev"]
    assert not (data / "sts/STSB/test.tsv").exists()  # GLUE has no scores for it


def test_the_split_of_mrpc_in_glue(data: Path, tmp_path: Path) -> None:
    ids = "3\t4\n7\t8\n7\t9\n"  # the last is no pair
    convert(tmp_path / "raw", {"mrpc_dev_ids.tsv": ids, "msr_paraphrase_train.txt": downloads.msrp(10)}, "mrpc-glue")
    assert [row[2] for row in rows(data / "glue/MRPC/dev.tsv")[1:]] == ["She said no 3", "She said no 7"]
    assert len(rows(data / "glue/MRPC/train.tsv")) == 1 + 8


def test_nli_sets(data: Path, tmp_path: Path) -> None:
    files = downloads.nli_json("snli_1.0", ("train", "dev", "test"))
    (tmp_path / "snli_1.0.zip").write_bytes(
        downloads.zip_of({**files, "__MACOSX/snli_1.0/._snli_1.0_train.jsonl": "x"})
    )
    result = nearfar.get_data(source=tmp_path / "snli_1.0.zip")
    assert [(file.rows, file.dropped) for file in result.converted] == [(15, {"without a label or score": 5})] * 3
    assert len(load_nli("snli:train+dev+test").rows) == 45
    convert(tmp_path / "mnli", downloads.nli_json("multinli_1.0", ("train", "dev_matched", "dev_mismatched")), "mnli")
    assert rows(data / "nli/MNLI/train.tsv")[:2] == [
        ["premise", "hypothesis", "label"],
        ["A Dog 0 ran.", "An Animal 0 ran.", "entailment"],
    ]


def test_snli_of_senteval(data: Path, tmp_path: Path) -> None:
    files = {f"SNLI/{part}.train": f"{text}\n{text} two\n" for part, text in (("s1", "a dog"), ("s2", "a cat"))}
    convert(tmp_path / "download", {**files, "SNLI/labels.train": "neutral\nentailment\n"}, "snli")
    assert rows(data / "nli/SNLI/train.tsv")[2] == ["a dog two", "a cat two", "entailment"]
    (tmp_path / "download/SNLI/s2.train").write_text("")
    message = error_of(nearfar.get_data, "snli", source=tmp_path / "download", overwrite=True)
    assert "s2.train: has fewer lines than" in message


@pytest.mark.parametrize(("name", "columns", "text"), [("amazon", 3, 'Great "book" 1 It'), ("yelp", 2, "It")])
def test_reviews(data: Path, tmp_path: Path, name: str, columns: int, text: str) -> None:
    archive = tmp_path / f"{name}_review_polarity_csv.tgz"
    archive.write_bytes(downloads.tar_of(downloads.reviews(name, columns)))
    nearfar.get_data(source=archive)
    assert rows(data / f"transfer/{name}_polarity/test.tsv")[2] == ["1", f"{text} was good. Really, it was. 1"]
    task = load_classification(f"{name}-polarity", validation_rows=4)
    assert (task.label_names, len(task.test.texts)) == (("negative", "positive"), 20)


def test_official_packages_of_semeval(data: Path, tmp_path: Path) -> None:
    folders = {12: "test-gold", 13: "test-gs", 14: "sts-en-test-gs-2014", 15: "test_evaluation_task2a"}
    for year, folder in folders.items():
        files = downloads.sts_package(folder, downloads.SUBSETS[year])
        (tmp_path / f"STS20{year}-en-test.zip").write_bytes(downloads.zip_of(files))
    files = downloads.sts_package("sts2016-english-with-gs-v1.0", downloads.SUBSETS[16], prefix="STS2016")
    (tmp_path / "STS2016-en-test.zip").write_bytes(downloads.zip_of(files))
    files = downloads.sts_package("sts-es-test.2014", ("wikipedia", "news"))
    (tmp_path / "STS2014-es-test.zip").write_bytes(downloads.zip_of(files))
    tracks = ("track1.ar-ar", "track2.ar-en", "track3.es-es", "track4a.es-en", "track5.en-en", "track6.tr-en")
    files = downloads.sts_package("x", tracks)
    for kind, name in (("input", "eval.v1.1"), ("gs", "gs")):
        members = {path.replace("x/", f"STS2017.{name}/"): text for path, text in files.items() if kind in path}
        (tmp_path / f"Sts2017.{name}.zip").write_bytes(downloads.zip_of(members))
    nearfar.get_data(source=tmp_path)
    for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "sts14-es", "sts17"):
        assert list(load_task(name)) == list(CATALOG[name].splits), name
        assert all(len(pairs) == 4 for pairs in load_task(name).values())


def test_the_official_text_is_preferred_to_senteval_s(data: Path, tmp_path: Path) -> None:
    official = downloads.sts_package("STS/STS13-en-test/test-gs", downloads.SUBSETS[13])
    tokenised = {name.replace("test-gs/", ""): text.lower() for name, text in official.items()}
    result = convert(tmp_path / "both", {**tokenised, **official}, "sts13")
    assert rows(data / "sts/STS13/FNWN.tsv")[1][1] == "The Dog 0 runs in the Park ."
    assert not any("lower case" in warning for warning in result.warnings)
    result = nearfar.get_data(source=downloads.write_folder(tmp_path / "one", tokenised), overwrite=True)
    assert rows(data / "sts/STS13/FNWN.tsv")[1][1] == "the dog 0 runs in the park ."
    assert "sts/STS13/FNWN.tsv: all of its text is in lower case" in "\n".join(result.warnings)
    lower = {name: text.lower() for name, text in downloads.sts_package("STS14-en-test", ("deft-news",)).items()}
    assert "lower case" not in "\n".join(convert(tmp_path / "two", lower).warnings)  # so is the official text


def test_a_number_of_rows_that_is_not_published_is_reported(data: Path, tmp_path: Path) -> None:
    full = {"MR/rt-polarity.pos": "good\n" * 5331, "MR/rt-polarity.neg": "bad\n" * 5331}
    assert convert(tmp_path / "full", full).warnings == ()
    with_empty = {"CR/custrev.pos": "good\n" * 2405, "CR/custrev.neg": "bad\n" * 1366 + "\n" * 4}
    assert convert(tmp_path / "empty", with_empty).warnings == ()  # as many as published, with the empty ones
    short = {"MPQA/mpqa.pos": "good\n", "MPQA/mpqa.neg": "bad\n"}
    assert convert(tmp_path / "short", short).warnings == (
        "senteval/MPQA.tsv: 2 rows, but 10,606 are published. The source may be incomplete.",
    )


def test_the_command_line(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = downloads.write_folder(tmp_path / "raw", downloads.classification())
    assert main(["get-data", "cr", "mr", "--source", str(source), "--output", str(tmp_path / "other")]) == 0
    printed = capsys.readouterr().out
    assert "senteval/CR.tsv: 60 rows; 2 rows with an empty text dropped\n" in printed
    assert "warning: senteval/CR.tsv: 60 rows, but 3,775 are published." in printed
    assert sorted(path.name for path in (tmp_path / "other/senteval").iterdir()) == ["CR.tsv", "MR.tsv"]


def test_a_file_never_exists_without_its_record(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def killed_after(self: Path, target: Path) -> None:
        replace(self, target)
        if target.suffix == ".tsv":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_after)
        with pytest.raises(KeyboardInterrupt):
            convert(tmp_path / "downloads", downloads.classification(rows=3), "mr")
    recorded = json.loads((data / "sources.json").read_text())["files"]
    assert (data / "senteval/MR.tsv").exists()
    assert recorded["senteval/MR.tsv"]["rows"] == 6


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
    assert message.startswith("not all files could be made; the others are complete.\n")
    assert message.count("the download is incomplete") == 2
    assert (data / "senteval/MR.tsv").exists()
    assert (data / "senteval/SST5/test.tsv").exists()
    assert not (data / "senteval/MRPC/train.tsv").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sts-dev.csv", "main\tMSRvid\t2012\t1\t5.0\tonly one\n", "line 1: 6 fields, but at least 7"),
        ("sts-dev.csv", "main\tMSRvid\t2012\t1\thigh\tone\ttwo\n", "line 1: 'high' is not a score from 0 to 5"),
        ("RTE/dev.tsv", "index\tsentence1\tsentence2\n", "line 1: no column 'label'"),
        ("RTE/dev.tsv", "sentence1\tsentence2\tlabel\na\tb\tyes\n", "line 2: the label 'yes' is not one of entailment"),
        ("snli_1.0_dev.jsonl", "{\n", "line 1: not a JSON object: Expecting"),
        ("snli_1.0_dev.jsonl", '{"gold_label": "neutral", "sentence1": "a"}\n', "line 1: not a JSON object with"),
        ("yelp_review_polarity_csv/test.csv", '"1"\n', "line 1: 1 fields, but 2 are expected"),
    ],
)
def test_a_damaged_download_names_file_and_line(
    data: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    assert message in error_of(convert, tmp_path / "raw", {name: content})


def test_pairs_and_scores_must_match(data: Path, tmp_path: Path) -> None:
    texts, scores = downloads.sts_package("test-gs", ("FNWN",))
    two = {texts: "one\tother\n" * 2, scores: "1\n\n"}
    for number, (changed, message) in enumerate(
        (
            ({texts: "one\tother\n" * 3, scores: "1\n"}, "STS.gs.FNWN.txt: has fewer lines than"),
            ({scores: "1\n2\n3\n"}, "line 3: two tab-separated sentences are expected"),
            ({texts: "alone\n", scores: "1\n"}, "line 1: two tab-separated sentences are expected"),
        )
    ):
        assert message in error_of(convert, tmp_path / str(number), {**two, **changed})
    assert convert(tmp_path / "last", {**two, scores: "1\n"}).converted[0].rows == 1  # the last pair has no score


def test_an_unrecognised_source(data: Path, tmp_path: Path) -> None:
    message = error_of(convert, tmp_path / "raw", {"notes.txt": "x\n"})
    assert "raw: has no file of a known data set, which is made from test-gold/STS.input.MSRpar.txt and " in message
    message = error_of(convert, tmp_path / "raw", {"rt-polarity.pos": "x\n", "rt-polarity.neg": "y\n"}, "trec")
    assert "has no file of trec, which is made from train_5500.label, or TREC_10.label." in message
    assert "no such file" in error_of(nearfar.get_data, source=tmp_path / "nowhere")


def test_an_unreadable_archive_in_a_folder_is_skipped_with_a_warning(data: Path, tmp_path: Path) -> None:
    archives = {"mr.zip": downloads.classification(), "b.zip": {"../x": "x"}}
    files = {name: downloads.zip_of(members) for name, members in archives.items()} | {"a.zip": b"broken"}
    with pytest.warns(UserWarning, match=r"/raw/[ab]\.zip: .* It is skipped\.") as warned:
        convert(tmp_path / "raw", files)
    assert len(warned) == 2
    assert (data / "senteval/MR.tsv").exists()
