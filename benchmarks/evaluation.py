"""Evaluation speed: all tasks; batched probes against one classifier at a time; SBERT-WK against mean pooling.

    python benchmarks/evaluation.py run       needs NEARFAR_DATA; writes benchmarks/results/evaluation.json
    python benchmarks/evaluation.py report    fills its place in docs/costs.md from that file alone

The peer of the probes is the reference implementation of SentEval's protocol in the tests: torch's layer and Adam in a
loop over folds and penalties, as in SentEval. Both sides get the same rows of one task, with 5 folds to limit the time:
105 classifiers. The sides are interleaved in one process; the first round is a warm-up.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import common
import numpy as np
from common import MODEL, ROOT
from numpy.typing import NDArray

from nearfar import Encoder
from nearfar.baselines.sbert_wk import SbertWk
from nearfar.commands.evaluate import evaluate
from nearfar.data.labelled import load_transfer
from nearfar.data.rows import load_sentences
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.probes import inner_kfold

PAGE = common.Page("evaluation", "costs")
PROBED, FOLDS = "cr", 5
TEXTS = 1000
SUITES = (
    ("sts", "fp32", "senteval"),
    ("sts", "bf16", "senteval"),
    ("all", "bf16", "senteval"),
    ("all", "bf16", "exact"),
)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides."""
    rounds = options.rounds
    record = common.record(model=MODEL, rounds=rounds, texts=TEXTS, probed=PROBED, folds=FOLDS)
    record["classifiers"] = FOLDS * (4 * FOLDS) + FOLDS
    record["sbert_wk"] = _rounds(*_sbert_wk(), rounds)
    record["probes"] = _rounds(*_probes(), 3)
    record["suites"] = [_suite(*settings) for settings in SUITES]
    return record


Round = Callable[[int], object]


def _rounds(ours: tuple[str, Round], theirs: tuple[str, Round], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, with the two sides interleaved."""
    return common.run_interleaved({name: common.timed(work) for name, work in (ours, theirs)}, rounds)


def _sbert_wk() -> tuple[tuple[str, Round], tuple[str, Round]]:
    encoder = Encoder.from_pretrained(MODEL)
    sbert_wk, texts = SbertWk(encoder, layer_start=4), [row[0] for row in load_sentences("wiki").rows]

    def of_round(number: int) -> list[str]:
        return texts[number * TEXTS : (number + 1) * TEXTS]

    return ("SBERT-WK", lambda number: sbert_wk(of_round(number))), (
        "mean pooling",
        lambda number: encoder.encode(of_round(number), precision="fp32"),
    )


def _probes() -> tuple[tuple[str, Round], tuple[str, Round]]:
    sys.path.insert(0, str(ROOT))
    references = importlib.import_module("tests.reference_senteval")
    pool = load_transfer(PROBED).splits["all"]
    features = Encoder.from_pretrained(MODEL).encode([row[0] for row in pool.texts], precision="fp32")
    labels = np.array(pool.targets, dtype=np.intp)
    probe = Probe(folds=FOLDS)
    found: dict[str, float] = {}

    def batched(_: int) -> None:
        found["batched"] = inner_kfold(features, labels, classes=2, probe=probe).accuracy

    def one_by_one(_: int) -> None:
        accuracy, *_rest = references.inner_kfold(features, labels, folds=FOLDS)
        if abs(accuracy - found["batched"]) > 0.3:
            raise SystemExit(f"the two sides differ: {found['batched']} and {accuracy}")

    return ("batched", batched), ("one by one", one_by_one)


def _suite(suite: str, precision: str, protocol: str) -> dict[str, object]:
    """Seconds of one evaluation without intervals, and of the encoding within it."""
    encoder, encoding = Encoder.from_pretrained(MODEL), [0.0]

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        started = time.perf_counter()
        vectors = encoder.encode(texts, precision=precision)  # type: ignore[arg-type]
        encoding[0] += time.perf_counter() - started
        return vectors

    started = time.perf_counter()
    result = evaluate(encode, suite=suite, protocol=protocol, resamples=0, progress=False)  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    tasks = len(result.all_tasks)
    settings = {"suite": suite, "precision": precision, "protocol": protocol, "tasks": tasks, "texts": result.texts}
    return settings | {"seconds": seconds, "encoding": encoding[0]}


def body(record: dict[str, Any]) -> list[str]:
    """The time of each suite, and of two measures beside another way to compute them."""
    suites = [
        (
            *(row["suite"], row["precision"], row["protocol"] if row["suite"] == "all" else "", row["tasks"]),
            *(f"{row['texts']:,}", f"{row['seconds']:.0f}", f"{row['encoding']:.0f}"),
        )
        for row in record["suites"]
    ]
    header = ("suite", "precision", "probes", "tasks", "distinct texts", "seconds", "seconds of encoding")
    lines = common.table(header, suites, words=3)
    for what, measured in (
        (f"{record['classifiers']} probes of {record['probed'].upper()}", record["probes"]),
        (f"{record['texts']:,} sentences (SBERT-WK from layer 4)", record["sbert_wk"]),
    ):
        (ours, our_seconds), (other, other_seconds) = measured.items()
        times = common.spread(common.ratios(other_seconds, our_seconds))
        sides = f"{ours} in {median(our_seconds):.2f} s, {other} in {median(other_seconds):.2f} s"
        lines += ["", f"{what}: {sides}, {times} times as fast."]
    return lines


if __name__ == "__main__":
    common.main(PAGE, __doc__, run, body, common.Sizes("rounds", "rounds of SBERT-WK; the probes have 3", 5, 1))
