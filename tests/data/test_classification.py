"""Fine-tuning tasks: splits from a data folder and from own files; errors name file and line."""

from collections import Counter
from functools import partial

import datasets

from nearfar.data.classification import load_classification
from nearfar.types import LABEL_NAMES
from tests.data.files import error_of, texts_of, write_lines

error = partial(error_of, load_classification)


def own_rows(tmp_path, name="mine.tsv", rows=100):
    """Return rows of which a fifth has the label yes."""
    lines = [f"{'no' if number % 5 else 'yes'}\ttext {number}" for number in range(rows)]
    return write_lines(tmp_path / name, "label\ttext", *lines)


# --- named tasks


def test_sst2_trains_on_phrases_and_is_tested_on_glues_validation_set(folder):
    phrases = [f"{int(number % 4 > 0)}\tphrase   {number}" for number in range(2000)]
    train = write_lines(folder / "senteval/SST2/train_phrases.tsv", "label\ttext", *phrases)
    test = write_lines(folder / "glue/SST-2/dev.tsv", "label\ttext", "0\tbad", "1\tphrase 3", "1\tgood")
    task = load_classification("sst2")
    assert (task.name, task.metric, task.label_names) == ("sst2", "accuracy", ("negative", "positive"))
    assert task.test == ([("bad",), ("phrase 3",), ("good",)], [0, 1, 1])
    assert (Counter(task.train.targets), Counter(task.validation.targets)) == ({0: 375, 1: 1125}, {0: 125, 1: 375})
    both = texts_of(task.train, task.validation)
    assert sorted(both) == sorted((f"phrase {number}",) for number in range(2000))
    assert task.train.texts == sorted(task.train.texts, key=lambda row: int(row[0].split()[1]))
    expected = {f"phrase {number}": int(number % 4 > 0) for number in range(2000)}
    for split in (task.train, task.validation):
        assert [expected[text] for (text,) in split.texts] == split.targets
    assert task.sources == (
        f"train: {train}: 1,500 rows",
        "validation: of train, drawn by seed 0, stratified by label: 500 rows",
        f"test: {test} (GLUE's validation set, as the labels of its test set are not published): 3 rows, 1 of them "
        "with texts that are also in train",
    )


def test_the_validation_set_is_drawn_by_the_seed_and_then_the_limit_applies(folder):
    rows = [f"{number % 2}\ttext {number}" for number in range(1000)]
    write_lines(folder / "glue/CoLA/train.tsv", "label\ttext", *rows)
    write_lines(folder / "glue/CoLA/dev.tsv", "label\ttext", "0\tbad", "1\tgood")
    task = load_classification("cola", seed=3)
    assert load_classification("cola", seed=3) == task
    assert len(set(load_classification("cola", seed=4).validation.texts) & set(task.validation.texts)) < 300  # of 500
    few = load_classification("cola", seed=3, limit=7)
    assert few.train.texts == task.train.texts[:7]
    assert few.train.targets == task.train.targets[:7]
    assert (few.validation, few.test) == (task.validation, task.test)
    assert (task.metric, task.label_names) == ("matthews", ("unacceptable", "acceptable"))
    fewer = load_classification("cola", validation_rows=501)
    assert (len(fewer.validation.texts), len(fewer.train.texts)) == (100, 900)
    assert "(a tenth: 1,000 rows are too few for 501): 100 rows" in fewer.sources[1]
    path = folder / "glue/CoLA/train.tsv"
    message = error("cola", limit=1)
    assert message.startswith(f"{path}: no training row has the label ")
    assert message.endswith("Only the first 1 training rows are kept: keep more, or draw a sample.")


def test_pairs_and_their_labels(folder):
    for split in ("train", "test"):
        write_lines(
            folder / f"senteval/MRPC/{split}.tsv", "label\tsentence1\tsentence2", *[f"{n % 2}\ta\tb" for n in range(9)]
        )
    task = load_classification("mrpc")
    assert (task.metric, task.label_names) == ("accuracy_f1", ("different", "paraphrase"))
    assert task.test == ([("a", "b")] * 9, [0, 1, 0, 1, 0, 1, 0, 1, 0])
    assert "the official test set, whose labels are published" in task.sources[2]

    for split in ("train", "dev"):
        rows = [f"{n % 2}\t{split}\tb" for n in range(20)]
        write_lines(folder / f"glue/MRPC/{split}.tsv", "label\tsentence1\tsentence2", *rows)
    glue = load_classification("mrpc-glue", splits="full")
    assert (glue.metric, glue.label_names) == (task.metric, task.label_names)
    assert {row[0] for row in glue.test.texts} == {"dev"}
    assert "GLUE's validation set" in glue.sources[2]

    header = "label\tquestion\tsentence"
    write_lines(folder / "glue/QNLI/train.tsv", header, *["not_entailment\tq\ts", "entailment\tq\tt"] * 3)
    write_lines(folder / "glue/QNLI/dev.tsv", header, "entailment\tq\ts", "1\tq\tt", "0\tq\tt")
    task = load_classification("qnli")
    assert (task.label_names, task.test.targets) == (("entailment", "not_entailment"), [0, 1, 0])
    assert task.test.texts[0] == ("q", "s")

    header = "premise\thypothesis\tlabel"
    write_lines(folder / "nli/MNLI/train_some.tsv", header, *[f"p\th\t{label}" for label in (*LABEL_NAMES, "-")] * 4)
    write_lines(folder / "nli/MNLI/dev_matched.tsv", header, "p\th\tcontradiction", "p\th\t0", "p\th\tneutral")
    task = load_classification("mnli:train_some")
    assert (task.name, task.label_names) == ("mnli:train_some", LABEL_NAMES)
    assert task.test.targets == [2, 0, 1]
    assert (len(task.train.texts), len(task.validation.texts)) == (11, 1)
    assert "(4 labelled - left out): 11 rows" in task.sources[0]
    assert "matched" in task.sources[2]


def test_scored_tasks_have_the_official_splits(folder):
    for number, split in enumerate(("train", "dev", "test")):
        write_lines(
            folder / f"sts/STSB/{split}.tsv", "score\tsentence1\tsentence2", f"{number}.25\ta\tb", f"5\ta\t{split}"
        )
    task = load_classification("stsb")
    assert (task.metric, task.label_names) == ("pearson_spearman", ())
    assert task.train == ([("a", "b"), ("a", "train")], [0.25, 5.0])
    assert [split.targets[0] for split in (task.validation, task.test)] == [1.25, 2.25]
    assert {type(target) for target in task.train.targets} == {float}
    path = write_lines(folder / "sts/STSB/test.tsv", "score\tsentence1\tsentence2", "5.5\ta\tb")
    assert error("stsb") == f"{path}, line 2: score 5.5 is outside 0 to 5."


def test_reviews_are_positive_or_negative(folder):
    rows = [f"{number % 5 + 1}\treview {number}" for number in range(200)]
    path = write_lines(folder / "transfer/amazon5/train.tsv", "label\ttext", *rows)
    write_lines(folder / "transfer/yelp5/train.tsv", "label\ttext", *rows)
    write_lines(
        folder / "transfer/amazon5/test.tsv", "label\ttext", *[f"{stars}\tof {stars}" for stars in (5, 3, 1, 2, 4)]
    )
    amazon = load_classification("amazon2")
    assert amazon.label_names == ("negative", "positive")
    assert amazon.test == ([("of 5",), ("of 1",), ("of 2",), ("of 4",)], [1, 0, 0, 1])
    assert amazon.sources[0] == f"train: {path} (40 labelled 3 left out): 144 rows"
    yelp = load_classification("yelp2")
    assert Counter(yelp.test.targets) == {0: 16, 1: 16}
    assert not set(texts_of(yelp.test)) & set(texts_of(yelp.train, yelp.validation))
    assert len(texts_of(yelp.test, yelp.train, yelp.validation)) == 160
    other = load_classification("yelp2", seed=1)
    assert other.test == yelp.test
    assert other.validation != yelp.validation
    assert yelp.sources[2] == "test: a fifth of train, drawn by seed 0, stratified by label: 32 rows"


def test_other_data_for_the_splits_of_a_named_task(folder):
    for path in ("glue/RTE/train", "glue/RTE/dev", "a", "b"):
        rows = [f"{label}\t{path}\ts" for label in ("entailment", "not_entailment")]
        write_lines(folder / f"{path}.tsv", "label\tsentence1\tsentence2", *rows)
    task = load_classification("rte", validation=str(folder / "a.tsv"), test=str(folder / "b.tsv"))
    parts = {split.texts[0][0] for split in (task.validation, task.test)}
    assert (len(task.train.texts), parts) == (2, {"a", "b"})
    assert task.sources[2] == f"test: {folder / 'b.tsv'}: 2 rows"
    assert error("rte:dev") == "rte:dev is named both for training and for test; name other data for one of them."
    assert "rte:dev is named both for validation and for test" in error("rte", validation="rte:dev")
    assert (
        error("rte", text_columns=["sentence1"])
        == "rte is a named task with fixed columns; remove the column settings."
    )


def test_missing_splits_and_wrong_labels_are_named(folder):
    write_lines(folder / "nli/MNLI/train_20k_nyu.tsv", "premise\thypothesis\tlabel")
    write_lines(folder / "nli/MNLI/dev_matched.tsv", "premise\thypothesis\tlabel")
    message = error("mnli")
    assert message.startswith("mnli:train was not found.")
    assert "Available: mnli:dev_matched+train_20k_nyu." in message
    assert "train_20k_nyu.tsv: no labelled rows." in error("mnli:train_20k_nyu")
    path = write_lines(folder / "glue/CoLA/train.tsv", "label\ttext", "1\ta", "2\tb")
    assert error("cola") == (
        f"{path}, line 3: the label '2' is not one of those of cola: unacceptable, acceptable, 0, 1."
    )
    write_lines(folder / "glue/CoLA/train.tsv", "label\ttext", "1\ta", "\tb")
    assert error("cola").startswith(f"{path}, line 3: column 'label' is empty.")
    write_lines(folder / "glue/CoLA/train.tsv", "label\ttext", "1\ta", "0\t \x0b")
    assert error("cola").startswith(f"{path}, line 3: column 'text' is empty.")
    write_lines(folder / "glue/CoLA/dev.tsv", "label\ttext", "0\ta")
    write_lines(folder / "glue/CoLA/train.tsv", "label\ttext", *["1\ta"] * 20)
    assert error("cola") == f"{path}: no training row has the label 'unacceptable'."


# --- own data


def test_own_data_is_split_in_three(tmp_path):
    path = own_rows(tmp_path)
    task = load_classification(path)
    assert (task.name, task.metric, task.label_names) == (path, "accuracy", ("no", "yes"))
    parts = [Counter(split.targets) for split in (task.train, task.validation, task.test)]
    assert parts == [{0: 58, 1: 14}, {0: 6, 1: 2}, {0: 16, 1: 4}]
    assert sorted(texts_of(task.train, task.validation, task.test)) == sorted((f"text {n}",) for n in range(100))
    for split in (task.train, task.validation, task.test):
        assert [int(int(text.split()[1]) % 5 == 0) for (text,) in split.texts] == split.targets
    assert task.sources[1:] == (
        "validation: of train, drawn by seed 0, stratified by label (a tenth: 80 rows are too few for 500): 8 rows",
        "test: a fifth of train, drawn by seed 0, stratified by label: 20 rows",
    )
    other = load_classification(path, seed=1, validation_rows=40)
    assert other.test != task.test
    assert len(other.validation.texts) == 40


def test_own_files_for_each_split(tmp_path):
    path, other = own_rows(tmp_path, rows=10), own_rows(tmp_path, "other.tsv", rows=7)
    task = load_classification(path, test=other)
    assert task.test.texts == [(f"text {number}",) for number in range(7)]
    assert (len(task.train.texts), len(task.validation.texts)) == (9, 1)
    again = 7 - (task.validation.texts[0] in task.test.texts)
    assert task.sources[2] == f"test: {other}: 7 rows, {again} of them with texts that are also in train"
    third = write_lines(tmp_path / "third.jsonl", '{"text": "one", "label": "yes"}')
    task = load_classification(path, validation=third, test=other)
    assert len(task.train.texts) == 10
    assert task.validation == ([("one",)], [1])
    assert "is named both for training and for validation" in error(path, validation=path)
    wrong = write_lines(tmp_path / "wrong.tsv", "label\ttext", "yes\tone", "maybe\ttwo")
    assert error(path, test=wrong) == f"{wrong}, line 3: the label 'maybe' is not one of the labels of {path}: no, yes."
    assert error(path, validation=wrong, test=other).startswith(f"{wrong}, line 3: the label 'maybe'")


def test_a_label_with_a_single_row_stays_in_train(tmp_path):
    path = write_lines(tmp_path / "a.tsv", "label\ttext", "odd\tone", *[f"{'ab'[n % 2]}\ttext {n}" for n in range(40)])
    for seed in range(20):
        assert ("one",) in load_classification(path, seed=seed).train.texts


def test_invalid_row_counts_raise(tmp_path):
    path = own_rows(tmp_path)
    assert error(path, limit=0) == "The limit on training rows is 0, but must be at least 1."
    assert error(path, validation_rows=0) == "The number of validation rows is 0, but must be at least 1."
    assert "neither a file nor a named data set" in error("sst3")


# --- columns, labels and scores of own data ---


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
    assert f"{other}, line 3: column 'label' holds 'much', not a number. Correct it" in error(path, test=other)
    assert error(other) == (
        f"{other}, line 3: column 'label' holds 'much', not a number. If one label has a fraction, as 0.5 "
        f"({other}, line 2), all are scores and must be numbers."
    )
    equal = write_lines(tmp_path / "c.tsv", "label\ttext", *["0.5\tone"] * 20)
    assert "every score is 0.5; there is nothing to learn" in error(equal)
