"""Functions in several processes that import torch once together, a port for them to meet, and what they must equal."""

import multiprocessing
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch.multiprocessing import start_processes

from nearfar import Encoder
from tests.interrupted_runs import steps_of
from tests.tiny import sentences


def run_processes(work: Callable[..., None], size: int, *arguments: Any) -> None:
    """Calls ``work(rank, size, *arguments)`` in ``size`` processes; an exception in one ends all.

    Where the system has it they are forks of a server, which has imported torch and nearfar before.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        start_processes(work, (size, *arguments), nprocs=size, start_method="spawn")
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload([work.__module__])
    start_processes(work, (size, *arguments), nprocs=size, start_method="forkserver")


def free_port(address: str) -> int:
    """A port that is free on the node."""
    with socket.socket() as bound:
        bound.bind((address, 0))
        return int(bound.getsockname()[1])


def assert_close_run(one: str | Path, two: str | Path) -> None:
    """Compare metrics, weights and vectors of two run folders up to rounding, which depends on the processes."""
    ours, theirs = steps_of(one), steps_of(two)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for name in ours[0].keys() - {"learning_rate"}:
        expected = [line[name] for line in ours]
        np.testing.assert_allclose([line[name] for line in theirs], expected, rtol=1e-4, atol=2e-6, err_msg=name)
    first, second = (load_file(Path(run) / "model" / "model.safetensors") for run in (one, two))
    assert first.keys() == second.keys()
    for name in first:
        if not name.endswith("key.bias"):  # adds a constant to all scores of a query: its gradient is only rounding
            assert float((first[name] - second[name]).abs().max()) <= 1e-4, name
    vectors = [Encoder.from_pretrained(Path(run) / "model").encode(sentences(20)) for run in (one, two)]
    assert np.abs(vectors[0] - vectors[1]).max() <= 1e-4
