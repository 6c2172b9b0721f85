"""A checkpoint restores everything exactly, and a failed write keeps the previous one."""

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from nearfar.disk import write_text
from nearfar.training.checkpoint import Checkpoints, Progress, TrainingState
from nearfar.types import NearfarError
from tests.flushes import assert_flushed_before, record_flushes


def network(seed: int) -> dict[str, nn.Module]:
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    encoder[1].weight = encoder[0].weight  # tied, as embeddings often are
    return {"encoder": encoder, "head": nn.Linear(4, 2)}


def state_of(modules: dict[str, nn.Module]) -> TrainingState:
    parameters = [p for module in modules.values() for p in module.parameters()]
    return TrainingState(modules, torch.optim.AdamW(parameters, lr=0.1, fused=True))


def steps(state: TrainingState, count: int) -> None:
    """Optimiser steps on random data."""
    modules, optimiser = state.modules, state.optimiser
    draw = torch.Generator().manual_seed(count)
    for _ in range(count):
        hidden = modules["encoder"](torch.randn(3, 4, generator=draw))
        modules["head"](hidden).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()


def values(state: TrainingState) -> list[torch.Tensor]:
    return [p.detach().clone() for module in state.modules.values() for p in module.parameters()]


def test_a_restored_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    state = state_of(network(0))
    steps(state, 3)
    Checkpoints(tmp_path).save(Progress(step=3, history=[(2, 0.5)], best_score=0.5), state)
    steps(state, 4)

    other = state_of(network(1))
    progress = Checkpoints(tmp_path).load(other)
    assert progress == Progress(step=3, history=[(2, 0.5)], best_score=0.5)
    steps(other, 4)
    for ours, theirs in zip(values(other), values(state), strict=True):
        assert torch.equal(ours, theirs)


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    state = state_of(network(0))
    Checkpoints(tmp_path).save(Progress(step=1, processes=2), state)
    assert Checkpoints(tmp_path).load(state, processes=2).step == 1
    with pytest.raises(NearfarError, match="was started with 2 processes"):
        Checkpoints(tmp_path).load(state)


def test_a_kill_at_any_moment_of_a_save_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old checkpoint is removed only when the new one stands."""
    run, calls = tmp_path / "run", []
    Checkpoints(run).save(Progress(step=1), state_of(network(0)))

    def after_a_copy(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **settings: Any) -> Any:
            shutil.copytree(run, tmp_path / str(len(calls)))  # what a kill before this call would leave
            calls.append(call.__name__)
            return call(*arguments, **settings)

        return called

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "unlink", "rmdir"):
            patch.setattr(os, name, after_a_copy(getattr(os, name)))
        Checkpoints(run).save(Progress(step=2), state_of(network(0)))
    assert {"rename", "replace"} & set(calls)
    for number, call in enumerate(calls):
        assert Checkpoints(tmp_path / str(number)).load(state_of(network(1))).step in (1, 2), call


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    state = state_of(network(0))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Progress(step=1), state)
    kept = values(state)
    steps(state, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # the kernel refuses to write more bytes
    try:
        with pytest.raises(NearfarError, match=r"checkpoint: cannot be written \(.*The previous version is unchanged"):
            checkpoints.save(Progress(step=2), state)
        with pytest.raises(NearfarError, match=r"best.safetensors: cannot be written"):
            checkpoints.save_best(state)
        (tmp_path / "note.txt").write_text("old")
        with pytest.raises(NearfarError, match=r"note.txt: cannot be written \(File too large\)"):
            write_text(tmp_path / "note.txt", "x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "note.txt").read_text() == "old"
    again = state_of(network(5))
    assert Checkpoints(tmp_path).load(again).step == 1
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(values(again), kept, strict=True))


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot flush a folder")
def test_a_checkpoint_and_the_metrics_before_it_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.jsonl").write_text('{"step": 1}\n')
    state, checkpoints = state_of(network(0)), Checkpoints(tmp_path)
    events = record_flushes(monkeypatch)
    checkpoints.save(Progress(step=1), state)
    assert_flushed_before(events, Path("checkpoint"), (".checkpoint.new/folder", "checkpoint"))
    assert events.index(("flush", "metrics.jsonl")) < events.index(("rename", ".checkpoint.new/folder", "checkpoint"))
    checkpoints.save_best(state)
    assert_flushed_before(
        events, Path("best.safetensors"), ("best.safetensors.new/best.safetensors", "best.safetensors")
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_damage(value: float, tmp_path: Path) -> None:
    state = state_of(network(0))
    steps(state, 1)
    Checkpoints(tmp_path).save(Progress(step=1), state)
    weights = load_file(tmp_path / "checkpoint/weights.safetensors")
    weights["head.bias"][1] = value
    save_file(weights, tmp_path / "checkpoint/weights.safetensors")
    with pytest.raises(NearfarError, match=r"weights\.safetensors: is damaged \(head\.bias holds NaN or infinity\)"):
        Checkpoints(tmp_path).load(state)
