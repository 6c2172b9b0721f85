"""Losses and optimiser steps as CUDA graphs: values, gradients and whole runs as without them.

Without a GPU, what would be recorded is computed again: all else is the same.
"""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nearfar.commands.train import train
from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.runtime import gpu
from nearfar.runtime.gpu import GradientBuffers
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import OptimiserSettings, adamw
from nearfar.training.processes import Processes
from nearfar.training.recordings import Recordings
from tests.gpu.devices import StrictRepeater
from tests.interrupted_runs import interrupt_at_step
from tests.method_configs import config
from tests.same_gradients import assert_same_gradients, gradients_of

pytestmark = pytest.mark.long

CASES: list[tuple[str, dict[str, Any]]] = [
    ("info-nce", {}),
    ("info-nce", {"directions": "all", "false_negative_margin": 0.1, "query_prompt": "query: "}),
    ("info-nce", {"guide": "teacher", "matryoshka": (16, 8)}),
    ("info-nce", {"freeze": "documents"}),
    ("simcse-sup", {"mlp": "train_only", "hard_negative_weight": 0.5}),
    ("simcse-unsup", {"mlp": "train_only"}),
    ("documents", {"directions": "both"}),
    ("sg", {"drift_weight": 0.1}),
    ("sg-opt", {"drift_weight": 0.0, "false_negative_margin": 0.1}),
    ("bt", {}),
]
"""Methods, and settings that lead through other parts of their losses."""


def repeated_rows(folder: Path, method: str, **settings: Any) -> Any:
    """A config whose triplets repeat their anchors, so that there are known positives."""
    if "guide" in settings:
        settings["guide"] = str(folder / settings["guide"])
    config_ = config(method, folder, model=str(folder / "tiny"), batch_size=7, precision="fp32", **settings)
    if config_.data == (str(folder / "triplets.tsv"),):
        header, *lines = (folder / "triplets.tsv").read_text().splitlines()
        rows = [line.split("\t") for line in lines]
        for row in range(0, len(rows), 3):
            rows[row][0] = rows[0][0]
        file = folder / "repeated.tsv"
        file.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n")
        config_ = replace(config_, data=(str(file),))
    return config_


def steps(run: PreparedRun, recordings: Recordings | None) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """The terms of the first three batches, each of another weight, and the sum of their gradients."""
    modules = torch.nn.ModuleDict({"encoder": run.encoder, **dict(enumerate_heads(run))}).train()
    modules.zero_grad()
    computed, terms = Gradients(5, Processes(), micro_batch=9, recordings=recordings), []
    for number, parts in enumerate(islice(run.mixture.epoch(0), 3)):
        for objective, batch, _ in parts:
            loss, _ = computed.accumulate(objective, batch, weight=(1.0, 1.0, 0.5)[number], key=(number,))
            terms.append(
                {"loss": float(loss.total.detach())} | {name: float(term) for name, term in loss.terms.items()}
            )
    return terms, gradients_of(modules)


def enumerate_heads(run: PreparedRun) -> list[tuple[str, torch.nn.Module]]:
    return [(f"head{number}", head) for number, head in enumerate(run.mixture.heads)]


@pytest.mark.parametrize(
    ("method", "settings"), CASES, ids=lambda case: case if isinstance(case, str) else "+".join(case)
)
def test_losses_are_the_same(
    device: str, method: str, settings: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In micro-batches, for batches of one shape, the last of which has another weight; nothing is read back."""
    if device == "cpu":
        monkeypatch.setattr(gpu, "Recorder", StrictRepeater)
    run = prepare(repeated_rows(folder, method, device=device, **settings))
    assert run.recordings is not None
    terms, found = steps(run, run.recordings)
    expected_terms, expected = steps(run, None)
    for ours, right in zip(terms, expected_terms, strict=True):
        assert ours == pytest.approx(right, rel=1e-4, abs=1e-6)
    assert found.keys() == expected.keys()
    assert_same_gradients(found, expected, tolerance=1e-4)
    assert 1 < len(run.recordings.losses) <= 3


def test_methods_whose_loss_is_no_recording(device: str, folder: Path) -> None:
    run = prepare(config("nli-order", folder, model=str(folder / "tiny"), device=device, precision="fp32"))
    assert run.recordings is not None
    steps(run, run.recordings)
    assert not run.recordings.losses


def outputs(run: Path) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "items_per_second"} for line in lines], load_file(
        run / "model" / "model.safetensors"
    )


def test_whole_runs(device: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, a schedule, clipping, weight decay and accumulation: resumed with the same bits."""
    shared = {"epochs": 5, "max_steps": 7, "keep": "last", "device": device, "precision": "fp32", "accumulate": 2}
    shared |= {"weight_decay": 0.1, "max_grad_norm": 0.5, "schedule": "linear", "warmup": 0.3, "mlp": "train_only"}
    settings = config("simcse-sup", folder, output=str(tmp_path / "graphs"), **shared)
    resumed = replace(settings, output=str(tmp_path / "resumed"))
    taken: list[tuple[int, ...]] = []
    step = Recordings.step

    def counted(self: Recordings, *arguments: Any, **named: Any) -> Any:
        norm = step(self, *arguments, **named)
        taken.extend(self.steps if norm is not None else ())
        return norm

    monkeypatch.setattr(Recordings, "step", counted)
    train(settings)
    assert len(taken) == 6  # moments exist after the first step
    assert len(set(taken)) == 1
    interrupt_at_step(5, monkeypatch, lambda: train(resumed))
    train(resumed, resume=True)
    lines, weights = outputs(tmp_path / "graphs")
    resumed_lines, resumed_weights = outputs(tmp_path / "resumed")
    assert resumed_lines == lines
    assert all(torch.equal(resumed_weights[name], weight) for name, weight in weights.items())


def test_a_run_without_dropout_is_as_without_graphs(
    device: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: dict[str, Any] = {"model": str(folder / "tiny"), "max_steps": 6, "epochs": 3, "keep": "last"}
    shared |= {"device": device, "precision": "fp32", "max_grad_norm": 0.5, "weight_decay": 0.1, "schedule": "linear"}
    train(config("info-nce", folder, output=str(tmp_path / "graphs"), **shared))
    monkeypatch.setattr(Recordings, "loss", lambda *_, **__: None)
    monkeypatch.setattr(Recordings, "step", lambda *_, **__: None)
    train(config("info-nce", folder, output=str(tmp_path / "plain"), **shared))
    (lines, weights), (plain_lines, plain_weights) = (outputs(tmp_path / name) for name in ("graphs", "plain"))
    for line, plain in zip(lines, plain_lines, strict=True):
        assert line.keys() == plain.keys()
        for name in line.keys() & {"loss", "accuracy", "gradient_norm", "learning_rate", "score"}:
            assert line[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6), name
    for name, weight in plain_weights.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=2e-5)


@pytest.mark.parametrize("what", ["gradient", "loss"])
def test_what_is_not_finite_changes_nothing(device: str, what: str) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(3, 2).to(device)
    parameters, optimiser = list(linear.parameters()), adamw(linear, [], OptimiserSettings(learning_rate=0.1))
    buffers = GradientBuffers()
    buffers.prepare(parameters)
    recordings = Recordings(buffers, linear, torch.device(device))
    good, bad = (torch.tensor(value, device=device) for value in (1.0, torch.inf))

    def step(gradient: torch.Tensor, loss: torch.Tensor) -> torch.Tensor | None:
        for parameter in parameters:
            parameter.grad = None
        with buffers.adding(parameters):
            buffers.write(parameters, [torch.full_like(p, float(gradient)) for p in parameters])
        return recordings.step(optimiser, parameters, [loss], max_norm=1.0)

    assert step(good, good) is None  # there are no moments yet
    optimiser.step()
    before = [parameter.detach().clone() for parameter in parameters]
    norm = step(bad, good) if what == "gradient" else step(good, bad)
    assert norm is not None
    assert bool(norm.isfinite()) == (what == "loss")
    for parameter, weight in zip(parameters, before, strict=True):
        assert torch.equal(parameter, weight)
        assert int(optimiser.state[parameter]["step"]) == 1
    assert step(good, good) is not None
    for parameter, weight in zip(parameters, before, strict=True):
        assert not torch.equal(parameter, weight)


def test_a_recording_that_fails(device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare(config("info-nce", folder, model=str(folder / "tiny"), device=device, precision="fp32"))
    assert run.recordings is not None

    def fails(*_: object) -> None:
        raise RuntimeError("no room\nand more")

    monkeypatch.setattr(run.recordings._recorder, "record", fails)
    with pytest.warns(UserWarning, match=r"cannot be recorded as a CUDA graph \(no room\)"):
        terms, found = steps(run, run.recordings)
    expected_terms, expected = steps(run, None)
    assert terms == expected_terms
    assert_same_gradients(found, expected, tolerance=1e-4)


def test_few_recordings_are_kept(device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MAX_GRAPHS", 1)
    run = prepare(config("info-nce", folder, model=str(folder / "tiny"), device=device, precision="fp32"))
    assert run.recordings is not None
    found, expected = steps(run, run.recordings)[1], steps(run, None)[1]
    assert len(run.recordings.losses) == 1
    assert_same_gradients(found, expected, tolerance=1e-4)
