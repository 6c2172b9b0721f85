"""The demo with five seeds in fp32 and bf16: what training gains, and how long the demo takes.

    python studies/demo.py run       does the runs missing from studies/results/demo and demo-words, one after the other
    python studies/demo.py report    writes docs/demo.md from the result files only

Runs in fp32 are limited to AVX2, as on a processor without AVX-512. Runs in bf16 have all instruction sets. A second
table compares the demo's model with one that trains on random words beside the same pairs.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import HERE, load, results_of, table

from nearfar.commands.demo import HOLD_OUT, PAIRS, RUN
from nearfar.disk import write_text
from nearfar.runs.folder import HELD_OUT
from nearfar.runs.held_out import COMPARISON, TASK
from nearfar.studies.layout import p_value

RESULTS = results_of("demo")
WORDS_RESULTS = results_of("demo-words")
PAGE = HERE.parent / "docs" / "demo.md"
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
"""Flags of the runs with random words: those of docs/tables/recipes-pairs-sentences-minilm.md."""


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for the folders of the demos")
    options = parser.parse_args()
    if options.command == "run":
        for seed in SEEDS:
            for precision in ENVIRONMENTS:
                _run(precision, seed, options.runs)
            _run_words(seed, options.runs)
    report()


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
    started, used = time.perf_counter(), _processor_seconds()
    _call(command, environment)
    found = {
        "command": shlex.join(command),
        "environment": environment,
        "seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(_processor_seconds() - used, 1),
        "comparison": load(folder / RUN / HELD_OUT / COMPARISON),
    }
    _save(file, found)


def _run_words(seed: int, runs: Path) -> None:
    """Train on a demo's pairs and random words, and compare with the demo's model on the rows that both held out."""
    file = words_file_of(seed)
    if file.exists():
        return
    if not (runs / f"bf16-{seed}" / RUN).exists():
        _call(_demo_command("bf16", seed, runs / f"bf16-{seed}"), {})
    comparison = runs / f"words-{seed}.json"
    for command in _words_commands(seed, runs, comparison):
        _call(command, {})
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(comparison, file)


def _words_commands(seed: int, runs: Path, comparison: Path) -> list[list[str]]:
    """The training with random words on a demo's pairs, and the comparison with the demo's model."""
    demo, words = runs / f"bf16-{seed}", runs / f"words-{seed}"
    held_out = ["--hold-out", str(HOLD_OUT), "--precision", "bf16", "--seed", str(seed)]
    return [
        ["nearfar", "train", "--data", str(demo / "pairs.tsv"), *held_out, *WORDS, "--output", str(words)],
        ["nearfar", "compare", str(words), str(demo / RUN), "--output", str(comparison)],
    ]


def _demo_command(precision: str, seed: int, folder: Path) -> list[str]:
    return ["nearfar", "demo", "--seed", str(seed), "--precision", precision, "--output", str(folder)]


def _call(command: list[str], environment: dict[str, str]) -> None:
    print(*command, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}: {done.stdout[-500:]}\n{done.stderr[-2000:]}")


def _save(file: Path, found: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(found, indent=1) + "\n")


def _processor_seconds() -> float:
    """Return the processor time of finished child processes, user and system, over all threads."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def report() -> None:
    """Write the page."""
    found = {
        (precision, seed): load(file)
        for precision in ENVIRONMENTS
        for seed in SEEDS
        if (file := file_of(precision, seed)).exists()
    }
    if not found:
        raise SystemExit(f"{RESULTS} is empty; fill it with python studies/demo.py run")
    tests = {key: one["comparison"]["tasks"][TASK] for key, one in found.items()}
    lines = ["# The demo measured", ""]
    lines += [
        "Generated by `python studies/demo.py report` from the files in `studies/results/demo` and `demo-words`; do "
        "not edit.",
        "",
    ]
    lines += [
        f"`nearfar demo` trains all-MiniLM-L6-v2 on {PAIRS - HOLD_OUT:,} generated pairs, by `info-nce` with [the "
        "recommended settings](guides/train.md#recommended-settings), and searches for the paraphrases of "
        f"{HOLD_OUT // 2} held-out sentences among {PAIRS:,}. Each seed has its own held-out rows and training; in "
        "these runs also its own pairs, of which nearfar has those of seed 1. MRR@10 x 100; the interval is a paired "
        "bootstrap over queries, p a randomization test. Time is that of the whole demo.",
        "",
    ]
    header = ["precision, instruction sets", "seed", "before", "after", "difference [95%]", "p"]
    rows = [_row(precision, seed, found[precision, seed], test) for (precision, seed), test in tests.items()]
    lines += table([*header, "minutes", "processor minutes"], rows)
    better = sum(test["low"] > 0 for test in tests.values())
    lines += ["", f"The interval is above zero in {better} of {len(tests)} runs. {_same_scores(tests)}", ""]
    lines += _provenance(list(found.values()))
    lines += _words_section()
    write_text(PAGE, "\n".join(lines) + "\n")


def _same_scores(tests: dict[tuple[str, int], dict[str, Any]]) -> str:
    """Return the number of seeds for which all precisions have the same score after training."""
    complete = [seed for seed in SEEDS if all((precision, seed) in tests for precision in ENVIRONMENTS)]
    scores = [{tests[precision, seed]["first"] for precision in ENVIRONMENTS} for seed in complete]
    same = sum(len(found) == 1 for found in scores)
    return f"The score after training is equal in fp32 and bf16 for {same} of {len(scores)} seeds."


def _row(precision: str, seed: int, run: dict[str, Any], test: dict[str, Any]) -> list[str]:
    sets = run["comparison"]["provenance"]["hardware"]["instruction_sets"].replace(" ", ", ")
    return [
        f"{precision}, {sets}",
        str(seed),
        f"{test['second']:.2f}",
        f"{test['first']:.2f}",
        f"{test['difference']:+.2f} [{test['low']:+.2f}, {test['high']:+.2f}]",
        p_value(test["p"]),
        f"{run['seconds'] / 60:.1f}",
        f"{run['processor_seconds'] / 60:.1f}",
    ]


def _words_section() -> list[str]:
    """Return the section on random words beside the pairs; nothing if no run of it is there."""
    found = {seed: load(file) for seed in SEEDS if (file := words_file_of(seed)).exists()}
    if not found:
        return []
    tests = {seed: one["tasks"][TASK] for seed, one in found.items()}
    worse = sum(test["high"] < 0 for test in tests.values())
    rows = [
        [
            str(seed),
            f"{test['second']:.2f}",
            f"{test['first']:.2f}",
            f"{test['difference']:+.2f} [{test['low']:+.2f}, {test['high']:+.2f}]",
            p_value(test["p"]),
        ]
        for seed, test in tests.items()
    ]
    seed, first = next(iter(found.items()))
    commands = _words_commands(seed, RUNS, RUNS / f"words-{seed}.json")
    provenance = first["provenance"]
    commits = sorted({one["provenance"]["commit"] for one in found.values()})
    return [
        "",
        "## Random words beside the pairs",
        "",
        f"The same pairs in bf16, with `{' '.join(WORDS)}`, which [gains on "
        "STS](tables/recipes-pairs-sentences-minilm.md). Both models search for the same held-out paraphrases; the "
        "difference is that of the words to the demo's model. From a model that was trained on similarity, pairs train "
        "without words if `--sentences` does not name them.",
        "",
        *table(["seed", "pairs alone", "with random words", "difference [95%]", "p"], rows),
        "",
        f"The interval is below zero in {worse} of {len(tests)} runs.",
        "",
        f"Commands: {', '.join(f'`{shlex.join(command)}`' for command in commands)}. Versions: "
        f"{json.dumps(provenance['versions'])}. Hardware: {json.dumps(provenance['hardware'])}. "
        f"Commits: {', '.join(commits)}.",
    ]


def _provenance(runs: list[dict[str, Any]]) -> list[str]:
    """Return the sentences on how, where and with what the runs were done."""
    each = [run["comparison"]["provenance"] for run in runs]
    hardware = {key: value for key, value in each[0]["hardware"].items() if key != "instruction_sets"}
    return [
        "The runs were done one after the other; other programs used the same cores, so minutes are longer than on an "
        "idle machine. Processor minutes are summed over threads.",
        "",
        f"Command: `{runs[0]['command']}`. Versions: {json.dumps(each[0]['versions'])}. "
        f"Hardware: {json.dumps(hardware)}. Commits: {', '.join(sorted({one['commit'] for one in each}))}.",
    ]


if __name__ == "__main__":
    main()
