"""Mining hard negatives: `nearfar mine` against sentence-transformers' mine_hard_negatives, on the same vectors.

    python benchmarks/mining.py run       needs NEARFAR_DATA; writes benchmarks/results/mining.json
    python benchmarks/mining.py report    fills its place in docs/costs.md from that file alone

Both sides get the same texts, the same vectors (encoded once, before the measurements) and the same limits. Each
measurement runs in a process of its own, so that its peak memory can be measured. Time is counted from the texts in
memory until the triplets are made; nearfar also writes its files in that time. The sides are interleaved within a
round; the first round is a warm-up, in which their triplets are compared.
"""

import argparse
import csv
import importlib
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import torch
from common import MODEL

from nearfar.data.fingerprints import normalize_for_hash
from nearfar.data.rows import load_sentences
from nearfar.data.triplets import load_tuples
from nearfar.disk import write_table

PAGE = common.Page("mining", "costs")
SIDES = ("nearfar", "sentence-transformers")
MARGIN = 0.05
CASES: dict[str, dict[str, int]] = {
    "pairs": {"corpus": 0, "negatives": 1},
    "pairs and corpus": {"corpus": 20_000, "negatives": 5},
}


class Fixed:
    """An encoder of either library whose vectors are looked up."""

    device = torch.device("cpu")

    def __init__(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors
        self.dim = vectors.shape[1]

    def encode_query(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        """The vectors of texts."""
        found: np.ndarray = self._vectors[[self._rows[text] for text in texts]]
        return found

    encode_document = encode_query


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides."""
    rounds = options.rounds
    record: dict[str, Any] = common.record(model=MODEL, rounds=rounds, relative_margin=MARGIN, cases=[])
    with tempfile.TemporaryDirectory() as place:
        folder = options.inputs or Path(place)
        if not (folder / "inputs.json").exists():
            _write_inputs(folder, options.limit)
        measured: dict[str, dict[str, list[Any]]] = {case: {side: [] for side in SIDES} for case in CASES}
        for number in range(rounds + 1):
            for case, of_case in measured.items():
                for side in SIDES if number % 2 else SIDES[::-1]:
                    output = str(folder / f"{side}.jsonl")
                    one = common.in_process(__file__, side=side, place=str(folder), case=case, output=output)
                    if number:
                        of_case[side].append(one)
                if not number:
                    record["cases"].append({"case": case, **CASES[case], **_agreement(folder, case)})
    for row, of_case in zip(record["cases"], measured.values(), strict=True):
        row["measured"] = of_case
    return record


def _write_inputs(folder: Path, limit: int) -> None:
    """Pairs, corpora and the vectors of all texts."""
    from nearfar.encoder.encoder import Encoder  # noqa: PLC0415  (the measuring processes do not need it)

    pairs = load_tuples("flickr8k", limit=limit).rows
    most = min(max(case["corpus"] for case in CASES.values()), limit)
    corpus = [row[0] for row in load_sentences("sentences", limit=most).rows]
    texts = list(dict.fromkeys([*(text for pair in pairs for text in pair), *corpus]))
    np.save(folder / "vectors.npy", Encoder.from_pretrained(MODEL).encode(texts, normalize=True, precision="fp32"))
    inputs = {"pairs": pairs, "corpus": corpus, "texts": texts}
    (folder / "inputs.json").write_text(json.dumps(inputs), encoding="utf-8")


def measure(side: str, place: str, case: str, output: str) -> dict[str, float]:
    """Seconds and memory of mining in this process; the triplets are written to ``output``."""
    inputs = json.loads((Path(place) / "inputs.json").read_text(encoding="utf-8"))
    corpus = inputs["corpus"][: CASES[case]["corpus"]]
    model: Any = Fixed(inputs["texts"], np.load(Path(place) / "vectors.npy"))
    mine = _nearfar if side == "nearfar" else _peer
    seconds, before, triplets = mine(model, inputs["pairs"], corpus, CASES[case]["negatives"])
    peak = common.peak_mib()
    Path(output).write_text("".join(json.dumps(row) + "\n" for row in triplets), encoding="utf-8")
    return {**seconds, "peak_mib": peak, "added_mib": peak - before, "threads": torch.get_num_threads()}


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(started: tuple[float, float]) -> dict[str, float]:
    """Seconds, and seconds of processor time of all threads, since ``started``."""
    seconds, processor = (now - then for now, then in zip(_clocks(), started, strict=True))
    return {"seconds": seconds, "processor_seconds": processor}


def _nearfar(
    model: Any, pairs: list[list[str]], corpus: list[str], negatives: int
) -> tuple[dict[str, float], float, list[list[str]]]:
    command = importlib.import_module("nearfar.commands.mine")
    config = importlib.import_module("nearfar").MineConfig(
        model="fixed", data=("pairs",), output="out.tsv", negatives=negatives, relative_margin=MARGIN
    )
    model.similarity = "cosine"
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "out.tsv"
        before, started = common.peak_mib(), _clocks()
        found = command.gather(pairs, corpus)
        opened = SimpleNamespace(encoder=model, encode_texts=lambda _, texts, **how: model.encode_query(texts, **how))
        scorer = command.encode_candidates(Path(place), opened, found, config, None, progress=False)
        mined = command.find_negatives(found, scorer, config, progress=False)
        columns = list(command.COLUMNS[:3])
        write_table(output, columns, mined.triplets[columns].itertuples(index=False, name=None))
        seconds = _since(started)
        with output.open(encoding="utf-8", newline="") as file:
            triplets = list(csv.reader(file, delimiter="\t"))[1:]
    return seconds, before, triplets


def _peer(
    model: Any, pairs: list[list[str]], corpus: list[str], negatives: int
) -> tuple[dict[str, float], float, list[list[str]]]:
    datasets = importlib.import_module("datasets")
    util = importlib.import_module("sentence_transformers.util")
    model.similarity, model.similarity_pairwise = util.cos_sim, util.pairwise_cos_sim
    table = datasets.Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    table.to_pandas()  # imports pandas
    before, started = common.peak_mib(), _clocks()
    mined = util.mine_hard_negatives(
        table, model, corpus=corpus or None, relative_margin=MARGIN, num_negatives=negatives, verbose=False
    )
    seconds = _since(started)
    return seconds, before, [[row["anchor"], row["positive"], row["negative"]] for row in mined]


def _agreement(folder: Path, case: str) -> dict[str, int]:
    """The triplets of each side, and why they differ."""
    inputs = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    ours, theirs = (
        {tuple(json.loads(line)) for line in (folder / f"{side}.jsonl").read_text(encoding="utf-8").splitlines()}
        for side in SIDES
    )
    known: dict[str, set[str]] = {}
    for anchor, positive in inputs["pairs"]:
        key = normalize_for_hash(anchor)
        known.setdefault(key, {key}).add(normalize_for_hash(positive))
    equal = {row for row in theirs if normalize_for_hash(row[2]) in known[normalize_for_hash(row[0])]}
    anchors = {row[0] for row in equal}
    return {
        "pairs": len(inputs["pairs"]),
        "documents": len(
            {positive for _, positive in inputs["pairs"]} | set(inputs["corpus"][: CASES[case]["corpus"]])
        ),
        "nearfar": len(ours),
        "sentence_transformers": len(theirs),
        "shared": len(ours & theirs),
        "equal_texts": len(equal),
        "other_differences": len({row for row in ours ^ theirs if row[0] not in anchors}),
    }


def body(record: dict[str, Any]) -> list[str]:
    """Time and memory of both sides, and what their triplets share."""
    rows = []
    for case in record["cases"]:
        seconds, processor, added = (
            [[one[key] for one in case["measured"][side]] for side in SIDES]
            for key in ("seconds", "processor_seconds", "added_mib")
        )
        rows.append(
            (
                *(f"{case['pairs']:,}", f"{case['documents']:,}", case["negatives"]),
                *(f"{median(side):.2f}" for side in seconds),
                common.spread(common.ratios(seconds[1], seconds[0])),
                common.spread(common.ratios(processor[1], processor[0])),
                *(f"{median(side):,.0f}" for side in added),
                common.spread(common.ratios(added[1], added[0])),
            )
        )
    sides = ("nearfar", "sentence-transformers")
    header = (
        "pairs",
        "documents",
        "negatives",
        *(f"{side} s" for side in sides),
        "times as fast",
        "in processor time",
    )
    lines = common.table((*header, *(f"{side} MiB" for side in sides), "memory ratio"), rows, words=0)
    shared = [f"{case['shared']:,} of {case['nearfar']:,}" for case in record["cases"]]
    return [*lines, "", f"Triplets that both sides chose: {', '.join(shared)}."]


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.ROUNDS._replace(quick=1),
        common.Sizes("limit", "pairs and documents", 10**9, 2000),
        more=lambda parser: parser.add_argument("--inputs", type=Path, help="keep texts and vectors in this folder"),
        one=measure,
    )
