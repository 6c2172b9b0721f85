"""Two training runs on the same cores: the cost of waiting threads, with and without nearfar's thread settings.

    python benchmarks/side_by_side.py run       writes benchmarks/results/side_by_side.json
    python benchmarks/side_by_side.py report    fills its place in docs/costs.md from that file alone

Each run is a process with as many threads as there are cores, and trains sbert on microworld. Concurrent runs warm up,
wait for a signal, and then run their steps at the same time. Measurements of one run and of two concurrent runs are
interleaved, with the variables that nearfar sets and without them (torch's default). With ``--quick``, results are
printed, and written only with ``--into``. ``--spins`` adds further settings to compare.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import common
from common import MODEL

from nearfar.runtime import threads

PAGE = common.Page("side_by_side", "costs")
NEARFAR, DEFAULT = "nearfar's settings", "torch's default"
"""Target for the time of a step in two concurrent runs relative to one run."""


def name_spins(parser: argparse.ArgumentParser) -> None:
    """Add the flag ``--spins``."""
    parser.add_argument("--spins", nargs="*", default=[], help="further values of GOMP_SPINCOUNT; 0: never spin")


def measure_worker(steps: int) -> float:
    """Warm up, print "ready", wait for a line, run the steps; the seconds per step."""
    from training_run import Run  # noqa: PLC0415  (imports torch, which the main process does not need)

    from nearfar import SbertConfig  # noqa: PLC0415

    config = SbertConfig(
        output="unused", model=MODEL, data=("microworld",), batch_size=32, epochs=100, precision="fp32"
    )
    run = Run(config)
    run.advance(2)
    print("ready", flush=True)
    sys.stdin.readline()
    return run.advance(steps) / steps


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all settings, with one run and with two concurrent runs."""
    rounds, steps = options.rounds, options.steps
    cores = threads.available_cores()
    settings: dict[str, dict[str, str]] = {DEFAULT: {}, NEARFAR: threads.WAIT_VARIABLES}
    settings |= {f"GOMP_SPINCOUNT={count}": {"GOMP_SPINCOUNT": count} for count in options.spins}
    sides: dict[str, Callable[[int], float]] = {
        f"{name}, {runs}": partial(_side, environment(own, cores), runs, steps)
        for name, own in settings.items()
        for runs in (1, 2)
    }
    record = common.record(model=MODEL, rounds=rounds, steps=steps, cores=cores, settings=settings)
    record["seconds"] = common.run_interleaved(sides, rounds, warm_up=0)
    return record


def environment(own: Mapping[str, str], count: int) -> dict[str, str]:
    """The environment of this process with ``count`` threads and only these variables about waiting."""
    kept = {name: value for name, value in os.environ.items() if name not in threads.WAIT_VARIABLES}
    return {**kept, "OMP_NUM_THREADS": str(count), **own}


def _side(variables: Mapping[str, str], runs: int, steps: int, _: int) -> float:
    """Seconds per step in the slowest of ``runs`` concurrent runs."""
    command = [sys.executable, __file__, "one", json.dumps({"steps": steps})]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, env=dict(variables), **pipes) for _ in range(runs)]
    for process in started:
        while (line := process.stdout.readline()) != "ready\n":
            if not line:
                raise SystemExit("a run died while it warmed up")
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    return max(json.loads(process.communicate()[0]) for process in started)


def body(record: dict[str, Any]) -> list[str]:
    """Seconds of one run alone, and of the slower of two."""
    rows, seconds = [], record["seconds"]
    for name in record["settings"]:
        alone, both = seconds[f"{name}, 1"], seconds[f"{name}, 2"]
        rows.append([name, common.spread(alone, 3), common.spread(both, 3), common.spread(common.ratios(both, alone))])
    return common.table(("thread settings", "one run, s", "two runs, s", "times as long"), rows)


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.ROUNDS._replace(quick=2),
        common.Sizes("steps", "steps per run and round", 12, 4),
        more=name_spins,
        trial=lambda options: bool(options.spins),
        one=measure_worker,
    )
