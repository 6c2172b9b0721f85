"""Scored pairs: tasks by subset, the two versions of SICK-R, and invalid scores."""

from decimal import Decimal
from functools import partial

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.data.named_sets import CATALOG
from nearfar.data.rows import load_sentences
from nearfar.data.sts import load_pairs, load_task
from nearfar.types import ScoredPair
from tests.data.files import error_of

HEADER = "score\tsentence1\tsentence2\n"
SUBSETS = {
    "sts12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    "sts15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16": {"answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209},
    "sts17": {"ar-ar": 250, "ar-en": 250, "es-es": 250, "es-en": 250, "en-en": 250},
    "sts17:en-en": {"en-en": 250},
    "stsb": {"test": 1379},
    "stsb:train+dev": {"train": 5749, "dev": 1500},
    "stsb-clean:train+dev": {"train": 951, "dev": 363},
    "sickr-clean:train+dev": {"train": 4367, "dev": 486},
    "sickr": {"test": 4927},
    "sickr-full": {"train": 4500, "dev": 500, "test": 4927},
}


error = partial(error_of, load_task)


def test_a_file_is_a_task_named_by_its_stem(tmp_path):
    (tmp_path / "mine.tsv").write_text(HEADER + "4.5\ta\tb  c\n-1e1\td\te\n")
    pairs = [ScoredPair("a", "b c", 4.5), ScoredPair("d", "e", -10.0)]
    assert load_task(str(tmp_path / "mine.tsv")) == {"mine": pairs}
    assert load_pairs(str(tmp_path / "mine.tsv")) == pairs


def test_columns_and_scale_are_arguments(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b,gold,score\nx,y,0.5,9\n")
    names = {"first": "a", "second": "b", "score": "gold"}
    assert load_pairs(str(path), **names, scale=(0, 1)) == [ScoredPair("x", "y", 0.5)]
    assert "line 2: score 0.5 is outside 1 to 5" in error(str(path), **names, scale=(1, 5))
    assert "no column 'sentence1'. Its columns: a, b, gold, score" in error(str(path))


def test_stsb_clean_has_no_pair_of_the_test_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    tests = {f"STS{year}": CATALOG[f"sts{year}"].splits for year in range(12, 17)}
    for folder, subsets in {**tests, "STSB": ("test",), "SICK": ("test",)}.items():
        (tmp_path / "sts" / folder).mkdir(parents=True)
        for subset in subsets:
            (tmp_path / "sts" / folder / f"{subset}.tsv").write_text(HEADER + f"1\tOf {subset}\tof {folder}\n")
    stsb = tmp_path / "sts" / "STSB"
    rows = ["3\tof SICK\tof TEST!\n", "4\tof images\tof STS15.\n", "2\tof images\tof SICK\n", "1\tnew\tpair\n"]
    stsb.joinpath("train.tsv").write_text(HEADER + "".join(rows))
    stsb.joinpath("dev.tsv").write_text(HEADER + rows[2])
    kept = [ScoredPair("of images", "of SICK", 2.0), ScoredPair("new", "pair", 1.0)]
    assert load_task("stsb-clean") == {"train": kept}
    assert load_task("stsb-clean:dev") == {"dev": kept[:1]}
    assert load_sentences("stsb-clean").rows == [("of images",), ("of SICK",), ("new",), ("pair",)]
    assert error("stsb-clean:test") == "stsb-clean has no split 'test'. It has: train, dev."
    (tmp_path / "sts" / "SICK" / "test.tsv").unlink()
    monkeypatch.setenv("NEARFAR_DATA", f"{tmp_path}/.")  # another folder by name: the pairs are read once per folder
    assert "sickr:test was not found." in error("stsb-clean")


def test_a_named_set_defines_its_scale(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    for folder, low in (("STSB", "0"), ("SICK", "1")):
        (tmp_path / "sts" / folder).mkdir(parents=True)
        (tmp_path / "sts" / folder / "test.tsv").write_text(HEADER + f"{low}\ta\tb\n5\ta\tb\n")
    assert [pair.score for pair in load_pairs("stsb")] == [0.0, 5.0]
    assert [pair.score for pair in load_pairs("sickr")] == [1.0, 5.0]
    (tmp_path / "sts" / "SICK" / "test.tsv").write_text(HEADER + "3\ta\tb\n0.9\ta\tb\n")
    assert f"{tmp_path / 'sts' / 'SICK' / 'test.tsv'}, line 3: score 0.9 is outside 1 to 5" in error("sickr")


def test_the_hub_copy_of_a_task_is_one_subset(monkeypatch, tmp_path, fake_hub):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    table = datasets.Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "score": [2.5]})
    fake_hub(lambda name, config, split: table)
    assert load_task("sts14") == {"all": [ScoredPair("a", "b", 2.5)]}
    assert load_task("stsb:dev") == {"dev": [ScoredPair("a", "b", 2.5)]}
    assert load_task("owner/name:train") == {"train": [ScoredPair("a", "b", 2.5)]}


def test_numbers_of_other_types(tmp_path):
    def write(scores):
        columns = {"sentence1": ["a"] * len(scores), "sentence2": ["b"] * len(scores), "score": scores}
        pq.write_table(pa.table(columns), tmp_path / "mine.parquet")
        return str(tmp_path / "mine.parquet")

    assert [pair.score for pair in load_pairs(write([1, 2]))] == [1.0, 2.0]
    assert [pair.score for pair in load_pairs(write([Decimal("3.25")]))] == [3.25]
    assert "mine.parquet, row 2: column 'score' is empty" in error(write([1.5, None]))
    assert "row 1: column 'score' holds True" in error(write([True]))


@pytest.mark.nightly
@pytest.mark.realdata
@pytest.mark.parametrize("spec", SUBSETS)
def test_real_tasks_have_their_official_subsets(spec, nearfar_data):
    task = load_task(spec)
    assert list(task) == list(SUBSETS[spec])
    assert {subset: len(pairs) for subset, pairs in task.items()} == SUBSETS[spec]
    assert len(load_pairs(spec)) == sum(SUBSETS[spec].values())


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u3000", "\x1c"])
def test_white_space_of_any_kind_around_a_score_is_ignored(space, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(f"score\tsentence1\tsentence2\n{space}3{space}\ta\tb\n", encoding="utf-8")
    assert [pair.score for pair in load_pairs(str(path))] == [3.0]
