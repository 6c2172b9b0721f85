"""Mined hard negatives, and their scores: training on pairs alone against the triplets of one round of `nearfar mine`.

    python studies/mining.py                                    does the runs missing from studies/results/mining
    python studies/mining.py --sets student --start FOLDER      the same for an encoder that is worse than the miner

Needs NEARFAR_DATA. Three seeds per arm; two runs in parallel, each with one thread. docs/results.py compares them and
fills docs/mining-quality.md and docs/methods/teacher-scores.md.
"""

import argparse
import csv
import json
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common import HERE, SEEDS, if_committed, load, nearfar

from nearfar.data.fingerprints import normalize_for_hash
from nearfar.disk import write_text
from nearfar.evaluation.results import provenance

RESULTS = if_committed(HERE / "results" / "mining")
BASE = "sentence-transformers/all-MiniLM-L6-v2"
DISTRACTORS = 2500
BATCH = 64
TRAIN, TEST, CORPUS, TRIPLETS = "train.tsv", "test.tsv", "corpus.tsv", "triplets-{}.tsv"


class DataSet(NamedTuple):
    """A data set of pairs, how many of them are trained on and tested, and the arms that are run by default."""

    file: str
    train: int
    test: int
    arms: tuple[str, ...] = ("pairs", "mined")
    training: tuple[str, ...] = ()
    """Arguments of training, of all arms."""


class Arm(NamedTuple):
    """What is mined, and how it is trained on."""

    mine: tuple[str, ...] | None
    """Arguments of mine; None for pairs alone."""
    train: tuple[str, ...] = ("info-nce",)
    negatives: int = 1
    """Rows of a query."""


_CAPTIONS = "text/flickr8k_captions.tsv"  # the first caption of a photo finds the second
SETS = {
    "captions": DataSet(_CAPTIONS, 2500, 1000),
    "questions": DataSet("glue/QNLI/dev.tsv", 1500, 500),  # a question finds the sentence that answers it
    "student": DataSet(
        _CAPTIONS,
        2500,
        1000,
        ("pairs", "mined", "kl", "kl-pairs", "margin-pairs"),
        ("--learning-rate", "2e-4", "--pooling", "mean"),
    ),
}
_SCORED, _TAUGHT, _PAIRS_TOO = ("--negatives", "4", "--with-scores"), "teacher-scores", ("--in-batch-weight", "1")
ARMS = {
    "pairs": Arm(None),
    "mined": Arm(()),
    "filled": Arm(("--fill-random",)),
    "kl": Arm(_SCORED, (_TAUGHT,), 4),
    "kl-pairs": Arm(_SCORED, (_TAUGHT, *_PAIRS_TOO), 4),
    "margin-pairs": Arm(_SCORED, (_TAUGHT, "--objective", "margin-mse", *_PAIRS_TOO), 4),
}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="parallel runs, one thread each")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=["captions"], help="by default captions")
    parser.add_argument("--start", help="the folder of the student")
    parser.add_argument("--runs", type=Path, default=Path("runs/mining"), help="folder for rows and run folders")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        _prepare(name, options.runs / name)
    for name in options.sets:
        if (model := options.start if name == "student" else BASE) is None:
            raise SystemExit("student needs --start FOLDER")
        jobs = [("untrained", 0), *((arm, seed) for seed in SEEDS for arm in SETS[name].arms)]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(partial(_run, name, model, options.runs), jobs))


def _prepare(name: str, folder: Path) -> None:
    """Write the rows, mine from the training rows, and record what was mined."""
    counts = _split(name, folder)
    for arm in SETS[name].arms:
        arguments, record = ARMS[arm].mine, RESULTS / f"{name}-{arm}.mine.json"
        if arguments is None or record.exists():
            continue
        triplets = folder / TRIPLETS.format(arm)
        given = ("--model", BASE, "--data", str(folder / TRAIN), "--output", str(triplets), "--overwrite")
        nearfar("mine", *given, *arguments)
        header, rows = triplets.read_text(encoding="utf-8").split("\n", 1)
        write_text(triplets, f"{header.replace('similarity', 'score')}\n{rows}")  # the miner is the teacher
        summary = load(Path(f"{triplets}.summary.json"))
        del summary["examples"]  # texts of the data set
        leaked = _mined_test_texts(triplets, folder / TEST)
        if leaked:
            raise SystemExit(f"{triplets}: {leaked} negatives are held-out texts.")
        found = {**provenance().to_dict(), "rows": counts, "mined_held_out_texts": leaked, "summary": summary}
        write_text(record, json.dumps(found, indent=1) + "\n")


def _split(name: str, folder: Path) -> dict[str, int]:
    """Write training pairs, test pairs without any text of a training pair, and further documents."""
    chosen = SETS[name]
    pairs, others = _pairs(name, Path(os.environ["NEARFAR_DATA"]) / chosen.file)
    random.Random(0).shuffle(pairs)
    test = pairs[: chosen.test]
    tested = {normalize_for_hash(text) for pair in test for text in pair}
    usable = [pair for pair in pairs[chosen.test :] if tested.isdisjoint(map(normalize_for_hash, pair))]
    train, rest = usable[: chosen.train], usable[chosen.train :]
    relevant = {normalize_for_hash(positive) for _, positive in test}
    documents = {normalize_for_hash(text): text for text in (*(positive for _, positive in [*train, *rest]), *others)}
    corpus = [text for key, text in documents.items() if key not in relevant][:DISTRACTORS]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / TRAIN, ("anchor", "positive"), train)
    _write(folder / TEST, ("anchor", "positive"), test)
    _write(folder / CORPUS, ("text",), [(text,) for text in corpus])
    return {"train": len(train), "test": len(test), "distractors": len(corpus)}


def _pairs(name: str, file: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Return pairs, one for each photo or question, and the other documents of the data set."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    if SETS[name].file == _CAPTIONS:
        captions: dict[str, list[str]] = {}
        for row in rows:
            captions.setdefault(row["image"], []).append(row["caption"])
        return [(texts[0], texts[1]) for texts in captions.values() if len(texts) > 1], []
    answered = [(row["question"], row["sentence"]) for row in rows if row["label"] == "entailment"]
    return answered, [row["sentence"] for row in rows if row["label"] != "entailment"]


def _write(file: Path, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    write_text(file, "".join("\t".join(cells) + "\n" for cells in (header, *rows)))


def _mined_test_texts(triplets: Path, test: Path) -> int:
    """Count the triplets whose negative has the letters and digits of a test anchor or positive."""
    tested = {normalize_for_hash(text) for row in _read(test) for text in row}
    return sum(normalize_for_hash(row[2]) in tested for row in _read(triplets))


def _read(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]


def file_of(name: str, arm: str, seed: int) -> Path:
    """Return the path of a result file."""
    return RESULTS / (f"{name}-untrained.json" if arm == "untrained" else f"{name}-{arm}-{seed}.json")


def _run(name: str, model: str, runs: Path, job: tuple[str, int]) -> None:
    arm, seed = job
    file, rows = file_of(name, arm, seed), runs / name
    if file.exists():
        return
    training = ["--model", model, "--seed", str(seed)]
    if arm != "untrained":
        folder = runs / file.stem
        model = str(folder)
        if not (folder / "run.json").exists():
            resume = ("--resume",) if (folder / "config.toml").exists() else ()
            nearfar("train", *_training(name, rows, arm), *training, "--output", model, *resume)
    given = ("--retrieval", str(rows / TEST), "--corpus", str(rows / CORPUS))
    nearfar("evaluate", model, *given, "--name", file.stem, "--output", str(file))
    if arm != "untrained":
        write_text(file.with_suffix(".run.json"), (Path(model) / "run.json").read_text(encoding="utf-8"))


def _training(name: str, rows: Path, arm: str) -> list[str]:
    """Return the arguments of training: each arm takes the steps of one epoch over the pairs, and keeps the last.

    A batch has as many queries in all arms.
    """
    method, *settings = ARMS[arm].train
    steps, size = -(-len(_read(rows / TRAIN)) // BATCH), ARMS[arm].negatives * BATCH
    given = [method, *settings, *SETS[name].training, "--batch-size", str(size), "--epochs", "9"]
    given += ["--max-steps", str(steps), "--hold-out", "0", "--keep", "last"]
    if arm == "pairs":
        return [*given, "--data", str(rows / TRAIN)]
    columns = ["--negative-column", "negative"] if method == "info-nce" else []
    return [*given, "--data", str(rows / TRIPLETS.format(arm)), *columns]


if __name__ == "__main__":
    main()
