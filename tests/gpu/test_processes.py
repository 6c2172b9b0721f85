"""Two processes on one GPU equal one, with gloo, because NCCL needs one GPU per process."""

import sys
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing

from nearfar.training import processes as processes_module
from nearfar.training.processes import Processes, leave_process_group
from tests.gpu.devices import on_each_device
from tests.gpu.training_step import EVERY, Step, assert_close, prepared, step

ROWS = 12


def steps(methods: tuple[str, ...], folder: Path, device: str, *, processes: int) -> dict[str, Step]:
    return {
        method: step(prepared(method, folder, device, processes=processes, batch_size=ROWS // processes))
        for method in methods
    }


def work(rank: int, size: int, folder: Path, device: str, methods: tuple[str, ...], results: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{results / 'meet'}", rank=rank, world_size=size)
    try:
        found = steps(methods, folder, device, processes=size)
        torch.save({method: tuple(one) for method, one in found.items()}, results / f"found{rank}.pt")
        own = torch.arange(3.0, device=device)[rank::size, None]
        gathered = Processes().gather(own, 3)
        assert gathered.device.type == device
        assert gathered.tolist() == [[0], [1], [2]]
        assert Processes().any_process(rank == size - 1)
        distributed.barrier()
    finally:
        leave_process_group()


def work_alone(rank: int, *arguments) -> None:
    """Runs in its own process."""
    torch.set_num_threads(1)
    processes_module.SPARSE_MIN_ROWS = 16  # so that rows of the tiny vocabulary are reduced separately too
    work(rank, *arguments)


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="gloo's file store does not work on Windows")
@on_each_device("size, methods", small=[(1, ("scl", "sg-opt"))], whole=[(2, EVERY)])
def test_processes_equal_one(device: str, size: int, methods: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    """On the CPU a group of one process; tests/distributed tests several on the CPU."""
    arguments = (size, folder, device, methods, tmp_path)
    if size == 1:
        work(0, *arguments)
    else:
        multiprocessing.spawn(work_alone, args=arguments, nprocs=size)
    expected = steps(methods, folder, device, processes=1)
    each = [torch.load(tmp_path / f"found{rank}.pt") for rank in range(size)]
    for method in methods:
        assert_close(Step(*each[0][method]), expected[method], tolerance=1e-4)
        for name, gradient in each[0][method][1].items():
            for other in each[1:]:
                assert torch.equal(gradient, other[method][1][name]), f"{method} {name}: processes would drift apart"
