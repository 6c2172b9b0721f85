"""Train an encoder on plain sentences, without labels or pairs (SimCSE, Gao et al. 2021).

    python examples/plain_sentences.py
    python examples/plain_sentences.py SENTENCES.txt SCORED.tsv MODEL OUTPUT

SENTENCES has one sentence a line. SCORED is the dev set that chooses the best step, with the columns score, sentence1,
sentence2. By default both are generated.
"""

import sys

from nearfar import train

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    sentences: str = "microworld",
    scored: str = "microworld:dev",
    model: str = MODEL,
    output: str = "runs/plain-sentences",
) -> None:
    """Train: the positive of a sentence is the same sentence under another dropout mask."""
    run = train(
        "simcse-unsup",
        data=sentences,
        evaluate_on=scored,
        model=model,
        output=output,
        pooling="own",  # the model's own; the method's default is cls, for encoders such as BERT
        limit=640,  # sentences to use; remove this line to use all
        evaluate_every=5,
    )
    print(f"Spearman on {scored}: {100 * run.start_score:.1f} before, {100 * run.best_score:.1f} after.")
    print(f"The encoder is in {run.model}. sentence-transformers opens it too.")


if __name__ == "__main__":
    main(*sys.argv[1:])
