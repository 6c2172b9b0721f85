"""The estimate of a dry run counts the rows that a job reads, and its evaluations."""

from pathlib import Path
from typing import Any

import pytest

from nearfar.commands.study.estimate import (
    SECONDS_PER_EVALUATED_TEXT,
    SECONDS_PER_HIDDEN_PROBE,
    SECONDS_PER_JOINED_PAIR,
    SECONDS_PER_PROBE,
    SECONDS_PER_ROW,
    SECONDS_PER_START,
    SECONDS_PER_STS_TASK,
    Estimator,
)
from nearfar.data.finetuning_splits import VALIDATION_ROWS
from nearfar.data.named_sets import CATALOG
from nearfar.jobs import Job, JobStore


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of as many lines as a test needs: SST-2 has other rows for the probe (sst2) than for fine-tuning."""
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    sizes = {("sst2-glue", "train"): 1000, ("sst2", "train"): 10, ("stsb", "train"): 320, ("stsb", "dev"): 50}
    for (name, split), lines in sizes.items():
        file = tmp_path / CATALOG[name].folder / CATALOG[name].files.get(split, f"{split}.tsv")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("line\n" * lines)
    (tmp_path / "pairs.tsv").write_text("line\n" * 640)


def seconds(tmp_path: Path, verb: str, **settings: Any) -> float:
    job = Job(f"nearfar.commands.study.work:{verb}", settings={"values": settings.pop("values"), **settings})
    return Estimator(JobStore(tmp_path / "cells")).estimate([job]).seconds


def test_finetuning_counts_the_rows_of_the_task_and_the_validation_rows(tmp_path: Path) -> None:
    values = {"task": "sst2", "batch_size": 10, "epochs": 2, "evaluate_every": 50}
    expected = SECONDS_PER_START + 2000 * SECONDS_PER_ROW + (1 + 4) * VALIDATION_ROWS * SECONDS_PER_EVALUATED_TEXT
    assert seconds(tmp_path, "finetune", values=values) == pytest.approx(expected)
    few = {**values, "sample_size": 20, "validation_rows": 8}
    expected = SECONDS_PER_START + 40 * SECONDS_PER_ROW + (1 + 1) * 8 * SECONDS_PER_EVALUATED_TEXT
    assert seconds(tmp_path, "finetune", values=few) == pytest.approx(expected)
    noisy = {**few, "noise": "word-dropout", "noise_mode": "add", "evaluate_every": 8}
    expected = SECONDS_PER_START + 80 * SECONDS_PER_ROW + (1 + 1) * 8 * SECONDS_PER_EVALUATED_TEXT
    assert seconds(tmp_path, "finetune", values=noisy) == pytest.approx(expected)


def test_finetuning_on_pairs_takes_longer_per_row_and_has_validation_rows_of_its_own(tmp_path: Path) -> None:
    values = {"task": "stsb", "batch_size": 16, "epochs": 5, "evaluate_every": 50}
    expected = SECONDS_PER_START + 1600 * SECONDS_PER_JOINED_PAIR + (1 + 2) * 50 * SECONDS_PER_EVALUATED_TEXT
    assert seconds(tmp_path, "finetune", values=values) == pytest.approx(expected)


def test_training_counts_its_rows_and_the_dev_pairs(tmp_path: Path) -> None:
    file = str(tmp_path / "pairs.tsv")
    values = {"data": ["file-1"], "batch_size": 64, "epochs": 1, "evaluate_on": "stsb:dev", "evaluate_every": 4}
    expected = SECONDS_PER_START + 640 * SECONDS_PER_ROW + (1 + 3) * 100 * SECONDS_PER_EVALUATED_TEXT
    found = seconds(tmp_path, "train", method="info-nce", files={"file-1": file}, values=values)
    assert found == pytest.approx(expected)


def test_probes_with_a_hidden_layer_take_longer_and_fewer_folds_less(tmp_path: Path) -> None:
    def probes(**values: Any) -> float:
        return seconds(tmp_path, "evaluate", values={"tasks": ["mr", "cr"], **values}) - SECONDS_PER_STS_TASK

    assert probes() == probes(probe_preset="liao") == pytest.approx(2 * SECONDS_PER_PROBE)
    assert probes(nhid=50) == probes(probe_preset="kim") == pytest.approx(2 * SECONDS_PER_HIDDEN_PROBE)
    assert probes(probe_preset="kim", folds=5) == pytest.approx(2 * SECONDS_PER_HIDDEN_PROBE / 2**1.5)
    assert probes(probe_preset="kim", nhid=0) == pytest.approx(2 * SECONDS_PER_PROBE)
