"""Pairs and triplets from tables, captions and NLI rows; uninformative rows are dropped and counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data.rows import load_sentences
from nearfar.data.triplets import load_triplets, load_tuples, nli_triplets
from nearfar.types import CONTRADICTION, ENTAILMENT, NearfarError, NliRow
from tests.data.files import error_of, write

texts = st.sampled_from(["a", "b", "c", "d"])


def test_pairs_and_triplets_of_a_table(tmp_path):
    path = write(tmp_path / "a.tsv", "negative\tpositive\tanchor\nn\tp  p\ta\nn\tq\tb\n")
    assert load_tuples(path).rows == [("a", "p p"), ("b", "q")]
    data = load_tuples(path, columns=("anchor", "positive", "negative"))
    assert data.rows == [("a", "p p", "n"), ("b", "q", "n")]
    assert (data.repaired, data.dropped, data.targets) == (1, 0, None)
    assert data.sources == (f"{path}: 2 triplets, 0 duplicates dropped",)
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
        f"{nli} ({nli}: 6 rows, 1 more without a label dropped): 2 triplets, 1 duplicates dropped",
        f"{own}: 1 triplets, 0 duplicates dropped; columns that are not read: label, premise, hypothesis",
        f"{simcse}: 1 triplets, 0 duplicates dropped",
    )
    assert load_triplets([nli, own], limit=2).rows == data.rows[:2]


def test_columns_with_other_names(tmp_path):
    path = write(tmp_path / "a.csv", "u,v,w,gold\np,e,c,1\np,c,e,0\np,f,e,1\n")
    assert load_triplets(path, columns=("u", "v", "w")).rows == [("p", "e", "c"), ("p", "c", "e"), ("p", "f", "e")]
    names = {"premise_column": "u", "hypothesis_column": "v", "label_column": "gold"}
    order = ("contradiction", "entailment", "neutral")
    assert load_triplets(path, **names, label_order=order).rows == [("p", "e", "c"), ("p", "f", "c")]


@pytest.mark.nightly
@pytest.mark.realdata
@pytest.mark.parametrize(("spec", "triplets", "dropped"), [("snli:dev+test", 6335, 4), ("mnli:dev_matched", 3238, 5)])
def test_real_triplets(spec, triplets, dropped, nearfar_data):
    data = load_triplets(spec)
    assert (len(data.rows), data.dropped) == (triplets, dropped)


@pytest.mark.nightly
@pytest.mark.realdata
def test_real_captions(nearfar_data):
    data = load_tuples("flickr8k")
    assert (len(data.rows), data.dropped) == (15545, 3)


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
    monkeypatch.setattr("nearfar.data.sources.LAST_GROUPS", 1)
    assert len(load_tuples("flickr8k:test").rows) == 2
    assert "flickr8k has no split 'valid'. It has: all, train, test, dev." in error_of(load_tuples, "flickr8k:valid")
