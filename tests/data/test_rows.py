"""Rows from all sources: sentences, labelled texts, scored pairs, NLI rows, tuples; counts, and errors with line."""

import gzip
import json
from functools import partial

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data.named_sets import CATALOG
from nearfar.data.rows import load_labelled, load_nli, load_scored, load_sentences, load_task
from nearfar.data.triplets import load_triplets, load_tuples, nli_triplets
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError, NliRow, ScoredPair
from tests.data.files import error_of, write


def test_rows_of_several_sources_in_order(tmp_path):
    rows = "p0\th0\tentailment\np1\th1\tContradiction\np2\th2\t-\n"
    first = write(tmp_path / "first.tsv", f"premise\thypothesis\tlabel\n{rows}")
    second = write(tmp_path / "second.jsonl", '{"premise": "p", "hypothesis": "h", "label": 1}\n')
    data = load_nli([first, second])
    assert data.rows == [NliRow("p0", "h0", ENTAILMENT), NliRow("p1", "h1", CONTRADICTION), NliRow("p", "h", NEUTRAL)]
    assert data.dropped == 1
    assert data.repaired == 0
    assert data.sources == (f"{first}: 2 labelled NLI rows, 1 dropped", f"{second}: 1 labelled NLI rows")
    assert load_nli(first).rows == data.rows[:2]


def test_unlabelled_rows_are_counted_for_any_texts(tmp_path):
    path = tmp_path / "a.jsonl"
    unlabelled = [{"premise": "", "hypothesis": None, "label": label} for label in ("-", "", "-1", -1, None, -1.0)]
    rows = [*unlabelled, {"premise": "p", "hypothesis": "h", "label": 2.0}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = load_nli(str(path))
    assert (data.dropped, data.rows) == (len(unlabelled), [NliRow("p", "h", CONTRADICTION)])


def test_classes_are_read_by_their_declared_names(tmp_path):
    classes = datasets.ClassLabel(names=["contradiction", "neutral", "entailment"])
    features = datasets.Features({"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")})
    features["label"] = classes
    rows = {"premise": ["p"] * 4, "hypothesis": ["h"] * 4, "label": [2, 1, 0, -1]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    data = load_nli(str(tmp_path / "saved"))
    assert [row.label for row in data.rows] == [ENTAILMENT, NEUTRAL, CONTRADICTION]
    assert data.dropped == 1


HEADER = "score\tsentence1\tsentence2\n"


error = partial(error_of, load_task)


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
    assert "sickr:test was not found:" in error("stsb-clean")


def sentences(*args, **kwargs):
    return [row[0] for row in load_sentences(*args, **kwargs).rows]


def test_a_plain_text_file_has_one_sentence_per_line(tmp_path):
    path = write(tmp_path / "a.txt", '\ufefffirst "one"\r\n\n   \nsecond\tone\nfirst "one"\nlast')
    data = load_sentences(path)
    assert data.rows == [('first "one"',), ("second one",), ("last",)]
    assert (data.repaired, data.dropped, data.targets, data.label_names) == (1, 1, None, ())
    assert data.sources == (f"{path}: 3 sentences, 1 dropped",)
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
    assert [source.rpartition(": ")[2] for source in data.sources] == ["n", "1 sentences, 1 dropped", "1 sentences"]
    assert sentences(table, column="n") == ["1", "2"]


def test_a_limit_takes_the_first_rows_and_stops_reading(tmp_path):
    specs = [write(tmp_path / "a.txt", "one\none\ntwo\n"), write(tmp_path / "b.txt", "three\nfour\n")]
    (tmp_path / "c.txt").write_bytes(b"\xff")
    specs.append(str(tmp_path / "c.txt"))
    data = load_sentences(specs, limit=3)
    assert data.rows == [("one",), ("two",), ("three",)]
    assert (data.dropped, len(data.sources)) == (1, 2)
    assert "c.txt, line 1: not UTF-8" in error_of(load_sentences, specs)
    assert "is 1, but must be at least 2" in error_of(load_sentences, specs[0], limit=1)


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


texts = st.sampled_from(["a", "b", "c", "d"])


def test_pairs_and_triplets_of_a_table(tmp_path):
    path = write(tmp_path / "a.tsv", "negative\tpositive\tanchor\nn\tp  p\ta\nn\tq\tb\n")
    assert load_tuples(path).rows == [("a", "p p"), ("b", "q")]
    data = load_tuples(path, columns=("anchor", "positive", "negative"))
    assert data.rows == [("a", "p p", "n"), ("b", "q", "n")]
    assert (data.repaired, data.dropped, data.targets) == (1, 0, None)
    assert data.sources == (f"{path}: 2 triplets",)
    assert load_tuples(path).sources[0].endswith("; columns that are not read: negative")


def test_repeated_and_uninformative_rows_are_dropped(tmp_path):
    path = write(tmp_path / "a.csv", "sentence,translation\na,b\nb,a\nc,c\na,b\nc, c\nd,e\n")
    data = load_tuples([path, path], columns=("sentence", "translation"))
    assert data.rows == [("a", "b"), ("b", "a"), ("d", "e")]
    assert data.dropped == 3 + 6
    path = write(tmp_path / "b.csv", "anchor,positive,negative\na,b,c\na,b,b\na,b,a\na,b,d\n")
    data = load_tuples(path, columns=("anchor", "positive", "negative"))
    assert (data.rows, data.dropped) == ([("a", "b", "c"), ("a", "b", "d")], 2)
    assert "All pairs are equal" in error_of(load_tuples, write(tmp_path / "c.csv", "anchor,positive\na,a\n"))


def test_captions_of_one_image_are_paired_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    captions = {"x.jpg": "abcde", "y.jpg": "fg", "z.jpg": "h", "w.jpg": ["i", "j ", "k", "l"]}
    lines = "".join(f"{image}\t{caption}\n" for image, of_image in captions.items() for caption in of_image)
    path = write(tmp_path / "text" / "flickr8k_captions.tsv", "image\tcaption\n" + lines)
    data = load_tuples("flickr8k")
    assert data.rows == [("a", "b"), ("c", "d"), ("f", "g"), ("i", "j"), ("k", "l")]
    assert data.repaired == 1
    assert load_tuples("flickr8k", limit=3).rows == data.rows[:3]
    write(tmp_path / "text" / "flickr8k_captions.tsv", "image\tcaption\nx\ta\nx\t \n")
    assert f"{path}, line 3: column 'caption' is empty" in error_of(load_tuples, "flickr8k")


@pytest.mark.long
@given(st.lists(st.builds(NliRow, texts, texts, st.integers(0, 2)), max_size=30))
def test_every_entailment_of_a_premise_that_is_contradicted_gives_one_triplet(rows):
    of = {
        (premise, label): [row.hypothesis for row in rows if (row.premise, row.label) == (premise, label)]
        for premise in "abcd"
        for label in (ENTAILMENT, CONTRADICTION)
    }
    expected = []
    for premise in dict.fromkeys(row.premise for row in rows if row.label == ENTAILMENT):
        negatives = of[premise, CONTRADICTION]
        for number, positive in enumerate(of[premise, ENTAILMENT]):
            if negatives:
                expected.append((premise, positive, negatives[number % len(negatives)]))
    if expected:
        assert nli_triplets(rows) == expected
    else:
        with pytest.raises(NearfarError, match="a triplet needs both"):
            nli_triplets(rows)


NLI = "premise\thypothesis\tlabel\np\te\t0\np\tf\tentailment\np\tn\t1\np\tc\t2\np\t?\t-\nq\tq\t0\nq\tx\t2\n"


def test_the_columns_of_a_table_determine_how_it_is_read(tmp_path):
    nli = write(tmp_path / "nli.tsv", NLI)
    own = write(tmp_path / "own.tsv", "label\tpremise\thypothesis\tanchor\tpositive\tnegative\n0\tx\ty\ta\tb\tc\n")
    simcse = write(tmp_path / "simcse.csv", "sent0,sent1,hard_neg\ns,t,u\n")
    data = load_triplets([nli, own, simcse])
    assert data.rows == [("p", "e", "c"), ("p", "f", "c"), ("a", "b", "c"), ("s", "t", "u")]
    assert data.dropped == 1  # q entails itself
    assert data.sources == (
        f"{nli} ({nli}: 6 labelled NLI rows, 1 dropped): 2 triplets, 1 dropped",
        f"{own}: 1 triplets; columns that are not read: label, premise, hypothesis",
        f"{simcse}: 1 triplets",
    )
    assert load_triplets([nli, own], limit=2).rows == data.rows[:2]


def test_captions_are_split_by_image(tmp_path, monkeypatch):
    """The last fifth of the images is the split test, at most 1,000; dev is the last of train, of the same size."""
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    captions = [(f"{image}.jpg", f"caption {number} of {image}") for image in range(11) for number in range(4)]
    lines = "".join(f"{image}\t{caption}\n" for image, caption in captions)
    write(tmp_path / "text" / "flickr8k_captions.tsv", "image\tcaption\n" + lines)
    rows = {spec: load_tuples(f"flickr8k{spec}").rows for spec in ("", ":train", ":test", ":dev", ":train+test")}
    assert rows[""] == rows[":train+test"] == [*rows[":train"], *rows[":test"]]
    assert [row[0].split()[-1] for row in rows[":test"]] == ["9", "9", "10", "10"]
    assert [row[0].split()[-1] for row in rows[":dev"]] == ["7", "7", "8", "8"]
    assert set(rows[":dev"]) < set(rows[":train"])
    assert [text for (text,) in load_sentences("flickr8k:test").rows] == [caption for _, caption in captions[36:]]
    monkeypatch.setattr("nearfar.data.catalog.LAST_GROUPS", 1)
    assert len(load_tuples("flickr8k:test").rows) == 2
    assert "flickr8k has no split 'valid'. It has: all, train, test, dev." in error_of(load_tuples, "flickr8k:valid")
