"""Every method from one start, three seeds each, on the seven STS tasks; writes docs/methods.md.

    python studies/methods.py run --raw FOLDER    trains and evaluates what studies/results/methods does not hold yet
    python studies/methods.py report              compares, and writes the page from the result files alone

Needs NEARFAR_DATA. FOLDER holds the start, a plain transformers encoder that is a language model only. Two runs go
side by side, each with one thread.
"""

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import SEEDS, TASKS, call, nearfar

from nearfar.disk import write_text

HERE = Path(os.path.relpath(Path(__file__).parent))  # relative, as result files tell the command
RESULTS = HERE / "results" / "methods"

RUN = ("--precision", "bf16", "--checkpoint-every", "1000")
SENTENCES = ("--data", "sentences", "--limit", "10000")
CAPTIONS = ("--data", "flickr8k", "--limit", "10000")
TRIPLETS = ("--data", "snli:dev+test", "--batch-size", "64", "--epochs", "1", "--evaluate-every", "33")
SETTINGS: dict[str, tuple[str, ...]] = {
    "simcse-unsup": ("simcse-unsup", *SENTENCES, "--evaluate-every", "40"),
    "sg-opt": ("sg-opt", *SENTENCES, "--evaluate-every", "125"),
    "sg": ("sg", *SENTENCES, "--evaluate-every", "125"),
    "sg-opt1": ("sg-opt1", *SENTENCES, "--evaluate-every", "125"),
    "sg-opt2": ("sg-opt2", *SENTENCES, "--evaluate-every", "125"),
    "bt": ("bt", *CAPTIONS, "--evaluate-every", "125"),
    "bt+sg-opt": ("bt+sg-opt", *CAPTIONS, "--evaluate-every", "125"),
    "info-nce": ("info-nce", *CAPTIONS, "--pooling", "cls", "--evaluate-every", "40"),
    "simcse-sup": ("simcse-sup", *TRIPLETS),
    "mnrl": (),
    "supcon-text": ("supcon-text", "--data", "trec", "--pooling", "cls", "--evaluate-every", "22"),
    "regression": ("regression", "--epochs", "1", "--pooling", "cls", "--evaluate-every", "90"),
}
UNTRAINED = {"untrained-cls": "cls", "untrained-mean": "mean", "untrained-first-last": "first_last"}


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--raw", help="folder of the start")
    parser.add_argument("--workers", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--only", nargs="*", help="settings to run, by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"), help="where run folders go")
    options = parser.parse_args()
    jobs = [job for job in _jobs() if not options.only or job[0] in options.only]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(lambda job: _run(*job, options.raw, options.runs), jobs))


def _jobs() -> Iterator[tuple[str, int]]:
    """Setting and seed of each result file; untrained rows have the seed 0."""
    for seed in SEEDS:
        for setting in SETTINGS:
            yield setting, seed
        if seed == 1:
            yield from ((setting, 0) for setting in UNTRAINED)


def file_of(setting: str, seed: int) -> Path:
    """Where a result is."""
    return RESULTS / (f"{setting}-{seed}.json" if seed else f"{setting}.json")


def _run(setting: str, seed: int, raw: str, runs: Path) -> None:
    file = file_of(setting, seed)
    if file.exists():
        return
    evaluate = ("--tasks", *TASKS, "--name", file.stem, "--output", str(file))
    if setting in UNTRAINED:
        nearfar(file.stem, "evaluate", raw, "--pooling", UNTRAINED[setting], *evaluate)
        return
    folder = runs / file.stem
    if not (folder / "run.json").exists():
        given = ("--model", raw, "--seed", str(seed), "--output", str(folder))
        if setting == "mnrl":
            call(file.stem, str(HERE / "mnrl.py"), "--data", "snli:dev+test", *given)
        else:
            resume = ("--resume",) if (folder / "config.toml").exists() else ()
            nearfar(file.stem, "train", *SETTINGS[setting], *RUN, *given, *resume)
    nearfar(file.stem, "evaluate", str(folder), *evaluate)
    write_text(file.with_suffix(".run.json"), (folder / "run.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
