"""Train an encoder on your own pairs: two texts that mean the same, and a third that does not.

    python examples/own_pairs.py
    python examples/own_pairs.py PAIRS.tsv SCORED.tsv MODEL OUTPUT

PAIRS has the columns anchor, positive and negative; leave out negative_column if yours has no third column.
SCORED is the dev set that chooses the best step, with the columns score, sentence1, sentence2.
"""

import sys

from nearfar import Encoder, train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    pairs: str = "examples/data/triplets.tsv",
    scored: str = "microworld:dev",
    model: str = MODEL,
    output: str = "runs/own-pairs",
) -> None:
    """Train with InfoNCE: the negatives of an anchor are its own and all other texts of the batch."""
    settings = {"negative_column": "negative", "batch_size": 32, "learning_rate": 3e-5, "evaluate_every": 3}
    run = train("info-nce", data=pairs, evaluate_on=scored, model=model, output=output, **settings)
    print(f"Spearman on {scored}: {100 * run.start_score:.1f} before, {100 * run.best_score:.1f} after.")

    encoder = Encoder.from_pretrained(run.model)
    first, second = encoder.encode(["The man is not asleep.", "The man is awake."], normalize=True)
    print(f"Cosine of two texts: {first @ second:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
