"""Train in two processes. The gradient is that of one process with a batch twice as large.

    torchrun --standalone --nproc-per-node 2 examples/two_processes.py
    torchrun --standalone --nproc-per-node 2 examples/two_processes.py PAIRS.tsv SCORED.tsv MODEL OUTPUT

Every process runs this file. The batch size is per process: each step here uses 2 x 16 pairs.
"""

import os
import sys

from nearfar import train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    pairs: str = "examples/data/triplets.tsv",
    scored: str = "microworld:dev",
    model: str = MODEL,
    output: str = "runs/two-processes",
) -> None:
    """Train; the first process writes the run folder and prints."""
    run = train("info-nce", data=pairs, evaluate_on=scored, model=model, output=output, batch_size=16, evaluate_every=5)
    if os.environ.get("RANK", "0") == "0":
        print(f"{run.steps} steps in {os.environ.get('WORLD_SIZE', '1')} processes; the encoder is in {run.model}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
