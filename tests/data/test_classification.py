"""Fine-tuning and transfer tasks: named sets and own files, their splits by the protocols of papers, samples."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from nearfar import FinetuneConfig
from nearfar.commands.finetune import resolve_splits
from nearfar.data.classification import load_classification
from nearfar.data.draws import draw, hold_out
from nearfar.data.labelled import load_labelled_task, load_transfer
from nearfar.types import LABEL_NAMES
from tests.data.files import error_of, texts_of, write, write_lines

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
    assert few.train == (task.train.texts[:7], task.train.targets[:7])
    assert (few.validation, few.test) == (task.validation, task.test)
    assert (task.metric, task.label_names) == ("matthews", ("unacceptable", "acceptable"))
    message = error("cola", limit=1)
    assert message.startswith(f"{folder / 'glue/CoLA/train.tsv'}: no training row has the label ")
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
    assert "labelled data has the columns text and label, or sentence1, sentence2 and label. Its columns:" in message
    assert "no column 'label'. Its columns: said" in error(named, text_columns=["said"])
    for columns in ([], ["said"] * 2, ["said", "reply", "tone"]):
        assert error(named, text_columns=columns, label_column="tone").startswith(
            "Name one or two columns of text, not"
        )


def test_labels_with_fractions_are_scores(tmp_path):
    path = write_lines(tmp_path / "a.tsv", "label\ttext", *[f"{number / 2:g}\ttext {number}" for number in range(50)])
    task = load_classification(path)
    assert (task.metric, task.label_names) == ("pearson_spearman", ())
    assert [len(split.texts) for split in (task.train, task.validation, task.test)] == [36, 4, 10]
    for split in (task.train, task.validation, task.test):
        assert split.targets == [int(text.split()[1]) / 2 for (text,) in split.texts]
        assert {type(target) for target in split.targets} == {float}
    assert "proportions" not in "".join(task.sources)
    other = write_lines(tmp_path / "b.tsv", "label\ttext", "0.5\tone", "much\ttwo")
    assert f"{other}, line 3: column 'label' holds 'much', not a number. Correct it" in error(path, test=other)
    assert f"{other}, line 3: column 'label' holds 'much', not a number. Correct it" in error(other)
    equal = write_lines(tmp_path / "c.tsv", "label\ttext", *["0.5\tone"] * 20)
    assert "every score is 0.5; there is nothing to learn" in error(equal)


def write_cola(folder, *, train=3000, dev=400):
    """Write CoLA's files; a quarter of the rows have label 0. Returns their texts with labels."""
    parts = {}
    for name, rows in (("train", train), ("dev", dev)):
        parts[name] = {f"{name} {number}": int(number % 4 > 0) for number in range(rows)}
        lines = [f"{label}\t{text}" for text, label in parts[name].items()]
        write_lines(folder / f"glue/CoLA/{name}.tsv", "label\ttext", *lines)
    return parts


def check_rows(task, parts, *, where):
    """Every split comes from the given part, keeps texts with their labels, and shares no row with another split."""
    seen = set()
    for name, part in where.items():
        split = getattr(task, name)
        texts = [text for (text,) in split.texts]
        assert [parts[part][text] for text in texts] == split.targets
        assert not seen & set(texts)
        assert len(set(texts)) == len(texts)
        assert texts == sorted(texts, key=lambda text: int(text.split()[1]))  # the order of the file
        seen |= set(texts)


@pytest.mark.long
def test_few_shot_splits_divide_the_validation_set_of_glue(folder):
    parts = write_cola(folder)
    task = load_classification("cola", splits="few-shot", validation_rows=120)
    check_rows(task, parts, where={"train": "train", "validation": "dev", "test": "dev"})
    counts = [Counter(split.targets) for split in (task.train, task.validation, task.test)]
    assert counts == [{0: 750, 1: 2250}, {0: 30, 1: 90}, {0: 50, 1: 150}]
    assert task.splits == "few-shot"
    dev = f"{folder}/glue/CoLA/dev.tsv (GLUE's validation set, as the labels of its test set are not published)"
    assert task.sources == (
        f"train: {folder}/glue/CoLA/train.tsv: 3,000 rows",
        f"validation: of the other half of {dev}, drawn by seed 0, stratified by label: 120 rows",
        f"test: half of {dev}, drawn by seed 0, stratified by label: 200 rows",
    )
    assert load_classification("cola", splits="few-shot", validation_rows=120) == task
    other = load_classification("cola", splits="few-shot", validation_rows=120, seed=1)
    assert other.test != task.test
    # The limit keeps the first training rows and does not change the other splits.
    few = load_classification("cola", splits="few-shot", validation_rows=120, limit=50)
    assert (few.validation, few.test, len(few.train.texts)) == (task.validation, task.test, 50)


@pytest.mark.long
def test_full_splits_draw_as_many_validation_rows_as_there_are_test_rows(folder):
    parts = write_cola(folder)
    task = load_classification("cola", splits="full")
    check_rows(task, parts, where={"train": "train", "validation": "train", "test": "dev"})
    counts = [Counter(split.targets) for split in (task.train, task.validation, task.test)]
    assert counts == [{0: 650, 1: 1950}, {0: 100, 1: 300}, {0: 100, 1: 300}]
    assert task.sources[1] == ("validation: of train, drawn by seed 0, stratified by label: 400 rows")
    held_out = load_classification("cola", validation_rows=400)
    assert (held_out.train, held_out.validation, held_out.test) == (task.train, task.validation, task.test)


@pytest.mark.long
def test_10_90_splits_take_the_first_tenth_in_the_order_of_the_file(folder):
    write_cola(folder, dev=277)
    task = load_classification("cola", splits="10-90")
    assert task.validation.texts == [(f"dev {number}",) for number in range(27)]
    assert task.test.texts == [(f"dev {number}",) for number in range(27, 277)]
    assert len(task.train.texts) == 3000
    assert load_classification("cola", splits="10-90", seed=7) == task
    assert task.sources[1].startswith(f"validation: the first 10% of {folder}/glue/CoLA/dev.tsv (GLUE's")
    assert task.sources[2].startswith(f"test: the last 90% of {folder}/glue/CoLA/dev.tsv (GLUE's")
    write_cola(folder, dev=9)
    assert error("cola", splits="10-90").endswith("--splits 10-90 needs at least 10 rows, but there are 9.")


def test_splits_need_a_test_set_and_choose_the_validation_rows(folder):
    rows = [f"{number % 5 + 1}\treview {number}" for number in range(200)]
    write_lines(folder / "transfer/yelp5/train.tsv", "label\ttext", *rows)
    assert error("yelp2", splits="full") == (
        "--splits full: does not apply to yelp2: it has no test set of its own. Use held-out splits."
    )
    assert error("stsb", splits="few-shot") == (
        "--splits few-shot: does not apply to stsb: its validation rows are stsb:dev. Use held-out splits."
    )
    mine = write_lines(folder / "mine.tsv", "label\ttext", *rows)
    assert "mine.tsv: it has no test set of its own" in error(mine, splits="10-90")
    # Own test rows can be divided.
    other = write_lines(folder / "other.tsv", "label\ttext", *rows[:50])
    task = load_classification(mine, test=other, splits="few-shot")
    assert (len(task.train.texts), len(task.validation.texts), len(task.test.texts)) == (200, 25, 25)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"task": "sst2"}, "full"),
        ({"task": "sst2", "sample_size": 20}, "few-shot"),
        ({"task": "mrpc-glue", "splits": "10-90"}, "10-90"),
        ({"task": "sst2", "test": "a.tsv"}, "held-out"),
        ({"task": "amazon2", "sample_size": 40}, "held-out"),
    ],
)
def test_auto_follows_gunel_for_glue_tasks(settings, expected):
    assert resolve_splits(FinetuneConfig(output="x", **settings)) == expected


TARGETS = [0] * 60 + [2] * 30 + [1] * 10


def counts(rows, targets=TARGETS):
    assert rows == sorted(set(rows))
    return Counter(targets[row] for row in rows)


draw_error = partial(error_of, draw)


@pytest.mark.parametrize(
    ("targets", "count", "balanced", "drawn"),
    [
        (TARGETS, 30, True, {0: 10, 1: 10, 2: 10}),
        (TARGETS, 10, False, {0: 6, 2: 3, 1: 1}),
        (TARGETS, 100, False, Counter(TARGETS)),
        ([0] * 96 + [1] * 2 + [2] * 2, 5, False, {0: 3, 1: 1, 2: 1}),  # a rare label is in it
        ([0] * 96 + [1] * 2 + [2] * 2, 3, False, {0: 1, 1: 1, 2: 1}),
    ],
)
def test_a_sample_has_equal_counts_or_the_proportions(targets, count, balanced, drawn):
    assert counts(draw(targets, count, balanced=balanced, seed=0), targets) == drawn


def test_a_sample_is_a_function_of_its_seed():
    samples = [draw(TARGETS, 30, balanced=True, seed=seed) for seed in range(20)]
    assert samples == [draw(TARGETS, 30, balanced=True, seed=seed) for seed in range(20)]
    assert len({tuple(sample) for sample in samples}) == 20
    # two samples of 30 of 100 rows: on average 10 x 10/60 + 10 x 10/30 + 10 of 10 rows are in both
    shared = [len(set(one) & set(other)) for one, other in pairwise(samples)]
    assert 13 < sum(shared) / len(shared) < 17


def test_impossible_samples_raise():
    for count in (2, 101):
        expected = f"A sample has from 3 (the labels) to 100 rows (all), not {count}."
        assert draw_error(TARGETS, count, balanced=True, seed=0) == expected
    message = "The label 1 has 10 rows, but a balanced sample needs 11."
    assert draw_error(TARGETS, 33, balanced=True, seed=0) == message
    names = ("no", "maybe", "yes")
    assert draw_error(TARGETS, 60, balanced=True, seed=0, label_names=names).startswith("The label 'maybe' has 10 rows")


def test_held_out_rows_are_stratified_and_leave_a_row_of_each_label():
    assert counts(hold_out(TARGETS, 10, seed="x")) == {0: 6, 2: 3, 1: 1}
    assert hold_out(TARGETS, 10, seed="x") != hold_out(TARGETS, 10, seed="y")
    targets = [0] * 10 + [1] + [2] * 2
    for seed in range(30):
        assert set(counts(hold_out(targets, 13, seed=seed), targets)) <= {0, 2}
        assert set(targets) == {targets[row] for row in set(range(13)) - set(hold_out(targets, 13, seed=seed))}
    assert len(hold_out(targets, 13, seed=0)) == 6
    assert hold_out([0, 1, 2], 1, seed=0) == []


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


def test_an_unknown_task_is_named():
    expected = "trek: no such transfer task. Did you mean 'trec'? Known tasks: mr, cr,"
    assert error_of(load_transfer, "trek").startswith(expected)


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
