"""Cross-entropy against cross-entropy + SCL: few-shot, noisy data, other domains; writes docs/finetuning-measured.md.

    python studies/finetune.py run --raw FOLDER    does the runs missing from studies/results/finetune
    python studies/finetune.py report              writes the page from the result files only

Needs NEARFAR_DATA. FOLDER is a transformers masked language model; the other initial encoder is all-MiniLM-L6-v2. Two
studies run in parallel, each with one thread; an interrupted study is resumed.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import HERE, SEEDS, nearfar, results_of, table

from nearfar.disk import write_text
from nearfar.evaluation.results import EvaluationResult, ScoreSummary, StudyResult

RESULTS = results_of("finetune")
PAGE = HERE.parent / "docs" / "finetuning-measured.md"

PUBLISHED = "sentence-transformers/all-MiniLM-L6-v2"
STARTS = {"minilm": PUBLISHED, "raw": "{raw}"}
TITLES = {"minilm": "all-MiniLM-L6-v2", "raw": "the language model"}
SHORT = ("--learning-rate", "1e-4", "--max-steps", "80", "--epochs", "1000", "--evaluate-every", "20")
PAIRS = ("--learning-rate", "1e-4", "--max-steps", "40", "--epochs", "1000", "--evaluate-every", "20")
"""Half the steps for pairs, because rows and test sets take about three times as long."""
BF16 = ("--precision", "bf16")
HELD_OUT = ("--splits", "held-out")
"""500 training rows are the validation set; GLUE's validation set is the test set."""
NOISES = "none,word-dropout:0.3,characters:0.15"
STUDIES: dict[str, tuple[str, ...]] = {
    **{
        f"few-shot-{task}-{start}": (task, "--few-shot", "20,100", *steps, "--model", model)
        for task, steps in (("sst2", SHORT), ("mrpc", PAIRS), ("rte", PAIRS))
        for start, model in STARTS.items()
    },
    "noise-sst2-minilm": ("sst2", "--few-shot", "100", "--noises", NOISES, *SHORT, "--model", PUBLISHED),
    "transfer-amazon2": ("amazon2", "--few-shot", "40", *SHORT, "--max-length", "128"),
    "transfer-yelp2": ("yelp2", "--few-shot", "40", *SHORT, "--max-length", "128"),
    "grid-sst2-minilm": (
        *("sst2", "--sample-size", "100", "--samples", "3", "--model", PUBLISHED, *SHORT),
        *("--scl-weights", "0.1,0.3,0.5,0.7,0.9,1", "--temperatures", "0.1,0.3,0.5,0.7"),
    ),
}
SST2 = ("sst2", "--limit", "10000", "--epochs", "1", "--learning-rate", "5e-5", "--evaluate-every", "125")
REGRESSION = ("stsb", "--epochs", "2", "--learning-rate", "5e-5", "--evaluate-every", "120", "--warmup", "0.06")
PAPER = {
    "few-shot-sst2": {"20 rows": (85.9, 88.1), "100 rows": (91.1, 92.8)},
}
"""Accuracy of CE and CE+SCL with RoBERTa-large (Gunel et al. 2021, table of few-shot results)."""


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--raw", help="folder of the language model")
    parser.add_argument("--workers", type=int, default=2, help="parallel studies, one thread each")
    parser.add_argument("--only", nargs="*", help="names of studies to run, by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/finetune"), help="folder for the run folders")
    options = parser.parse_args()
    if options.command == "report":
        report()
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = [*STUDIES, *_regressions()]
    chosen = [name for name in names if not options.only or any(name.startswith(one) for one in options.only)]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(lambda name: _run(name, options.raw, options.runs), chosen))


def _run(name: str, raw: str, runs: Path) -> None:
    kept = RESULTS / f"{name}.json"
    if kept.exists():
        return
    folder = runs / name
    if name.startswith("stsb-"):
        _, start, seed = name.split("-")
        model = STARTS[start].format(raw=raw)
        _finetune(name, folder, *REGRESSION, "--model", model, "--seed", seed)
        write_text(kept, (folder / "result.json").read_text(encoding="utf-8"))
        return
    words = [word.format(raw=raw) for word in STUDIES[name]]
    if name.startswith("transfer-"):
        for loss, weight in (("ce", "0"), ("scl", "0.9")):
            before = runs / f"sst2-{loss}"
            _finetune(f"sst2-{loss}", before, *SST2, *HELD_OUT, "--model", PUBLISHED, "--scl-weight", weight)
        words += ["--model", str(runs / "sst2-ce" / "model"), "--scl-model", str(runs / "sst2-scl" / "model")]
    _finetune(name, folder, *words, *HELD_OUT)
    write_text(kept, (folder / "study.json").read_text(encoding="utf-8"))
    if (folder / "grid.png").exists():
        shutil.copyfile(folder / "grid.png", PAGE.parent / "finetuning-grid.png")


def _finetune(name: str, folder: Path, *words: str) -> None:
    if (folder / "study.json").exists() or (folder / "run.json").exists():
        return
    resume = ("--resume",) if (folder / "config.toml").exists() else ()
    nearfar(name, "finetune", *words, *BF16, "--output", str(folder), *resume)


def report() -> None:
    """Write the page from the result files."""
    before, seen = (HERE / "finetune.md").read_text(encoding="utf-8").split("<!-- tables -->")
    lines = ["# Fine-tuning results", ""]
    lines += ["Generated by `python studies/finetune.py report` from `studies/results/finetune`; do not edit.", ""]
    lines += [before.strip(), "", "## Findings", "", seen.strip()]
    studies = {
        name: StudyResult.load(RESULTS / f"{name}.json") for name in STUDIES if (RESULTS / f"{name}.json").exists()
    }
    for kind, title in (
        ("few-shot", "Few-shot training"),
        ("noise", "Noise in 100 training rows"),
        ("transfer", "Transfer from SST-2 to reviews, 20 rows per label"),
    ):
        held = {name: study for name, study in studies.items() if name.startswith(kind)}
        if held:
            lines += ["", f"## {title}", "", *_table(held)]
    if "grid-sst2-minilm" in studies:
        lines += ["", "## Lambda and temperature", "", *_grid(studies["grid-sst2-minilm"])]
    lines += ["", "## Regression on STS-B", "", *_regression()]
    entries = [
        EvaluationResult.load(RESULTS / f"{name}.json")
        for name in _regressions()
        if (RESULTS / f"{name}.json").exists()
    ]
    first = next(iter(studies.values())).provenance
    lines += [
        "",
        f"Versions: {json.dumps(first.versions)}. Hardware: {json.dumps(first.hardware)}, one thread per run.",
    ]
    commits = {str(cell.commit) for study in studies.values() for cell in study.cells}
    commits |= {str(entry.provenance.commit) for entry in entries}
    write_text(PAGE, "\n".join([*lines, f"Commits: {', '.join(sorted(commits))}.", ""]))


def _regressions() -> list[str]:
    return [f"stsb-{start}-{seed}" for start in STARTS for seed in SEEDS]


def _table(studies: dict[str, StudyResult]) -> list[str]:
    """One row per setting: both losses, their difference, and the paper's scores."""
    rows = []
    for name, study in studies.items():
        kind, _, start = name.rpartition("-")
        for row in study.settings:
            variants, difference = row.variants, row.difference
            metric = difference.metric
            cells = [_spread(held.test[metric]) for held in variants.values()]
            cells += [_spread(held.top3[metric]) for held in variants.values()]
            paper = next((two for size, two in PAPER.get(kind, {}).items() if row.setting.startswith(size)), None)
            rows.append(
                [
                    f"{study.config['task']}, {TITLES.get(start, 'from SST-2')}: {row.setting}",
                    *cells,
                    f"{difference.difference:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]",
                    *(f"{p:.4f}" for p in (difference.p, difference.p_holm, difference.p_ranks)),
                    "" if paper is None else f"{paper[0]:.1f}, {paper[1]:.1f}",
                ]
            )
    header = ["accuracy", "CE", "CE+SCL", "CE, top 3", "CE+SCL, top 3", "CE+SCL - CE [95%]"]
    return table([*header, "p, paired t", "p (Holm)", "p, Wilcoxon", "paper: CE, CE+SCL"], rows)


def _grid(study: StudyResult) -> list[str]:
    variants = study.settings[0].variants
    rows = [[name, f"{held.validation:.2f}", _spread(held.test["accuracy"])] for name, held in variants.items()]
    lines = table(["SST-2, 100 rows", "validation", "test accuracy"], rows)
    chosen = study.chosen[1]
    best = _spread(variants[chosen].test["accuracy"])
    return [
        *lines,
        "",
        f"Selected by validation score: {chosen}, {best} on test.",
        "",
        "![grid](finetuning-grid.png)",
    ]


def _regression() -> list[str]:
    rows = []
    for start, title in TITLES.items():
        files = [RESULTS / f"stsb-{start}-{seed}.json" for seed in SEEDS]
        entries = [EvaluationResult.load(file).transfer.tasks["stsb"] for file in files if file.exists()]
        if entries:
            scores = {metric: [entry.metric(metric).score for entry in entries] for metric in ("pearson", "spearman")}
            rows.append([title, str(len(entries)), *map(_format_values, scores.values())])
    return table(["STS-B test", "seeds", "Pearson", "Spearman"], rows)


def _format_values(values: Sequence[float]) -> str:
    return _spread(ScoreSummary.from_values(values))


def _spread(spread: ScoreSummary) -> str:
    return f"{spread.mean:.2f}" + ("" if spread.sd is None else f" ({spread.sd:.2f})")


if __name__ == "__main__":
    main()
