"""Validation and test rows of fine-tuning tasks by the protocols of Gunel et al. and Kim et al."""

from collections import Counter
from functools import partial

import pytest

from nearfar import FinetuneConfig
from nearfar.commands.finetune.run import load_task, resolve_splits
from nearfar.data.classification import load_classification
from nearfar.data.finetuning_splits import default_splits
from nearfar.data.named_sets import FINETUNING_TASKS
from tests.data.files import error_of, texts_of, write_lines

error = partial(error_of, load_classification)


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
def test_a_small_validation_set_is_divided_in_halves(folder):
    parts = write_cola(folder, dev=277)  # RTE's size
    task = load_classification("cola", splits="few-shot")
    check_rows(task, parts, where={"train": "train", "validation": "dev", "test": "dev"})
    assert (len(task.validation.texts), len(task.test.texts)) == (139, 138)
    assert sorted(texts_of(task.validation, task.test)) == sorted((text,) for text in parts["dev"])
    assert "(it is too small for 500 rows): 139 rows" in task.sources[1]
    exact = load_classification("cola", splits="few-shot", validation_rows=139)
    assert exact.validation == task.validation
    assert "too small" not in exact.sources[1]
    write_lines(folder / "glue/CoLA/dev.tsv", "label\ttext", "0\tone", "1\ttwo")
    assert "too few rows to hold some out for test" in error("cola", splits="few-shot")


@pytest.mark.long
def test_full_splits_draw_as_many_validation_rows_as_there_are_test_rows(folder):
    parts = write_cola(folder)
    task = load_classification("cola", splits="full")
    check_rows(task, parts, where={"train": "train", "validation": "train", "test": "dev"})
    counts = [Counter(split.targets) for split in (task.train, task.validation, task.test)]
    assert counts == [{0: 650, 1: 1950}, {0: 100, 1: 300}, {0: 100, 1: 300}]
    assert task.sources[1] == (
        "validation: of train, drawn by seed 0, stratified by label, as many as test rows: 400 rows"
    )
    fewer = load_classification("cola", splits="full", validation_rows=40)
    assert len(fewer.validation.texts) == 40
    assert "as many" not in fewer.sources[1]
    held_out = load_classification("cola", validation_rows=400)
    assert (held_out.train, held_out.validation, held_out.test) == (task.train, task.validation, task.test)
    write_cola(folder, train=700)
    small = load_classification("cola", splits="full")
    assert len(small.validation.texts) == 70
    assert "(a tenth: 700 rows are too few for 400): 70 rows" in small.sources[1]


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
        ({"task": "sst2", "sample_size": 20, "splits": "full"}, "full"),
        ({"task": "mrpc-glue", "splits": "10-90"}, "10-90"),
        ({"task": "sst2", "test": "a.tsv"}, "held-out"),
        ({"task": "mrpc"}, "held-out"),
        ({"task": "amazon2", "sample_size": 40}, "held-out"),
        ({"task": "stsb"}, "held-out"),
        ({"task": "mine.tsv", "sample_size": 40}, "held-out"),
    ],
)
def test_auto_follows_gunel_for_glue_tasks(settings, expected):
    assert resolve_splits(FinetuneConfig(output="x", **settings)) == expected


def test_every_glue_task_has_a_default_of_its_own():
    glue = {name for name in FINETUNING_TASKS if default_splits(name, sampled=True) == "few-shot"}
    assert glue == {"sst2", "cola", "mrpc-glue", "rte", "qnli", "mnli"}
    assert all(FINETUNING_TASKS[name].test.partition(":")[2].startswith("dev") for name in glue)


@pytest.mark.long
def test_all_samples_have_the_same_validation_and_test_rows(folder):
    write_cola(folder)
    config = FinetuneConfig(output="x", task="cola", sample_size=20)
    tasks = [
        load_task(FinetuneConfig(output="x", task="cola", sample_size=size, sample_seed=seed))
        for size, seed in ((20, 1), (20, 2), (100, 1))
    ]
    assert {task.splits for task in tasks} == {"few-shot"}
    assert tasks[0] == load_task(config)
    assert all((task.validation, task.test) == (tasks[0].validation, tasks[0].test) for task in tasks)
    assert len({tuple(task.train.texts) for task in tasks}) == 3
