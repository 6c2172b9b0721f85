"""Each study at scale ``paper`` has the rows and cells of the paper's table, written down here from the papers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from nearfar.commands.evaluate.command import configured_probe
from nearfar.config import EvaluateConfig
from nearfar.evaluation.probe_settings import Probe
from nearfar.studies.cells import plan_cells
from nearfar.studies.papers import table_file, table_names
from nearfar.studies.read import load_study
from nearfar.types import NearfarError

PLACEHOLDERS = {"start": "start", "tiny": "tiny", "data": "data"}
LIAO = (
    "Avg. GloVe embeddings",
    "SBERT baseline",
    "3p3n-Augment",
    "allpalln-Augment",
    "3p3n-lambda0.5-SCL",
    "3palln-lambda0.5-SCL",
    "allpalln-lambda0.5-SCL",
    "all3n-lambda1.0-SCL",
    "3palln-lambda1.0-SCL",
    "allpalln-lambda1.0-SCL",
    "allpalln-lambda0.1-SCL",
    "allpalln-lambda0.3-SCL",
)
LOSSES = ("CE", "CE + SCL")
UNTRAINED, TRAINED = ("CLS", "Mean", "WK"), ("BT", "SG", "SG-OPT")
SEEDS = 8
SAMPLES = 10


def of(encoder: str, *rows: str) -> tuple[str, ...]:
    return tuple(f"{encoder}, {row}" for row in rows)


class Table(NamedTuple):
    rows: tuple[str, ...]
    cells: int
    axes: Mapping[str, tuple[str, ...]] = MappingProxyType({})


NOT_PRINTED = ("UMCC-DLSI-run2 (rank 1)", "ECNU (rank 1)")
"""Rows of other systems, which have numbers and no cells."""
TABLES = {
    "liao-table-2": Table(LIAO, 12),
    "liao-table-3": Table(LIAO, 12),
    "liao-table-4": Table(("allpalln-SCL",), 5, {"lambda": ("0.1", "0.3", "0.5", "0.7", "0.9")}),
    "liao-table-5": Table(("allpalln-SCL",), 6, {"temperature": ("0.1", "0.3", "0.5", "0.7", "0.9", "1.0")}),
    "liao-table-6": Table(("allpalln-SCL",), 5, {"lambda": ("0.1", "0.3", "0.5", "0.7", "0.9")}),
    "liao-table-7": Table(("allpalln-SCL",), 6, {"temperature": ("0.1", "0.3", "0.5", "0.7", "0.9", "1.0")}),
    "simcse-review-stsb": Table(
        tuple(
            f"{encoder}{kind}"
            for encoder in ("RoBERTa-large", "BERT-large")
            for kind in ("", ", unsup-simcse", ", sup-simcse")
        ),
        6,
    ),
    "simcse-review-spectrum": Table(("BERT-base", "BERT-base, unsup-simcse", "BERT-base, sup-simcse"), 3),
    "simcse-review-uniformity": Table(
        ("BERT-base, not trained", "unsup-simcse", "sup-simcse"),
        1 + 2 * 5,
        {"steps": ("10", "30", "100", "300", "1000")},
    ),
    "gunel-table-2": Table(
        LOSSES, 2 * 3 * 3 * SAMPLES, {"rows": ("20", "100", "1000"), "task": ("SST-2", "QNLI", "MNLI")}
    ),
    "gunel-table-3": Table(
        LOSSES,
        2 * 3 * 5 * SAMPLES,
        {"task": ("SST-2", "QNLI", "MNLI"), "noise": ("original", "T=0.3", "T=0.5", "T=0.7", "T=0.9")},
    ),
    "gunel-table-5": Table(LOSSES, 2 * 6 * 10, {"task": ("SST-2", "CoLA", "MRPC", "RTE", "QNLI", "MNLI")}),
    "gunel-table-6": Table(
        LOSSES, 2 * 3 * 4 * 10, {"batch": ("16", "64", "256"), "task": ("SST-2", "CoLA", "QNLI", "MNLI")}
    ),
    "gunel-table-7": Table(LOSSES, 2 * 2 * SAMPLES, {"task": ("Amazon-2", "Yelp-2")}),
    "gunel-grid": Table(
        ("CE + SCL",),
        6 * 4 * SAMPLES,
        {"lambda": ("0.1", "0.3", "0.5", "0.7", "0.9", "1.0"), "temperature": ("0.1", "0.3", "0.5", "0.7")},
    ),
    "gunel-figure-2": Table(LOSSES, 2),
    "kim-table-1": Table(
        (
            *("GloVe", "USE"),
            *(
                row
                for encoder in ("BERT-base", "BERT-large", "SBERT-base", "SBERT-large")
                for row in of(encoder, *UNTRAINED, "Flow", *TRAINED)
            ),
        ),
        2 + 4 * (3 + 4 * SEEDS),
    ),
    "kim-table-2": Table(
        (
            "UMCC-DLSI-run2 (rank 1)",
            *of("MBERT", "CLS", "mean pooling", "WK pooling", *TRAINED),
        ),
        3 + 3 * SEEDS,
    ),
    "kim-table-3": Table(
        ("Cosine baseline", "ECNU (rank 1)", *of("MBERT", "CLS", "mean pooling", "WK pooling", *TRAINED)),
        1 + 3 + 3 * SEEDS,
    ),
    "kim-table-4": Table(
        tuple(
            row for encoder in ("BERT-base", "BERT-large", "SBERT-base") for row in of(encoder, "Mean", "WK", "SG-OPT")
        ),
        9 * SEEDS,
    ),
    "kim-table-5": Table(
        (
            *("SG-OPT", "L_opt2", "L_opt1", "SG", "temperature 0.1", "temperature 0.001"),
            *("lambda 0", "lambda 1", "without projection head"),
        ),
        9 * SEEDS,
    ),
    "kim-table-6": Table(("Mean pooling", "WK pooling", "Flow", "SG-OPT"), 4),
    "kim-table-7": Table(of("BERT-base", "BT", "SG-OPT", "BT + SG-OPT"), 3 * SEEDS),
    "kim-table-8": Table(("BERT-base, SG-OPT",), SEEDS),
    "kim-table-9": Table(("BERT-base, Mean",), SEEDS),
    "kim-table-10": Table(
        ("BERT-base", "BERT-base, SG-OPT"), 2 * 5 * SEEDS, {"task": ("QNLI", "SST2", "COLA", "MRPC", "RTE")}
    ),
    "kim-table-11": Table(
        tuple(row for encoder in ("RoBERTa-base", "RoBERTa-large") for row in of(encoder, *UNTRAINED, *TRAINED)),
        2 * (3 + 3 * SEEDS),
    ),
    "kim-figure-1": Table(("BERT-base", "SG", "SG-OPT"), 1 + 2 * SEEDS),
    "kim-figure-4": Table(("SG-OPT, STS-B", "SG-OPT, NLI", "Flow, STS-B", "Flow, NLI"), 4 * SEEDS),
    "kim-figure-5": Table(("BERT-base", "SG-OPT"), 2),
    "kim-figure-6": Table(("SBERT-base",), 1),
}


def test_every_table_is_listed_here() -> None:
    assert set(TABLES) == set(table_names())


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_study_has_exactly_the_cells_of_the_paper(name: str) -> None:
    study = load_study(table_file(name), "paper", placeholders=PLACEHOLDERS)
    expected = TABLES[name]
    assert [row.name for row in study.rows] == list(expected.rows)
    assert {axis.name: axis.labels for axis in study.axes} == expected.axes
    cells = plan_cells(study)
    assert len(cells) == expected.cells
    assert {cell.row.name for cell in cells} == set(expected.rows) - set(NOT_PRINTED)
    assert len({(cell.row.id, *cell.coordinates.items(), *cell.replicate.items()) for cell in cells}) == len(cells)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", ["here", "tiny"])
def test_smaller_scales_load(name: str, scale: str) -> None:
    study = load_study(table_file(name), scale, placeholders=PLACEHOLDERS)
    assert study.notes
    assert "`here`" in study.notes  # it says what differs
    cells = plan_cells(study)
    assert 0 < len(cells) <= (12 if scale == "tiny" else 100)
    models = {step.model for cell in cells for step in cell.steps if step.model is not None}
    own = {"bow", "sentence-transformers/all-MiniLM-L6-v2"}  # no file, and the encoder that tests open offline
    assert all("start" in model or model.startswith("glove:") for model in models - own), models


@pytest.mark.long
@pytest.mark.parametrize("scale", ["paper", "here", "tiny"])
def test_tables_share_their_trainings(scale: str) -> None:
    def trained(name: str) -> set[object]:
        cells = plan_cells(load_study(table_file(name), scale, placeholders=PLACEHOLDERS))
        return {step.config for cell in cells for step in cell.steps if step.verb == "train"}

    assert trained("liao-table-2") == trained("liao-table-3")
    assert trained("liao-table-4") == trained("liao-table-6")
    assert trained("kim-table-7") & trained("kim-table-1") >= trained("kim-table-8")
    assert trained("kim-table-5") >= trained("kim-table-8")
    if scale != "tiny":  # which has two values of each axis
        assert trained("liao-table-2") & trained("liao-table-6")


def test_the_paper_runs_with_its_own_seeds() -> None:
    study = load_study(table_file("kim-table-1"), "paper", placeholders=PLACEHOLDERS)
    seeds = {cell.replicate["seed"] for cell in plan_cells(study) if cell.replicate}
    assert seeds == {1, 2, 3, 4, 1234, 2345, 3456, 7890}


@pytest.mark.parametrize("scale", ["paper", "here"])
def test_the_settings_of_kims_table_9_are_the_preset(scale: str) -> None:
    def probe(name: str) -> Probe:
        cells = plan_cells(load_study(table_file(name), scale, placeholders=PLACEHOLDERS))
        config = cells[0].steps[-1].config
        assert isinstance(config, EvaluateConfig)
        return configured_probe(config)

    assert probe("kim-table-9") == probe("kim-table-4")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(NearfarError, match="Did you mean 'kim-table-3'"):
        table_file("kim-tabel-3")
    with pytest.raises(NearfarError, match="no table is called 'liao'"):
        table_file("liao")
