"""Encoding and training speed against sentence-transformers, same model, same texts, in turn in one process.

    python benchmarks/speed.py [--rounds 5] [--output benchmarks/results/speed.json]

Texts are the generated world's, so that anyone can run it; all-MiniLM-L6-v2, fp32 on both sides. Each round takes fresh
texts; the quoted ratio is the median over rounds, with the smallest and the largest. One warm-up round is not counted.
The peer's training step is its SoftmaxLoss with its own collation, called as its trainer calls it.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

from nearfar import Encoder
from nearfar.data.batching import NliBatches
from nearfar.data.microworld import generate
from nearfar.disk import write_text
from nearfar.encoder.weights import locate
from nearfar.evaluation.results import provenance
from nearfar.methods.liao import sbert
from nearfar.types import NliRow

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
BATCH = 64
STEPS = 4  # in a round of training


def main() -> None:
    """Measure, print and, if asked, write a result file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    world = generate()
    rows = {
        "encode 1,000 texts": _encode(world.text, 1000),
        f"train {STEPS} steps of {BATCH} rows, shuffled (like for like)": _train(world.nli, "rows"),
        f"train {STEPS} steps of {BATCH} rows, by premise (as nearfar trains)": _train(world.nli, "premise"),
    }
    measured = {name: _rounds(*pair, options.rounds) for name, pair in rows.items()}
    table = Table("", "nearfar s", "sentence-transformers s", "times as fast [min, max]")
    for name, seconds in measured.items():
        ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
        ours, theirs = (f"{median(values):.2f}" for values in seconds.values())
        table.add_row(name, ours, theirs, f"{median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")
    Console().print(table)
    if options.output:
        record = {**provenance(), "threads": torch.get_num_threads(), "model": MODEL, "seconds": measured}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.output, json.dumps(record, indent=1) + "\n")


Round = Callable[[int], None]


def _rounds(ours: Round, theirs: Round, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, the two in turn; the first is a warm-up."""
    seconds: dict[str, list[float]] = {"nearfar": [], "sentence-transformers": []}
    for number in range(rounds + 1):
        for side, work in zip(seconds, (ours, theirs), strict=True):
            started = time.perf_counter()
            work(number)
            if number:
                seconds[side].append(time.perf_counter() - started)
    return seconds


def _encode(texts: list[str], count: int) -> tuple[Round, Round]:
    encoder, peer = Encoder.from_pretrained(MODEL), SentenceTransformer(str(locate(MODEL)), device="cpu")

    def of_round(number: int) -> list[str]:
        start = number * count % len(texts)
        return (texts * 2)[start : start + count]

    def ours(number: int) -> None:
        encoder.encode(of_round(number))

    def theirs(number: int) -> None:
        peer.encode(of_round(number))

    return ours, theirs


def _train(rows: list[NliRow], order: str) -> tuple[Round, Round]:
    encoder = Encoder.from_pretrained(MODEL)
    batches = NliBatches(rows, BATCH, 1, order)  # type: ignore[arg-type]
    method = sbert(encoder.embed, encoder.dim, batches, head_layers=1)
    peer = SentenceTransformer(str(locate(MODEL)), device="cpu")
    loss = SoftmaxLoss(peer, peer.get_embedding_dimension(), num_labels=3)
    shuffled = NliBatches(rows, BATCH, 1, "rows")

    def ours(number: int) -> None:
        encoder.train()
        for _, batch in zip(range(STEPS), batches.epoch(number), strict=False):
            method.loss(batch).total.backward()
            step(our_optimiser, [*encoder.parameters(), *method.head.parameters()])

    def theirs(number: int) -> None:
        peer.train()
        for _, batch in zip(range(STEPS), shuffled.epoch(number), strict=False):
            columns = ([rows[row].premise for row in batch.rows], [rows[row].hypothesis for row in batch.rows])
            features = [peer.preprocess(column) for column in columns]
            loss(features, torch.tensor(batch.labels)).backward()
            step(their_optimiser, list(loss.parameters()))

    def step(optimiser: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()

    our_optimiser = torch.optim.AdamW([*encoder.parameters(), *method.head.parameters()], lr=2e-5, fused=True)
    their_optimiser = torch.optim.AdamW(loss.parameters(), lr=2e-5, fused=True)
    return ours, theirs


if __name__ == "__main__":
    main()
