"""The studies in studies/tables and the papers' tables, each a file for nearfar study; keeps what the pages need.

    python studies/tables.py NAME... --start FOLDER
    python studies/tables.py NAME... --verdicts

Runs those that are missing from studies/results; a study that was stopped goes on. Needs NEARFAR_DATA. FOLDER is the
initial encoder of studies with {start} and of the papers' tables, which run at the scale here. The record of a study
goes to studies/results/tables or papers; of a choice, whose name ends with -choice, only the values of its runs are
kept, as rows of studies/results/choices.csv, and where they come from, in choices.json. docs/results.py fills pages.
--verdicts runs nothing: the records take the claims of their files, and verdicts follow from the scores of units where
these are kept, else from the p of each difference.
"""

import argparse
import json
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
from common import HERE, if_committed, nearfar

from nearfar.disk import write_text
from nearfar.evaluation.results import StudyTable
from nearfar.studies.groups import scores_of
from nearfar.studies.papers import table_file, table_names
from nearfar.studies.table import compare_again, correct
from nearfar.studies.units import UNITS

FILES = HERE / "tables"
RESULTS = HERE / "results"
OUTPUT = Path("runs/tables")
PAPERS = Path("runs/papers")
CHOICE = "-choice"
MAX_BYTES = 2**20
"""Of a file that is kept: scores of all pairs of many runs are larger, and the study's command makes them again."""
PEER = "sentence-transformers"
PEERS = "peers/losses.py"
"""The script that trains with sentence-transformers."""


def main() -> None:
    """Run studies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", help="files of studies/tables without .toml, or tables of papers")
    parser.add_argument("--start", help="folder of the initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel cells")
    parser.add_argument("--verdicts", action="store_true", help="of finished studies, by the claims of their files")
    options = parser.parse_args()
    if options.verdicts:
        for name in options.names:
            tell_again(name)
        return
    failed = [name for name in options.names if not run(name, options.start, str(options.workers))]
    if failed:
        raise SystemExit(f"Not finished: {', '.join(failed)}.")


def record_of(name: str) -> Path:
    """The record of a study or of a table of a paper."""
    return RESULTS / ("papers" if name in table_names() else "tables") / name / "study.json"


def tell_again(name: str) -> None:
    """Correct the p of a study's differences over the columns that its file claims now, and tell their verdicts."""
    record = record_of(name)
    table = StudyTable.load(record)
    file = table_file(name) if name in table_names() else FILES / f"{name}.toml"
    spec = tomllib.loads(file.read_text(encoding="utf-8"))
    claims = spec.get("scales", {}).get(table.scale, spec).get("claims", spec.get("claims"))
    study = {key: value for key, value in table.study.items() if key != "claims"}
    table = replace(table, study=study | ({} if claims is None else {"claims": claims}))
    units = record.with_name(UNITS)
    told = compare_again(table, units) if units.exists() else correct(scores_of(table).study, table.comparisons)
    replace(table, comparisons=told).save(record)


def run(name: str, start: str | None, workers: str) -> bool:
    """Run a study, and keep its record and its plots; returns whether all its cells are finished."""
    of_paper = name in table_names()
    results = record_of(name).parent
    file = FILES / f"{name}.toml"
    if record_of(name).exists() or (name.endswith(CHOICE) and name in set(read_choices().study)):
        return True
    needs_start = of_paper or "{start}" in file.read_text(encoding="utf-8").partition("[scales.")[0]
    if needs_start and start is None:
        raise SystemExit(f"{name} needs --start FOLDER")
    words = ["--workers", workers, "--threads", "1", *(["--start", str(start)] if needs_start else [])]
    output = (PAPERS if of_paper else OUTPUT) / name
    try:
        if of_paper:
            nearfar("reproduce", name, "--scale", "here", "--output", str(PAPERS), *words)
        else:
            nearfar("study", str(file), "--output", str(output), "--cells", str(OUTPUT / "cells"), *words)
    except SystemExit as error:  # other studies need none of its cells
        print(error, file=sys.stderr)
        return False
    if name.endswith(CHOICE):
        keep_choice(name, StudyTable.load(output / "study.json"))
        return True
    results = if_committed(results)
    results.mkdir(parents=True, exist_ok=True)
    for kept in (output / "study.json", *output.glob("units.parquet"), *output.glob("*.svg")):
        if kept.stat().st_size <= MAX_BYTES:
            shutil.copyfile(kept, results / kept.name)
    return True


def read_choices() -> pd.DataFrame:
    """The values of all choices: study, row, setting (the label of an axis), side, seed, column, value."""
    return pd.read_csv(RESULTS / "choices.csv", dtype=str, keep_default_na=False)


def keep_choice(name: str, table: StudyTable) -> None:
    """Add a choice to choices.csv, and where its runs come from to choices.json."""
    spec = tomllib.loads((FILES / f"{name}.toml").read_text(encoding="utf-8"))
    rows = {row["id"]: row for row in spec["rows"]}
    values = [
        [
            *(name, cell.row, " ".join(cell.coordinates.values()), _side(rows[cell.row], spec)),
            *(str(cell.replicate.get("seed", "")), column, str(value)),
        ]
        for cell in table.cells
        for column, value in cell.values.items()
        if column in table.columns and value is not None
    ]
    known = read_choices()
    folder = if_committed(RESULTS)
    added = pd.DataFrame(values, columns=known.columns)
    write_text(folder / "choices.csv", pd.concat([known, added]).to_csv(index=False))
    origins = json.loads((RESULTS / "choices.json").read_text(encoding="utf-8"))
    origins[name] = {key: value for key, value in table.to_dict()["runs"].items() if value}
    write_text(folder / "choices.json", json.dumps(origins, indent=1) + "\n")


def _side(row: dict[str, object], spec: dict[str, object]) -> str:
    """Who trained a row: ``nearfar``, ``sentence-transformers``, or ``no training``."""
    steps = json.dumps(row.get("steps", spec.get("steps", ["train"])))
    scripts = json.dumps([row.get("script"), spec.get("script")]) if '"script"' in steps else ""
    if PEERS in steps or PEERS in scripts or f"({PEER})" in str(row.get("name")):
        return PEER
    trains = '"train"' in steps or any(script in scripts for script in ("soup.py", "sentences.py"))
    return "nearfar" if trains else "no training"


if __name__ == "__main__":
    main()
