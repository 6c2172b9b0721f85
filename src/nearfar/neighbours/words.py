"""Search by words (BM25), and its fusion with the search by vectors.

BM25 (Robertson et al. 1994) as bm25s computes it, in the form of Lucene: with f the number of times that the word w is
in the document d, L its length in words and L' the mean length, n of N documents having w,

    score(q, d) = sum over w in q of ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + 1.5 * (0.25 + 0.75 * L / L'))

Words are runs of two or more letters or digits, in lower case; none is left out, none is cut to its stem.

Rankings are fused by the ranks alone (Cormack et al. 2009, "Reciprocal rank fusion"): with r the rank of a document,
from 1, score(d) = sum over the rankings that have d of 1 / (60 + r).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nearfar.types import NearfarError

CONSTANT = 60
"""What is added to each rank, so that the first documents of one ranking do not decide alone."""
DEPTH = 100
"""Number of documents of each ranking that are fused."""


def load_bm25s() -> Any:
    """The package, to be called before anything slow is done.

    Raises:
        NearfarError: it is not installed.
    """
    try:
        import bm25s
    except ImportError:
        raise NearfarError("--hybrid: needs bm25s: pip install 'nearfar[search]'.") from None
    return bm25s


class WordSearch:
    """Documents, to be searched by BM25.

    Raises:
        NearfarError: bm25s is not installed, or no document has a word.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        bm25s = load_bm25s()
        self._tokenize, self._index = bm25s.tokenize, bm25s.BM25()
        words = self._words(list(documents))
        if not any(words):
            raise NearfarError("--hybrid: no document has a word of two or more letters.")
        self._index.index(words, show_progress=False)

    def _words(self, texts: list[str]) -> list[list[str]]:
        words: list[list[str]] = self._tokenize(texts, stopwords=None, return_ids=False, show_progress=False)
        return words

    def rank(self, query: str) -> list[int]:
        """The positions of the documents with a word of the query, best first: at most :data:`DEPTH`."""
        (words,) = self._words([query])
        scores = self._index.get_scores(words) if words else np.zeros(1, np.float32)
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        positions: list[int] = best[scores[best] > 0].tolist()
        return positions


def fuse(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """The items of all rankings with their fused scores, best first; of equal scores, those of the first ranking first.

    >>> [item for item, _ in fuse([[1, 2, 3], [3, 2]])]
    [3, 2, 1]
    """
    scores = defaultdict[int, float](float)
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] += 1 / (CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: -item[1])
