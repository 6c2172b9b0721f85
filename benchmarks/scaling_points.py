"""Measures one point of scaling.py: ``python scaling_points.py KIND '{"setting": ...}'``.

Its last line of output is the result as JSON.
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import MODEL, peak_mib, run_interleaved
from training_run import Run

from nearfar import Encoder, InfoNceConfig
from nearfar.commands.encode import encode
from nearfar.data.rows import load_nli

Measurement = dict[str, Any]


def batch(*, file: str, size: int, micro_batch: int, steps: int, rounds: int, warm_up: bool) -> Measurement:
    """InfoNCE in batches of ``size`` pairs with gradient caching: seconds of each round of ``steps`` steps."""
    run = Run(
        InfoNceConfig(
            output="unused",
            data=(file,),
            batch_size=size,
            micro_batch=micro_batch,
            precision="bf16",
            epochs=rounds * steps + 1,
        )
    )
    if warm_up:
        run.advance(1)
    return {"rows": steps * size, "seconds": [run.advance(steps) for _ in range(rounds)]}


def length(*, lengths: list[int], tokens: int, rounds: int) -> Measurement:
    """Texts of each length in tokens: seconds of each round, lengths interleaved, without tokenisation."""
    encoder = Encoder.from_pretrained(MODEL, max_length=max(lengths), device="cpu")
    numbers = random.Random(0)
    first, last = encoder.tokenize([""]).ids[0]

    def encode(size: int, bf16: bool) -> Callable[[int], float]:
        def work(_: int) -> float:
            texts = [
                [first, *(numbers.randrange(2000, 20_000) for _ in range(size - 2)), last]
                for _ in range(tokens // size)
            ]
            started = time.perf_counter()
            encoder.encode_tokens(texts, bf16=bf16)
            return time.perf_counter() - started

        return work

    sides = {f"{size} {name}": encode(size, name == "bf16") for size in lengths for name in ("fp32", "bf16")}
    return {"tokens": {str(size): tokens // size * size for size in lengths}, "seconds": run_interleaved(sides, rounds)}


def corpus(*, file: str, processes: int, rounds: int) -> Measurement:
    """``nearfar encode`` of a file of lines: seconds, including opening the model."""
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            encode(
                MODEL, input=file, output=Path(folder) / "v.npy", precision="bf16", processes=processes, progress=False
            )
            seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


POINTS: dict[str, Callable[..., Measurement]] = {"batch": batch, "length": length, "corpus": corpus}


def write_pairs(file: Path, *, multiple_of: int = 1) -> int:
    """Write (premise, hypothesis) pairs; returns their number, the largest multiple of ``multiple_of``."""
    pairs = list(dict.fromkeys(row[:2] for row in _rows() if row.premise != row.hypothesis))
    random.Random(0).shuffle(pairs)
    kept = len(pairs) // multiple_of * multiple_of
    rows = (("anchor", "positive"), *pairs[:kept])
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return kept


def write_lines(file: Path, lines: int) -> None:
    """Write distinct lines: sentences, and after the first pass the sentences with a number appended."""
    sentences = list(dict.fromkeys(text for row in _rows() for text in row[:2]))
    random.Random(0).shuffle(sentences)
    with file.open("w", encoding="utf-8") as stream:
        for number in range(lines):
            again, place = divmod(number, len(sentences))
            stream.write(f"{sentences[place]} {again}\n" if again else f"{sentences[place]}\n")


def source() -> str:
    """The source of the texts."""
    return "SNLI" if os.environ.get("NEARFAR_DATA") else "microworld"


def _rows() -> Any:
    return load_nli("snli:dev+test+train_partial" if source() == "SNLI" else "microworld").rows


if __name__ == "__main__":
    found = POINTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps({**found, "threads": torch.get_num_threads(), "peak_mib": peak_mib()}))
