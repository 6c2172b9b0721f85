"""Runs the campaign: `python -m tests.campaign` or `make campaign`.

python -m tests.campaign                          every case, hours long
python -m tests.campaign --minutes 3              as many cases as fit
python -m tests.campaign --case "kills: train"    the cases whose name contains these words
python -m tests.campaign --minutes 30 --record tests/campaign/results/after.json    and write how many failed
"""

import argparse
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from tests.campaign import shim
from tests.child_programs import environment


def main() -> None:
    """Start again with the shim; then run the cases in workers, which print their failures and counts."""
    options = _options()
    os.environ["HF_HUB_OFFLINE"] = "1"  # before libraries read it
    if not shim.PRELOADED and shim.library() is not None:
        preloaded = environment() | {"LD_PRELOAD": str(shim.library())}
        os.execve(sys.executable, [sys.executable, "-m", "tests.campaign", *sys.argv[1:]], preloaded)
    import pyarrow.parquet  # noqa: F401
    import sentence_transformers  # noqa: F401

    import nearfar
    from tests.campaign import disturbed, inputs

    for name in nearfar.__all__:  # whose modules the forks then need not import
        getattr(nearfar, name)
    parts = [inputs.cases(options.seed)] if not shim.PRELOADED else [m.cases(options.seed) for m in (disturbed, inputs)]
    turns = [case for same in zip_longest(*parts) for case in same if case is not None and options.case in case[0]]
    began = time.monotonic()
    deadline = began + 60 * (options.minutes or math.inf)
    options.output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=options.output)).resolve()  # what cases share is of this code
    children = []
    for worker in range(options.workers):
        children.append(os.fork())
        if children[-1] == 0:
            wrong = 1
            try:
                wrong = int(work(turns[worker :: options.workers], folder / str(worker), deadline) > 0)
            finally:
                sys.stdout.flush()
                os._exit(wrong)
    status = max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    if options.record:
        lines = [line for file in folder.glob("*/cases.tsv") for line in file.read_text(encoding="utf-8").splitlines()]
        write_record(options.record, lines, minutes=(time.monotonic() - began) / 60)
    raise SystemExit(status)


def write_record(file: Path, lines: list[str], *, minutes: float) -> None:
    """Write what one pass found, each case tried once, from lines of a case's name and what was wrong."""
    from nearfar.evaluation.results.record import provenance

    counts: dict[str, dict[str, list[int]]] = {}
    for (part, command, wrong), count in sorted(Counter(map(_kind, lines)).items()):
        counts.setdefault(part, {}).setdefault(command, [0, 0])[0] += count
        counts[part][command][1] += count if wrong else 0
    data = os.environ.get("NEARFAR_DATA") or os.devnull
    failed = [line.replace(data, "$NEARFAR_DATA").split("\t", 1) for line in lines if not line.endswith("\t")]
    failures = dict(failed)
    origin = provenance().to_dict() | {"command": " ".join(["python -m tests.campaign", *sys.argv[1:]])}
    record = {"provenance": origin, "minutes": round(minutes), "counts": counts, "failures": failures}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _kind(line: str) -> tuple[str, str, bool]:
    """The part of the campaign, the command and whether it failed, of a line ``kills: encode npy 3<tab>``."""
    name, wrong = line.split("\t", 1)
    part, _, rest = name.partition(": ")
    return part, re.split(r",| \d", rest)[0], bool(wrong)


def work(cases: list[tuple[str, Callable[[Path, Path], str]]], shared: Path, deadline: float) -> int:
    """Run cases, each in an empty folder that is deleted if all is well; returns how many failed."""
    shared.mkdir()
    count = failed = 0
    for name, check in cases:
        if time.monotonic() > deadline:
            break
        folder = Path(tempfile.mkdtemp(prefix="case-", dir=shared))
        try:
            wrong = check(shared, folder)
        except Exception as error:  # a defect of the check itself must not stop the campaign
            wrong = f"the check failed: {error!r} at {traceback.format_tb(error.__traceback__)[-1].strip()}"
        count += 1
        with (shared / "cases.tsv").open("a", encoding="utf-8") as cases_file:
            cases_file.write(f"{name}\t{' '.join(wrong.split())}\n")
        if wrong:
            failed += 1
            print(f"{name}, in {folder}: {wrong}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{count} cases, {failed} failed", flush=True)
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/campaign"), help="folder of the cases that failed")
    parser.add_argument("--minutes", type=float, help="stop to start cases after this time")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--record", type=Path, help="a file for the numbers of cases and failures, and what failed")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--workers", type=int, default=2, help="cases in parallel")
    return parser.parse_args()


if __name__ == "__main__":
    main()
