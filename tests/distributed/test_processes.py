"""Several processes give the loss and gradients of one; sums during the backward pass; tokens that are shared."""

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from nearfar.commands.train.prepare import prepare
from nearfar.encoder import tokens
from nearfar.encoder.tokens import TokenStore
from nearfar.registry import METHODS
from nearfar.training import processes as processes_module
from nearfar.training.gradients import Gradients
from nearfar.training.processes import Processes, leave_process_group
from tests.distributed.processes import run_processes
from tests.method_configs import config, write_data

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="gloo's file store does not work on Windows"),
]


def join(rank: int, size: int, folder: Path) -> None:
    """Join the group of a test."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / f'meet{size}'}", rank=rank, world_size=size)


# --- several processes and one ---

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlm": ("simcse-unsup", {"mlm_weight": 0.5}),
    "widths": ("scl", {"matryoshka": (32, 8), "max_negatives": 3}),
    "all directions": ("info-nce", {"directions": "all"}),
    "cosent": ("regression", {"objective": "cosent"}),
    "angle": ("regression", {"objective": "angle"}),
    "order of all pairs": ("nli-order", {"order_pairs": "batch", "directions": "both", "neutral": False}),
}
"""Name -> a method and settings, beside every method with its defaults."""


def every_gradient(
    folder: Path, processes: Processes, rows: int, *, micro_batch: int | None
) -> dict[str, torch.Tensor]:
    """Loss and gradients of the first and last batch of every method, with ``rows`` per global batch."""
    found: dict[str, torch.Tensor] = {}
    for name in [*METHODS, *VARIANTS]:
        method, extra = VARIANTS.get(name, (name, {}))
        settings = config(method, folder, model=str(folder / "tiny"), batch_size=rows // processes.size, **extra)
        run = prepare(settings, processes=processes.size)
        first, *_, last = run.mixture.epoch(0)
        for position, parts in (("first", first), ("last", last)):
            modules = {"encoder": run.encoder} | {f"head{n}": head for n, head in enumerate(run.mixture.heads)}
            for module in modules.values():
                module.train().zero_grad()
            for number, (objective, batch, weight) in enumerate(parts):
                computed = Gradients(5, processes, micro_batch)
                loss, _ = computed.accumulate(objective, batch, weight=weight, key=(0, number))
                found[f"{name} {position} loss {number}"] = loss.total.detach()
            named_parameters = [(f"{k}.{n}", p) for k, module in modules.items() for n, p in module.named_parameters()]
            processes.all_reduce_gradients(parameter for _, parameter in named_parameters)
            found |= {f"{name} {position} {n}": p.grad.clone() for n, p in named_parameters if p.grad is not None}
    return found


def work(rank: int, size: int, folder: Path, rows: int) -> None:
    join(rank, size, folder)
    if size == 2:
        processes_module.SPARSE_MIN_ROWS = (
            16  # below the size of the tiny vocabulary, so that both kinds of reduction are used
        )
    found = every_gradient(folder, Processes(), rows, micro_batch=3 if size == 2 else None)
    torch.save(found, folder / f"found{size}-{rank}.pt")
    received = Processes().broadcast_from_first(lambda: "hello" if rank == 0 else "never computed")
    assert received == "hello"
    assert Processes().any_process(rank == size - 1)
    distributed.barrier()
    group = weakref.ref(distributed.group.WORLD)
    leave_process_group()
    assert group() is None, "its threads may abort the process as the interpreter ends"


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_several_processes_equal_one(size: int, tmp_path: Path) -> None:
    rows = 6 * size
    # with 25 rows, the last batch has 1 (which joins the previous one) or 7 where rows are batched one by one
    folder = write_data(tmp_path, rows=25)
    expected = every_gradient(folder, Processes(), rows, micro_batch=None)
    run_processes(work, size, folder, rows)
    each = [torch.load(folder / f"found{size}-{rank}.pt") for rank in range(size)]
    largest = max(float(value.norm()) for value in expected.values())
    for found in each:
        assert found.keys() == expected.keys()
        for name in expected:
            error, norm = float((found[name] - expected[name]).norm()), float(expected[name].norm())
            assert error <= 1e-4 * norm + 1e-6 * largest, name
            assert torch.equal(found[name], each[0][name]), f"{name}: processes would drift apart"
    for method in [*METHODS, *VARIANTS]:
        batch = "first" if method in ("cosent", "angle") else "last"  # of a single pair nothing is compared
        norms = [float(value.norm()) for name, value in expected.items() if name.startswith(f"{method} {batch} ")]
        assert sum(norm > 1e-6 for norm in norms) > 10, method


# --- the first process tokenises for all ---

TEXTS = [f"text {number:{number % 9}}" for number in range(50)]


def character_codes(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    """A tokenizer whose token ids are the letters' code points."""
    return [list(map(ord, text[:10])) for text in texts], sum(len(text) > 10 for text in texts)


def never(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    raise AssertionError(f"tokenises {texts}")


def share_tokens(rank: int, size: int, folder: Path) -> None:
    join(rank, size, folder)
    tokens.BLOCK, tokens.SHARED_FROM = 7, 1
    broadcast = Processes().broadcast_from_first
    store = TokenStore(never if rank else character_codes, vocabulary=256, broadcast_from_first=broadcast, console=None)
    store.read(TEXTS[:20])
    store.read(TEXTS)
    expected, truncated = character_codes(TEXTS)
    assert list(store.select(TEXTS)) == expected
    assert store.truncated == truncated > 0
    (folder / f"done{rank}").touch()
    leave_process_group()


def test_the_second_process_never_tokenises(tmp_path: Path) -> None:
    run_processes(share_tokens, 2, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("done*")) == ["done0", "done1"]
