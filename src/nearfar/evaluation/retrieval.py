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
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from nearfar.data.fingerprints import units_of_rows
from nearfar.data.retrieval import MEASURES, RetrievalTask
from nearfar.evaluation.correlation import Floats
from nearfar.evaluation.results import RetrievalScores
from nearfar.evaluation.statistics import bootstrap_means, estimate
from nearfar.evaluation.tasks import ScoredTasks, TextEmbeddings, embed, embed_tasks
from nearfar.neighbours import pair_similarities, unit_rows
from nearfar.types import Encode, NearfarError, VectorSimilarity

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
    progress: bool = False,
) -> ScoredTasks[RetrievalScores, Never]:
    """Rank the documents of each task for its queries and measure the rankings.

    Each distinct text of a task is encoded once as a query and once as a document, or once in all if the two functions
    are the same. Texts are encoded in blocks of :data:`TEXTS_PER_CALL`. A zero vector has cosine 0 with everything.

    A task with a vector that is not finite is listed in ``unavailable``.

    Args:
        encode_query: queries -> vectors.
        encode_document: documents -> vectors of the same width.
        tasks: by name, from :mod:`nearfar.data.retrieval`.
        similarity: how vectors are compared.
        per_task: call ``encode_document`` once for each task, with all its queries and documents, and use its vectors
            for both. Baselines that are fitted on the texts they encode need this. If it raises for one task, only
            that task has no score.
        resamples: bootstrap resamples of queries for each 95% interval; 0 for no intervals. The intervals depend on the
            task's name and ``seed`` but not on the other tasks.
        seed: seed of the bootstrap.
        device: where similarities are computed.
        progress: show a progress bar of the search.

    Raises:
        NearfarError: no tasks, a task without queries or documents; ``encode_query`` or ``encode_document`` does not
            return one vector per text, or their vectors have different widths.
    """
    if not tasks:
        raise NearfarError("no retrieval tasks to evaluate on.")
    for name, task in tasks.items():
        if not task.queries or not task.documents:
            raise NearfarError(f"task {name} has no {'documents' if task.queries else 'queries'}.")
    scored: dict[str, RetrievalScores] = {}
    unavailable: dict[str, str] = {}
    dim = None
    how: dict[str, Any] = {"similarity": similarity, "per_task": per_task, "device": device, "progress": progress}
    for name, task in tasks.items():
        found = _search(name, task, encode_query, encode_document, **how)
        if isinstance(found, str):
            unavailable[name] = found
            continue
        dim = found.documents.vectors.shape[1]
        values = measure_rankings(found.ranked, task.relevant)
        scored[name] = retrieval_scores(name, task, values, resamples=resamples, seed=seed)
    distinct = {text for name in tasks for text in (*tasks[name].queries, *tasks[name].documents)}
    return ScoredTasks(scored, {}, unavailable, len(distinct), dim)


class _Search(NamedTuple):
    """The vectors of a task, and its ranked documents."""

    queries: TextEmbeddings
    documents: TextEmbeddings
    ranked: Sequence[Sequence[int]]
    """For each query the positions of the documents, best first."""


def _search(
    name: str,
    task: RetrievalTask,
    encode_query: Encode,
    encode_document: Encode,
    *,
    similarity: VectorSimilarity,
    per_task: bool,
    device: str,
    progress: bool,
) -> _Search | str:
    """Search for the queries of a task; why it cannot be scored, where a vector is not finite.

    Raises:
        NearfarError: the vectors of queries and documents have different widths.
    """
    # In the order in which trec_eval sorts ties, so that the first of equals is its first.
    order = sorted(range(len(task.documents)), key=task.document_ids.__getitem__, reverse=True)
    queries, documents = _embed(encode_query, encode_document, task, order, per_task=per_task)
    if similarity == "cosine":
        unit_rows(queries.vectors)
        if not per_task:  # where those of the documents are among these
            unit_rows(documents.vectors)
    if failure := queries.failure_reason(queries.rows) or documents.failure_reason(documents.rows):
        return failure
    if queries.vectors.shape[1] != documents.vectors.shape[1]:
        raise NearfarError(
            f"The vectors of queries have {queries.vectors.shape[1]} numbers and those of documents "
            f"{documents.vectors.shape[1]}; they must have the same width."
        )
    ranked = _rank(task, order, queries, documents, similarity, device=device, progress=progress, title=name)
    return _Search(queries, documents, ranked)


def best_hits(
    encode_query: Encode,
    encode_document: Encode,
    task: RetrievalTask,
    *,
    depth: int = 10,
    similarity: VectorSimilarity = "cosine",
    per_task: bool = False,
    device: str = "cpu",
    progress: bool = False,
) -> list[list[tuple[str, float]]]:
    """For each query of a task its best ``depth`` documents with their similarities, in the order that is measured.

    Raises:
        NearfarError: a vector is not finite, or the vectors have different widths.
    """
    how: dict[str, Any] = {"similarity": similarity, "per_task": per_task, "device": device, "progress": progress}
    found = _search("", task, encode_query, encode_document, **how)
    if isinstance(found, str):
        raise NearfarError(f"the queries cannot be searched for: {found}.")
    queries, documents = found.queries, found.documents
    hits = []
    for query, ranked in zip(task.queries, found.ranked, strict=True):
        texts = [task.documents[position] for position in ranked[:depth]]
        own = documents.vectors[[documents.rows[text] for text in texts]]
        scores = pair_similarities(np.broadcast_to(queries.vectors[queries.rows[query]], own.shape), own, similarity)
        hits.append(list(zip(texts, scores.tolist(), strict=True)))
    return hits


def retrieval_digest(task: RetrievalTask) -> str:
    """Fingerprint of queries, documents and relevance; equal digests make two results comparable query by query."""
    fingerprint = hashlib.sha256()
    for part in ("queries", "documents", "query_ids", "document_ids"):
        texts: list[str] = getattr(task, part)
        fingerprint.update(f"{part} {len(texts)}\n".encode())
        for text in texts:
            fingerprint.update(json.dumps(text).encode() + b"\n")
    for grades in task.relevant:
        fingerprint.update(json.dumps(sorted(grades.items())).encode() + b"\n")
    fingerprint.update(json.dumps(sorted(task.excluded.items())).encode())
    return fingerprint.hexdigest()[:16]


def _unjudged_copies(task: RetrievalTask) -> int:
    """Number of documents with the text of a document that is relevant to a query, to which they are not relevant.

    They have the score of the relevant one, so identifiers alone decide which of them comes first.
    """
    if len(set(task.documents)) == len(task.documents):
        return 0
    positions: dict[str, list[int]] = {}
    for position, text in enumerate(task.documents):
        positions.setdefault(text, []).append(position)
    return len(
        {
            copy
            for query, grades in enumerate(task.relevant)
            for relevant in grades
            for copy in positions[task.documents[relevant]]
            if copy not in grades and copy != task.excluded.get(query)
        }
    )


def retrieval_scores(
    name: str, task: RetrievalTask, values: Mapping[str, NDArray[np.float64]], *, resamples: int, seed: int
) -> RetrievalScores:
    """The scores of a task, given each measure of each query, by the name of the measure."""
    rounded: Floats = np.stack([values[measure] for measure in MEASURES]).round(6)
    units = units_of_rows([(query,) for query in task.queries])
    draws = bootstrap_means(rounded, resamples=resamples, seed=[seed, *name.encode()], units=units)
    of_measures = zip(MEASURES, rounded, draws, strict=True)
    measures = {str(measure): estimate(100 * float(values.mean()), drawn) for measure, values, drawn in of_measures}
    return RetrievalScores(
        queries=len(task.queries),
        documents=len(task.documents),
        main=task.main,
        measures=measures,
        counts={**task.counts, **({COPIES: copies} if (copies := _unjudged_copies(task)) else {})},
        per_query={
            str(measure): [int(value) if value.is_integer() else value for value in of_queries]
            for measure, of_queries in zip(MEASURES, rounded.tolist(), strict=True)
        },
        digest=retrieval_digest(task),
        units=units,
    )


def _embed(
    encode_query: Encode, encode_document: Encode, task: RetrievalTask, order: Sequence[int], *, per_task: bool
) -> tuple[TextEmbeddings, TextEmbeddings]:
    """The vectors of the queries and of the documents in float32; rows of documents are in ``order``."""
    documents = dict.fromkeys(task.documents[position] for position in order)
    queries = dict.fromkeys(task.queries)
    if per_task:
        together = embed_tasks(encode_document, {"": [*documents, *queries]}, per_task=True)[""]
        found = together._replace(vectors=together.vectors.astype(np.float32))
        return found, found._replace(vectors=found.vectors[: len(documents)])
    embedded = embed(encode_document, list(documents), texts_per_call=TEXTS_PER_CALL)
    if encode_query is not encode_document:
        return embed(encode_query, list(queries), texts_per_call=TEXTS_PER_CALL), embedded
    others = [text for text in queries if text not in documents]
    rest = embed(encode_query, others, texts_per_call=TEXTS_PER_CALL)
    shared = [text for text in queries if text in documents]
    known = embedded.vectors[[embedded.rows[text] for text in shared]]
    rows = {text: row for row, text in enumerate([*shared, *others])}
    return rest._replace(rows=rows, vectors=np.concatenate([known, rest.vectors]) if others else known), embedded


def _rank(
    task: RetrievalTask,
    order: Sequence[int],
    queries: TextEmbeddings,
    documents: TextEmbeddings,
    similarity: VectorSimilarity,
    *,
    device: str,
    progress: bool,
    title: str,
) -> list[list[int]]:
    """For each query the positions of the documents, best first: :data:`DEPTH` of them, or all."""
    from nearfar.neighbours.exact import nearest  # imports torch, which the measures of ranked documents do without

    distinct = dict.fromkeys(task.queries)
    rows = [queries.rows[text] for text in distinct]
    spare = 1 if task.excluded else 0
    bar = Progress(console=Console(stderr=True), transient=True, disable=not progress)
    with bar:
        shown = bar.add_task(f"searching {title}", total=len(rows) * len(documents.vectors))
        found = nearest(
            queries.vectors[rows],
            documents.vectors,
            DEPTH + spare,
            similarity=similarity,
            device=device,
            on_block=lambda number: bar.advance(shown, number),
        )
    # Texts that occur in several documents are searched once; their documents are ranked by score, then by ``order``.
    text_of = np.fromiter((documents.rows[task.documents[position]] for position in order), np.int64, len(order))
    by_text = np.argsort(text_of, kind="stable")
    starts = np.searchsorted(text_of[by_text], np.arange(len(documents.vectors) + 1))
    row_of, ranked = {text: row for row, text in enumerate(distinct)}, []
    for query, text in enumerate(task.queries):
        ids, scores = (part[row_of[text]].tolist() for part in found)
        best = sorted(
            (-score, place)
            for number, score in zip(ids, scores, strict=True)
            for place in by_text[starts[number] : starts[number + 1]].tolist()
        )
        own = task.excluded.get(query)
        ranked.append([order[place] for _, place in best if order[place] != own][:DEPTH])
    return ranked


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
