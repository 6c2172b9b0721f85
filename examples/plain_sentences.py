"""Train an encoder on plain sentences, without labels or pairs (SimCSE, Gao et al. 2021).

    python examples/plain_sentences.py
    python examples/plain_sentences.py SENTENCES.txt SCORED.tsv MODEL OUTPUT

SENTENCES has one sentence a line. SCORED is the dev set that chooses the best step: score, sentence1, sentence2.
"""

import sys

from nearfar import train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    sentences: str = "examples/data/sentences.txt",
    scored: str = "examples/data/scored.tsv",
    model: str = MODEL,
    output: str = "runs/plain-sentences",
) -> None:
    """Train: a sentence's positive is the same sentence under another dropout mask."""
    run = train(
        "simcse-unsup",
        data=sentences,
        evaluate_on=scored,
        model=model,
        output=output,
        pooling="own",  # the model's own pooling; the paper's setting is cls
        batch_size=16,
        evaluate_every=5,
    )
    print(f"Spearman on {scored}: {100 * run.start_score:.1f} before, {100 * run.best_score:.1f} after.")
    print(f"The encoder is in {run.model}; sentence-transformers opens it too.")


if __name__ == "__main__":
    main(*sys.argv[1:])
