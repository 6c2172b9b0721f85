"""The papers' tables, written down here from the papers: the rows and cells of each study, and the printed numbers.

The numbers beside ours are checked by their ranges, by averages, and where they occur in two tables.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import pytest

from nearfar import EvaluateConfig
from nearfar.commands.evaluate import configured_probe
from nearfar.evaluation.probe_settings import PRESETS
from nearfar.studies.cells import Cell, load_study, plan_cells
from nearfar.studies.papers import table_file, table_names
from nearfar.studies.spec import Study
from nearfar.types import NearfarError


class Table(NamedTuple):
    rows: tuple[str, ...]
    cells: int
    axes: Mapping[str, tuple[str, ...]]


NOT_PRINTED = ("UMCC-DLSI-run2 (rank 1)", "ECNU (rank 1)")
"""Rows of other systems, which have numbers and no cells."""
LIAO = (
    "Avg. GloVe embeddings; SBERT baseline; 3p3n-Augment; allpalln-Augment; 3p3n-lambda0.5-SCL; 3palln-lambda0.5-SCL; "
    "allpalln-lambda0.5-SCL; all3n-lambda1.0-SCL; 3palln-lambda1.0-SCL; allpalln-lambda1.0-SCL; "
    "allpalln-lambda0.1-SCL; allpalln-lambda0.3-SCL"
)
LAMBDAS, TEMPERATURES = "lambda = 0.1, 0.3, 0.5, 0.7, 0.9", "temperature = 0.1, 0.3, 0.5, 0.7, 0.9, 1.0"
PROBES = "probes = 5 folds, 10 folds"
LOSSES = "CE; CE + SCL"
UNTRAINED, TRAINED = "CLS, Mean, WK", "BT, SG, SG-OPT"
WITH_FLOW = f"{UNTRAINED}, Flow, {TRAINED}"
MBERT = f"MBERT: CLS, mean pooling, WK pooling, {TRAINED}"
TEXT = f"""
liao-table-2 | 12 | {LIAO}
liao-table-3 | 24 | {LIAO} | {PROBES}
liao-table-4 | 10 | allpalln-SCL | {PROBES}; {LAMBDAS}
liao-table-5 | 12 | allpalln-SCL | {PROBES}; {TEMPERATURES}
liao-table-6 | 5 | allpalln-SCL | {LAMBDAS}
liao-table-7 | 6 | allpalln-SCL | {TEMPERATURES}
simcse-review-stsb | 6 | RoBERTa-large: , unsup-simcse, sup-simcse; BERT-large: , unsup-simcse, sup-simcse
simcse-review-spectrum | 3 | BERT-base: , unsup-simcse, sup-simcse
simcse-review-uniformity | 11 | BERT-base: not trained; unsup-simcse; sup-simcse | steps = 10, 30, 100, 300, 1000
gunel-table-2 | 180 | {LOSSES} | rows = 20, 100, 1000; task = SST-2, QNLI, MNLI
gunel-table-3 | 300 | {LOSSES} | task = SST-2, QNLI, MNLI; noise = original, T=0.3, T=0.5, T=0.7, T=0.9
gunel-table-5 | 120 | {LOSSES} | task = SST-2, CoLA, MRPC, RTE, QNLI, MNLI
gunel-table-6 | 240 | {LOSSES} | batch = 16, 64, 256; task = SST-2, CoLA, QNLI, MNLI
gunel-table-7 | 40 | {LOSSES} | task = Amazon-2, Yelp-2
gunel-grid | 480 | CE + SCL | reduction = sum, mean; lambda = 0.1, 0.3, 0.5, 0.7, 0.9, 1.0; temperature = 0.1, 0.3, 0.5, 0.7
gunel-figure-2 | 2 | {LOSSES}
gunel-figure-3 | 6 | {LOSSES} | rows = 20, 100, all
kim-table-1 | 142 | GloVe; USE; {"; ".join(f"{size}: {WITH_FLOW}" for size in "BERT-base BERT-large SBERT-base SBERT-large".split())}
kim-table-2 | 27 | UMCC-DLSI-run2 (rank 1); {MBERT}
kim-table-3 | 28 | Cosine baseline; ECNU (rank 1); {MBERT}
kim-table-4 | 72 | BERT-base: Mean, WK, SG-OPT; BERT-large: Mean, WK, SG-OPT; SBERT-base: Mean, WK, SG-OPT
kim-table-5 | 72 | SG-OPT; L_opt2; L_opt1; SG; temperature 0.1; temperature 0.001; lambda 0; lambda 1; without projection head
kim-table-6 | 4 | Mean pooling; WK pooling; Flow; SG-OPT
kim-table-7 | 24 | BERT-base: BT, SG-OPT, BT + SG-OPT
kim-table-8 | 8 | BERT-base: SG-OPT
kim-table-9 | 8 | BERT-base: Mean
kim-table-10 | 80 | BERT-base: , SG-OPT | task = QNLI, SST2, COLA, MRPC, RTE
kim-table-11 | 54 | RoBERTa-base: {UNTRAINED}, {TRAINED}; RoBERTa-large: {UNTRAINED}, {TRAINED}
kim-figure-1 | 17 | BERT-base; SG; SG-OPT
kim-figure-4 | 32 | SG-OPT: STS-B, NLI; Flow: STS-B, NLI
kim-figure-5 | 2 | BERT-base; SG-OPT
kim-figure-6 | 1 | SBERT-base
"""  # noqa: E501
"""Table | number of cells, with all seeds and samples | rows | axes. ``A: b, c`` are the rows ``A, b`` and ``A, c``."""


def read_table(line: str) -> tuple[str, Table]:
    name, cells, rows, axes = (*line.split(" | "), "")[:4]
    names: list[str] = []
    for row in rows.split("; "):
        encoder, colon, kinds = row.partition(":")
        names += [f"{encoder}, {kind.strip()}".removesuffix(", ") for kind in kinds.split(",")] if colon else [row]
    labels = (axis.split(" = ") for axis in axes.split("; ") if axis)
    return name, Table(tuple(names), int(cells), {axis: tuple(values.split(", ")) for axis, values in labels})


TABLES = dict(map(read_table, TEXT.strip().splitlines()))


@cache
def load(name: str, scale: str = "paper") -> Study:
    return load_study(table_file(name), scale, placeholders={"start": "start", "tiny": "tiny", "data": "data"})


@cache
def cells_of(name: str, scale: str = "paper") -> list[Cell]:
    return plan_cells(load(name, scale))


def test_every_table_is_listed_here() -> None:
    assert set(TABLES) == set(table_names())


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_study_has_exactly_the_cells_of_the_paper(name: str) -> None:
    study, cells, expected = load(name), cells_of(name), TABLES[name]
    assert [row.name for row in study.rows] == list(expected.rows)
    assert {axis.name: axis.labels for axis in study.axes} == expected.axes
    assert len(cells) == expected.cells
    assert {cell.row.name for cell in cells} == set(expected.rows) - set(NOT_PRINTED)
    assert len({(cell.row.id, *cell.coordinates.items(), *cell.replicate.items()) for cell in cells}) == len(cells)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", ["here", "tiny"])
def test_smaller_scales_load(name: str, scale: str) -> None:
    assert "`here`" in (load(name, scale).notes or "")  # it says what differs
    cells = cells_of(name, scale)
    assert 0 < len(cells) <= (12 if scale == "tiny" else 100)
    models = {step.model for cell in cells for step in cell.steps if step.model is not None}
    own = {"bow", "sentence-transformers/all-MiniLM-L6-v2"}  # no file, and the encoder that tests open offline
    assert all("start" in model or model.startswith("glove:") for model in models - own), models


@pytest.mark.long
@pytest.mark.parametrize("scale", ["paper", "here", "tiny"])
def test_tables_share_their_trainings(scale: str) -> None:
    def trained(name: str) -> set[object]:
        return {step.config for cell in cells_of(name, scale) for step in cell.steps if step.verb == "train"}

    assert trained("liao-table-2") == trained("liao-table-3")
    assert trained("liao-table-4") == trained("liao-table-6")
    assert trained("kim-table-7") & trained("kim-table-1") >= trained("kim-table-8")
    assert trained("kim-table-5") >= trained("kim-table-8")
    if scale != "tiny":  # which has two values of each axis
        assert trained("liao-table-2") & trained("liao-table-6")


@pytest.mark.long
def test_the_settings_of_kim_are_the_papers() -> None:
    seeds = {cell.replicate["seed"] for cell in cells_of("kim-table-1") if cell.replicate}
    assert seeds == {1, 2, 3, 4, 1234, 2345, 3456, 7890}
    for scale in ("paper", "here"):
        probes = [cells_of(name, scale)[0].steps[-1].config for name in ("kim-table-9", "kim-table-4")]
        settings = [configured_probe(probe) for probe in probes if isinstance(probe, EvaluateConfig)]
        assert settings[0] == settings[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["liao-table-3", "liao-table-4", "liao-table-5"])
def test_liaos_probes_are_those_of_the_code_and_of_the_text(name: str) -> None:
    probes = {
        (scale, cell.coordinates.get("probes")): configured_probe(probe)
        for scale in ("paper", "here")
        for cell in cells_of(name, scale)
        if isinstance(probe := cell.steps[-1].config, EvaluateConfig)
    }
    code, text = PRESETS["liao"], PRESETS["senteval"]
    assert (code.folds, text.folds) == (5, 10)
    assert probes == {("paper", "5 folds"): code, ("paper", "10 folds"): text, ("here", None): code}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(NearfarError, match="Did you mean 'kim-table-3'"):
        table_file("kim-tabel-3")
    with pytest.raises(NearfarError, match="no table is called 'liao'"):
        table_file("liao")


INEXACT = {
    ("kim-table-1", "bert-large-flow"): 0.335,
    ("liao-table-3", "sbert"): 0.026,
    ("liao-table-3", "3palln-lambda0.5"): 0.017,
    ("liao-table-3", "allpalln-lambda0.3"): 0.016,
    ("liao-table-4", "scl"): 0.016,
}
"""Rows whose printed average differs from the mean of the printed scores by more than rounding -> the difference."""


def printed(name: str) -> dict[tuple[str, tuple[tuple[str, str], ...], str], tuple[float, float | None]]:
    """(row, coordinates, column) -> the printed mean and standard deviation."""
    return {
        (row, tuple(sorted(one.coordinates.items())), one.column): (one.value, one.sd)
        for row, numbers in load(name).paper.items()
        for one in numbers
    }


def scores(name: str, row: str) -> dict[str, tuple[float, float | None]]:
    """Column -> the printed numbers of a row without axes."""
    return {column: value for (found, _, column), value in printed(name).items() if found == row}


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
