"""Training and encoding by one thread, by two threads, and by two processes of one thread.

    python benchmarks/scaling.py run       writes benchmarks/results/scaling.json
    python benchmarks/scaling.py report    fills its place in docs/costs.md from that file alone

Texts are from SNLI if NEARFAR_DATA is set, else from microworld. Everything is computed in bf16. The seconds of
encoding include opening the model.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import common
import torch
from common import MODEL
from training_run import write_rows

from nearfar.commands.encode import encode
from nearfar.data.rows import load_nli

PAGE = common.Page("scaling", "costs")
SHARES = ((1, 1), (2, 1), (2, 2))
"""Total number of threads, and number of processes."""
BATCH = 64
"""Pairs in the batches of all processes together."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all shares."""
    data = "SNLI" if os.environ.get("NEARFAR_DATA") else "microworld"
    rows = load_nli("snli:dev+test+train_partial" if data == "SNLI" else "microworld").rows
    record = common.record(model=MODEL, rounds=options.rounds, data=data, shares=[])
    pairs = list(dict.fromkeys(row[:2] for row in rows if row.premise != row.hypothesis))
    texts = list(dict.fromkeys(text for row in rows for text in row[:2]))
    random.Random(0).shuffle(pairs)
    random.Random(0).shuffle(texts)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_rows(folder / "pairs.tsv", ("anchor", "positive"), pairs)
        lines = [
            f"{texts[number % len(texts)]} {number // len(texts) or ''}".rstrip() for number in range(options.lines)
        ]
        (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for threads, processes in SHARES:
            share: dict[str, Any] = {"threads": threads, "processes": processes, "lines": options.lines}
            environment, file = _environment(threads), str(folder / "lines.txt")
            share["encoding"] = common.in_process(__file__, environment=environment, file=file, processes=processes)
            share["training"] = [_train(folder, threads, processes, options.steps) for _ in range(options.rounds)]
            record["shares"].append(share)
    return record


def measure(file: str, processes: int) -> dict[str, Any]:
    """``nearfar encode`` of a file of lines, in this process or in workers."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        output = Path(folder) / "v.npy"
        encode(MODEL, input=file, output=output, precision="bf16", workers=processes, progress=False)
        seconds = time.perf_counter() - started
    return {"seconds": [seconds], "threads": torch.get_num_threads(), "peak_mib": common.peak_mib()}


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads)}


def _train(folder: Path, threads: int, processes: int, steps: int) -> dict[str, float]:
    """Run `nearfar train`, by torchrun for several processes: number of pairs, and seconds from its run.json."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        output = Path(place) / "run"
        setting = {"data": folder / "pairs.tsv", "output": output, "model": MODEL, "precision": "bf16"}
        setting |= {"batch-size": BATCH // processes, "max-steps": steps, "evaluate-on": "microworld:dev"}
        flags = [word for name, value in setting.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, *launcher, "-m", "nearfar", "train", "info-nce", *flags]
        environment = _environment(threads // processes)
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
        run_info = common.load(output / "run.json")
    return {"rows": BATCH * run_info["step"], "seconds": run_info["seconds"]}


def body(record: dict[str, Any]) -> list[str]:
    """Speed by threads and processes."""
    speeds = [[one["rows"] / one["seconds"] for one in share["training"]] for share in record["shares"]]
    rows = [
        (
            *(share["threads"], share["processes"]),
            f"{share['lines'] / median(share['encoding']['seconds']):,.0f}",
            f"{median(speed):,.0f}",
        )
        for share, speed in zip(record["shares"], speeds, strict=True)
    ]
    one, threads, processes = speeds
    return [
        *common.table(("total threads", "processes", "lines encoded/s", "pairs trained/s"), rows, words=0),
        "",
        f"In training, a second thread gives {common.spread(common.ratios(threads, one))} times the speed of one; two "
        f"processes of one thread have {common.spread(common.ratios(processes, threads))} times the speed of one "
        "process with two threads.",
    ]


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.Sizes("rounds", "rounds of training", 3, 1),
        common.Sizes("lines", "lines to encode", 2**15, 2**12),
        common.Sizes("steps", "steps of training", 20, 4),
        one=measure,
    )
