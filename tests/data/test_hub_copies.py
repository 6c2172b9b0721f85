"""Hub copies of the transfer and review sets: other columns, labels and splits become those of the local files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from nearfar.data.classification import load_classification
from nearfar.data.labelled import load_transfer


def split(columns: dict[str, list[Any]], names: list[str] | None = None) -> datasets.Dataset:
    features = {
        column: datasets.ClassLabel(names=names)
        if column == "label" and names
        else datasets.Value("int64" if column == "label" else "string")
        for column in columns
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def labelled(text: str, names: list[str] | None, **more: str) -> datasets.Dataset:
    rows = 10
    columns = {name: [f"{content} {n}" for n in range(rows)] for name, content in more.items()}
    return split(
        {**({"text": [f"{text} {n}" for n in range(rows)]} if text else {}), **columns} | {"label": [0, 1] * 5}, names
    )


HUB = {
    ("nyu-mll/glue", "mrpc"): {
        name: labelled("", ["not_equivalent", "equivalent"], sentence1=f"{name} one", sentence2="two")
        for name in ("train", "validation", "test")
    },
    ("fancyzhx/amazon_polarity", None): {
        name: labelled("", ["negative", "positive"], title="Good", content=name) for name in ("train", "test")
    },
    ("fancyzhx/yelp_polarity", None): {name: labelled(name, ["1", "2"]) for name in ("train", "test")},
}


@pytest.fixture(autouse=True)
def hub(folder: Path, fake_hub: Callable[[Callable[..., datasets.Dataset]], Any]) -> None:
    """The hub, with small data sets that have the columns, labels and splits of the copies."""
    fake_hub(
        lambda name, config, split: datasets.concatenate_datasets(
            [HUB[name, config][part] for part in split.split("+")]
        )
    )


def test_mrpc_joins_what_glue_splits() -> None:
    task = load_transfer("mrpc")
    assert {name: len(rows.texts) for name, rows in task.splits.items()} == {"train": 20, "test": 10}
    assert task.splits["train"].texts[11] == ("validation one 1", "two 1")
    assert task.splits["test"].targets == [0, 1] * 5
    assert load_classification("mrpc", validation_rows=4).label_names == ("different", "paraphrase")


def test_reviews_have_title_and_body() -> None:
    task = load_classification("amazon-polarity", validation_rows=4)
    assert set(task.test.texts) == {(f"Good {n} test {n}",) for n in range(10)}
    assert [target for _, target in sorted(zip(task.test.texts, task.test.targets, strict=True))] == [0, 1] * 5
    yelp = load_classification("yelp-polarity", validation_rows=4)
    assert (yelp.test.texts[1], yelp.test.targets[1]) == (("test 1",), 1)
