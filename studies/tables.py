"""The studies in studies/tables, each a file for nearfar study, into studies/results/tables.

    python studies/tables.py run [NAME ...] --start FOLDER    runs the studies that are missing

Needs NEARFAR_DATA. FOLDER is the initial encoder of studies with {start}, a transformers masked language model.
Two workers run cells in parallel; a study that was stopped goes on.
"""

import argparse
from pathlib import Path

from common import HERE, keep_record, nearfar, results_of

FILES = HERE / "tables"
RESULTS = results_of("tables")
OUTPUT = Path("runs/tables")


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run",))
    parser.add_argument("names", nargs="*", help="studies to run, by default all")
    parser.add_argument("--start", help="folder of the initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel cells")
    options = parser.parse_args()
    names = sorted(file.stem for file in FILES.glob("*.toml"))
    for name in options.names or names:
        run(name, options.start, options.workers)


def run(name: str, start: str | None, workers: int) -> None:
    """Run a study, and keep its record and its plots."""
    if (RESULTS / name / "study.json").exists():
        return
    output = OUTPUT / name
    file = FILES / f"{name}.toml"
    if "{start}" not in file.read_text(encoding="utf-8").partition("[scales.")[0]:
        start = None
    elif start is None:
        raise SystemExit(f"{name} needs --start FOLDER")
    words = ["--output", str(output), "--cells", str(OUTPUT / "cells"), "--workers", str(workers)]
    nearfar("study", str(file), *words, *(["--start", start] if start else []))
    keep_record(output, RESULTS / name)


if __name__ == "__main__":
    main()
