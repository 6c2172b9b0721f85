"""Train an encoder on your own pairs: two texts a row that mean the same.

    python examples/own_pairs.py
    python examples/own_pairs.py PAIRS.tsv SCORED.tsv MODEL OUTPUT

PAIRS has the columns anchor and positive. SCORED is the dev set that chooses the best step: score, sentence1, sentence2.
"""

import sys

from nearfar import Encoder, train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    pairs: str = "examples/data/pairs.tsv",
    scored: str = "examples/data/scored.tsv",
    model: str = MODEL,
    output: str = "runs/own-pairs",
) -> None:
    """Train with InfoNCE: the other rows of a batch are the negatives."""
    run = train(
        "info-nce", data=pairs, evaluate_on=scored, model=model, output=output, batch_size=16, epochs=3, evaluate_every=5
    )
    print(f"Spearman on {scored}: {100 * run.start_score:.1f} before, {100 * run.best_score:.1f} after.")

    encoder = Encoder.from_pretrained(run.model)
    first, second = encoder.encode(["My card is lost.", "I cannot find my library card."], normalize=True)
    print(f"Cosine of one pair: {first @ second:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
