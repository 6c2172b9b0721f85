"""Run files of TREC for nearfar compare: BM25 and all-MiniLM-L6-v2 on CISI, ten documents for each query.

    python studies/runs.py

Needs NEARFAR_DATA. Writes bm25.run, minilm.run, qrels.tsv (identifiers and grades, no texts) and cisi.commands.json
(where they come from) to studies/results/runs. docs/guides/evaluate.md shows the comparison. CISI is no test of the
README's rows.
"""

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import HERE, if_committed
from sklearn.feature_extraction.text import CountVectorizer

from nearfar import Encoder
from nearfar.disk import write_text
from nearfar.evaluation.correlation import Floats
from nearfar.evaluation.results import provenance

START = "sentence-transformers/all-MiniLM-L6-v2"
DEPTH = 10
K1, B = 1.2, 0.75
"""Settings of BM25: those that Lucene has by default."""


def main() -> None:
    """Write the files."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()  # --help writes nothing
    data = Path(os.environ["NEARFAR_DATA"]) / "ir" / "cisi"
    documents, queries = (read(data / name) for name in ("corpus.jsonl", "queries.jsonl"))
    encoder = Encoder.from_pretrained(START)
    vectors = [encoder.encode([*texts.values()], normalize=True, precision="fp32") for texts in (queries, documents)]
    folder = if_committed(HERE / "results" / "runs")
    folder.mkdir(parents=True, exist_ok=True)
    scored = {
        "bm25": bm25([*queries.values()], [*documents.values()]),
        "minilm": vectors[0] @ vectors[1].T,
    }
    for tag, scores in scored.items():
        write_text(folder / f"{tag}.run", lines_of(scores, [*queries], [*documents], tag))
    shutil.copyfile(data / "qrels" / "test.tsv", folder / "qrels.tsv")
    about = {**provenance().to_dict(), "command": "runs.py", "model": START, "bm25": {"k1": K1, "b": B}}
    write_text(folder / "cisi.commands.json", json.dumps(about, indent=1) + "\n")


def read(file: Path) -> dict[str, str]:
    """Identifier -> text, after its title if it has one."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in rows}


def bm25(queries: Sequence[str], documents: Sequence[str]) -> Floats:
    """Scores of all documents for each query [queries, documents], of lower-case words as they are (Robertson 1994).

    The sum over the words of a query of ``idf * n (k1 + 1) / (n + k1 (1 - b + b length / mean length))``, where ``n``
    is how often the document has the word and ``idf = log(1 + (N - d + 0.5) / (d + 0.5))`` of N documents, d with it.
    """
    words = CountVectorizer(token_pattern=r"[a-z0-9]+")
    counts = words.fit_transform(documents).toarray().astype(np.float64)
    lengths = counts.sum(1, keepdims=True)
    having = (counts > 0).sum(0)
    idf = np.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
    weights = idf * counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / lengths.mean()))
    scores: Floats = words.transform(queries).toarray() @ weights.T
    return scores


def lines_of(scores: Floats, queries: Sequence[str], documents: Sequence[str], tag: str) -> str:
    """The lines of a run file: query, Q0, document, rank, score, tag."""
    lines = []
    for query, of_query in zip(queries, scores, strict=True):
        best = np.argsort(-of_query, kind="stable")[:DEPTH]
        lines += [
            f"{query} Q0 {documents[one]} {rank} {of_query[one]:.6f} {tag}\n" for rank, one in enumerate(best, start=1)
        ]
    return "".join(lines)


if __name__ == "__main__":
    main()
