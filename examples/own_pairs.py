"""Train an encoder on your own pairs: two texts that belong together, and if there is one, a third that does not.

    python examples/own_pairs.py
    python examples/own_pairs.py PAIRS.tsv MODEL OUTPUT

PAIRS has the columns anchor and positive, or question and answer; a third column, negative, makes triplets of them.
Some rows are held out: half of them choose the best step, half test the result.
"""

import sys

from nearfar import Encoder, train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    pairs: str = "examples/data/triplets.tsv",
    model: str = MODEL,
    output: str = "runs/own-pairs",
) -> None:
    """Train with InfoNCE: the negatives of an anchor are its own and all other texts of the batch."""
    run = train(data=pairs, model=model, output=output, batch_size=32, learning_rate=3e-5, evaluate_every=3)
    test = run.comparison.tasks["held-out"]
    print(f"MRR@10 on {test.pairs} held-out anchors: {test.second:.1f} before, {test.first:.1f} after.")
    print(f"Difference: {test.difference:+.1f}, 95% interval {test.low:+.1f} to {test.high:+.1f}: {test.verdict}.")

    encoder = Encoder.from_pretrained(run.model)
    first, second = encoder.encode(["The man is not asleep.", "The man is awake."], normalize=True)
    print(f"Cosine of two texts: {first @ second:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
