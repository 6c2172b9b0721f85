"""Measures of ranked documents, one value for each query, as in trec_eval.

With g_i the grade of the document at rank i (0 if it is not relevant) and R the number of relevant documents:

=============  ========================================================================================================
``ndcg@10``    sum of g_i / log2(i + 1) over the first 10 ranks, divided by that of the best possible ranking (Järvelin
               & Kekäläinen 2002, with the grade itself as gain): ``ndcg_cut_10`` of trec_eval
``mrr@10``     1 / rank of the first relevant document, 0 if it is not among the first 10: ``recip_rank``
``map@100``    mean over all R relevant documents of the precision at their rank, 0 beyond rank 100: ``map_cut_100``
``recall@k``   share of the R relevant documents that are among the first k: ``recall_k``
=============  ========================================================================================================

sentence-transformers divides the average precision by min(R, 100), so ``map@100`` differs for queries with more than
100 relevant documents.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.data.retrieval import MEASURES

DEPTH = 100
"""The number of ranks that the measures need."""


def measure_rankings(
    ranked: Sequence[Sequence[int]] | NDArray[np.int64], relevant: Sequence[Mapping[int, int]]
) -> dict[str, NDArray[np.float64]]:
    """The measures of each query [queries], by their names in :data:`~nearfar.data.retrieval.MEASURES`.

    Args:
        ranked: for each query the positions of distinct documents, best first; at least :data:`DEPTH` of them, or all
            documents. Negative positions stand for no document.
        relevant: for each query the position of each relevant document -> its grade. Grades below 1 mean not relevant;
            a query without a relevant document has the value 0 in every measure.
    """
    values = np.zeros((len(MEASURES), len(relevant)))
    for query, (documents, grades) in enumerate(zip(ranked, relevant, strict=True)):
        gains = np.array([max(grades.get(int(document), 0), 0) for document in documents[:DEPTH]], dtype=np.float64)
        best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
        if best:
            values[:, query] = _measure(gains, np.array(best, dtype=np.float64))
    return dict(zip(MEASURES, values, strict=True))


def _measure(gains: NDArray[np.float64], best: NDArray[np.float64]) -> list[float]:
    """The measures of one query, in the order of ``MEASURES``.

    ``gains`` are the grades of the ranked documents, ``best`` those of all relevant documents, highest first.
    """
    hits = np.flatnonzero(gains) + 1  # ranks of relevant documents
    precision = np.arange(1, len(hits) + 1) / hits
    return [
        _dcg(gains[:10]) / _dcg(best[:10]),
        1 / float(hits[0]) if len(hits) and hits[0] <= 10 else 0.0,
        float(precision.sum()) / len(best),
        *(int(np.sum(hits <= depth)) / len(best) for depth in (1, 10, 100)),
    ]


def _dcg(gains: NDArray[np.float64]) -> float:
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))
