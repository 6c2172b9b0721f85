"""sbert and scl on SNLI rows from two starts, three seeds each, on the seven STS tasks; writes docs/results.md.

    python studies/nli.py run --raw FOLDER    trains and evaluates what studies/results/nli does not hold yet
    python studies/nli.py report              compares, and writes docs/results.md from the result files alone

Needs NEARFAR_DATA. FOLDER holds the second start, a plain transformers encoder that is a language model only. Two runs
go side by side, each with one thread.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from nearfar.compare import compare
from nearfar.disk import write_text

HERE = Path(os.path.relpath(Path(__file__).parent))  # relative, as result files tell the command
RESULTS = HERE / "results" / "nli"
PAGE = HERE.parent / "docs" / "results.md"

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
SEEDS = (1, 2, 3)
ROWS = ("--data", "snli:dev+test", "--precision", "bf16", "--checkpoint-every", "1000")
STARTS = {"minilm": "sentence-transformers/all-MiniLM-L6-v2", "raw": None}
LARGE = ("--similarity", "cosine", "--temperature", "0.05", "--scl-weight", "1", "--batch-size", "256")
SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "minilm": {
        "sbert": ("sbert", "--pooling", "own"),
        "scl": ("scl", "--pooling", "own"),
        "scl-cosine-256": ("scl", "--pooling", "own", *LARGE, "--evaluate-every", "20"),
    },
    "raw": {"sbert": ("sbert",), "scl": ("scl",)},
}
UNTRAINED = {
    "minilm": {"untrained": ()},
    "raw": {"untrained": ("--pooling", "mean_without_cls"), "untrained-cls": ("--pooling", "cls")},
}
PUBLISHED = {
    "sts12": 72.37,
    "sts13": 80.60,
    "sts14": 75.59,
    "sts15": 85.39,
    "sts16": 78.99,
    "stsb": 82.03,
    "sickr-full": 77.58,
}


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--raw", help="folder of the second start")
    parser.add_argument("--workers", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--only", nargs="*", help="settings to run, by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/nli"), help="where run folders go")
    options = parser.parse_args()
    if options.what == "run":
        jobs = [job for job in _jobs(options.raw) if not options.only or _setting(job[0]) in options.only]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: _run(job, options.runs), jobs))
    else:
        report()


def _jobs(raw: str | None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Name, training arguments (none for an untrained row) and evaluation arguments of each result file."""
    for start, model in {**STARTS, "raw": raw}.items():
        if model is None:
            continue
        for setting, flags in UNTRAINED[start].items():
            tasks = (*TASKS, "sickr-full") if start == "minilm" else TASKS
            yield f"{start}-{setting}", [], [model, *flags, "--tasks", *tasks]
    for seed in SEEDS:
        for start, model in {**STARTS, "raw": raw}.items():
            for setting, flags in SETTINGS[start].items():
                if model is not None:
                    train = [*flags, "--model", model, *ROWS, "--seed", str(seed)]
                    yield f"{start}-{setting}-{seed}", train, ["--tasks", *TASKS]


def _setting(name: str) -> str:
    """``minilm-scl-cosine-2`` -> ``scl-cosine``."""
    setting = name.split("-", 1)[1]
    return setting.rsplit("-", 1)[0] if setting[-1].isdecimal() else setting


def _run(job: tuple[str, list[str], list[str]], runs: Path) -> None:
    name, training, evaluation = job
    file = RESULTS / f"{name}.json"
    if file.exists():
        return
    commands = []
    if training:
        folder = runs / name
        resume = ["--resume"] if (folder / "config.toml").exists() else []
        if not (folder / "run.json").exists():
            commands.append(["train", *training, "--output", str(folder), *resume])
        commands.append(["evaluate", str(folder), *evaluation])
    else:
        commands.append(["evaluate", *evaluation])
    commands[-1] += ["--name", name, "--output", str(file)]
    for command in commands:
        print("nearfar", *command, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "nearfar", *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name}: {done.stdout[-500:]}\n{done.stderr[-2000:]}")
    if training:  # how it was trained, beside how it scored
        account = json.loads((runs / name / "run.json").read_text(encoding="utf-8"))
        write_text(RESULTS / f"{name}.run.json", json.dumps(account, indent=1) + "\n")


def report() -> None:
    """Compare the settings and write the page."""
    lines = [
        "# Results",
        "",
        "Generated by `python studies/nli.py report` from the files in `studies/results/nli`; do not edit.",
        "",
    ]
    lines += _published()
    lines += _study()
    write_text(PAGE, "\n".join(lines) + "\n")


def _published() -> list[str]:
    result = _load("minilm-untrained")
    rows = []
    for task, published in PUBLISHED.items():
        estimate = result["tasks"][task]["spearman"]["all"]
        ours = f"{estimate['score']:.2f} [{estimate['low']:.1f}, {estimate['high']:.1f}]"
        rows.append([task, f"{published:.2f}", ours, f"{estimate['score'] - published:+.3f}"])
    return [
        "## Published scores, reproduced",
        "",
        "sentence-transformers/all-MiniLM-L6-v2, mean pooling, Spearman x 100 over `all` pairs; published by MTEB.",
        "",
        *_table(["task", "published", "ours [95%]", "difference"], rows),
        "",
    ]


def _study() -> list[str]:
    account = _load("minilm-scl-1.run")
    before, seen = (HERE / "nli.md").read_text(encoding="utf-8").split("<!-- tables -->")
    lines = ["## sbert and scl on SNLI rows", "", before.strip(), ""]
    lines += ["Spearman x 100, `all`; mean and standard deviation over the seeds. The average is over the seven tasks."]
    for start, settings in SETTINGS.items():
        rows = []
        for setting in (*UNTRAINED[start], *settings):
            results = [_load(file.stem) for file in _files(start, setting)]
            scores = [[r["tasks"][task]["spearman"]["all"]["score"] for task in TASKS] for r in results]
            scores = [[*row, mean(row)] for row in scores]
            rows.append([setting, *(_spread(column) for column in zip(*scores, strict=True))])
        lines += ["", f"### From {_title(start)}", "", *_table(["setting", *TASKS, "average"], rows), ""]
        lines += _differences(start)
        lines += ["", "STS-B dev by step, mean over the seeds:", "", *(_trajectory(start, name) for name in settings)]
    lines += ["", "### What was seen", "", seen.strip()]
    hardware = account["hardware"]
    lines += ["", "Rows: " + "; ".join(line.split("/")[-1] for line in account["data"]) + "."]
    lines += [
        f"Versions: {json.dumps(account['versions'])}. Hardware: {json.dumps(hardware)}. Commit {account['commit']}."
    ]
    return lines


def _trajectory(start: str, setting: str) -> str:
    """The dev score of a setting as it trained."""
    accounts = [_load(f"{file.stem}.run") for file in _files(start, setting)]
    points = [(0, mean(100 * account["start_score"] for account in accounts))]
    for place, (step, _) in enumerate(accounts[0]["history"]):
        points.append((step, mean(100 * account["history"][place][1] for account in accounts)))
    return f"- {setting}: " + ", ".join(f"{score:.2f} at {step}" for step, score in points)


def _differences(start: str) -> list[str]:
    settings = list(SETTINGS[start])
    pairs = [(setting, "untrained") for setting in settings]
    pairs += [(second, first) for place, first in enumerate(settings) for second in settings[place + 1 :]]
    rows = []
    for first, second in pairs:
        comparison = compare(_files(start, first), _files(start, second), tasks=TASKS, progress=False)
        write_text(RESULTS / f"compare-{start}-{first}-{second}.json", json.dumps(comparison, indent=1) + "\n")
        overall = comparison["overall"]
        seeds = overall["seeds"]
        worse = [task for task, row in comparison["tasks"].items() if row["separable"] and row["difference"] < 0]
        better = [task for task, row in comparison["tasks"].items() if row["separable"] and row["difference"] > 0]
        interval = f"{overall['difference']:+.2f} [{overall['low']:+.2f}, {overall['high']:+.2f}]"
        over_seeds = f"{seeds['p']:.3f}" if seeds else ""
        rows.append(
            [f"{first} - {second}", interval, f"{overall['p']:.4f}", over_seeds, ", ".join(better), ", ".join(worse)]
        )
    header = [
        "difference",
        "average [95%]",
        "p over pairs",
        "p over seeds",
        "separably better on",
        "separably worse on",
    ]
    return _table(header, rows)


def _title(start: str) -> str:
    return {"minilm": "all-MiniLM-L6-v2", "raw": "the raw start (a masked language model)"}[start]


def _files(start: str, setting: str) -> list[Path]:
    if setting in UNTRAINED[start]:
        return [RESULTS / f"{start}-{setting}.json"]
    return [RESULTS / f"{start}-{setting}-{seed}.json" for seed in SEEDS]


def _load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _spread(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.2f} ({stdev(values):.2f})"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


if __name__ == "__main__":
    main()
