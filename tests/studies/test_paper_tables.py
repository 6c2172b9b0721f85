"""The papers' tables, written down here from the papers: the rows and cells of each study, and the printed numbers.

The numbers beside ours are checked by their averages.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import pytest

from nearfar import EvaluateConfig
from nearfar.commands.evaluate import configured_probe
from nearfar.evaluation.probe_settings import PRESETS
from nearfar.studies.cells import Cell, in_rounds, load_study, plan_cells
from nearfar.studies.papers import table_file, table_names
from nearfar.studies.spec import MODEL_VERBS, Study


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
@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_tables_share_their_trainings(scale: str) -> None:
    def trained(name: str) -> set[object]:
        return {step.config for cell in cells_of(name, scale) for step in cell.steps if step.verb in MODEL_VERBS}

    assert trained("liao-table-2") == trained("liao-table-3")
    assert trained("liao-table-4") == trained("liao-table-6")
    assert trained("kim-table-5") >= trained("kim-table-8")
    assert trained("kim-table-7") & trained("kim-table-1") >= trained("kim-table-8")


@pytest.mark.long
def test_models_are_timed_in_rounds_over_all_rows() -> None:
    timed, others = cells_of("kim-table-6", "here"), cells_of("liao-table-2", "here")
    expected = [(row, seed) for seed in (1, 2, 3) for row in ("mean", "wk", "flow", "sg-opt")]
    assert [(cell.row.id, cell.replicate["seed"]) for cell in in_rounds(timed)] == expected
    assert {getattr(cell.steps[-1].config, "batch_size", None) for cell in timed} == {16}
    assert in_rounds(others) == others


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
