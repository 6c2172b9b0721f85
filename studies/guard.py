"""Training on one's own rows, with and without the guard, beside sentence-transformers: what it gains, what it loses.

    python studies/guard.py run --start FOLDER    does what is missing from studies/results/guard
    python studies/guard.py report                fills docs/measured/guard.md, and draws its picture

Six kinds of rows, each from all-MiniLM-L6-v2 and from FOLDER. `run` needs NEARFAR_DATA, with retrieval collections in
ir/cranfield and ir/cisi. The peer is the loss of sentence-transformers for the rows, by its defaults, with the first
seed. *Poisoned* are the same rows with shuffled answers, trained with the guard by the first seed: the start should be
kept. All scores are computed in bf16 where the machine has it.
"""

import argparse
import csv
import json
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from common import HERE, ROOT, filled, load, nearfar, results_of, table
from own_data import captions, entailments, questions

from nearfar.disk import write_text
from nearfar.encoder.precision import resolve
from nearfar.evaluation.plots import new_figure, save
from nearfar.evaluation.results import ComparisonResult, provenance
from nearfar.runs.folder import RUN_INFO

RESULTS, RUNS = results_of("guard"), Path("runs", "guard")
PAGE = ROOT / "docs" / "measured" / "guard.md"
PICTURE = PAGE.with_suffix(".svg")
SIMILAR = "sentence-transformers/all-MiniLM-L6-v2"
STARTS = {"minilm": "all-MiniLM-L6-v2", "poor": "the poor start"}
SEEDS = (1, 2)
STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
MNLI, CRANFIELD, CISI = "mnli:dev_matched", "ir/cranfield", "ir/cisi"
GUARDS = ("stsb-clean:dev", CRANFIELD)
"""The guard sets, relative to NEARFAR_DATA where they are folders."""
ARMS = {"plain": "nearfar", "guarded": "nearfar, with the guard", "peer": "sentence-transformers"}
POISONED = "poisoned"
PRECISION = resolve("auto")
"""The precision of all scores."""
Lines = list[tuple[str, ...]]


def children_seconds() -> float:
    """The processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def nli(rows: list[dict[str, str]]) -> Lines:
    """NLI rows as they are."""
    return [("premise", "hypothesis", "label"), *((row["premise"], row["hypothesis"], row["label"]) for row in rows)]


class Rows(NamedTuple):
    """A file of rows, the task that the training is for, and the loss of the peer."""

    title: str
    source: str
    make: Callable[[list[dict[str, str]]], Lines] | None
    """Header and rows of the file; None for documents, which are taken as they are."""
    limit: int
    task: str
    loss: str


ROWS = {
    "captions": Rows("pairs of captions", "text/flickr8k_captions.tsv", captions, 1500, "flickr8k:test", "mnrl-pairs"),
    "sick": Rows("SICK's NLI rows", "sts/SICK/train.tsv", entailments, 1500, "sickr", "mnrl-pairs"),
    "snli": Rows("SNLI rows", "nli/SNLI/dev.tsv", nli, 1500, "snli:test", "mnrl"),
    "trec": Rows("labelled questions", "senteval/TREC/train.tsv", questions, 1500, "trec", "cosine-labels"),
    "cranfield": Rows("abstracts of Cranfield", f"{CRANFIELD}/corpus.jsonl", None, 1398, CRANFIELD, "mnrl-pairs"),
    "cisi": Rows("abstracts of CISI", f"{CISI}/corpus.jsonl", None, 1460, CISI, "mnrl-pairs"),
}


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--start", help="folder of the poor start")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS), help="by default all")
    options = parser.parse_args()
    if options.command == "run":
        if options.start is None:
            raise SystemExit("run needs --start FOLDER")
        RESULTS.mkdir(parents=True, exist_ok=True)
        models = {"minilm": SIMILAR, "poor": options.start}
        for rows in options.rows:
            for start in STARTS:
                if not file_of(rows, start).exists():
                    write_text(
                        file_of(rows, start), json.dumps(Setting(rows, start, models[start]).run(), indent=1) + "\n"
                    )
    else:
        report()


def file_of(rows: str, start: str) -> Path:
    """The result file of a setting."""
    return RESULTS / f"{rows}-{start}.json"


class Setting:
    """A kind of rows from a start: its files and commands below runs/guard, where finished ones are not done again."""

    def __init__(self, rows: str, start: str, model: str) -> None:
        """Make the files of rows."""
        self.rows, self.model, self.start = ROWS[rows], model, start
        self.folder, self.before = RUNS / f"{rows}-{start}", RUNS / f"start-{start}" / f"{rows}.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.before.parent.mkdir(exist_ok=True)
        self.data = os.environ["NEARFAR_DATA"]
        self.seconds: dict[str, list[float]] = {arm: [] for arm in (*ARMS, POISONED)}
        suffix = Path(self.rows.source).suffix
        self.file, self.poisoned = (RUNS / f"{rows}{end}{suffix}" for end in ("", "-poisoned"))
        text = (Path(self.data) / self.rows.source).read_text(encoding="utf-8")
        if self.rows.make is None:
            self._write_documents(text)
        else:
            reader = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
            header, *lines = self.rows.make(list(reader))[: self.rows.limit + 1]
            answers = [line[-1] for line in lines]
            random.Random(0).shuffle(answers)
            poisoned = [(*line[:-1], answer) for line, answer in zip(lines, answers, strict=True)]
            for file, kept in ((self.file, lines), (self.poisoned, poisoned)):
                write_text(file, "".join("\t".join(cells) + "\n" for cells in (header, *kept)))

    def _write_documents(self, text: str) -> None:
        """The documents, and poisoned ones: each has sentences of all the others, and a title of another."""
        write_text(self.file, text)
        documents, draw = [json.loads(line) for line in text.splitlines()], random.Random(0)
        sentences = [one for row in documents for one in re.split(r"(?<=\.)\s+", row["text"]) if one]
        titles = [row["title"] for row in documents]
        draw.shuffle(titles)
        mixed = ({"title": title, "text": " ".join(draw.sample(sentences, 6))} for title in titles)
        write_text(self.poisoned, "".join(json.dumps(row) + "\n" for row in mixed))

    def run(self) -> dict[str, Any]:
        """Train, evaluate and compare all arms; the record of the setting."""
        self._evaluate(self.model, self.before)
        seeds = {**dict.fromkeys(("plain", "guarded"), SEEDS), **dict.fromkeys(("peer", POISONED), SEEDS[:1])}
        arms = {arm: self._compare(arm, [self._seed(arm, seed) for seed in numbers]) for arm, numbers in seeds.items()}
        return {
            **provenance().to_dict(),
            "rows": {"title": self.rows.title, "number": self.rows.limit, "task": self.rows.task},
            "start": STARTS[self.start],
            "precision": PRECISION,
            "seeds": seeds,
            "guards": list(GUARDS),
            "commands": {arm: shlex.join(self._words(arm, self.folder / f"{arm}-1", 1)) for arm in ARMS},
            "arms": arms,
            "runs": {arm: [self._of_run(arm, seed) for seed in numbers] for arm, numbers in seeds.items()},
            "seconds": self.seconds,
            "tried": {arm: [self._tried(arm, seed) for seed in seeds[arm]] for arm in ("guarded", POISONED)},
        }

    def _command(self, file: Path, run: Path, seed: int) -> list[str]:
        """Training as a user would call it."""
        verb = ["adapt", str(file)] if self.rows.make is None else ["train", "--data", str(file)]
        return [*verb, "--model", self.model, "--seed", str(seed), "--output", str(run)]

    def _guarded(self, file: Path, run: Path, seed: int) -> list[str]:
        return [*self._command(file, run, seed), "--guard", *(self._place(name) for name in GUARDS)]

    def _place(self, task: str) -> str:
        return f"{self.data}/{task}" if task in (CRANFIELD, CISI) else task

    def _peer(self, run: Path, seed: int) -> list[str]:
        """The training of the peer: its defaults, in batches of 64."""
        documents = ["--documents"] if self.rows.make is None else []
        rows = ["--loss", self.rows.loss, "--data", str(self._peers_file()), *documents]
        steps = ["--keep", "last", "--warmup", "0.1", "--evaluate-on", GUARDS[0], "--evaluate-every", "100000"]
        where = ["--model", self.model, "--output", str(run), "--seed", str(seed)]
        pooling = ["--pooling", "own" if self.start == "minilm" else "mean"]
        return [str(HERE / "peers" / "losses.py"), *where, *pooling, *rows, *steps]

    def _peers_file(self) -> Path:
        """The rows of the peer; of NLI rows whose premises have no contradiction too, the entailments as pairs."""
        header, *lines = self.file.read_text(encoding="utf-8").splitlines()
        if not (self.rows.loss == "mnrl-pairs" and header.endswith("label")):
            return self.file
        pairs = [line.removesuffix("\tentailment") for line in lines if line.endswith("\tentailment")]
        file = self.file.with_stem(f"{self.file.stem}-entailed")
        write_text(file, "\n".join(["anchor\tpositive", *pairs]) + "\n")
        return file

    def _words(self, arm: str, run: Path, seed: int) -> list[str]:
        """What python is called with to train an arm."""
        if arm == "peer":
            return self._peer(run, seed)
        file = self.poisoned if arm == POISONED else self.file
        command = self._command if arm == "plain" else self._guarded
        return ["-m", "nearfar", *command(file, run, seed)]

    def _tried(self, arm: str, seed: int) -> list[dict[str, Any]]:
        """The averages with the start that a guarded run tried; none if no step was better than the start."""
        return list(load(self.folder / f"{arm}-{seed}" / RUN_INFO).get("guard") or [])

    def _train(self, run: Path, words: Sequence[str]) -> float:
        """Train, or go on; the seconds of processor time, which are kept beside the run."""
        kept = run.with_suffix(".seconds.json")
        if not kept.exists():
            resumed = ["--resume"] if words[0] == "-m" and run.exists() else []
            print(shlex.join(words), flush=True)
            began = children_seconds()
            command = [sys.executable, *words, *resumed]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
            write_text(kept, json.dumps(round(children_seconds() - began, 1)))
        return float(kept.read_text(encoding="utf-8"))

    def _seed(self, arm: str, seed: int) -> Path:
        """The scores of a seed of an arm; its model is removed when they are there."""
        run, scores = self.folder / f"{arm}-{seed}", self.folder / arm / f"{seed}.json"
        self.seconds[arm].append(self._train(run, self._words(arm, run, seed)))
        tried = self._tried(arm, seed) if arm in ("guarded", POISONED) else []
        scores.parent.mkdir(exist_ok=True)
        if arm == "guarded" and tried and tried[-1]["kept"] and not tried[-1]["start_share"]:
            shutil.copy(self.folder / "plain" / f"{seed}.json", scores)  # the weights of the plain run
        elif arm in ("guarded", POISONED) and not (tried and tried[-1]["kept"]):
            shutil.copy(self.before, scores)  # the weights of the start
        self._evaluate(str(run / "model"), scores)
        shutil.rmtree(run / "model", ignore_errors=True)
        return scores

    def _evaluate(self, model: str, scores: Path) -> None:
        """All tasks that are looked at, and the one of the rows."""
        own = self.rows.task
        tasks = dict.fromkeys((*STS, *([own] if own == "trec" else [])))
        searched = dict.fromkeys(self._place(name) for name in (MNLI, CRANFIELD, CISI, *([own] if ":" in own else [])))
        if not scores.exists():
            asked = ["--tasks", *tasks, "--retrieval", *searched, "--precision", PRECISION]
            nearfar("evaluate", model, *asked, "--output", str(scores))

    def _of_run(self, arm: str, seed: int) -> dict[str, Any]:
        """The differences of one run to the start, by task, with intervals over pairs and queries alone."""
        return self._tests(self.folder / arm / f"{seed}.json", self.folder / f"{arm}-{seed}.json")

    def _compare(self, arm: str, scores: Sequence[Path]) -> dict[str, Any]:
        """The differences of all runs of an arm to the start, by task, with intervals over runs too."""
        return self._tests(scores[0].parent, self.folder / f"{arm}.json")

    def _tests(self, scores: Path, file: Path) -> dict[str, Any]:
        nearfar("compare", str(scores), str(self.before), "--output", str(file), "--overwrite")
        tests = ComparisonResult.load(file).to_dict()["tasks"]
        return {task.removeprefix(f"{self.data}/"): _kept(test) for task, test in tests.items()}


def report() -> None:
    """Fill the page and draw the picture from the result files."""
    records = [load(file_of(rows, start)) for rows in ROWS for start in STARTS if file_of(rows, start).exists()]
    save(picture(records), PICTURE)
    lines = [*table(HEADER, [_line(record) for record in records]), "", *_counts(records)]
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), "result", lines, PAGE))


def gains(record: dict[str, Any], arm: str) -> list[float]:
    """The change on the task of the rows, of each run."""
    return [run[record["rows"]["task"]]["difference"] for run in record["runs"][arm]]


def elsewhere(record: dict[str, Any], arm: str) -> list[dict[str, dict[str, Any]]]:
    """The differences of each run to the start on the tasks that rows are not for, and that no run is guarded by."""
    own = record["rows"]["task"]
    runs = record["runs"][arm]
    return [{task: test for task, test in run.items() if task not in (own, "average", *GUARDS)} for run in runs]


def worse(record: dict[str, Any], arm: str) -> list[dict[str, float]]:
    """Of each run the tasks elsewhere on which it is worse than its start, with an interval below zero."""
    runs = elsewhere(record, arm)
    return [{task: test["difference"] for task, test in run.items() if test["high"] < 0} for run in runs]


def _line(record: dict[str, Any]) -> list[str]:
    shares = ", ".join(map(_share, record["tried"]["guarded"]))
    ratio = mean(record["seconds"]["guarded"]) / mean(record["seconds"]["plain"])
    poisoned = "refused"
    if (share := _share(record["tried"][POISONED][0])) != "all":
        poisoned = f"{share} of the start is kept: {_lost(record, POISONED)}"
    changes = [f"{mean(gains(record, arm)):+.2f}" for arm in ARMS]
    lost = [_lost(record, arm) for arm in ARMS]
    return [record["rows"]["title"], record["start"], *changes, *lost, shares, f"{ratio:.1f}", poisoned]


def _lost(record: dict[str, Any], arm: str) -> str:
    """How many sets elsewhere the runs are worse on, and the greatest loss, in words."""
    runs = worse(record, arm)
    if not any(runs):
        return "none worse"
    task, loss = min(((task, loss) for run in runs for task, loss in run.items()), key=lambda pair: pair[1])
    return f"{' and '.join(str(len(run)) for run in runs)} worse, {Path(task).name} {loss:+.1f}"


def _share(tried: Sequence[dict[str, Any]]) -> str:
    """The share of the start in what a guarded run kept."""
    return f"{tried[-1]['start_share']:.0%}" if tried and tried[-1]["kept"] else "all"


HEADER = [
    *("rows", "start", *(f"gain: {arm}" for arm in ARMS.values()), *(f"elsewhere: {arm}" for arm in ARMS.values())),
    *("share of the start that the guard kept", "time with the guard / without", "poisoned rows"),
]


def _counts(records: Sequence[dict[str, Any]]) -> list[str]:
    """How often each arm is worse elsewhere, and what the guard leaves of the gain, in sentences."""
    lines = []
    for arm, title in ARMS.items():
        runs = [run for record in records for run in worse(record, arm)]
        sets = sum(len(run) for record in records for run in elsewhere(record, arm))
        count = f"{sum(map(bool, runs))} of {len(runs)} runs are worse than their start on a set elsewhere"
        lines.append(f"- **{title}**: {count}, on {sum(map(len, runs))} of {sets} sets.")
    left = [mean(gains(record, "guarded")) / mean(gains(record, "plain")) for record in records]
    refused = sum(_share(record["tried"][POISONED][0]) == "all" for record in records)
    whole = sum(share >= 0.95 for share in left)
    return [
        *lines,
        f"- The guard leaves at least 95% of the gain in {whole} of {len(left)} settings, and refuses poisoned rows in "
        f"{refused}.",
    ]


def picture(records: Sequence[dict[str, Any]]) -> Any:
    """Gain on the own task to the right, the mean change elsewhere up or down; a point for each run."""
    figure = new_figure(7, 4.8)
    axes = figure.subplots()
    for arm, marker in zip(ARMS, "o^x", strict=True):
        runs = [run for record in records for run in elsewhere(record, arm)]
        changes = [mean(test["difference"] for test in run.values()) for run in runs]
        own = [gain for record in records for gain in gains(record, arm)]
        axes.scatter(own, changes, marker=marker, label=ARMS[arm])
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="gain on what the rows are for, points", ylabel="mean change elsewhere, points")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _kept(test: dict[str, Any]) -> dict[str, Any]:
    """Of a comparison what the page shows."""
    return {key: test[key] for key in ("first", "second", "difference", "low", "high", "p_holm") if key in test}


if __name__ == "__main__":
    main()
