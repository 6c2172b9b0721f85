"""Quality of the fast settings: bf16 and batches by premise, each alone and both, against fp32 and shuffled rows.

    python studies/fast.py run --raw FOLDER    does the runs missing from studies/results/fast
    python studies/fast.py unseen              scores the pairs that no setting has seen, into studies/unseen
    python studies/fast.py report              compares, and writes docs/fast-quality.md from the result files only

Needs NEARFAR_DATA. FOLDER is the initial encoder, a transformers masked language model. Three seeds per setting; two
runs in parallel, each with one thread. The report includes a setting once all its seeds are done.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import unseen
from common import HERE, SEEDS, TASKS, compared, load, nearfar, results_of, scores, spread, table

from nearfar.disk import write_text

RESULTS = results_of("fast")
PAGE = HERE.parent / "docs" / "fast-quality.md"

METHODS = {  # name on the page -> arguments
    "scl": ("scl",),
    "scl-contradiction": ("scl", "--hard-negatives", "contradiction"),
    "sbert": ("sbert",),
}
PLAIN = "plain"
SETTINGS = {  # the slowest first, so that all workers finish at about the same time
    PLAIN: ("--precision", "fp32", "--order", "rows"),
    "premise": ("--precision", "fp32", "--order", "premise"),
    "bf16": ("--precision", "bf16", "--order", "rows"),
    "fast": ("--precision", "bf16", "--order", "premise"),
}
DATA = "snli:dev+test"
INTRODUCTION = (
    "With its fastest settings (*fast*), `nearfar train` computes in bfloat16 and keeps the rows of a premise in one",
    "batch, which encodes the premise once, with one dropout sample. The baseline, *plain*, uses float32 and shuffled",
    "rows, so that a batch rarely contains a text twice. The rows *bf16* and *premise* change one of the two settings.",
    "Everything else is equal: the initial encoder (a MiniLM, a masked language model without further training), the",
    f"rows ({DATA}, one epoch, batches of 64), and each method's defaults. `scl-contradiction` is `scl` with",
    "`--hard-negatives contradiction`: the neutral hypotheses of an anchor's own premise are not negatives. Batches by",
    "premise contain all of these hypotheses, shuffled batches hardly any. STS-B dev chose the step of each run. It",
    "contains 2 to 19 percent of the test pairs of STS12 to STS16; on the other pairs the findings are the same.",
)


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "unseen", "report"))
    parser.add_argument("--raw", help="folder of the initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel runs, one thread each")
    parser.add_argument("--only", nargs="*", choices=METHODS, default=METHODS, help="methods to run, by default all")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=SETTINGS, help="by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/fast"), help="folder for the run folders")
    options = parser.parse_args()
    if options.command == "unseen":
        pairs = _done_pairs()
        settings = {_name(*pair): unseen.Setting(_files(*pair), METHODS[pair[0]][0]) for pair in pairs}
        unseen.write("fast", settings, [(_name(*pair), _name(pair[0], PLAIN)) for pair in pairs if pair[1] != PLAIN])
        return
    if options.command == "run":
        if options.raw is None:
            parser.error("run needs --raw, the folder of the initial encoder")
        jobs = [(method, name, seed) for method in options.only for name in options.settings for seed in SEEDS]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: _run(*job, options.raw, options.runs), jobs))
    report()


def file_of(method: str, setting: str, seed: int) -> Path:
    """Return the path of a result file."""
    return RESULTS / f"{method}-{setting}-{seed}.json"


def _run(method: str, setting: str, seed: int, raw: str, runs: Path) -> None:
    file = file_of(method, setting, seed)
    if file.exists():
        return
    folder = runs / file.stem
    if not (folder / "run.json").exists():
        given = (
            "--model",
            raw,
            "--data",
            DATA,
            "--evaluate-on",
            "stsb:dev",
            "--seed",
            str(seed),
            "--output",
            str(folder),
        )
        resume = ("--resume",) if (folder / "config.toml").exists() else ()
        nearfar(file.stem, "train", *METHODS[method], *SETTINGS[setting], "--checkpoint-every", "1000", *given, *resume)
    nearfar(file.stem, "evaluate", str(folder), "--tasks", *TASKS, "--name", file.stem, "--output", str(file))
    write_text(file.with_suffix(".run.json"), (folder / "run.json").read_text(encoding="utf-8"))


def report() -> None:
    """Compare the settings and write the page."""
    pairs = _done_pairs()
    compared = [pair for pair in pairs if pair[1] != PLAIN]
    if not compared:
        raise SystemExit(f"{RESULTS} has no method with all its results; create them with python studies/fast.py run")
    lines = ["# Quality of the fast settings", ""]
    lines += ["Generated by `python studies/fast.py report` from the files in `studies/results/fast`; do not edit.", ""]
    lines += [*INTRODUCTION, ""]
    lines += ["Spearman x 100, `all`; mean and standard deviation over three seeds. The average is over the tasks."]
    rows = [
        [_name(method, setting), *map(spread, zip(*scores(_files(method, setting)), strict=True))]
        for method, setting in pairs
    ]
    lines += ["", *table(["", *TASKS, "average"], rows), ""]
    on_unseen = "average on unseen pairs [95%]"
    header = [f"minus {PLAIN}", "average [95%]", "p over pairs", "p over seeds", "significant loss", on_unseen]
    lines += [*table(header, [_difference(*pair) for pair in compared]), ""]
    lines += ["The interval is over pairs of sentences. The test over three seeds has less power."]
    lines += ["", "## Unseen pairs", "", *unseen.tables("fast")]
    run_infos = [load(file.with_suffix(".run.json")) for pair in pairs for file in _files(*pair)]
    commits = sorted({run_info["commit"] for run_info in run_infos})
    lines += [
        "",
        f"Versions: {json.dumps(run_infos[0]['versions'])}. Hardware: {json.dumps(run_infos[0]['hardware'])}.",
    ]
    lines += [f"Commits: {', '.join(commits)}."]
    write_text(PAGE, "\n".join(lines) + "\n")


def _difference(method: str, setting: str) -> list[str]:
    file = RESULTS / f"compare-{method}-{setting}.json"
    found = compared(file, _files(method, setting), _files(method, PLAIN))
    overall = found.overall
    interval = f"{overall.difference:+.2f} [{overall.low:+.2f}, {overall.high:+.2f}]"
    loss = "yes" if overall.high < 0 else "no"
    on_unseen = unseen.difference("fast", _name(method, setting), _name(method, PLAIN))[0]
    return [_name(method, setting), interval, f"{overall.p:.4f}", f"{overall.seeds.p:.3f}", loss, on_unseen]


def _name(method: str, setting: str) -> str:
    return f"`{method}` {setting}"


def _done_pairs() -> list[tuple[str, str]]:
    """Return method and setting of all that have their results."""
    return [(method, name) for method in METHODS if _done(method, PLAIN) for name in SETTINGS if _done(method, name)]


def _done(method: str, setting: str) -> bool:
    return all(file.exists() for file in _files(method, setting))


def _files(method: str, setting: str) -> list[Path]:
    return [file_of(method, setting, seed) for seed in SEEDS]


if __name__ == "__main__":
    main()
