"""Encoding a file of lines to a file of vectors: `nearfar encode` against sentence-transformers' encode and np.save.

    python benchmarks/encode_file.py run       needs NEARFAR_DATA; writes benchmarks/results/encode_file.json
    python benchmarks/encode_file.py report    fills its place in docs/encoding-speed.md from that file alone

Both sides use the same model and the same lines: Wikipedia sentences, either all distinct or each four times, shuffled.
Each measurement runs in a process of its own, so that its peak memory can be measured. Time is counted from opening the
model, after imports, until the file is written. The sides are interleaved within a round; the first round is a warm-up,
in which their vectors are compared. For bf16, nearfar uses autocast and sentence-transformers bfloat16 weights.
"""

import argparse
import importlib
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import common
import numpy as np
import torch
from common import MODEL

from nearfar.commands.encode import encode
from nearfar.data.rows import load_sentences
from nearfar.encoder.weights import locate

PAGE = common.Page("encode_file", "encoding-speed")
SIDES = ("nearfar", "sentence-transformers")
CASES = tuple((lines, precision) for lines in ("distinct", "repeated") for precision in ("fp32", "bf16"))
TIMES = 4
"""Number of occurrences of each repeated line."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides."""
    texts, rounds = options.texts, options.rounds
    record: dict[str, Any] = common.record(model=MODEL, texts=texts, rounds=rounds, cases=[])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_lines(folder, texts)
        cases: dict[tuple[str, str], dict[str, list[Any]]] = {case: {side: [] for side in SIDES} for case in CASES}
        for number in range(rounds + 1):
            for (lines, precision), measured in cases.items():
                for side in SIDES:
                    source, output = str(folder / f"{lines}.txt"), str(folder / f"{side}.npy")
                    one = common.in_process(__file__, side=side, precision=precision, source=source, output=output)
                    if number:
                        measured[side].append(one)
                if not number:
                    record["cases"].append({"lines": lines, "precision": precision, **_difference(folder, precision)})
    for case, measured in zip(record["cases"], cases.values(), strict=True):
        case["measured"] = measured
    return record


def _write_lines(folder: Path, texts: int) -> None:
    distinct = [row[0] for row in load_sentences("wiki", limit=texts).rows]
    if len(distinct) < texts:
        raise SystemExit(f"--texts {texts}: there are only {len(distinct)}.")
    repeated = (distinct[: -(-texts // TIMES)] * TIMES)[:texts]
    random.Random(0).shuffle(repeated)
    for name, lines in (("distinct", distinct), ("repeated", repeated)):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(side: str, precision: str, source: str, output: str) -> dict[str, float]:
    """Seconds and peak memory of encoding one file in this process."""
    if side == "nearfar":  # each side imports only its own modules, before the time starts
        for module in ("commands.encode", "encoder.stream", "data.lines"):
            importlib.import_module(f"nearfar.{module}")
        started = time.perf_counter()
        encode(MODEL, input=source, output=output, precision=precision, overwrite=True, progress=False)
    else:
        sentence_transformers = importlib.import_module("sentence_transformers")
        started = time.perf_counter()
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        peer = sentence_transformers.SentenceTransformer(str(locate(MODEL)), model_kwargs={"dtype": dtype})
        np.save(output, peer.encode(Path(source).read_text(encoding="utf-8").splitlines(), show_progress_bar=False))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mib": common.peak_mib(), "threads": torch.get_num_threads()}


def _difference(folder: Path, precision: str) -> dict[str, float]:
    """The difference between the two sides' vectors; a large one ends the run."""
    ours, theirs = (np.load(folder / f"{side}.npy").astype(np.float32) for side in SIDES)
    difference = float(np.abs(ours - theirs).max())
    if difference > {"fp32": 1e-5, "bf16": 0.05}[precision]:
        raise SystemExit(f"the two sides differ by {difference}")
    return {"difference": difference, "lowest_cosine": float(common.cosines(ours, theirs).min())}


def body(record: dict[str, Any]) -> list[str]:
    """Seconds and memory of both sides."""
    rows = []
    for case in record["cases"]:
        seconds, peaks = (
            [[one[key] for one in case["measured"][side]] for side in SIDES] for key in ("seconds", "peak_mib")
        )
        rows.append(
            (
                *(case["lines"], case["precision"]),
                *(f"{median(side):.1f}" for side in seconds),
                common.spread(common.ratios(seconds[1], seconds[0])),
                *(f"{median(side):,.0f}" for side in peaks),
                f"{case['difference']:.1e}",
            )
        )
    header = (
        "lines",
        "precision",
        *(f"{side} s" for side in SIDES),
        "times as fast",
        *(f"{side} MiB" for side in SIDES),
    )
    return common.table((*header, "largest difference"), rows, words=2)


if __name__ == "__main__":
    rounds = common.Sizes("rounds", "measured rounds after one warm-up round", 3, 1)
    common.main(PAGE, __doc__, run, body, rounds, common.Sizes("texts", "lines to encode", 20_000, 2000), one=measure)
