"""What help costs: wall and processor seconds of each verb's ``--help``, of each method's, and of ``import nearfar``.

    python benchmarks/help.py run       writes benchmarks/results/help.json
    python benchmarks/help.py report    writes docs/help-speed.md from that file alone

Each is a process of its own, and all take turns; the first round, which may compile modules, is a warm-up. Beside them
stands a Python that does nothing, which is what no program can go below.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

import nearfar
from nearfar.cli import VERBS
from nearfar.config import METHODS

BAR = 0.35
"""Processor seconds that help may take on a slow machine, at most."""
NOTHING = "python, nothing"
CASES = {
    NOTHING: ["-c", "pass"],
    "import nearfar": ["-c", "import nearfar"],
    "nearfar --help": ["-m", "nearfar", "--help"],
    **{f"nearfar {verb} --help": ["-m", "nearfar", verb, "--help"] for verb in VERBS},
    **{f"nearfar train {method} --help": ["-m", "nearfar", "train", method, "--help"] for method in METHODS},
}


def main() -> None:
    """Run or report."""
    options = common.arguments(__doc__, rounds="11, or with --quick 3").parse_args()
    place = common.files("help", "help-speed", options.into)
    if options.what == "run":
        rounds = options.rounds or (3 if options.quick else 11)
        measured = common.take_turns({name: _cost(words) for name, words in CASES.items()}, rounds)
        found = common.record(rounds=rounds, bar=BAR)
        found["cases"] = {
            name: {"wall": [one[0] for one in costs], "processor": [one[1] for one in costs]}
            for name, costs in measured.items()
        }
        if options.quick and options.into is None:
            print("\n".join(body(found)))
            return
        common.save(place.result, found)
    content = common.load(place.result)
    common.write_page(place.page, "What help costs", "help", content, body(content))
    print("\n".join(body(content)))


def _cost(words: list[str]) -> Callable[[int], tuple[float, float]]:
    """Wall and processor seconds of a process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(nearfar.__file__).parents[1])}

    def cost(_: int) -> tuple[float, float]:
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return cost


def body(content: dict[str, Any]) -> list[str]:
    """The page between its title and its origin."""
    lines = [
        f"{common.machine(content)}. Seconds of a process: median of {content['rounds']} rounds, least, greatest.",
        "",
    ]
    rows = [
        (name, common.spread(costs["wall"], 3), common.spread(costs["processor"], 3))
        for name, costs in content["cases"].items()
    ]
    lines += common.table(("command", "wall", "processor"), rows)
    worst = max(sorted(costs["processor"])[len(costs["processor"]) // 2] for costs in content["cases"].values())
    bar = common.verdict(worst, content["bar"], at_most=True)
    return [*lines, "", f"Processor seconds of the slowest help, its median at most: {bar}."]


if __name__ == "__main__":
    main()
