"""Losses of large batches: the whole matrix of similarities against blocks of it, in seconds and in memory.

    python benchmarks/losses.py run       writes benchmarks/results/losses.json
    python benchmarks/losses.py report    writes docs/loss-memory.md from that file alone

InfoNCE, SupCon and premise-anchored SCL of random float32 vectors, forward and backward. Both ways are the library's
own; the one that a batch gets depends on its size alone, which is overruled here. The peer, at the smallest size only
as it takes gigabytes there, computes the cosines as SimCSE's script does: both sides broadcast against each other,
``CosineSimilarity`` over the last axis, then cross-entropy. Time: the ways take turns in one process; the first round
is a warm-up. Memory: a process for each way and size, and how far its resident memory rises above what it is with the
inputs made.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import common
import torch
from torch import Tensor
from torch.nn import functional

from nearfar.objectives import _contrast_targets, info_nce, premise_scl, supcon

FILES = common.files("losses", "loss-memory")
SIZES = {1024: 20, 4096: 5, 16384: 3}
"""Batch sizes, and how many rounds of each are timed."""
QUICK = {1024: 5, 4096: 3}
DIM, CLASS, PAIRS = 384, 8, 3
"""Width of a vector; how many of a batch have one label, and one premise, a pair for each of the labels."""
WAYS = ("whole", "in blocks")
BAR_MIB = 300
"""What InfoNCE of the largest batch is to need in blocks, at most."""
PEER = "SimCSE's script"


def main() -> None:
    """Run or report; ``memory`` is what a run asks of other processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report", "memory"))
    parser.add_argument("case", nargs="*", help="of memory: objective, size, way")
    parser.add_argument(
        "--quick", action="store_true", help="smaller batches, without the peer; prints, and writes nothing"
    )
    options = parser.parse_args()
    if options.command == "memory":
        objective, size, way = options.case
        _step(objective, 64, way)()  # what is loaded once, whatever the batch
        print(_memory_increase(_step(objective, int(size), way)))
        return
    if options.command == "run":
        record = common.record(dim=DIM, pairs=PAIRS, **{"class": CLASS})
        sizes = QUICK if options.quick else SIZES
        record["rows"] = [
            _measure(objective, size, rounds, peer=not options.quick and size == min(sizes))
            for objective in ("InfoNCE", "SupCon", "premise SCL")
            for size, rounds in sizes.items()
        ]
        if options.quick:
            print("\n".join(_body(record)))
            return
        common.save(FILES.result, record)
    record = common.load(FILES.result)
    common.write_page(FILES.page, "Memory and time of losses", "losses", record, _body(record))


def _measure(objective: str, size: int, rounds: int, *, peer: bool) -> dict[str, Any]:
    """Seconds of each round and MiB, by way."""
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
    mib = {way: _memory(objective, size, way) for way in ways}
    return {"objective": objective, "size": size, "seconds": seconds, "mib": mib}


def _step(objective: str, size: int, way: str) -> Callable[[], Tensor]:
    """Forward and backward of a batch; gives the gradient of the anchors."""
    generator = torch.Generator().manual_seed(0)
    anchors, noise = torch.randn(2, size, DIM, generator=generator).unbind()
    positives = anchors + 2 * noise
    numbers = torch.arange(size)

    def step() -> Tensor:
        # A batch that would be computed whole has several blocks too.
        _contrast_targets.BLOCK = size * size if way == "whole" else min(2**22, size * size // 4)
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
    """InfoNCE over cosines of all pairs, each pair's vectors laid side by side."""
    cosines = functional.cosine_similarity(one[:, None], other[None], dim=-1) / temperature
    return functional.cross_entropy(cosines, torch.arange(len(one)), reduction="none")


def _memory_increase(step: Callable[[], Tensor]) -> float:
    """MiB by which the peak of this process rises in a step above what it has before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from here on the peak counts anew
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def _memory(objective: str, size: int, way: str) -> float:
    command = [sys.executable, __file__, "memory", objective, str(size), way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _body(record: dict[str, Any]) -> list[str]:
    """The page between its title and its origin."""
    lines = [
        f"{common.machine(record)}, float32, vectors {record['dim']} wide.",
        "",
        "Forward and backward. Whole: all similarities of a batch at a time; in blocks: those of some anchors at a",
        "time, which training does by itself above 2,048 x 2,048. MiB: how far the memory of a process rises above",
        "what it has with the vectors made, gradients included. Seconds: medians of rounds in turn; the ratio with its",
        "least and greatest.",
        "",
    ]
    rows = []
    for row in record["rows"]:
        for way, seconds in row["seconds"].items():
            times = "" if way == "whole" else common.spread(common.ratios(seconds, row["seconds"]["whole"]))
            what = (row["objective"], f"{row['size']:,}", way)
            rows.append((*what, f"{row['mib'][way]:,.0f}", f"{median(seconds):.3f}", times))
    lines += common.table(("loss", "batch", "way", "MiB", "seconds", "times as long as whole"), rows, words=3)
    lines += [
        "",
        f"SupCon: {record['class']} of a batch have one label. Premise SCL: {record['pairs']} pairs of each premise,",
    ]
    lines += ["one of them an anchor."]
    for row in record["rows"]:
        if (row["objective"], row["size"]) == ("InfoNCE", max(SIZES)):
            bar = common.verdict(row["mib"]["in blocks"], BAR_MIB, at_most=True)
            lines += ["", f"MiB that InfoNCE of {row['size']:,} may need in blocks, at most: {bar}."]
    return lines


if __name__ == "__main__":
    main()
