"""The numbers beside ours are those that the papers print: ranges, averages, and numbers that occur in two tables."""

from collections import defaultdict
from functools import cache

import pytest

from nearfar.studies.papers import table_file, table_names
from nearfar.studies.read import load_study
from nearfar.studies.spec import Study

PLACEHOLDERS = {"start": "start", "tiny": "tiny", "data": "data"}
INEXACT = {
    ("kim-table-1", "bert-large-flow"): 0.335,
    ("liao-table-3", "sbert"): 0.026,
    ("liao-table-3", "3palln-lambda0.5"): 0.017,
    ("liao-table-3", "allpalln-lambda0.3"): 0.016,
    ("liao-table-4", "scl"): 0.016,
}
"""Rows whose printed average differs from the mean of the printed scores by more than rounding -> the difference."""


@cache
def load(name: str) -> Study:
    return load_study(table_file(name), "paper", placeholders=PLACEHOLDERS)


def printed(name: str) -> dict[tuple[str, tuple[tuple[str, str], ...], str], tuple[float, float | None]]:
    """(row, coordinates, column) -> the printed mean and standard deviation."""
    return {
        (row.id, tuple(sorted(one.coordinates.items())), one.column): (one.value, one.sd)
        for row in load(name).rows
        for one in row.paper
    }


def scores(name: str, row: str) -> dict[str, tuple[float, float | None]]:
    """Column -> the printed numbers of a row without axes."""
    return {column: value for (found, _, column), value in printed(name).items() if found == row}


@pytest.mark.parametrize("name", table_names())
def test_numbers_are_in_range(name: str) -> None:
    for (row, coordinates, column), (value, sd) in printed(name).items():
        where = (row, coordinates, column)
        if column.endswith("_seconds"):
            assert 5 < value < 500, where
        elif column == "updates_per_second":
            assert 1 < value < 20, where
        else:
            assert 10 < value < 100, where
        assert sd is None or 0 < sd < 7, where


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [*(f"liao-table-{number}" for number in range(2, 8)), *(f"kim-table-{number}" for number in (1, 4, 7, 8, 9, 11))],
)
def test_averages_are_those_printed(name: str) -> None:
    tasks = [column for column in load(name).columns if column not in ("average", "validation")]
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]] = defaultdict(dict)
    for (row, coordinates, column), (value, _) in printed(name).items():
        groups[row, coordinates][column] = value
    assert groups
    for (row, coordinates), values in groups.items():
        mean = sum(values[task] for task in tasks) / len(tasks)
        assert mean == pytest.approx(values["average"], abs=INEXACT.get((name, row), 0.0059)), (row, coordinates)


@pytest.mark.parametrize("loss", ["ce", "scl"])
@pytest.mark.parametrize("task", ["SST-2", "QNLI", "MNLI"])
def test_gunels_average_over_noise(loss: str, task: str) -> None:
    found = {
        dict(at)["noise"]: value
        for (row, at, _), (value, _) in printed("gunel-table-3").items()
        if row == loss and dict(at)["task"] == task
    }
    assert list(found) == ["original", "T=0.3", "T=0.5", "T=0.7", "T=0.9", "average"]
    noisy = [found[label] for label in list(found)[1:-1]]
    assert sum(noisy) / 4 == pytest.approx(found["average"], abs=0.0501)


@pytest.mark.long
def test_cells_of_two_tables_have_the_same_number() -> None:
    first = {(row, column): value for (row, _, column), value in printed("liao-table-2").items()}
    for other, axis, prefix in (("liao-table-6", "lambda", "allpalln-lambda{}"), ("liao-table-7", "temperature", None)):
        for (_, at, column), value in printed(other).items():
            label = dict(at)[axis]
            row = prefix.format(label) if prefix else "allpalln-lambda0.5" if label == "1.0" else None
            assert row is None or (row, column) not in first or first[row, column] == value, (other, at, column)
    transfer = {(row, column): value for (row, _, column), value in printed("liao-table-3").items()}
    for (_, at, column), value in printed("liao-table-4").items():
        row = f"allpalln-lambda{dict(at)['lambda']}"
        assert (row, column) not in transfer or transfer[row, column] == value, (at, column)
    for (_, at, column), value in printed("liao-table-5").items():
        assert dict(at)["temperature"] != "1.0" or transfer["allpalln-lambda0.5", column] == value, column
    for row in ("bert-base-bt", "bert-base-sg-opt"):
        assert scores("kim-table-1", row) == scores("kim-table-7", row)
    assert scores("kim-table-8", "bert-base-sg-opt") == scores("kim-table-1", "bert-base-sg-opt")
    assert scores("kim-table-9", "bert-base-mean") == scores("kim-table-4", "bert-base-mean")
    for row, other in (("sg-opt", "bert-base-sg-opt"), ("sg", "bert-base-sg")):
        assert scores("kim-table-5", row)["average"][0] == scores("kim-table-1", other)["average"][0]
    few = {(row, at): value for (row, at, _), value in printed("gunel-table-2").items()}
    for (row, at, _), value in printed("gunel-table-3").items():
        if dict(at)["noise"] == "original":
            assert few[row, (("rows", "100"), ("task", dict(at)["task"]))] == value


@pytest.mark.long
def test_the_domain_shift_of_kim_is_the_one_in_the_text() -> None:
    losses = {"sg-opt": (1.83, 1.63), "flow": (12.16, 4.19)}
    for method, two in losses.items():
        inside, outside = (scores("kim-figure-4", f"{method}-{data}") for data in ("stsb", "nli"))
        for column, loss in zip(("stsb", "average"), two, strict=True):
            assert inside[column][0] - outside[column][0] == pytest.approx(loss, abs=1e-6)
            assert inside[column][0] == scores("kim-table-1", f"bert-base-{method}")[column][0]


@pytest.mark.parametrize(
    ("name", "row", "column", "value"),
    [
        ("liao-table-2", "sbert", "average", (67.61, None)),
        ("liao-table-2", "allpalln-lambda0.3", "average", (70.44, None)),
        ("liao-table-3", "allpalln-lambda0.1", "average", (76.64, None)),
        ("simcse-review-stsb", "roberta-large", "stsb.dev_pearson", (92.13, None)),
        ("simcse-review-stsb", "bert-large-sup", "stsb.dev_spearman", (90.99, None)),
        ("kim-table-1", "bert-base-sg-opt", "average", (74.62, 0.25)),
        ("kim-table-1", "use", "sickr", (76.69, None)),
        ("kim-table-3", "bow", "sts17:ar-ar.pearson", (60.45, None)),
        ("kim-table-5", "no-head", "average", (72.78, None)),
        ("kim-table-6", "wk", "inference_seconds", (197.03, None)),
        ("kim-table-11", "roberta-base-bt", "stsb", (79.93, 1.08)),
        ("kim-figure-1", "bert-base", "layer.2.max", (63.19, None)),
    ],
)
def test_numbers_quoted_in_the_papers_texts(
    name: str, row: str, column: str, value: tuple[float, float | None]
) -> None:
    assert scores(name, row)[column] == value
