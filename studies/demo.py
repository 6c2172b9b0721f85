"""The demo with five seeds in fp32 and bf16: what training gains, and how long the demo takes.

    python studies/demo.py    does the runs missing from studies/results/demo and demo-words, one after the other

Runs in fp32 are limited to AVX2, as on a processor without AVX-512. Runs in bf16 have all instruction sets. Those with
random words compare the demo's model with one that trains on random words beside the same pairs. docs/results.py fills
docs/demo.md from the results.
"""

import argparse
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

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
ENVIRONMENTS: dict[str, dict[str, str]] = {"fp32": AVX2, "bf16": {}}
"""Precision -> environment variables."""
WORDS = ("--sentences", "vocabulary", "--second-weight", "0.1")
"""Flags of the runs with random words: those of docs/measured/pairs.md."""


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for the folders of the demos")
    options = parser.parse_args()
    for seed in SEEDS:
        for precision in ENVIRONMENTS:
            _run(precision, seed, options.runs)
        _run_words(seed, options.runs)


def file_of(precision: str, seed: int) -> Path:
    """Return the path of the result file of a demo."""
    return RESULTS / f"{precision}-{seed}.json"


def words_file_of(seed: int) -> Path:
    """Return the path of the result file of a run with random words."""
    return WORDS_RESULTS / f"{seed}.json"


def _run(precision: str, seed: int, runs: Path) -> None:
    file = file_of(precision, seed)
    if file.exists():
        return
    folder = runs / file.stem
    command = _demo_command(precision, seed, folder)
    environment = ENVIRONMENTS[precision]
    found = {
        "command": shlex.join(["nearfar", *command]),
        "environment": environment,
        **nearfar(*command, environment={**os.environ, **environment}),
        "comparison": load(folder / RUN / HELD_OUT / COMPARISON),
    }
    _save(file, found)


def _run_words(seed: int, runs: Path) -> None:
    """Train on a demo's pairs and random words, and compare with the demo's model on the rows that both held out."""
    file = words_file_of(seed)
    if file.exists():
        return
    if not (runs / f"bf16-{seed}" / RUN).exists():
        nearfar(*_demo_command("bf16", seed, runs / f"bf16-{seed}"), environment=os.environ)
    comparison = runs / f"words-{seed}.json"
    for command in _words_commands(seed, runs, comparison):
        nearfar(*command, environment=os.environ)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(comparison, file)


def _words_commands(seed: int, runs: Path, comparison: Path) -> list[list[str]]:
    """The training with random words on a demo's pairs, and the comparison with the demo's model."""
    demo, words = runs / f"bf16-{seed}", runs / f"words-{seed}"
    held_out = ["--hold-out", str(HOLD_OUT), "--precision", "bf16", "--seed", str(seed)]
    return [
        ["train", "--data", str(demo / "pairs.tsv"), *held_out, *WORDS, "--output", str(words)],
        ["compare", str(words), str(demo / RUN), "--output", str(comparison)],
    ]


def _demo_command(precision: str, seed: int, folder: Path) -> list[str]:
    return ["demo", "--seed", str(seed), "--precision", precision, "--output", str(folder)]


def _save(file: Path, found: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
