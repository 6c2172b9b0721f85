"""Training on more rows than memory has room for: peak memory of the rows in memory and on disk, and the minutes.

    python benchmarks/large_rows.py run       writes benchmarks/results/large_rows.json
    python benchmarks/large_rows.py report    fills its place in docs/costs.md from that file alone

Pairs of random words are trained on for a few steps by the recipe for pairs, in a process of its own for each number of
rows. Memory is what the process has written (anonymous pages, sampled ten times a second); pages of mapped files, which
the system can drop at any time, are not counted.
"""

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import common
from common import MODEL

from nearfar import train

PAGE = common.Page("large_rows", "costs")
VOCABULARY = (
    "water time people year day way man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home"
)
WORDS = VOCABULARY.split()
LENGTHS = (6, 16)
"""The smallest and the largest number of words in a text."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all numbers of rows."""
    record = common.record(model=MODEL, words=list(LENGTHS), steps=options.steps, measured=[])
    for rows in (options.rows // 100, options.rows // 10, options.rows):
        record["measured"].append(common.in_process(__file__, rows=rows, steps=options.steps))
    return record


def one(rows: int, steps: int) -> dict[str, Any]:
    """Train on some rows."""
    stopped = threading.Event()
    peak = [_anonymous_mib()]

    def sample() -> None:
        while not stopped.wait(0.1):
            peak.append(max(peak.pop(), _anonymous_mib()))

    with tempfile.TemporaryDirectory() as place:
        _write(Path(place) / "pairs.tsv", rows)
        threading.Thread(target=sample, daemon=True).start()
        started = time.perf_counter()
        train(
            data=f"{place}/pairs.tsv",
            model=MODEL,
            output=f"{place}/run",
            max_steps=steps,
            evaluate_every=steps,
            precision="bf16",
        )
        seconds = time.perf_counter() - started
        stopped.set()
        training = common.load(Path(place) / "run" / "run.json")["seconds"]
    return {"rows": rows, "peak_mib": max(peak), "seconds": seconds, "seconds_of_steps": training}


def _anonymous_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def _write(file: Path, rows: int) -> None:
    draws = random.Random(0)
    with file.open("w", encoding="utf-8") as lines:
        lines.write("anchor\tpositive\n")
        for number in range(rows):
            first, second = (" ".join(draws.choices(WORDS, k=draws.randint(*LENGTHS))) for _ in range(2))
            lines.write(f"{first} {number}\t{second}\n")


def body(record: dict[str, Any]) -> list[str]:
    """Memory and minutes by the number of rows."""
    rows = [
        (
            *(f"{case['rows']:,}", f"{case['peak_mib'] / 1024:.2f}"),
            f"{(case['seconds'] - case['seconds_of_steps']) / 60:.1f}",
        )
        for case in record["measured"]
    ]
    return common.table(("pairs", "peak memory, GiB", "minutes before and after the steps"), rows, words=0)


if __name__ == "__main__":
    sizes = common.Sizes("rows", "largest number of pairs", 10**7, 10**4), common.Sizes("steps", "steps", 200, 2)
    common.main(PAGE, __doc__, run, body, *sizes, one=one)
