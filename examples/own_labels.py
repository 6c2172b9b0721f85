"""Fine-tune a classifier on your own labelled texts, then label new ones.

    python examples/own_labels.py
    python examples/own_labels.py LABELLED.tsv TEXTS.txt MODEL OUTPUT

LABELLED has the columns text and label. A fifth of its rows is the test set. TEXTS has one text a line.
"""

import sys
from pathlib import Path

from nearfar import finetune, predict

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    labelled: str = "examples/data/labelled.tsv",
    texts: str = "examples/data/questions.txt",
    model: str = MODEL,
    output: str = "runs/own-labels",
) -> None:
    """Train with cross-entropy and supervised contrastive learning (Gunel et al. 2021)."""
    settings = {"validation_rows": 12, "epochs": 10, "learning_rate": 2e-4, "scl_weight": 0.5, "evaluate_every": 10}
    run = finetune(task=labelled, model=model, output=output, **settings)
    print(f"Accuracy on the validation rows: {run.start_score:.2f} before, {run.best_score:.2f} after.")

    labels = Path(output) / "labels.tsv"
    predict(output, input=texts, output=labels)
    print(labels.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(*sys.argv[1:])
