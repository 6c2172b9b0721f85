"""Sentences, labelled texts and scored pairs from all sources: counts, and errors with file and line."""

import gzip

import datasets
import pytest

from nearfar.data.rows import load_labelled, load_scored, load_sentences
from tests.data.files import error_of, write


def sentences(*args, **kwargs):
    return [row[0] for row in load_sentences(*args, **kwargs).rows]


def test_a_plain_text_file_has_one_sentence_per_line(tmp_path):
    path = write(tmp_path / "a.txt", '\ufefffirst "one"\r\n\n   \nsecond\tone\nfirst "one"\nlast')
    data = load_sentences(path)
    assert data.rows == [('first "one"',), ("second one",), ("last",)]
    assert (data.repaired, data.dropped, data.targets, data.label_names) == (1, 1, None, ())
    assert data.sources == (f"{path}: 3 sentences, 1 duplicates dropped",)
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write((tmp_path / "a.txt").read_bytes())
    assert load_sentences(str(tmp_path / "a.txt.gz")).rows == data.rows


def test_sentences_of_tables_and_several_sources(tmp_path):
    table = write(tmp_path / "a.tsv", "n\ttext\n1\tone\n2\ttwo\n")
    lines = write(tmp_path / "b.txt", "two\nthree\n")
    datasets.Dataset.from_dict({"text": ["four"]}).save_to_disk(str(tmp_path / "saved"))
    data = load_sentences([table, lines, str(tmp_path / "saved")])
    assert data.rows == [("one",), ("two",), ("three",), ("four",)]
    assert data.dropped == 1
    assert [source.rpartition(": ")[2] for source in data.sources] == [
        "n",
        "1 sentences, 1 duplicates dropped",
        "1 sentences, 0 duplicates dropped",
    ]
    assert sentences(table, column="n") == ["1", "2"]


def test_a_limit_takes_the_first_rows_and_stops_reading(tmp_path):
    first = write(tmp_path / "a.txt", "one\none\ntwo\n")
    second = write(tmp_path / "b.txt", "three\nfour\n")
    (tmp_path / "c.txt").write_bytes(b"\xff")
    specs = [first, second, str(tmp_path / "c.txt")]
    data = load_sentences(specs, limit=3)
    assert data.rows == [("one",), ("two",), ("three",)]
    assert (data.dropped, len(data.sources)) == (1, 2)
    assert sentences(specs, limit=2) == ["one", "two"]
    assert "c.txt, line 1: not UTF-8" in error_of(load_sentences, specs)
    assert "is 1, but must be at least 2" in error_of(load_sentences, first, limit=1)


def test_a_missing_source_of_sentences_raises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.txt", "a\nb\n")
    assert "No source of sentences was named" in error_of(load_sentences, [])
    assert "mine.text.txt: no such file. Did you mean 'mine.txt'?" in error_of(load_sentences, "mine.text.txt")


def test_a_named_set_defines_its_columns_and_marks_evaluation_text(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    for split in ("train", "dev", "test"):
        write(tmp_path / f"sts/STSB/{split}.tsv", f"score\tsentence1\tsentence2\n5\ta\tb {split}\n")
    data = load_sentences("stsb-text")
    assert data.rows == [("a",), ("b train",), ("b dev",), ("b test",)]
    assert data.dropped == 2
    assert ["transductive" in source for source in data.sources] == [False, True, True]
    write(tmp_path / "nli/SNLI/dev.tsv", "premise\thypothesis\tlabel\np\th\t-\n")
    assert sentences("snli:dev") == ["p", "h"]
    write(tmp_path / "text/flickr8k_captions.tsv", "image\tcaption\nx.jpg\ta dog\nx.jpg\ta cat\n")
    assert sentences("flickr8k") == ["a dog", "a cat"]


def test_labels_are_numbered_in_their_order(tmp_path):
    path = write(tmp_path / "a.tsv", "label\ttext\nlow\ta\nhigh\tb  b\nlow\tc\nhigh\td\nhigh\td\n")
    data = load_labelled(path)
    assert data.rows == [("a",), ("b b",), ("c",), ("d",), ("d",)]
    assert (data.targets, data.label_names) == ([1, 0, 1, 0, 0], ("high", "low"))
    assert (data.repaired, data.dropped) == (1, 0)
    assert data.sources == (f"{path}: 5 labelled texts",)
    numbers = "".join(f'{{"text": "{label} {n}", "label": {label}}}\n' for label in (10, 9.0, -1) for n in range(2))
    data = load_labelled(write(tmp_path / "a.jsonl", numbers))
    assert (data.targets, data.label_names) == ([2, 2, 1, 1, 0, 0], ("-1", "9", "10"))


def test_labelled_texts_with_other_column_names_and_a_limit(tmp_path):
    path = write(tmp_path / "a.csv", "said,tone\na,x\nb,y\nc,x\nd,y\ne,z\n")
    data = load_labelled(path, text_column="said", label_column="tone", limit=4)
    assert (data.targets, data.label_names) == ([0, 1, 0, 1], ("x", "y"))
    assert "The label 'z' has a single text, 'e'" in error_of(
        load_labelled, path, text_column="said", label_column="tone"
    )
    assert "no column 'text'. Its columns: said, tone" in error_of(load_labelled, path)


SCORED = "score\tsentence1\tsentence2\n"


def test_scores_of_a_named_set_are_scaled_by_its_scale(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    rows = SCORED + "4\ta\tb  b\n2\ta\tc\n2\ta\tc\n"
    stsb, sick = (write(tmp_path / f"sts/{name}/train.tsv", rows) for name in ("STSB", "SICK"))
    write(tmp_path / "sts/STSB/dev.tsv", rows)
    data = load_scored("stsb:train")
    assert data.rows == [("a", "b b"), ("a", "c"), ("a", "c")]
    assert data.targets == pytest.approx([0.8, 0.4, 0.4])
    assert (data.repaired, data.dropped, data.sources) == (1, 0, (f"{stsb}: 3 scored pairs",))
    data = load_scored(["sickr:train", "stsb:train"], limit=5)
    assert data.targets == pytest.approx([0.75, 0.25, 0.25, 0.8, 0.4])
    assert data.sources == (f"{sick}: 3 scored pairs", f"{stsb}: 2 scored pairs")
    assert "will be meaningless" in load_scored("stsb:dev").sources[0]


def test_own_scores_are_scaled_by_their_range(tmp_path):
    path = write(tmp_path / "a.csv", "u,v,gold\na,b,-1\na,c,3\nb,c,0\n")
    data = load_scored(path, columns=("u", "v", "gold"))
    assert data.targets == [0.0, 1.0, 0.25]
    assert data.sources == (f"{path}: 3 scored pairs, scores of -1 to 3 rescaled to 0 to 1",)


@pytest.mark.nightly
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("spec", "read", "dropped"),
    [("stsb-text", 17256, 1801), ("wiki", 34502, 0), ("sentences", 121446, 0), ("flickr8k", 37196, 141)],
)
def test_real_sentences(spec, read, dropped, nearfar_data):
    data = load_sentences(spec)
    assert (len(data.rows) + data.dropped, data.dropped) == (read, dropped)
