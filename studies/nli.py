"""sbert and scl on SNLI from two initial encoders, three seeds each, on the seven STS tasks; writes docs/results.md.

    python studies/nli.py run --raw FOLDER    does the runs missing from studies/results/nli
    python studies/nli.py unseen              scores the pairs that no setting has seen, into studies/unseen
    python studies/nli.py report              compares, and writes docs/results.md from the result files only

Needs NEARFAR_DATA. FOLDER is the second initial encoder, a transformers masked language model. Two runs in parallel,
each with one thread.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import unseen
from common import HERE, SEEDS, TASKS, compared, load, nearfar, results_of, scores, spread, table

from nearfar.disk import write_text
from nearfar.evaluation.results import EvaluationResult

RESULTS = results_of("nli")
PAGE = HERE.parent / "docs" / "results.md"

ROWS = ("--data", "snli:dev+test", "--evaluate-on", "stsb:dev", "--precision", "bf16", "--checkpoint-every", "1000")
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
    parser.add_argument("command", choices=("run", "unseen", "report"))
    parser.add_argument("--raw", help="folder of the second initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel runs, one thread each")
    parser.add_argument("--only", nargs="*", help="settings to run, by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/nli"), help="folder for the run folders")
    options = parser.parse_args()
    if options.command == "run":
        jobs = [job for job in _jobs(options.raw) if not options.only or _setting(job[0]) in options.only]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: _run(job, options.runs), jobs))
    elif options.command == "unseen":
        for start, settings in SETTINGS.items():
            methods = dict.fromkeys(UNTRAINED[start]) | {name: flags[0] for name, flags in settings.items()}
            found = {name: unseen.Setting(_files(start, name), method) for name, method in methods.items()}
            unseen.write(f"nli-{start}", found, _pairs(start))
    else:
        report()


def _jobs(raw: str | None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield name, training arguments (none for an untrained row) and evaluation arguments of each result file."""
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
        nearfar(name, *command)
    if training:  # keep the training record with the scores
        run_info = json.loads((runs / name / "run.json").read_text(encoding="utf-8"))
        write_text(RESULTS / f"{name}.run.json", json.dumps(run_info, indent=1) + "\n")


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
    result = EvaluationResult.load(RESULTS / "minilm-untrained.json")
    rows = []
    for task, published in PUBLISHED.items():
        estimate = result.tasks[task].spearman.all
        ours = f"{estimate.score:.2f} [{estimate.low:.1f}, {estimate.high:.1f}]"
        rows.append([task, f"{published:.2f}", ours, f"{estimate.score - published:+.3f}"])
    return [
        "## Published scores, reproduced",
        "",
        "sentence-transformers/all-MiniLM-L6-v2, mean pooling, Spearman x 100 over `all` pairs; published in MTEB.",
        "",
        *table(["task", "published", "ours [95%]", "difference"], rows),
        "",
    ]


def _study() -> list[str]:
    run_info = _load("minilm-scl-1.run")
    before, seen = (HERE / "nli.md").read_text(encoding="utf-8").split("<!-- tables -->")
    lines = ["## sbert and scl on SNLI", "", before.strip(), ""]
    lines += ["Spearman x 100, `all`; mean and standard deviation over the seeds. The average is over the seven tasks."]
    for start, settings in SETTINGS.items():
        rows = []
        for setting in (*UNTRAINED[start], *settings):
            rows.append([setting, *map(spread, zip(*scores(_files(start, setting)), strict=True))])
        lines += ["", f"### From {_title(start)}", "", *table(["setting", *TASKS, "average"], rows), ""]
        lines += _differences(start)
        lines += ["", *unseen.tables(f"nli-{start}")]
        lines += ["", "STS-B dev by step, mean over the seeds:", "", *(_trajectory(start, name) for name in settings)]
    lines += ["", "### Findings", "", seen.strip()]
    hardware = run_info["hardware"]
    lines += ["", "Rows: " + "; ".join(line.split("/")[-1] for line in run_info["data"]) + "."]
    lines += [
        f"Versions: {json.dumps(run_info['versions'])}. Hardware: {json.dumps(hardware)}. Commit {run_info['commit']}."
    ]
    return lines


def _trajectory(start: str, setting: str) -> str:
    """Format the dev scores of a setting during training."""
    run_infos = [_load(f"{file.stem}.run") for file in _files(start, setting)]
    points = [(0, mean(100 * run_info["start_score"] for run_info in run_infos))]
    for index, (step, _) in enumerate(run_infos[0]["history"]):
        points.append((step, mean(100 * run_info["history"][index][1] for run_info in run_infos)))
    return f"- {setting}: " + ", ".join(f"{score:.2f} at {step}" for step, score in points)


def _pairs(start: str) -> list[tuple[str, str]]:
    """Return the settings to compare."""
    settings = list(SETTINGS[start])
    pairs = [(setting, "untrained") for setting in settings]
    return pairs + [(second, first) for index, first in enumerate(settings) for second in settings[index + 1 :]]


def _differences(start: str) -> list[str]:
    rows = []
    for first, second in _pairs(start):
        file = RESULTS / f"compare-{start}-{first}-{second}.json"
        comparison = compared(file, _files(start, first), _files(start, second))
        overall = comparison.overall
        seeds = overall.seeds
        worse = [task for task, row in comparison.tasks.items() if row.separable and row.difference < 0]
        better = [task for task, row in comparison.tasks.items() if row.separable and row.difference > 0]
        interval = f"{overall.difference:+.2f} [{overall.low:+.2f}, {overall.high:+.2f}]"
        over_seeds = f"{seeds.p:.3f}" if seeds else ""
        rows.append(
            [
                f"{first} - {second}",
                interval,
                f"{overall.p:.4f}",
                over_seeds,
                ", ".join(better),
                ", ".join(worse),
                unseen.difference(f"nli-{start}", first, second)[0],
            ]
        )
    header = [
        "difference",
        "average [95%]",
        "p over pairs",
        "p over seeds",
        "significantly better on",
        "significantly worse on",
        "average on unseen pairs [95%]",
    ]
    return table(header, rows)


def _title(start: str) -> str:
    return {"minilm": "all-MiniLM-L6-v2", "raw": "the raw encoder (a masked language model)"}[start]


def _files(start: str, setting: str) -> list[Path]:
    if setting in UNTRAINED[start]:
        return [RESULTS / f"{start}-{setting}.json"]
    return [RESULTS / f"{start}-{setting}-{seed}.json" for seed in SEEDS]


def _load(name: str) -> dict[str, Any]:
    return load(RESULTS / f"{name}.json")


if __name__ == "__main__":
    main()
