"""Equality of gradients: several processes and micro-batches against one graph from texts to loss; runs in forks."""

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.training.gradients import Gradients, LossPart, seed_rng
from nearfar.training.overlap import gradient_sums
from nearfar.training.processes import Processes, leave_process_group
from tests.method_configs import config, write_data

LOSS, GRADIENT = 1e-6, 1e-5
"""Largest relative differences; of a loss below 1, absolute, because the rounding of its logits is not smaller."""
FLOOR = 1e-2
"""A parameter whose gradient is smaller than this share of the largest one is compared with that share: the gradient of
an attention key's bias, for example, is 0 up to rounding."""


@dataclass(frozen=True)
class Step:
    """Loss and gradients of a step, by name."""

    loss: float
    gradients: dict[str, Tensor]


def data_folder(shared: str, rows: int) -> Path:
    """The files and encoders of :func:`write_data`, made once for all cases."""
    target = Path(shared) / f"rows-{rows}"
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(prefix="fresh-", dir=shared))
        write_data(fresh, rows=rows)
        with suppress(OSError):  # another worker of the campaign may have made it
            fresh.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def compare(
    shared: str,
    *,
    method: str,
    rows: int,
    settings: Mapping[str, Any],
    processes: int | None,
    micro_batch: int | None = None,
    micro_batch_tokens: int | None = None,
    accumulate: int = 1,
    skip: int = 0,
    compute: Callable[..., Step] | None = None,
) -> str:
    """Compare a step with the same step in one graph, without micro-batches and in one process.

    Args:
        shared: folder for the data, which several cases use.
        method: the training method.
        rows: rows of data.
        settings: of the method; ``batch_size`` is that of all processes together.
        processes: number of processes in a group; None for this process, without a group.
        micro_batch: items in a micro-batch.
        micro_batch_tokens: tokens in a micro-batch.
        accumulate: batches in the step.
        skip: batches before the step, counted from the last if negative.
        compute: replaces the computation by nearfar, in tests.

    Returns:
        What differs; empty if nothing does.
    """
    torch.set_num_threads(1)
    folder = data_folder(shared, rows)
    limits = {"micro_batch": micro_batch, "micro_batch_tokens": micro_batch_tokens}
    given = {"model": str(folder / "tiny"), **settings}

    def work(size: int) -> Step:
        own = {**given, "batch_size": given["batch_size"] // size}
        run = prepare(config(method, folder, **own), processes=size)
        return (compute or computed)(run, choose(run, accumulate, skip), seed=given["seed"], **limits)

    found = [work(1)] if processes is None else in_processes(processes, work)
    run = prepare(config(method, folder, **given))
    expected = in_one_graph(run, choose(run, accumulate, skip), seed=given["seed"])
    if sum(float(gradient.norm()) > 1e-6 for gradient in expected.gradients.values()) <= 10:
        return "the gradients of this case are zero, so that it compares nothing"
    for rank, step in enumerate(found):
        if wrong := difference(step, expected):
            return f"process {rank} of {len(found)}: {wrong}"
        for name, gradient in step.gradients.items():
            if not torch.equal(gradient, found[0].gradients[name]):
                return f"process {rank} has another gradient of {name} than process 0; they would drift apart"
    return ""


def choose(run: PreparedRun, accumulate: int, skip: int) -> list[Sequence[LossPart]]:
    """The batches of a step."""
    batches = list(run.mixture.epoch(0))
    start = max(len(batches) + skip, 0) if skip < 0 else min(skip, len(batches) - 1)
    return list(islice(batches, start, start + accumulate))


def computed(run: PreparedRun, group: Sequence[Sequence[LossPart]], *, seed: int, **limits: int | None) -> Step:
    """The step as the training loop computes it."""
    parameters = _begin(run)
    processes = Processes()
    with gradient_sums(processes, list(parameters.values())) as sums:
        terms, _ = Gradients(seed, processes, **limits).accumulate_mean(group, step=3, sums=sums)
        sums.finish()
    return _step(terms["loss"], parameters)


def in_one_graph(run: PreparedRun, group: Sequence[Sequence[LossPart]], *, seed: int) -> Step:
    """The step by autograd alone."""
    parameters = _begin(run)
    total = torch.zeros(())
    for index, parts in enumerate(group):
        for number, (method, batch, weight) in enumerate(parts):
            seed_rng(seed, 3, index, number, "items")
            items = method.extract_items(batch)
            representations = method.represent(items)
            seed_rng(seed, 3, index, number, "loss")
            total = total + weight / len(group) * method.loss_fn(batch, representations).total
    total.backward()
    return _step(float(total.detach()), parameters)


def _begin(run: PreparedRun) -> dict[str, torch.nn.Parameter]:
    modules = {"encoder": run.encoder} | {f"head{number}": head for number, head in enumerate(run.mixture.heads)}
    for module in modules.values():
        module.train().zero_grad()
    return {f"{name}.{own}": p for name, module in modules.items() for own, p in module.named_parameters()}


def _step(loss: float, parameters: Mapping[str, torch.nn.Parameter]) -> Step:
    return Step(loss, {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None})


def difference(found: Step, expected: Step) -> str:
    """What differs between two steps by more than rounding; empty if nothing does."""
    if not abs(found.loss - expected.loss) <= LOSS * max(abs(expected.loss), 1.0):
        return f"the loss is {found.loss!r}, not {expected.loss!r}"
    if found.gradients.keys() != expected.gradients.keys():
        names = sorted(found.gradients.keys() ^ expected.gradients.keys())
        return f"only one of the two has a gradient of {', '.join(names)}"
    largest = max(float(one.norm()) for one in expected.gradients.values())
    for name, one in expected.gradients.items():
        error = float((found.gradients[name] - one).norm()) / max(float(one.norm()), FLOOR * largest)
        if not error <= GRADIENT:
            return f"the gradient of {name} differs by {error:.1e} of its length"
    return ""


def in_processes(size: int, work: Callable[[int], Step]) -> list[Step]:
    """What ``work`` returns in each process of a new group; a fork of this process each."""
    with tempfile.TemporaryDirectory(prefix="group-") as place:
        folder = Path(place)
        children = [_fork(rank, size, folder, work) for rank in range(size)]
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(ends):
            reports = [file.read_text() for file in sorted(folder.glob("error-*"))]
            raise RuntimeError("; ".join(reports) or f"processes ended with {ends}")
        return [torch.load(folder / f"step-{rank}", weights_only=False) for rank in range(size)]


def _fork(rank: int, size: int, folder: Path, work: Callable[[int], Step]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'meet'}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=60),
        )
        step = work(size)
        torch.save(step, folder / f"step-{rank}")
        distributed.barrier()
        leave_process_group()
        status = 0
    except BaseException as error:
        traceback.print_exc()
        (folder / f"error-{rank}").write_text(f"process {rank}: {error!r}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
