"""One point of scaling.py, in the process that this script is: ``python scaling_points.py KIND '{"setting": ...}'``.

Its last line is what it found, as JSON.
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

from nearfar import Encoder
from nearfar.commands.encode.command import encode
from nearfar.config import InfoNceConfig
from nearfar.data.microworld import generate
from nearfar.data.nli import load_nli

MICROWORLD_SENTENCES = 15_000
"""Premises that the generated world is asked for, where its rows are used."""
Measurement = dict[str, Any]


def batch(*, file: str, size: int, micro_batch: int, steps: int, rounds: int, warm_up: bool) -> Measurement:
    """Pairs of InfoNCE in batches of ``size``, by gradient caching: seconds of each round of so many steps."""
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
    """Texts of exactly so many tokens each: seconds of each round, the lengths in turn, tokenising left out."""
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
    """A file of lines to a file of vectors, by ``nearfar encode``: seconds, the opening of the model included."""
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
    """Premise and hypothesis of the rows, as pairs; how many there are, the most that fill batches of one size."""
    pairs = list(dict.fromkeys(row[:2] for row in _rows() if row.premise != row.hypothesis))
    random.Random(0).shuffle(pairs)
    kept = len(pairs) // multiple_of * multiple_of
    rows = (("anchor", "positive"), *pairs[:kept])
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return kept


def write_lines(file: Path, lines: int) -> None:
    """So many distinct lines: sentences, and where they come again, the number of the time behind each."""
    sentences = list(dict.fromkeys(text for row in _rows() for text in row[:2]))
    random.Random(0).shuffle(sentences)
    with file.open("w", encoding="utf-8") as stream:
        for number in range(lines):
            again, place = divmod(number, len(sentences))
            stream.write(f"{sentences[place]} {again}\n" if again else f"{sentences[place]}\n")


def source() -> str:
    """Where the texts come from."""
    return "SNLI" if os.environ.get("NEARFAR_DATA") else "the generated world"


def _rows() -> Any:
    return (
        load_nli("snli:dev+test+train_partial").rows
        if source() == "SNLI"
        else generate(premises=MICROWORLD_SENTENCES).nli
    )


if __name__ == "__main__":
    found = POINTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps({**found, "threads": torch.get_num_threads(), "peak_mib": peak_mib()}))
