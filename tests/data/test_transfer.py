"""Transfer tasks from a data folder and from own files; errors name file and line."""

import pytest

from nearfar.data.labelled import load_labelled_task, load_transfer
from nearfar.data.rows import load_sentences
from tests.data.files import error_of, write


@pytest.mark.parametrize("name", ["mr", "cr", "subj", "mpqa"])
def test_a_pool(folder, name):
    write(folder / f"senteval/{name.upper()}.tsv", "label\ttext\n1\tone  fine \x0bfilm\n0\tbad\n1\tone fine film\n")
    task = load_transfer(name)
    assert task.name == name
    assert task.splits == {"all": ([("one fine film",), ("bad",), ("one fine film",)], [1, 0, 1])}
    assert (task.label_names, task.pairs, task.source) == (("0", "1"), False, None)


def test_splits_and_labels_have_the_order_of_senteval(folder):
    for split, label in {"train": "NUM", "test": "ABBR"}.items():
        write(folder / f"senteval/TREC/{split}.tsv", f"label\ttext\tfine_label\n{label}\twhat is {split} ?\tx:y\n")
    task = load_transfer("trec")
    assert list(task.splits) == ["train", "test"]
    assert [task.splits[split].targets for split in task.splits] == [[5], [0]]
    assert task.label_names == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

    header, row = "score\tsentence1\tsentence2\tlabel\n", "4.5\ta  dog\ta cat\t{}\n"
    for split, label in {"train": "ENTAILMENT", "dev": "NEUTRAL", "test": "CONTRADICTION"}.items():
        write(folder / f"sts/SICK/{split}.tsv", header + row.format(label))
    task = load_transfer("sick-e")
    assert {split: rows.targets for split, rows in task.splits.items()} == {"train": [2], "dev": [1], "test": [0]}
    assert task.splits["dev"].texts == [("a dog", "a cat")]
    assert task.pairs


def test_the_training_questions_of_trec_have_two_parts(folder):
    """The dev part is the last fifth of the distinct questions; trec:test is read by neither."""
    lines = "".join(f"NUM\tquestion {number % 10} ?\tx:y\n" for number in range(11))
    write(folder / "senteval/TREC/train.tsv", "label\ttext\tfine_label\n" + lines)
    texts = {split: [text for (text,) in rows.texts] for split, rows in load_transfer("trec-dev").splits.items()}
    assert texts["test"] == ["question 8 ?", "question 9 ?"]
    assert texts["train"] == [f"question {number % 10} ?" for number in (0, 1, 2, 3, 4, 5, 6, 7, 10)]
    assert load_sentences("trec-parts").rows == load_sentences("trec-parts:train").rows
    assert [text for (text,) in load_sentences("trec-parts:dev").rows] == texts["test"]


def test_sst2_trains_on_sentences_or_phrases(folder):
    for split in ("train", "dev", "test", "train_phrases"):
        write(folder / f"senteval/SST2/{split}.tsv", f"label\ttext\n1\tof {split}\n")
    texts = [
        {split: rows.texts[0][0] for split, rows in load_transfer(name).splits.items()}
        for name in ("sst2", "sst2-phrases")
    ]
    assert texts[0] == {"train": "of train", "dev": "of dev", "test": "of test"}
    assert texts[1] == texts[0] | {"train": "of train_phrases"}


def test_pairs_and_scored_pairs(folder):
    for split in ("train", "test"):
        write(folder / f"senteval/MRPC/{split}.tsv", "label\tsentence1\tsentence2\n1\tone\ttwo\n0\tthree\tfour\n")
    task = load_transfer("mrpc")
    assert task.splits["test"] == ([("one", "two"), ("three", "four")], [1, 0])
    assert task.pairs
    for split in ("train", "dev", "test"):
        write(folder / f"sts/STSB/{split}.tsv", "score\tsentence1\tsentence2\n0.25\tone\ttwo\n")
    task = load_transfer("stsb-learned")
    assert list(task.splits) == ["train", "dev", "test"]
    assert task.splits["dev"] == ([("one", "two")], [0.25])
    assert (task.label_names, task.pairs) == ((), True)


def test_a_missing_or_wrong_set_is_named(folder):
    message = error_of(load_transfer, "mrpc")
    assert str(folder / "senteval/MRPC/train.tsv") in message
    assert message.endswith("\n  nearfar get-data mrpc downloads it.")
    path = write(folder / "senteval/MR.tsv", "label\ttext\n1\tone\n2\ttwo\n")
    assert error_of(load_transfer, "mr") == f"{path}, line 3: the label '2' is not one of those of mr: 0, 1."
    assert error_of(load_transfer, "trek").startswith(
        "trek: no such transfer task. Did you mean trec? Known tasks: mr, cr,"
    )


def test_own_texts(tmp_path):
    path = write(tmp_path / "kinds.csv", 'text,label\n"a, b",10\nc,9\nd,9\n')
    task = load_labelled_task(path)
    assert (task.name, task.source) == ("kinds", path)
    assert task.splits == {"all": ([("a, b",), ("c",), ("d",)], [1, 0, 0])}
    assert task.label_names == ("9", "10")
    assert not task.pairs
    pairs = load_labelled_task(
        write(tmp_path / "p.tsv", "sentence1\tsentence2\tlabel\none\ttwo\tsame\nthree\tfour\tother\n")
    )
    assert pairs.splits["all"] == ([("one", "two"), ("three", "four")], [1, 0])
    assert (pairs.label_names, pairs.pairs) == (("other", "same"), True)


@pytest.mark.nightly
@pytest.mark.realdata
def test_the_sets_have_the_published_row_counts(nearfar_data):
    # rows of each split, and of the last label in the tested one (README of the data folder; official counts)
    expected = {
        "mr": ([10662], 5331),
        "cr": ([3771], 2405),
        "subj": ([10000], 5000),
        "mpqa": ([10603], 3311),
        "sst2": ([6920, 872, 1821], 909),
        "sst2-phrases": ([67349, 872, 1821], 909),
        "sst5": ([8544, 1101, 2210], 399),
        "trec": ([5452, 500], 113),
        "trec-dev": ([4447, 1005], 167),
        "mrpc": ([4076, 1725], 1147),
        "sick-e": ([4500, 500, 4927], 1414),
        "sickr-learned": ([4500, 500, 4927], None),
        "stsb-learned": ([5749, 1500, 1379], None),
    }
    for name, (sizes, last) in expected.items():
        task = load_transfer(name)
        assert [len(rows.texts) for rows in task.splits.values()] == sizes, name
        assert [len(rows.targets) for rows in task.splits.values()] == sizes, name
        if last is not None:
            *_, tested = task.splits.values()
            assert tested.targets.count(len(task.label_names) - 1) == last, name
