"""The papers' tables at the scale here of nearfar reproduce, into studies/results/papers.

    python studies/papers.py run --start FOLDER    runs the tables that are missing

Needs NEARFAR_DATA. FOLDER is the initial encoder, a transformers masked language model. Two
workers run cells in parallel; a study that was stopped goes on.
"""

import argparse
import sys
from pathlib import Path

from common import keep_record, nearfar, results_of

from nearfar.studies.papers import table_names

RESULTS = results_of("papers")
PAGES = {"liao": "liao", "simcse-review": "simcse", "gunel": "gunel", "kim": "kim"}
"""Paper -> the name of its page."""
OUTPUT = Path("runs/papers")


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run",))
    parser.add_argument("--start", required=True, help="folder of the initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel cells")
    parser.add_argument("--only", nargs="*", help="names of tables to run, by default all")
    options = parser.parse_args()
    failed = [name for name in options.only or table_names() if not run(name, options.start, options.workers)]
    if failed:
        raise SystemExit(f"Not finished: {', '.join(failed)}.")


def run(name: str, start: str, workers: int) -> bool:
    """Run a table, and keep its record and its plots; returns whether all its cells are finished."""
    if (RESULTS / name / "study.json").exists():
        return True
    flags = ("--scale", "here", "--start", start, "--output", str(OUTPUT), "--workers", str(workers))
    try:
        nearfar("reproduce", name, *flags)
    except SystemExit as error:  # the other tables need none of its cells
        print(error, file=sys.stderr)
        return False
    keep_record(OUTPUT / name, RESULTS / name)
    return True


if __name__ == "__main__":
    main()
