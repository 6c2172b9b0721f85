"""Own labelled rows: columns, labels and scores, and errors by file and line."""

from functools import partial

import datasets

from nearfar.data.classification import load_classification
from tests.data.files import error_of, texts_of, write_lines

error = partial(error_of, load_classification)


def test_own_columns(tmp_path):
    rows = [f'"a, {number}",b {number},{number % 3 + 8}' for number in range(30)]
    pairs = write_lines(tmp_path / "pairs.csv", "sentence1,sentence2,label", *rows)
    task = load_classification(pairs)
    assert task.label_names == ("8", "9", "10")
    assert set(texts_of(task.train, task.validation, task.test)) == {(f"a, {n}", f"b {n}") for n in range(30)}
    named = write_lines(tmp_path / "named.csv", "said,reply,tone", *rows)
    again = load_classification(named, text_columns=["said", "reply"], label_column="tone")
    assert (again.train, again.test) == (task.train, task.test)
    one = load_classification(named, text_columns=["reply"], label_column="tone")
    assert one.train.texts == [row[1:] for row in task.train.texts]
    message = error(named)
    assert "no column 'text'" in message
    assert message.endswith("Labelled data has the columns text and label, or sentence1, sentence2 and label.")
    assert "no column 'label'. Its columns: said" in error(named, text_columns=["said"])
    for columns in ([], ["said"] * 2, ["said", "reply", "tone"]):
        assert error(named, text_columns=columns, label_column="tone").startswith(
            "Name one or two columns of text, not"
        )
    datasets.Dataset.from_dict({"text": list("abcdefghij"), "label": [0, 1] * 5}).to_parquet(tmp_path / "a.parquet")
    assert load_classification(str(tmp_path / "a.parquet")).label_names == ("0", "1")


def test_labels_with_fractions_are_scores(tmp_path):
    path = write_lines(tmp_path / "a.tsv", "label\ttext", *[f"{number / 2:g}\ttext {number}" for number in range(50)])
    task = load_classification(path)
    assert (task.metric, task.label_names) == ("pearson_spearman", ())
    assert [len(split.texts) for split in (task.train, task.validation, task.test)] == [36, 4, 10]
    for split in (task.train, task.validation, task.test):
        assert split.targets == [int(text.split()[1]) / 2 for (text,) in split.texts]
        assert {type(target) for target in split.targets} == {float}
    assert "proportions" not in "".join(task.sources)
    lines = [f'{{"text": "t{number}", "label": {number % 3}.0}}' for number in range(20)]
    integers = load_classification(write_lines(tmp_path / "a.jsonl", *lines))
    assert integers.label_names == ("0", "1", "2")
    other = write_lines(tmp_path / "b.tsv", "label\ttext", "0.5\tone", "much\ttwo")
    assert f"{other}, line 3: column 'label' holds 'much', not a number. Scores must be numbers" in error(
        path, test=other
    )
    assert error(other) == (
        f"{other}, line 3: column 'label' holds 'much', not a number. If one label has a fraction, as 0.5 "
        f"({other}, line 2), all are scores and must be numbers."
    )
    equal = write_lines(tmp_path / "c.tsv", "label\ttext", *["0.5\tone"] * 20)
    assert "every score is 0.5; there is nothing to learn" in error(equal)
