"""Equality of training runs: stopped at a random step and resumed, against undisturbed; runs in forks."""

import hashlib
import io
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nearfar.commands.train.command import train
from nearfar.training.display import MetricsFile
from nearfar.training.trainer import Interrupted
from tests.campaign.equality_gradients import data_folder
from tests.interrupted_runs import interrupt_at_step
from tests.method_configs import config, second_file

MEASURED = ("items_per_second",)
"""Values of metrics.jsonl that differ from run to run."""
UNEQUAL = ("seconds", "date", "output")
"""Values of run.json that differ from run to run."""


def resumed_equals_undisturbed(
    shared: str,
    *,
    method: str,
    rows: int,
    settings: Mapping[str, Any],
    stops: Mapping[str, str],
    second: str | None = None,
    rerun: Callable[..., object] = train,
) -> str:
    """Train without and with interruptions, and compare the run folders.

    Args:
        shared: folder for the data, which several cases use.
        method: the training method.
        rows: rows of data.
        settings: of the method.
        stops: step -> ``killed`` before anything of the step is saved, or ``Ctrl-C``; ascending.
        second: a second objective of :func:`second_file`.
        rerun: resumes a run; another function in tests.

    Returns:
        What differs; empty if nothing does.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = data_folder(shared, rows)
    given = dict(settings)
    if second is not None:
        given["second"] = str(second_file(Path.cwd(), second, folder))
    whole, parted = (
        config(method, folder, **{**given, "output": str(Path.cwd() / name)}) for name in ("whole", "parted")
    )
    console = Console(file=io.StringIO())
    steps = train(whole, console=console).steps
    resume = False
    for step, how in sorted((int(step), how) for step, how in stops.items()):
        if step > steps:
            continue
        if wrong := _stop(parted, step, how, console, resume=resume):
            return wrong
        resume = (Path(parted.output) / "inputs.json").exists()
    rerun(parted, resume=resume, console=console)
    return folder_difference(Path("parted"), Path("whole"))


def _stop(settings: Any, step: int, how: str, console: Console, *, resume: bool) -> str:
    """Run up to a step, as if killed there or with Ctrl-C."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "killed":
            interrupt_at_step(step, patch, lambda: train(settings, resume=resume, console=console))
            return ""
        on_step = MetricsFile.on_step

        def press(self: MetricsFile, report: Any) -> None:
            on_step(self, report)
            if report.step == step:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(MetricsFile, "on_step", press)
        try:
            train(settings, resume=resume, console=console)
        except Interrupted:
            return ""
    return f"the run did not stop by Ctrl-C in step {step}"


def folder_difference(found: Path, expected: Path) -> str:
    """What differs between two finished run folders, but for times; empty if nothing does."""
    names = [sorted(str(file.relative_to(run)) for file in run.rglob("*")) for run in (found, expected)]
    if names[0] != names[1]:
        return f"the run folders hold other files: {', '.join(sorted({*names[0]} ^ {*names[1]}))}"
    lines = [_metrics(run / "metrics.jsonl") for run in (found, expected)]
    if len(lines[0]) != len(lines[1]):
        return f"metrics.jsonl has {len(lines[0])} lines, not {len(lines[1])}"
    for number, (one, other) in enumerate(zip(*lines, strict=True), 1):
        if one != other:
            return f"line {number} of metrics.jsonl is {one}, not {other}"
    for name in names[0]:
        if name.endswith(".safetensors") and _digest(found / name) != _digest(expected / name):
            return f"{name} has other bytes"
    records = [_record(run / "run.json") for run in (found, expected)]
    if differing := [key for key in records[1] if records[0].get(key) != records[1][key]]:
        return f"run.json has other values of {', '.join(differing)}"
    return ""


def _metrics(file: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in MEASURED} for line in lines]


def _record(file: Path) -> dict[str, Any]:
    record = json.loads(file.read_text())
    record["config"].pop("output")
    return {key: value for key, value in record.items() if key not in UNEQUAL}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
