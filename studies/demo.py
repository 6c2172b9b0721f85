"""The demo with five seeds in fp32: what training gains, and how long the demo takes.

    python studies/demo.py    does the runs missing from studies/results/demo and demo-words, one after the other

Runs are limited to AVX2, as on a processor without AVX-512. Those with random words compare the demo's model with one
that trains on random words beside the same pairs. docs/results.py fills docs/demo.md from the results.
"""

import argparse
import json
import os
import shlex
import shutil
from pathlib import Path

from common import HERE, if_committed, load, nearfar

from nearfar.commands.demo import HOLD_OUT, RUN
from nearfar.disk import write_text
from nearfar.runs.folder import HELD_OUT
from nearfar.runs.held_out import COMPARISON

RESULTS, WORDS_RESULTS = (if_committed(HERE / "results" / name) for name in ("demo", "demo-words"))
RUNS = Path("runs", "demo")
SEEDS = (1, 2, 3, 4, 5)
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Environment variables that limit torch and its libraries to AVX2, where the compiled kernels are off."""
PRECISION = "fp32"
WORDS = ("--data", "vocabulary=0.1")
"""Flags of the runs with random words: those of docs/measured/pairs.md."""


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for the folders of the demos")
    options = parser.parse_args()
    for seed in SEEDS:
        _run(seed, options.runs)
        _run_words(seed, options.runs)


def folder_of(seed: int, runs: Path) -> Path:
    """Return the folder of a demo."""
    return runs / f"{PRECISION}-{seed}"


def words_file_of(seed: int) -> Path:
    """Return the path of the result file of a run with random words."""
    return WORDS_RESULTS / f"{seed}.json"


def _run(seed: int, runs: Path) -> None:
    folder = folder_of(seed, runs)
    file = RESULTS / f"{folder.name}.json"
    if file.exists():
        return
    command = _demo_command(seed, folder)
    found = {
        "command": shlex.join(["nearfar", *command]),
        "environment": AVX2,
        **nearfar(*command, environment={**os.environ, **AVX2}),
        "comparison": load(folder / RUN / HELD_OUT / COMPARISON),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(found, indent=1) + "\n")


def _run_words(seed: int, runs: Path) -> None:
    """Train on a demo's pairs and random words, and compare with the demo's model on the rows that both held out."""
    file = words_file_of(seed)
    if file.exists():
        return
    if not (demo := folder_of(seed, runs)).joinpath(RUN).exists():
        nearfar(*_demo_command(seed, demo), environment={**os.environ, **AVX2})
    comparison = runs / f"words-{seed}.json"
    for command in _words_commands(seed, runs, comparison):
        nearfar(*command, environment={**os.environ, **AVX2})
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(comparison, file)


def _words_commands(seed: int, runs: Path, comparison: Path) -> list[list[str]]:
    """The training with random words on a demo's pairs, and the comparison with the demo's model."""
    demo, words = folder_of(seed, runs), runs / f"words-{seed}"
    held_out = ["--hold-out", str(HOLD_OUT), "--precision", PRECISION, "--seed", str(seed)]
    return [
        ["train", "--data", str(demo / "pairs.tsv"), *held_out, *WORDS, "--output", str(words)],
        ["compare", str(words), str(demo / RUN), "--output", str(comparison)],
    ]


def _demo_command(seed: int, folder: Path) -> list[str]:
    return ["demo", "--seed", str(seed), "--precision", PRECISION, "--output", str(folder)]


if __name__ == "__main__":
    main()
