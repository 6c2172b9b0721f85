"""Functions in several processes that import torch once together, and a port for them to meet."""

import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

from torch.multiprocessing import start_processes


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
