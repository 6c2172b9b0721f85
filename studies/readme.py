"""The README's rows of results: no training, sentence-transformers' loss and nearfar as its user gets it, by test unit.

    python studies/readme.py run [ROW...] --seeds 3    trains and evaluates what is missing
    python studies/readme.py report                    writes claims.json from the committed scores

`run` needs NEARFAR_DATA, keeps each run below runs/readme, and collects a row into studies/results/readme: ROW.parquet
has a score of each test unit by each run, ROW.json says where it is from. One training runs at a time, in fp32 with one
thread. The columns are those of `nearfar compare`: system (start, peer, ours), seed, task, unit (the position in the
test file, from 0), cluster (units that share a text, or are of one photo, are in one), score. Similarity has cosine and
gold in place of score: Spearman's correlation is no mean over units.

`report` counts the settings that each side was given on held-out data, in the choices of these rows, and says which of
the peer's is the best there. The peer gets more by `python studies/tables.py readme-ROW-choice`, which trains on fewer
rows in fp32 with one thread. Then write the best into ROWS, remove runs/readme/ROW/peer-*, and run the row. A
difference to the peer has a verdict where the peer had at least as many settings, or is ahead; else the claim is that
to no training.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import HERE, ROOT, load, nearfar, results_of

from nearfar.data.fingerprints import normalize_for_hash, units_of_rows
from nearfar.data.labelled import load_transfer
from nearfar.data.retrieval import load_retrieval
from nearfar.data.rows import load_task
from nearfar.disk import write_text
from nearfar.evaluation.correlation import Floats, weighted_spearman
from nearfar.evaluation.statistics import crossed_difference, holm, percent, units_to_tell, verdict

START = "sentence-transformers/all-MiniLM-L6-v2"
RESULTS = results_of("readme")
RUNS = ROOT / "runs" / "readme"
SYSTEMS = ("start", "peer", "ours")
CHOICES = RESULTS.parent / "choices.csv"
PRESENT = "present"
"""The setting of the peer in a choice that is the one in :data:`ROWS`, beside which others are tried."""
RESAMPLES = 5000
MARGIN = 0.005
"""The margin of verdicts, where scores are from 0 to 1."""
BLOCK = 16
"""Resamples that are drawn together."""
STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
UNITS = ("system", "seed", "task", "unit")
Units = dict[tuple[str, int], int]
"""Task and position of a test unit -> its cluster."""


class Row(NamedTuple):
    """A row of the README: what both sides train on, what the peer needs besides, and how both are tested."""

    rows: str
    metric: str
    data: str
    """The rows of both sides; a folder in BEIR's layout is documents, of which pairs are made."""
    peer: tuple[str, ...]
    """The peer's loss and settings: the best of the choices, by what the row is tested by, that train on these rows."""
    test: tuple[str, ...]
    choices: tuple[str, ...]
    """The choices that tried settings of both sides on such rows; without any, each side has its one setting."""
    page: str
    note: str
    limit: int | None = None
    not_counted: tuple[str, ...] = ()
    """Rows of the choices that repeat a setting, or train on other texts as well."""
    trials: int = 0
    """Looks at the test that no record tells of."""


def _test(*flags: str) -> tuple[str, ...]:
    return (*flags, "--precision", "fp32", "--resamples", "0")


_STEP = ("--evaluate-on", "stsb-clean:dev", "--warmup", "0.1")
_LAST = (*_STEP, "--keep", "last", "--evaluate-every", "1000")
_LOOKED_AT = "The seven tasks have been looked at by many earlier studies here, none of which chose these settings."
ROWS = {
    "pairs": Row(
        "pairs: two captions of a photo",
        "MRR@10, captions of other photos",
        "flickr8k",
        ("mnrl-pairs", *_LAST, "--learning-rate", "5e-5"),
        _test("--retrieval", "flickr8k:test"),
        ("recipes-pairs-minilm-choice", "recipes-pairs-minilm-more-choice", "readme-pairs-choice"),
        "docs/measured/pairs.md",
        "10,000 pairs; nearfar holds 500 of them out. The peer is MultipleNegativesRankingLoss at 5e-5, of its "
        "settings on these pairs the best by captions of other photos. Queries of one photo are one unit.",
        10_000,
        ("mnrl", "mnrl-simcse", "alone", "sentences"),
    ),
    "documents": Row(
        "documents without labels: Cranfield",
        "nDCG@10, real queries",
        "ir/cranfield",
        ("mnrl-pairs", *_LAST, "--learning-rate", "5e-5"),
        _test("--retrieval", "ir/cranfield"),
        (),
        "docs/measured/pairs.md#pairs-made-of-documents",
        "Pairs are title and crop, and two crops, of a document, drawn anew for each seed and the same for both sides; "
        "nearfar holds some of them out. Both sides have one setting: nearfar what it takes for pairs, "
        "MultipleNegativesRankingLoss the library's learning rate, 5e-5, with batches of 64 for one epoch as nearfar. "
        "An earlier trial of such pairs looked at these queries.",
        trials=1,
    ),
    "labels": Row(
        "texts with labels: TREC",
        "accuracy of a probe",
        "trec",
        ("batch-semi-hard", *_LAST, "--epochs", "3", "--learning-rate", "1e-4"),
        _test("--tasks", "trec", "--protocol", "exact"),
        ("recipes-labels-minilm-choice", "readme-labels-choice"),
        "docs/measured/labels.md",
        "Three epochs on the 5,452 training questions, of which nearfar holds some out. Test questions that are "
        "training questions too are left out. The peer is BatchSemiHardTripletLoss at 1e-4, its best on other "
        "training questions.",
    ),
    "nli": Row(
        "NLI rows: SNLI's dev and test split",
        "Spearman, mean of seven STS tasks",
        "snli:dev+test",
        ("mnrl", *_STEP, "--evaluate-every", "15", "--learning-rate", "5e-5"),
        _test("--tasks", *STS),
        ("recipes-nli-minilm-choice", "recipes-nli-minilm-start-choice", "readme-nli-choice"),
        "docs/measured/nli.md",
        "nearfar has all labels, and holds some rows out; the peer is MultipleNegativesRankingLoss on the triplets of "
        f"these rows, whose step dev pairs of STS-B choose. {_LOOKED_AT}",
        not_counted=("mnrl-1e-5", "scl-2e-5"),
    ),
    "sentences": Row(
        "sentences alone",
        "Spearman, mean of seven STS tasks",
        "sentences",
        ("simcse", *_STEP, "--evaluate-every", "32", "--learning-rate", "1e-5"),
        _test("--tasks", *STS),
        ("recipes-sentences-minilm-choice", "recipes-sentences-minilm-more-choice", "readme-sentences-choice"),
        "docs/measured/sentences.md",
        "10,000 sentences. The peer is SimCSE, MultipleNegativesRankingLoss of each sentence with itself, whose step "
        "dev pairs of STS-B choose: the better one of the two peers of an earlier test, although Contrastive Tension "
        f"was 0.2 points ahead of it on dev pairs. {_LOOKED_AT}",
        10_000,
        ("recipe",),
    ),
}


# --- runs ---


def run(names: Sequence[str], seeds: int) -> None:
    """Train and evaluate what is missing, one after the other, and collect each row."""
    for name in names:
        for side, seed in [("start", 0), *((side, seed) for seed in range(1, seeds + 1) for side in SYSTEMS[1:])]:
            folder = RUNS / name / f"{side}-{seed}"
            if not (folder / "evaluation.json").exists():
                _run(name, side, seed, folder)
        collect(name)


def _run(name: str, side: str, seed: int, folder: Path) -> None:
    row = ROWS[name]
    model = START
    if side != "start":
        data = _pairs_of(name, seed) if _is_folder(row) else row.data
        shared = ["--model", START, "--data", str(data), "--output", str(folder), "--seed", str(seed)]
        shared += ["--precision", "fp32", *(["--limit", str(row.limit)] if row.limit else [])]
        model = str(folder / "model")
        if side == "ours":
            nearfar("train", *shared)
        else:
            _peer("--loss", *row.peer, "--pooling", "own", *shared)
    test = [str(_data(flag)) if flag == row.data and _is_folder(row) else flag for flag in row.test]
    folder.mkdir(parents=True, exist_ok=True)
    nearfar("evaluate", model, *test, "--output", str(folder / "evaluation.json"))


def _peer(*words: str) -> None:
    """Train by sentence-transformers, with one thread."""
    command = [sys.executable, str(HERE / "peers" / "losses.py"), *words]
    print(*command[1:], flush=True)
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL)


def _data(name: str) -> Path:
    return Path(os.environ["NEARFAR_DATA"]) / name


def _is_folder(row: Row) -> bool:
    return "/" in row.data


def _pairs_of(name: str, seed: int) -> Path:
    """A file of pairs made of the documents of a collection."""
    file = RUNS / name / f"pairs-{seed}.tsv"
    lines = (_data(ROWS[name].data) / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    pairs = document_pairs([(document["title"], document["text"]) for document in documents], seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join("\t".join(pair) + "\n" for pair in [("anchor", "positive"), *pairs]))
    return file


def document_pairs(documents: Iterable[tuple[str, str]], seed: int) -> list[tuple[str, str]]:
    """Two pairs of the title and a crop, and two of two crops, of each document; a crop is two sentences in a row."""
    chance = random.Random(seed)
    pairs = []
    for title, text in documents:
        plain = [" ".join(part.replace('"', "'").split()) for part in (title, *re.split(r"(?<=[.?!])\s+", text))]
        title, *sentences = (part for part in plain if part)  # noqa: PLW2901
        sentences = [sentence for sentence in sentences if len(sentence.split()) > 3]
        if not plain[0] or not sentences:
            continue
        crops = [" ".join(sentences[first : first + 2]) for first in range(max(1, len(sentences) - 1))]
        drawn = [(title, chance.choice(crops)), (title, chance.choice(crops))]
        drawn += [tuple(chance.sample(crops, 2)) for _ in range(2) if len(crops) > 1]
        pairs += dict.fromkeys(pair for pair in drawn if pair[0] != pair[1])
    chance.shuffle(pairs)
    return pairs


# --- collecting ---


def collect(name: str) -> None:
    """Write the scores of all runs of a row to ROW.parquet, and where they are from to ROW.json."""
    folders = sorted((RUNS / name).glob("*-*/evaluation.json"), key=lambda file: SYSTEMS.index(_side_of(file)[0]))
    found = {_side_of(file): load(file) for file in folders}
    lines = [(*key, *line) for key, evaluation in found.items() for line in units(evaluation)]
    clusters, left_out = clusters_of(ROWS[name])
    if {line[2:4] for line in lines} != clusters.keys():
        raise SystemExit(f"{name}: the evaluations have not the units of the test data.")
    table = pd.DataFrame([line for line in lines if line[2:4] not in left_out], columns=[*UNITS, "score", "gold"])
    table = table.sort_values(list(UNITS), ignore_index=True)
    table.insert(4, "cluster", [clusters[key] for key in zip(table["task"], table["unit"], strict=True)])
    types = {"system": "category", "seed": "uint8", "task": "category", "unit": "int32", "cluster": "int32"}
    table = table.dropna(axis="columns").astype({**types, "score": "float32"})
    if "gold" in table:
        table = table.astype({"gold": "float32"}).rename(columns={"score": "cosine"})
    RESULTS.mkdir(parents=True, exist_ok=True)
    table.to_parquet(RESULTS / f"{name}.parquet", compression="zstd", compression_level=19, index=False)
    about = {
        "row": name,
        **{key: value for key, value in ROWS[name]._asdict().items() if key in _OF_RUNS},
        "score": NO_MEAN if "gold" in table else "the mean over units",
        "left_out": len(left_out),
        "runs": {f"{side} {seed}": _origin(evaluation) for (side, seed), evaluation in found.items()},
    }
    write_text(RESULTS / f"{name}.json", json.dumps(about, indent=1) + "\n")


_OF_RUNS = ("rows", "metric", "data", "peer", "test", "note", "limit")
"""What a row's record tells of it."""
NO_MEAN = "Spearman's correlation of cosine and gold, the mean over tasks; no mean over units, as nearfar compare needs"


def _origin(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Date, commit, versions and hardware; the command has folders of the machine."""
    return {key: value for key, value in evaluation["provenance"].items() if key != "command"}


def _side_of(file: Path) -> tuple[str, int]:
    side, _, seed = file.parent.name.partition("-")
    return side, int(seed)


def units(evaluation: dict[str, Any]) -> Iterator[tuple[str, int, float, float | None]]:
    """Task, unit, value and gold score of the test units of an evaluation; a test task is named without its folder."""
    for task, scores in evaluation.get("retrieval", {}).items():
        for unit, value in enumerate(scores["per_query"][scores["main"]]):
            yield Path(task).name, unit, value, None
    for task, scores in evaluation["tasks"].items():
        subsets = scores["subsets"].values()
        pairs = (pair for one in subsets for pair in zip(one["gold"], one["cosines_e6"], strict=True))
        for unit, (gold, cosine) in enumerate(pairs):
            yield task, unit, cosine / 1e6, gold
    for task, scores in (evaluation.get("transfer") or {"tasks": {}})["tasks"].items():
        for unit, (gold, predicted) in enumerate(zip(scores["gold"], scores["predicted"], strict=True)):
            yield task, unit, float(gold == predicted), None


def clusters_of(row: Row) -> tuple[Units, set[tuple[str, int]]]:
    """The cluster of each test unit; and the units whose text is a training text."""
    left_out: set[tuple[str, int]] = set()
    if row.test[0] == "--retrieval":
        task = load_retrieval(str(_data(row.test[1]) if _is_folder(row) else row.test[1]))
        name, photos = Path(row.test[1]).name, {} if _is_folder(row) else _photos()
        shared = {(name, unit): (query, photos.get(query, query)) for unit, query in enumerate(task.queries)}
    elif row.data == "trec":
        splits = load_transfer("trec").splits
        trained = {normalize_for_hash(text) for (text,) in splits["train"].texts}
        shared = {("trec", unit): (text, text) for unit, (text,) in enumerate(splits["test"].texts)}
        left_out = {key for key, (text, _) in shared.items() if normalize_for_hash(text) in trained}
    else:
        shared = {
            (name, unit): (pair.first, pair.second)
            for name in STS
            for unit, pair in enumerate(chain(*load_task(name).values()))
        }
    clusters = units_of_rows(list(shared.values())) or range(len(shared))
    return dict(zip(shared, clusters, strict=True)), left_out


def _photos() -> dict[str, str]:
    """The photo of each caption; the last one of those that have the same caption."""
    lines = _data("text/flickr8k_captions.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = (line.split("\t") for line in lines)
    return {" ".join(caption.split()): image for image, caption in pairs}


# --- report ---


def report() -> None:
    """Write claims.json: each row that has scores, with the differences of ours to the peer and to the start."""
    tables = {name: RESULTS / f"{name}.parquet" for name in ROWS}
    claims = [claim(ROWS[name], pd.read_parquet(file)) for name, file in tables.items() if file.exists()]
    fair = [made for made in claims if made["settings_peer"] >= made["settings_ours"] or made["difference"] < 0]
    for unfair in (made for made in claims if made not in fair):
        unfair.update(p_holm=None, verdict=None, more_units=None)
    families = fair, [made["versus_start"] for made in claims], [made["peer_versus_start"] for made in claims]
    for family in families:
        for tested, p in zip(family, holm([tested["p"] for tested in family]), strict=True):
            said = verdict(tested["low"], tested["high"], p_holm=p)
            more = tested["more_units"] if said == "cannot tell" else None
            tested |= {"p_holm": round(p, 6), "verdict": said, "more_units": more}
    write_text(RESULTS / "claims.json", json.dumps(claims, indent=1) + "\n")
    for name in ROWS:
        if told := best_of_peer(name):
            print(told)


def _tried() -> pd.DataFrame:
    return pd.read_csv(CHOICES, keep_default_na=False, dtype={"setting": str})


def settings_tried(row: Row) -> tuple[int, int]:
    """How many settings of ours and of the peer's the choices tried on such rows; one each without choices."""
    known = _tried()
    own = known[known.study.isin(row.choices) & ~known.row.isin(row.not_counted) & (known.setting != PRESENT)]
    counts = own[["study", "row", "setting", "side"]].drop_duplicates().side.value_counts()
    ours, peer = (int(counts.get(side, 1)) for side in ("nearfar", "sentence-transformers"))
    return ours, peer


def looks(row: Row) -> int:
    """How many studies have seen scores of the row's test, this one among them."""
    records = RESULTS.parent.glob("*/*/study.json")
    return 1 + row.trials + sum(row.test[1] in load(record)["columns"] for record in records)


def best_of_peer(name: str) -> str | None:
    """The best setting of the peer in its own choice for a row, beside the present one; None before it was run."""
    known = _tried()
    scores = known[known.study == f"readme-{name}-choice"].groupby("setting").value.mean()
    if PRESENT not in scores:
        return None
    best = scores.idxmax()
    said = "no better setting" if best == PRESENT else f"better: {best}, {scores[best]:.2f}"
    return f"{name}: of {len(scores) - 1} further settings of the peer {said}; the present one {scores[PRESENT]:.2f}"


def claim(row: Row, table: pd.DataFrame) -> dict[str, Any]:
    """A row of the README of its table of scores."""
    numbers, cluster = np.unique(table["cluster"], return_inverse=True)
    clusters = len(numbers)
    score = _scores(table.assign(cluster=cluster))
    data = score(np.ones((1, clusters)))
    chance = np.random.default_rng(0)
    blocks = [
        score(chance.multinomial(clusters, np.full(clusters, 1 / clusters), size=BLOCK).astype(np.float64))
        for _ in range(-(-RESAMPLES // BLOCK))
    ]
    sides = {side: (data[side][:, 0], np.concatenate([block[side] for block in blocks], axis=1)) for side in SYSTEMS}
    tried = settings_tried(row)
    bound = 0.0 if "gold" in table else 1.0
    means = {side: percent(points.mean()) for side, (points, _) in sides.items()}
    return {
        "rows": row.rows,
        "metric": row.metric,
        **means,
        **_tested(sides["ours"], sides["peer"], clusters, bound),
        "runs": len(sides["ours"][0]),
        "settings_ours": tried[0],
        "settings_peer": tried[1],
        "looks": looks(row),
        "versus_start": _tested(sides["ours"], sides["start"], clusters, bound),
        "peer_versus_start": _tested(sides["peer"], sides["start"], clusters, bound),
        "page": row.page,
        "note": row.note,
    }


def _tested(first: tuple[Floats, Floats], second: tuple[Floats, Floats], clusters: int, bound: float) -> dict[str, Any]:
    """The difference of two sides, in points; its verdict waits for Holm's correction over the rows."""
    tested = crossed_difference(first, second, units=clusters, bound=bound)
    if tested is None:
        raise SystemExit("no resample has a score.")
    bounds = {key: percent(getattr(tested, key)) for key in ("difference", "low", "high")}
    return {**bounds, "p": round(tested.p, 6), "units": clusters, "more_units": units_to_tell(tested, clusters, MARGIN)}


def _scores(table: pd.DataFrame) -> Callable[[Floats], dict[str, Floats]]:
    """The function from how often each cluster is drawn [resamples, clusters] to side -> scores [runs, resamples].

    A score is the mean over tasks of the mean of the units' scores, or of Spearman's correlation of cosines with gold.
    """
    tasks = []
    for name, rows in table.groupby("task", observed=True):
        runs = dict(list(rows.sort_values("unit").groupby(["system", "seed"], observed=True)))
        units = next(iter(runs.values()))
        if any(list(run["unit"]) != list(units["unit"]) for run in runs.values()):
            raise SystemExit(f"{name}: the runs have different test units.")
        column = "cosine" if "gold" in units else "score"
        values = np.stack([run[column].to_numpy(np.float64) for run in runs.values()])
        correlate = weighted_spearman(units["gold"].to_numpy(np.float64), values) if "gold" in units else _mean(values)
        tasks.append((units["cluster"].to_numpy(), np.array([side for side, _ in runs]), correlate))

    def score(drawn: Floats) -> dict[str, Floats]:
        scored = np.mean([correlate(drawn[:, cluster]) for cluster, _, correlate in tasks], axis=0)
        return {side: scored[tasks[0][1] == side] for side in SYSTEMS}

    return score


def _mean(values: Floats) -> Callable[[Floats], Floats]:
    return lambda counts: values @ counts.T / counts.sum(axis=1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("rows", nargs="*", metavar="ROW", help=f"by default all: {', '.join(ROWS)}")
    runs.add_argument("--seeds", type=int, default=3)
    commands.add_parser("report")
    options = parser.parse_args()
    if options.command == "report":
        return report()
    for name in set(options.rows) - set(ROWS):
        parser.error(f"{name}: is not a row. Choose of {', '.join(ROWS)}.")
    return run(options.rows or list(ROWS), options.seeds)


if __name__ == "__main__":
    main()
