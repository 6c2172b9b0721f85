"""Retrieval: how high an encoder ranks the relevant documents of a query, by exact search.

All documents of a task are ranked for every query, by cosine or by the similarity of the model. The measures are those
of trec_eval, with its order of ties: of documents with the same score, the one whose identifier is last in the order of
texts comes first. Scores are computed in float32.

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

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import units_of_rows
from nearfar.data.retrieval import MEASURES, RetrievalTask
from nearfar.evaluation.results import RetrievalScores
from nearfar.evaluation.statistics import bootstrap_means, estimate, plain_numbers
from nearfar.evaluation.tasks import ScoredTasks, TextEmbeddings, embed
from nearfar.neighbours import pair_similarities, unit_rows
from nearfar.runtime.progress import progress_bar
from nearfar.types import Cut, Encode, NearfarError, VectorSimilarity

DEPTH = 100
"""The number of ranks that the measures need."""
COPIES = "documents that have the same text as a relevant one but count as not relevant"
"""What copies of relevant documents are called in the counts of a result."""
TEXTS_PER_CALL = 65_536
"""Number of texts that are encoded in one call, so that memory beside the vectors does not grow with their number."""


def evaluate_retrieval(
    encode_query: Encode,
    encode_document: Encode,
    tasks: Mapping[str, RetrievalTask],
    *,
    similarity: VectorSimilarity = "cosine",
    per_task: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    hybrid: bool = False,
    cut: Cut | None = None,
    progress: bool = False,
) -> ScoredTasks[RetrievalScores, Never]:
    """Rank the documents of each task for its queries and measure the rankings.

    Each distinct text of a task is encoded once as a query and once as a document, or once in all if the two functions
    are the same. Texts are encoded in blocks of :data:`TEXTS_PER_CALL`. A zero vector has cosine 0 with everything.

    A task with a vector that is not finite, or whose texts cannot be encoded, is listed in ``unavailable``.

    Args:
        encode_query: queries -> vectors.
        encode_document: documents -> vectors of the same width.
        tasks: by name, from :mod:`nearfar.data.retrieval`.
        similarity: how vectors are compared.
        per_task: call ``encode_document`` once for each task, with all its queries and documents, and use its vectors
            for both. Baselines that are fitted on the texts they encode need this.
        resamples: bootstrap resamples of queries for each 95% interval; 0 for no intervals. The intervals depend on the
            task's name and ``seed`` but not on the other tasks.
        seed: seed of the bootstrap.
        device: where similarities are computed.
        hybrid: fuse each ranking with that of BM25 (:mod:`nearfar.neighbours.words`).
        cut: documents -> the passages of each, of which the best one gives the score; None for whole documents.
        progress: show a progress bar of the search.

    Raises:
        NearfarError: ``encode_query`` or ``encode_document`` does not return one vector per text, or their vectors have
            different widths; bm25s is not installed, which ``hybrid`` needs.
    """
    scored: dict[str, RetrievalScores] = {}
    unavailable: dict[str, str] = {}
    dim: int | None = None
    how: dict[str, Any] = {"similarity": similarity, "per_task": per_task, "device": device, "cut": cut}
    for name, task in tasks.items():
        queries, _, ranked = _search(encode_query, encode_document, task, **how, shown=name if progress else "")
        if queries.failure:
            unavailable[name] = queries.failure
            continue
        dim, ranked = queries.vectors.shape[1], with_words(task, ranked) if hybrid else ranked
        values = measure_rankings(ranked, task.relevant)
        scored[name] = retrieval_scores(name, task, values, resamples=resamples, seed=seed)
    return ScoredTasks(scored, {}, unavailable, dim)


def best_hits(
    encode_query: Encode,
    encode_document: Encode,
    task: RetrievalTask,
    *,
    depth: int = 10,
    similarity: VectorSimilarity = "cosine",
    **settings: Any,
) -> list[list[tuple[str, float]]]:
    """For each query of a task its best ``depth`` documents with their similarities, in the order that is measured.

    ``settings`` are ``per_task`` and ``device`` of :func:`evaluate_retrieval`.

    Raises:
        NearfarError: a vector is not finite, or the vectors have different widths.
    """
    queries, documents, ranked = _search(encode_query, encode_document, task, similarity=similarity, **settings)
    if queries.failure:
        raise NearfarError(f"the queries cannot be searched for: {queries.failure}.")
    hits = []
    for query, positions in zip(task.queries, ranked, strict=True):
        texts = [task.documents[position] for position in positions[:depth]]
        own = documents.vectors[[documents.rows[text] for text in texts]]
        of_query = np.broadcast_to(queries.vectors[queries.rows[query]], own.shape)
        hits.append(list(zip(texts, pair_similarities(of_query, own, similarity).tolist(), strict=True)))
    return hits


def with_words(task: RetrievalTask, ranked: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rankings of a task's queries, each fused with the ranking of BM25 (:func:`nearfar.neighbours.words.fuse`)."""
    from nearfar.neighbours.words import WordSearch, fuse

    order = _tie_order(task)
    words, fused = WordSearch(task.documents[position] for position in order), list[list[int]]()
    for number, (query, own) in enumerate(zip(task.queries, ranked, strict=True)):
        lexical = (order[place] for place in words.rank(query))
        kept = [position for position in lexical if position != task.excluded.get(number)]
        fused.append([position for position, _ in fuse([own, kept])])
    return fused


def _tie_order(task: RetrievalTask) -> list[int]:
    """The positions of the documents as trec_eval sorts ties, so that the first of equals is its first."""
    return sorted(range(len(task.documents)), key=task.document_ids.__getitem__, reverse=True)


def _search(
    encode_query: Encode,
    encode_document: Encode,
    task: RetrievalTask,
    *,
    similarity: VectorSimilarity,
    per_task: bool = False,
    device: str = "cpu",
    cut: Cut | None = None,
    shown: str = "",
) -> tuple[TextEmbeddings, TextEmbeddings, list[list[int]]]:
    """The vectors of queries and of documents, in float32, each distinct text encoded once; and the ranking.

    For each query, the positions of the documents, best first: :data:`DEPTH` of them, or all. There is none where the
    queries have a ``failure``, also of documents. A progress bar has the name ``shown``. See
    :func:`evaluate_retrieval` for the others.

    Raises:
        NearfarError: vectors of queries and documents have different widths.
    """
    from nearfar.neighbours.exact import nearest_owners  # imports torch, which the measures of rankings do without

    order = _tie_order(task)
    texts = list(dict.fromkeys(task.documents[position] for position in order))
    pieces = [[text] for text in texts] if cut is None else cut(texts)
    distinct = list(dict.fromkeys(chain(*pieces)))
    apart = not per_task and encode_query is not encode_document
    every = task.queries if apart else [*distinct, *task.queries]
    size = len(every) if per_task else TEXTS_PER_CALL
    queries = embed(encode_query if apart else encode_document, every, texts_per_call=size)
    documents = queries._replace(vectors=queries.vectors[: len(distinct)])
    if apart:
        documents = embed(encode_document, distinct, texts_per_call=size)
    if similarity == "cosine":
        unit_rows(queries.vectors)
        if apart:  # else they are among these
            unit_rows(documents.vectors)
    if failure := queries.failure or documents.failure:
        return queries._replace(failure=failure), documents, []
    widths = queries.vectors.shape[1], documents.vectors.shape[1]
    if widths[0] != widths[1]:
        raise NearfarError(
            f"The vectors of queries have {widths[0]} numbers and those of documents {widths[1]}; they must have the "
            "same width."
        )
    vectors = queries.vectors[[queries.rows[text] for text in task.queries]]
    owners = np.repeat(np.arange(len(texts)), list(map(len, pieces)))
    own = documents.vectors if cut is None else documents.vectors[[documents.rows[piece] for piece in chain(*pieces)]]
    depth, cells = DEPTH + bool(task.excluded), len(vectors) * len(own)
    with progress_bar(f"searching {shown}", cells, unit="pairs", shown=bool(shown), stderr=True) as advance:
        found = nearest_owners(vectors, own, owners, depth, similarity=similarity, device=device, on_block=advance)
    # Texts that occur in several documents are searched once; their documents are ranked by score, then by order.
    number_of = {text: number for number, text in enumerate(texts)}
    text_of = np.fromiter((number_of[task.documents[position]] for position in order), np.int64, len(order))
    by_text = np.argsort(text_of, kind="stable")
    starts = np.searchsorted(text_of[by_text], np.arange(len(texts) + 1))
    ranked = []
    for query, (ids, scores) in enumerate(zip(found.ids.tolist(), found.scores.tolist(), strict=True)):
        best = sorted(
            (-score, place)
            for number, score in zip(ids, scores, strict=True)
            for place in by_text[starts[number] : starts[number + 1]].tolist()
        )
        itself = task.excluded.get(query)
        ranked.append([order[place] for _, place in best if order[place] != itself][:DEPTH])
    return queries, documents, ranked


def retrieval_digest(task: RetrievalTask) -> str:
    """Fingerprint of queries, documents and relevance; equal digests make two results comparable query by query."""
    fingerprint = hashlib.sha256()
    for part in ("queries", "documents", "query_ids", "document_ids"):
        texts: list[str] = getattr(task, part)
        for line in chain([f"{part} {len(texts)}"], map(json.dumps, texts)):
            fingerprint.update(f"{line}\n".encode())
    for grades in task.relevant:
        fingerprint.update(json.dumps(sorted(grades.items())).encode() + b"\n")
    fingerprint.update(json.dumps(sorted(task.excluded.items())).encode())
    return fingerprint.hexdigest()[:16]


def _unjudged_copies(task: RetrievalTask) -> int:
    """Number of documents with the text of a document that is relevant to a query, to which they are not relevant.

    They have the score of the relevant one, so identifiers alone decide which of them comes first.
    """
    positions = defaultdict[str, list[int]](list)
    for position, text in enumerate(task.documents):
        positions[text].append(position)
    copies: set[int] = set()
    for query, grades in enumerate(task.relevant):
        same = {copy for relevant in grades for copy in positions[task.documents[relevant]]}
        copies |= same - grades.keys() - {task.excluded.get(query)}
    return len(copies)


def retrieval_scores(
    name: str, task: RetrievalTask, values: Mapping[str, NDArray[np.float64]], *, resamples: int, seed: int
) -> RetrievalScores:
    """The scores of a task, given each measure of each query, by the name of the measure."""
    rounded = {str(measure): values[measure].round(6) for measure in MEASURES}
    units = units_of_rows([(query,) for query in task.queries])
    seeds = [seed, *name.encode()]
    draws = bootstrap_means(np.stack(list(rounded.values())), resamples=resamples, seed=seeds, units=units)
    copies = _unjudged_copies(task)
    return RetrievalScores(
        queries=len(task.queries),
        documents=len(task.documents),
        main=task.main,
        measures={
            measure: estimate(100 * float(of_queries.mean()), drawn)
            for (measure, of_queries), drawn in zip(rounded.items(), draws, strict=True)
        },
        counts={**task.counts, **({COPIES: copies} if copies else {})},
        per_query={measure: plain_numbers(of_queries) for measure, of_queries in rounded.items()},
        digest=retrieval_digest(task),
        units=units,
    )


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
        best = np.array(sorted((grade for grade in grades.values() if grade > 0), reverse=True), dtype=np.float64)
        if not len(best):
            continue
        gains = np.array([max(grades.get(int(document), 0), 0) for document in documents[:DEPTH]], dtype=np.float64)
        hits = np.flatnonzero(gains) + 1  # ranks of relevant documents
        precision = np.arange(1, len(hits) + 1) / hits
        values[:, query] = [
            _dcg(gains) / _dcg(best),
            1 / hits[0] if len(hits) and hits[0] <= 10 else 0.0,
            precision.sum() / len(best),
            *(np.sum(hits <= depth) / len(best) for depth in (1, 10, 100)),
        ]
    return dict(zip(MEASURES, values, strict=True))


def _dcg(gains: NDArray[np.float64]) -> float:
    """The discounted gains of the first 10 ranks."""
    return float(np.sum(gains[:10] / np.log2(np.arange(2, len(gains[:10]) + 2))))
