"""Runs the campaign: `python -m tests.campaign` or `make campaign`.

python -m tests.campaign                            every part, about two hours on two cores
python -m tests.campaign --minutes 3                as many cases as fit, each part in turn
python -m tests.campaign kills --case "train scl"   the cases whose group or name contains these words
"""

import argparse
import math
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.campaign import shim
from tests.campaign.case import PARTS, Case, SkipPartError, cases_of, run_case
from tests.campaign.server import Server


def main() -> None:
    """Run the cases of all parts in turn, in threads that have a server each; print the failures and the counts."""
    options, console = _options(), Console(soft_wrap=True, markup=False)
    chosen: list[list[tuple[str, Case]]] = []
    for part in options.parts:
        try:
            every = [(part, case) for case in cases_of(part, options.seed)]
        except SkipPartError as reason:
            console.print(f"{part}: skipped, {reason}")
            continue
        chosen.append([(part, case) for part, case in every if (options.case or "") in f"{case.group}\n{case.name}"])
    turns = [turn for same in zip_longest(*chosen) for turn in same if turn is not None]
    deadline, own = time.monotonic() + 60 * (options.minutes or math.inf), threading.local()
    options.output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=options.output))  # what cases share is of this code
    counts, failed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def run(turn: tuple[str, Case]) -> str | None:
        if time.monotonic() > deadline:
            return None
        if not hasattr(own, "server"):
            own.server = servers.enter_context(Server(preload=shim.library()))
        return run_case(turn[1], own.server, folder / turn[0])

    with ExitStack() as servers, ThreadPoolExecutor(options.workers) as pool:
        try:
            results = track(pool.map(run, turns), "campaign", total=len(turns), console=console)
            for (part, case), wrong in zip(turns, results, strict=True):
                counts[part, case.group] += wrong is not None
                failed[part, case.group] += bool(wrong)
                if wrong:
                    console.print(f"{part}: {case.name}: {wrong}")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    for (part, group), count in sorted((+counts).items()):
        console.print(f"{part}: {group}: {count} cases, {failed[part, group]} failed")
    raise SystemExit(int(failed.total() > 0))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; by default all")
    parser.add_argument("--output", type=Path, default=Path("runs/campaign"), help="folder of the cases that failed")
    parser.add_argument("--minutes", type=float, help="stop to start cases after this time")
    parser.add_argument("--case", help="only cases whose group or name contains this")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--workers", type=int, default=2, help="cases in parallel")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


if __name__ == "__main__":
    main()
