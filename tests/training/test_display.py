"""Progress display (lines or a bar), and a metrics.jsonl that survives a kill."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from nearfar.training.callbacks import Display, MetricsFile
from nearfar.training.trainer import Evaluation, StepReport
from nearfar.types import NearfarError


def report(step: int, **terms: float) -> StepReport:
    return StepReport(step, step // 10, {"loss": 1.23456789, **terms}, 5e-4, 0.987654321, 123.456)


EVALUATION = Evaluation(0.512345678, {"alignment": 0.25, "mean_cosine": 0.123456789})


def shown(total: int, *, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=200, force_terminal=terminal, color_system=None, legacy_windows=False)
    with Display(console, total_steps=total) as display:
        display.on_evaluate(0, EVALUATION, best=False)
        for step in range(1, total + 1):
            display.on_step(report(step, **{"mlm.loss": 3.0}))
        display.on_evaluate(total, EVALUATION, best=True)
    return output.getvalue()


@pytest.mark.parametrize(("total", "lines"), [(3, 3), (20, 20), (100, 20), (1007, 20)])
def test_about_twenty_lines_without_a_terminal(total: int, lines: int) -> None:
    steps = [line for line in shown(total).splitlines() if "items/s" in line]
    assert len(steps) == lines
    every = max(1, total // 20)
    assert steps[0] == f"step {every}: loss 1.235  mlm.loss 3.000  lr 5.0e-04  123 items/s"


def test_printed_evaluations() -> None:
    lines = shown(3).splitlines()
    assert lines[0] == "step 0: Spearman 51.23 on the dev pairs  before training"
    assert lines[1] == "  alignment 0.25  mean cosine 0.12"
    assert lines[-2] == "step 3: Spearman 51.23 on the dev pairs  best so far"
    output = io.StringIO()
    Display(Console(file=output), total_steps=3).on_evaluate(2, Evaluation(-0.1, {}), best=False)
    assert output.getvalue() == "step 2: Spearman -10.00 on the dev pairs\n"


def test_a_terminal_gets_a_bar() -> None:
    text = shown(40, terminal=True)
    assert "40/40" in text
    assert "loss 1.235" in text
    assert "step 40: loss" not in text  # no lines beside the bar
    assert "step 40: Spearman 51.23" in text


def test_the_bar_of_a_resumed_run_starts_at_its_step() -> None:
    display = Display(Console(file=io.StringIO()), total_steps=10, start=4)
    assert display.bar.tasks[0].completed == 4
    display.on_step(report(5))
    assert display.bar.tasks[0].completed == 5


def test_each_step_and_evaluation_is_one_line(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", resume_at=0)
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    metrics.on_evaluate(0, EVALUATION, best=False)
    metrics.on_step(report(1, ce=0.1))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "step": 0,
            "metric": "spearman",
            "spearman": 0.512345678,
            "best": False,
            "alignment": 0.25,
            "mean_cosine": 0.123457,
        },
        {
            "step": 1,
            "epoch": 0,
            "loss": 1.234568,
            "ce": 0.1,
            "learning_rate": 5e-4,
            "gradient_norm": 0.987654,
            "items_per_second": 123.5,
        },
    ]


def test_lines_after_the_checkpoint_and_incomplete_lines_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(file, resume_at=0)
    metrics.on_evaluate(0, EVALUATION, best=False)
    for step in (1, 2, 3, 4):
        metrics.on_step(report(step))
    metrics.on_evaluate(4, EVALUATION, best=True)
    lines = file.read_text().splitlines()
    for rest in ('{"step": 5, "epo', '{"step": 5, "epoch": 0, "loss": 1'):
        file.write_text("\n".join([*lines, rest]))
        MetricsFile(file, resume_at=2)
        assert file.read_text().splitlines() == lines[:3]
    MetricsFile(file, resume_at=2).on_step(report(3))
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [0, 1, 2, 3]


def test_without_a_checkpoint_the_file_is_emptied(tmp_path: Path) -> None:
    """The restarted run evaluates before training again, which must not be recorded twice."""
    file = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(file, resume_at=0)
    metrics.on_evaluate(0, EVALUATION, best=False)
    metrics.on_step(report(1))
    MetricsFile(file, resume_at=0).on_evaluate(0, EVALUATION, best=False)
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [0]


def test_an_unwritable_path_is_named(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", resume_at=0)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(NearfarError, match=r"metrics.jsonl: cannot be written \(Is a directory\)"):
        metrics.on_step(report(1))
