"""Evaluate two encoders on your own scored pairs, and test the difference.

    python examples/evaluation.py
    python examples/evaluation.py FIRST SECOND SCORED.tsv

FIRST and SECOND are model folders, run folders or names on the hub. SCORED has the columns score, sentence1, sentence2.
By default: the same encoder with mean pooling and with [CLS] pooling, on generated pairs.
"""

import sys

from nearfar import compare, evaluate

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def main(first: str = MODEL, second: str = MODEL, task: str = "microworld") -> None:
    """Print both scores with 95% bootstrap intervals, then the difference with its verdict."""
    pooling = "cls" if first == second else None
    results = [
        evaluate(first, tasks=[task], name="first", progress=False),
        evaluate(second, tasks=[task], name="second", pooling=pooling, progress=False),
    ]
    for result in results:
        score = result.tasks[task].spearman.all
        print(f"{result.model:6}  Spearman {score.score:.1f}, 95% interval {score.low:.1f} to {score.high:.1f}")

    test = compare(*results, progress=False).tasks[task]
    print(f"difference {test.difference:+.1f}, 95% interval {test.low:+.1f} to {test.high:+.1f}: {test.verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:])
