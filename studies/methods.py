"""Methods from one initial encoder, three seeds each, on the seven STS tasks; writes docs/methods-compared.md.

    python studies/methods.py run --raw FOLDER    does the runs missing from studies/results/methods
    python studies/methods.py unseen              scores the pairs that no method has seen, into studies/unseen
    python studies/methods.py report              compares, and writes the page from the result files only

Needs NEARFAR_DATA. FOLDER is the initial encoder, a transformers masked language model. Two runs in parallel, each with
one thread.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import unseen
from common import HERE, SEEDS, TASKS, call, compared, load, nearfar, results_of, scores, spread, table

from nearfar.disk import write_text

RESULTS = results_of("methods")
NLI = HERE / "results" / "nli"
PAGE = HERE.parent / "docs" / "methods-compared.md"

RUN = ("--evaluate-on", "stsb:dev", "--precision", "bf16", "--checkpoint-every", "1000")
SENTENCES = ("--data", "sentences", "--limit", "10000")
CAPTIONS = ("--data", "flickr8k", "--limit", "10000")
TRIPLETS = ("--data", "snli:dev+test", "--batch-size", "64", "--epochs", "1", "--evaluate-every", "33")
SETTINGS: dict[str, tuple[str, ...]] = {
    "simcse-unsup": ("simcse-unsup", *SENTENCES, "--evaluate-every", "52"),
    "sg-opt": ("sg-opt", *SENTENCES, "--evaluate-every", "156"),
    "sg": ("sg", *SENTENCES, "--evaluate-every", "156"),
    "sg-opt1": ("sg-opt1", *SENTENCES, "--evaluate-every", "156"),
    "sg-opt2": ("sg-opt2", *SENTENCES, "--evaluate-every", "156"),
    "bt": ("bt", *CAPTIONS, "--evaluate-every", "156"),
    "bt+sg-opt": ("bt+sg-opt", *CAPTIONS, "--evaluate-every", "156"),
    "info-nce": ("info-nce", *CAPTIONS, "--pooling", "cls", "--evaluate-every", "52"),
    "simcse-sup": ("simcse-sup", *TRIPLETS),
    "mnrl": (),
    "supcon-text": ("supcon-text", "--data", "trec", "--pooling", "cls", "--evaluate-every", "28"),
    "regression": ("regression", "--epochs", "1", "--pooling", "cls", "--evaluate-every", "120"),
}
ABLATIONS: dict[str, tuple[str, ...]] = {
    "sg-opt-temperature-0.05": (*SETTINGS["sg-opt"], "--temperature", "0.05"),
    "sg-opt-learning-rate-2e-5": (*SETTINGS["sg-opt"], "--learning-rate", "2e-5"),
    "sg-opt-view-pooling-mean": (*SETTINGS["sg-opt"], "--view-pooling", "mean"),
    "simcse-sup-mlp-none": (*SETTINGS["simcse-sup"], "--mlp", "none"),
    "simcse-unsup-pooling-mean": (*SETTINGS["simcse-unsup"], "--pooling", "mean"),
}
"""Ablations with one seed each, where an ordering differs from the papers'."""
UNTRAINED = {"untrained-cls": "cls", "untrained-mean": "mean", "untrained-first-last": "first_last"}
TABLES = {
    "Trained on 10,000 unlabelled sentences": (*UNTRAINED, "sg", "sg-opt1", "sg-opt2", "sg-opt", "simcse-unsup"),
    "Trained on 10,000 pairs of captions of the same photo (instead of back-translations)": (
        "bt",
        "bt+sg-opt",
        "info-nce",
    ),
    "Trained on rows of SNLI dev and test": ("sbert", "scl", "simcse-sup", "mnrl"),
    "Trained on other labels": ("supcon-text", "regression"),
}
DIFFERENCES = (
    ("sg", "untrained-cls"),
    ("sg-opt1", "sg"),
    ("sg-opt2", "sg-opt1"),
    ("sg-opt", "sg-opt2"),
    ("sg-opt", "sg"),
    ("sg-opt", "untrained-cls"),
    ("simcse-unsup", "untrained-cls"),
    ("simcse-unsup", "sg-opt"),
    ("bt+sg-opt", "bt"),
    ("info-nce", "bt"),
    ("simcse-sup", "untrained-cls"),
    ("simcse-sup", "mnrl"),
    ("simcse-sup", "scl"),
    ("scl", "sbert"),
    ("regression", "mnrl"),
    ("mnrl", "sg-opt1"),
    ("simcse-sup", "simcse-unsup"),
    ("supcon-text", "untrained-cls"),
)


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "unseen", "report"))
    parser.add_argument("--raw", help="folder of the initial encoder")
    parser.add_argument("--workers", type=int, default=2, help="parallel runs, one thread each")
    parser.add_argument("--only", nargs="*", help="settings to run, by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"), help="folder for the run folders")
    options = parser.parse_args()
    if options.command == "report":
        report()
        return
    if options.command == "unseen":
        unseen.write("methods", {name: _setting(name) for name in _all_settings()}, DIFFERENCES)
        return
    jobs = [job for job in _jobs() if not options.only or job[0] in options.only]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(lambda job: _run(job[0], job[1], options.raw, options.runs), jobs))


def _jobs() -> Iterator[tuple[str, int]]:
    """Yield setting and seed of each result file; untrained rows have the seed 0."""
    for seed in SEEDS:
        for setting in SETTINGS:
            yield setting, seed
        if seed == 1:
            yield from ((setting, 0) for setting in UNTRAINED)
    yield from ((setting, 1) for setting in ABLATIONS)


def file_of(setting: str, seed: int) -> Path:
    """Return the path of a result file."""
    return RESULTS / (f"{setting}-{seed}.json" if seed else f"{setting}.json")


def _run(setting: str, seed: int, raw: str, runs: Path) -> None:
    file = file_of(setting, seed)
    if file.exists():
        return
    evaluate = (
        "--tasks",
        *TASKS,
        "--precision",
        "bf16",
        "--resamples",
        "200",
        "--name",
        file.stem,
        "--output",
        str(file),
    )
    if setting in UNTRAINED:
        nearfar(file.stem, "evaluate", raw, "--pooling", UNTRAINED[setting], *evaluate)
        return
    folder = runs / file.stem
    if not (folder / "run.json").exists():
        args = ("--model", raw, "--seed", str(seed), "--output", str(folder))
        if setting == "mnrl":
            call(file.stem, str(HERE / "mnrl.py"), "--data", "snli:dev+test", *args)
        else:
            resume = ("--resume",) if (folder / "config.toml").exists() else ()
            nearfar(file.stem, "train", *(SETTINGS | ABLATIONS)[setting], *RUN, *args, *resume)
    nearfar(file.stem, "evaluate", str(folder), *evaluate)
    write_text(file.with_suffix(".run.json"), (folder / "run.json").read_text(encoding="utf-8"))
    if (folder / "metrics.jsonl").exists():  # the dev evaluations, with geometry
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = [line for line in lines if "spearman" in json.loads(line)]
        write_text(file.with_suffix(".evaluations.jsonl"), "\n".join(found) + "\n")


def report() -> None:
    """Compare the settings and write the page."""
    before, seen = (HERE / "methods.md").read_text(encoding="utf-8").split("<!-- tables -->")
    trained = [setting for settings in TABLES.values() for setting in settings if setting in SETTINGS]
    lines = ["# Methods compared", ""]
    lines += ["Generated by `python studies/methods.py report` from the files in `studies/results`; do not edit.", ""]
    lines += [before.strip(), "", "## Findings", "", seen.strip()]
    lines += [
        "",
        "The tables show Spearman x 100, `all`, as Kim et al. 2021, Table 1: mean and standard deviation over three",
    ]
    lines += ["seeds. The average is over the seven tasks."]
    for title, settings in TABLES.items():
        lines += ["", f"## {title}", "", *_scores(settings)]
    lines += ["", "## Unseen pairs", "", *unseen.tables("methods")]
    lines += ["", "## STS12 to STS16 by wmean", "", "The aggregate of Liao 2021, Table 2.", ""]
    lines += _scores(_all_settings(), tasks=TASKS[:5], aggregate="wmean")
    lines += [
        "",
        "## Ablations",
        "",
        "One run each with seed 1, and the run with the defaults and the same seed.",
        "",
        *_ablation_rows(),
    ]
    lines += ["", "## Differences", "", *_differences(), "", "## Geometry", "", *_geometry()]
    lines += ["", "## STS-B dev by step", "", "Mean over the seeds.", "", *map(_trajectory, trained), ""]
    run_info = load(RESULTS / "sg-opt-1.run.json")
    lines += [f"Versions: {json.dumps(run_info['versions'])}. Hardware: {json.dumps(run_info['hardware'])}."]
    commits = {load(file)["commit"] for file in sorted(RESULTS.glob("*.run.json"))}
    lines += [f"Commits: {', '.join(sorted(commits))}."]
    write_text(PAGE, "\n".join(lines) + "\n")


def _scores(settings: Sequence[str], *, tasks: Sequence[str] = TASKS, aggregate: str = "all") -> list[str]:
    found = [scores(_files(setting), tasks=tasks, aggregate=aggregate) for setting in settings]
    rows = [[name, *map(spread, zip(*one, strict=True))] for name, one in zip(settings, found, strict=True)]
    return table(["setting", *tasks, "average"], rows)


def _ablation_rows() -> list[str]:
    rows = []
    for setting in dict.fromkeys(key for name in ABLATIONS for key in (_default_of(name), name)):
        (found,) = scores([file_of(setting, 1)])
        best = load(file_of(setting, 1).with_suffix(".run.json"))["best_score"]
        rows.append([setting, *(f"{score:.2f}" for score in found), f"{100 * best:.2f}"])
    return table(["setting", *TASKS, "average", "STS-B dev, best"], rows)


def _default_of(tried: str) -> str:
    return max((name for name in SETTINGS if tried.startswith(name)), key=len)


def _files(setting: str) -> list[Path]:
    if setting in UNTRAINED:
        return [file_of(setting, 0)]
    if setting in SETTINGS:
        return [file_of(setting, seed) for seed in SEEDS]
    return [NLI / f"raw-{setting}-{seed}.json" for seed in SEEDS]


def _all_settings() -> list[str]:
    return [setting for settings in TABLES.values() for setting in settings]


def _setting(name: str) -> unseen.Setting:
    method = "simcse-sup" if name == "mnrl" else name  # mnrl has the triplets of simcse-sup
    return unseen.Setting(_files(name), None if name in UNTRAINED else method)


def _differences() -> list[str]:
    rows = []
    for first, second in DIFFERENCES:
        found = compared(RESULTS / f"compare-{first}-{second}.json", _files(first), _files(second))
        overall, seeds = found.overall, found.overall.seeds
        interval = f"{overall.difference:+.2f} [{overall.low:+.2f}, {overall.high:+.2f}]"
        over_seeds = f"{seeds.p:.3f}" if seeds else ""
        on_unseen = unseen.difference("methods", first, second)
        rows.append([f"{first} - {second}", interval, f"{overall.p:.4f}", over_seeds, *on_unseen])
    tests = ["average [95%]", "p over pairs", "p over seeds"]
    return table(["difference", *tests, *(f"unseen: {test}" for test in tests)], rows)


def _geometry() -> list[str]:
    """Geometry of the embeddings of STS-B dev, before training and at the selected step."""
    names = ("alignment", "uniformity", "mean_cosine", "effective_rank")
    rows: list[list[str]] = []
    for setting in [setting for settings in TABLES.values() for setting in settings if setting in SETTINGS]:
        files = [file.with_suffix(".evaluations.jsonl") for file in _files(setting)]
        if not all(file.exists() for file in files):
            continue
        runs = [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files]
        kept = [[line for line in run if line["best"]][-1] for run in runs]
        for title, lines in ((f"untrained, pooled as {setting}", [run[0] for run in runs]), (setting, kept)):
            row = [f"{mean(line[name] for line in lines):.2f}" for name in names]
            if all(row != known[1:] for known in rows):
                rows.append([title, *row])
    return table(["", *(name.replace("_", " ") for name in names)], rows)


def _trajectory(setting: str) -> str:
    """Format the dev scores of a setting during training."""
    run_infos = [load(file.with_suffix(".run.json")) for file in _files(setting)]
    steps: dict[int, Sequence[float]] = {}
    for step in dict.fromkeys(step for run_info in run_infos for step, _ in run_info["history"]):
        steps[step] = [100 * dict(map(tuple, run_info["history"]))[step] for run_info in run_infos]
    start = [100 * run_info["start_score"] for run_info in run_infos if "start_score" in run_info]
    points = ({0: start} if start else {}) | steps
    return f"- {setting}: " + ", ".join(f"{mean(values):.2f} at {step}" for step, values in points.items())


if __name__ == "__main__":
    main()
