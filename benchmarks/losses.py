"""Losses of large batches: time and memory of the full similarity matrix against blocks of it.

    python benchmarks/losses.py run       writes benchmarks/results/losses.json
    python benchmarks/losses.py report    fills its place in docs/costs.md from that file alone

InfoNCE, SupCon and premise-anchored SCL of random float32 vectors, forward and backward. The library has both
implementations and chooses by batch size; the benchmark forces one. The peer computes the cosines as SimCSE's script
does: broadcast both sides, ``CosineSimilarity`` over the last axis, then cross-entropy; because it needs gigabytes, it
runs at the smallest size only. Time: the implementations are interleaved in one process; the first round is a warm-up.
Memory: one process per implementation and size; the increase of resident memory over that with the inputs allocated.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import common
import torch
from torch import Tensor
from torch.nn import functional

from nearfar.objectives import _contrast, info_nce, premise_scl, supcon

PAGE = common.Page("losses", "costs")
SIZES = {1024: 20, 4096: 5, 16384: 3}
"""Batch size -> number of timed rounds."""
QUICK = {1024: 5, 4096: 3}
DIM, CLASS, PAIRS = 384, 8, 3
"""Dimension of the vectors; number of vectors per label; number of pairs per premise, one for each NLI label."""
WAYS = ("whole", "in blocks")
LABELS = {"whole": "full matrix", "in blocks": "blocks"}
"""Key in the result file -> label on the page, where they differ."""
"""Target for the memory of InfoNCE of the largest batch in blocks."""
PEER = "SimCSE's script"


def memory(objective: str, size: int, way: str) -> float:
    """The increase of memory by one step, after one that is not measured for allocations that are made once."""
    _step(objective, 64, way)()
    return _memory_increase(_step(objective, size, way))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all losses; ``--quick`` with smaller batches, without the peer."""
    quick = options.quick
    record, sizes = common.record(dim=DIM, pairs=PAIRS, **{"class": CLASS}), QUICK if quick else SIZES
    record["rows"] = [
        _measure(objective, size, rounds, peer=not quick and size == min(sizes))
        for objective in ("InfoNCE", "SupCon", "premise SCL")
        for size, rounds in sizes.items()
    ]
    return record


def _measure(objective: str, size: int, rounds: int, *, peer: bool) -> dict[str, Any]:
    """Seconds of each round, and MiB, by implementation."""
    ways = (*WAYS, PEER) if peer and objective == "InfoNCE" else WAYS
    steps = {way: _step(objective, size, way) for way in ways}
    gradients: dict[str, Tensor] = {}

    def work(way: str) -> Callable[[int], None]:
        return lambda _: gradients.update({way: steps[way]()})

    seconds = common.run_interleaved({way: common.timed(work(way)) for way in ways}, rounds)
    for way, gradient in gradients.items():
        error = float((gradient - gradients["whole"]).norm() / gradients["whole"].norm())
        if error > 1e-4:
            raise SystemExit(f"{objective} of {size}: the gradient of {way} differs from the whole's by {error:.1e}")
    mib = {way: common.in_process(__file__, objective=objective, size=size, way=way) for way in ways}
    return {"objective": objective, "size": size, "seconds": seconds, "mib": mib}


def _step(objective: str, size: int, way: str) -> Callable[[], Tensor]:
    """A function that runs forward and backward of a batch and returns the gradient of the anchors."""
    generator = torch.Generator().manual_seed(0)
    anchors, noise = torch.randn(2, size, DIM, generator=generator).unbind()
    positives = anchors + 2 * noise
    numbers = torch.arange(size)

    def step() -> Tensor:
        # Forces the implementation, with several blocks even for small batches.
        _contrast.BLOCK = size * size if way == "whole" else min(2**22, size * size // 4)
        one, other = anchors.detach().requires_grad_(), positives.detach().requires_grad_()
        if way == PEER:
            values = _simcse(one, other, temperature=0.05)
        elif objective == "InfoNCE":
            values = info_nce(one, other, temperature=0.05)
        elif objective == "premise SCL":
            values = premise_scl(one, other, numbers // PAIRS, numbers % PAIRS)
        else:
            values = supcon(one, numbers // CLASS, temperature=0.3)
        values.mean().backward()
        assert one.grad is not None
        return one.grad

    return step


def _simcse(one: Tensor, other: Tensor, *, temperature: float) -> Tensor:
    """InfoNCE over the cosines of all pairs, computed by broadcasting."""
    cosines = functional.cosine_similarity(one[:, None], other[None], dim=-1) / temperature
    return functional.cross_entropy(cosines, torch.arange(len(one)), reduction="none")


def _memory_increase(step: Callable[[], Tensor]) -> float:
    """Peak memory of this process during a step minus its memory before, in MiB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def body(record: dict[str, Any]) -> list[str]:
    """Memory and time of each loss, whole and in blocks."""
    rows = []
    largest = max(row["size"] for row in record["rows"])
    for row in record["rows"]:
        if row["size"] < largest and set(row["seconds"]) == set(LABELS):
            continue
        for way, seconds in row["seconds"].items():
            times = "" if way == "whole" else common.spread(common.ratios(seconds, row["seconds"]["whole"]))
            what = (row["objective"], f"{row['size']:,}", LABELS.get(way, way))
            rows.append((*what, f"{row['mib'][way]:,.0f}", f"{median(seconds):.3f}", times))
    return common.table(("loss", "batch", "implementation", "MiB", "seconds", "times as long"), rows, words=3)


if __name__ == "__main__":
    common.main(PAGE, __doc__, run, body, one=memory)
