"""Gradients that are summed during the backward pass equal those that are summed after it."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from nearfar.commands.train.run import prepare
from nearfar.training import gradients as gradients_module
from nearfar.training import processes
from nearfar.training.gradients import Gradients, OverlappedSums
from nearfar.training.processes import Processes, leave_process_group
from tests.distributed.processes import run_processes
from tests.method_configs import config, write_data

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="gloo's file store does not work on Windows"),
]
STEPS = 4
VARIANTS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "whole": ("info-nce", None, {}),
    "micro-batches, a head and a regulariser": ("bt", 2, {}),
    "two parts, the second with its own backward pass": ("simcse-unsup", 3, {"mlm_weight": 0.5}),
}


def gradients(folder: Path, name: str, *, overlapped: bool) -> tuple[list[dict[str, torch.Tensor]], int]:
    """The gradients of some steps, each of two batches; and the number of buckets sent during backward passes."""
    method, micro_batch, extra = VARIANTS[name]
    joined = Processes()
    run = prepare(config(method, folder, batch_size=3, epochs=9, **extra), processes=joined.size)
    modules = {"encoder": run.encoder} | {f"head{number}": head for number, head in enumerate(run.mixture.heads)}
    named = [(f"{key}.{one}", p) for key, module in modules.items() for one, p in module.named_parameters()]
    parameters = [parameter for _, parameter in named]
    sums = OverlappedSums(joined, parameters, bucket=2000) if overlapped else None
    batches = (parts for epoch in range(9) for parts in run.mixture.epoch(epoch))
    found = []
    for step in range(STEPS):
        for module in modules.values():
            module.train().zero_grad()
        computed = Gradients(5, joined, micro_batch)
        computed.accumulate_mean([next(batches), next(batches)], step=step, sums=sums)
        if sums is None:
            joined.all_reduce_gradients(parameters)
        else:
            sums.finish()
        found.append({key: parameter.grad.clone() for key, parameter in named if parameter.grad is not None})
    if sums is not None:
        sums.close()
    return found, 0 if sums is None else sums.sent_early


def work(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / f'meet{size}'}", rank=rank, world_size=size)
    gradients_module.SPARSE_MIN_ROWS = processes.SPARSE_MIN_ROWS = 60  # so that the position embeddings count as sparse
    for name in VARIANTS:
        after, _ = gradients(folder, name, overlapped=False)
        during, early = gradients(folder, name, overlapped=True)
        for step, (expected, found) in enumerate(zip(after, during, strict=True)):
            assert found.keys() == expected.keys(), (name, step)
            for key in expected:
                if size == 2:  # the sum of two numbers has no order
                    assert torch.equal(found[key], expected[key]), (name, step, key)
                else:
                    torch.testing.assert_close(found[key], expected[key], rtol=1e-5, atol=1e-6)
        assert early >= 2 * (STEPS - 1), name
    (folder / f"done{size}-{rank}").touch()
    leave_process_group()


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_sums_during_the_backward_pass_equal_those_after_it(size: int, tmp_path: Path) -> None:
    folder = write_data(tmp_path)
    run_processes(work, size, folder)
    assert len(list(folder.glob(f"done{size}-*"))) == size
