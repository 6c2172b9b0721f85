"""``nearfar search``: the nearest texts of a file, for each query."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from nearfar.commands.encode.vectors import open_encoder
from nearfar.commands.search.corpus import Corpus, read_queries
from nearfar.commands.search.index import SearchIndex, choose_precision, update_index
from nearfar.commands.search.inexact import check_installed, measure_recall, sample_of, search_codes, search_graph
from nearfar.commands.threshold import apply_threshold
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import SearchConfig
from nearfar.data.cells import normalize_whitespace
from nearfar.data.memory import takes_rows
from nearfar.disk import write_table
from nearfar.disk.checks import check_output_file, path_errors
from nearfar.disk.folders import folder_lock
from nearfar.encoder.precision import check_computing
from nearfar.encoder.prompts import choose_width
from nearfar.evaluation.results import ThresholdResult
from nearfar.neighbours import NORMS
from nearfar.neighbours.exact import Neighbours
from nearfar.neighbours.words import DEPTH, WordSearch, fuse, load_bm25s
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

QUERIES_AT_ONCE = 512
"""Number of queries that are encoded and searched together."""
FIELDS = ("query", "rank", "score", "row", "text", "count")
"""The fields of every hit. A column of the input with one of these names gets the prefix ``input_``."""


@dataclass(frozen=True)
class Hit:
    """One row that was found for a query."""

    rank: int
    """1 for the nearest."""
    score: float
    """Similarity to the query, as the model compares: the cosine, inner product, or minus a distance; with ``hybrid``
    the fused score (:func:`nearfar.neighbours.words.fuse`)."""
    row: int
    """Number of the row in the file, counted from 0 without header and blank lines."""
    text: str
    """The text, with normalised white space; with ``chunk`` the best passage of it."""
    columns: dict[str, Any]
    """The other columns of the row; with a file as ``threshold`` also ``probability``, that the hit is right."""
    count: int = 1
    """Number of rows with this text, of which ``row`` is the first; always 1 with ``keep_duplicates``."""


@dataclass(frozen=True)
class Search:
    """An index that is up to date, and an encoder for queries."""

    index: SearchIndex
    encoded: int | None
    """Number of texts that were encoded to bring the index up to date; None if it was."""
    encode_query: Callable[[Sequence[str]], np.ndarray]
    """Queries -> vectors [queries, dim]."""
    find_texts: Callable[[np.ndarray, int], Neighbours]
    """The nearest texts of each vector: exact, approximate or quantized search."""
    columns: tuple[str, ...]
    """Names of the other columns of a hit."""
    config: SearchConfig
    threshold: float | None
    """The lowest score of a hit; None for no limit."""
    calibration: ThresholdResult | None
    """The file of the threshold."""
    recall: str
    """The recall of approximate or quantized search, in words."""
    words: WordSearch | None
    """The texts, to be searched by words too."""

    def hits(self, queries: Sequence[str]) -> list[list[Hit]]:
        """The hits of each query that reach the threshold, best first; of equal scores the text that occurs first.

        Raises:
            NearfarError: a vector is not finite, or the index is damaged.
        """
        if not queries:
            return []
        top = depth = self.config.top
        vectors = np.asarray(self.encode_query(queries), np.float32)
        ranked_by_words = None if self.words is None else list(map(self.words.rank, queries))
        while True:
            found = self.find_texts(vectors, depth if ranked_by_words is None else max(depth, DEPTH))
            by_vectors = zip(found.ids.tolist(), found.scores.tolist(), strict=True)
            texts = [list(zip(*both, strict=True)) for both in by_vectors]
            if ranked_by_words is not None:
                texts = [fuse(both)[:depth] for both in zip(found.ids.tolist(), ranked_by_words, strict=True)]
            rows = self.index.rows_of(np.array([text for scored in texts for text, _ in scored]))
            hits = [list(islice(self._hits_of(scored, rows), top)) for scored in texts]
            if not self.config.chunk or depth >= len(self.index.vectors) or min(map(len, hits)) == top:
                lowest = -np.inf if self.threshold is None else self.threshold
                return [[hit for hit in own if hit.score >= lowest] for own in hits]
            depth *= 4  # several passages of a row are among the nearest

    def _hits_of(self, texts: Sequence[tuple[int, float]], rows: dict[int, list[int]]) -> Iterator[Hit]:
        rank, seen = count(1), set[int]()
        for text, score in texts:
            for row in rows[text] if self.config.keep_duplicates else rows[text][:1]:
                content, *values = self.index.read_row(row)
                source = values.pop() if self.config.chunk else row
                if known := self.calibration:
                    values.append(round(float(np.interp(score, known.scores, known.probabilities)), 4))
                if source not in seen:
                    seen.add(source)
                    equal = 1 if self.config.keep_duplicates else len(rows[text])
                    yield Hit(next(rank), score, source, content, dict(zip(self.columns, values, strict=True)), equal)


@takes_rows
@accepts_settings(SearchConfig)
@path_errors()
def search(
    query: str | Sequence[str] = (),
    config: SearchConfig | None = None,
    *,
    progress: bool = False,
) -> list[list[Hit]]:
    """The nearest rows of ``config.input`` for each query: a list of hits, best first.

    Settings can be given by name: ``search("my question", model="runs/first", input="faq.tsv")``; see
    :class:`nearfar.SearchConfig`. A query shows at most ``top`` hits, and none whose score is below ``threshold``. The
    score compares the embeddings of query and text
    (:meth:`nearfar.Encoder.encode_query`, :meth:`nearfar.Encoder.encode_document`) as the model's folder says
    (:attr:`nearfar.Encoder.similarity`): by cos(q, d) = q·d / (|q| |d|), the inner product, or minus a distance; if
    ``normalize`` is False, by the inner product. The index is brought up to date first.

    Args:
        query: a query, or several; none if ``config.queries`` names a file.
        config: the settings.
        progress: show a progress bar while texts are encoded.

    Raises:
        NearfarError: there is no query, or an empty one; a file, a column or the output cannot be used; the index is
            damaged, in use, or of another model, or the file of the threshold is; approximate search by a distance is
            asked for;
            :meth:`nearfar.Encoder.from_pretrained` refuses the model.
    """
    assert config is not None  # the decorator makes one from the settings
    queries = gather_queries([query] if isinstance(query, str) else query, config)
    if queries is None:
        raise NearfarError("search() needs a query: a text, a list of texts, or queries=FILE.")
    opened = open_search(config, queries=queries, progress=progress)
    results = list(search_all(opened, queries))
    if config.output is not None:
        write_hits(Path(config.output), queries, results, opened.columns)
    return results


def gather_queries(given: Sequence[str], config: SearchConfig) -> list[str] | None:
    """The queries of a call, with normalised white space; None if there are none.

    Raises:
        NearfarError: a query is empty or not text, queries are given in both ways, or the file cannot be read.
    """
    config.check_queries(given)
    if config.queries is not None:
        return read_queries(config.queries, config.query_column)
    for number, text in enumerate(given, 1):
        if not isinstance(text, str) or not normalize_whitespace(text):
            raise NearfarError(f"query {number} is {'empty' if isinstance(text, str) else 'not a text'}.")
    return [normalize_whitespace(text).encode("utf-8", "replace").decode() for text in given] or None


@path_errors()
def open_search(config: SearchConfig, *, queries: Sequence[str] | None = None, progress: bool = False) -> Search:
    """Open the model, and bring the index up to date.

    ``queries`` from a file are the sample on which the recall of approximate or quantized search is measured.

    Raises:
        NearfarError: see :func:`search`.
    """
    if config.output is not None:
        check_output_file(Path(config.output), [config.input, config.queries], overwrite=config.overwrite)
    check_computing(config.device, config.precision)
    if config.approximate:
        check_installed()
    if config.hybrid:
        load_bm25s()
    corpus = Corpus(config.input, config.column, config.show, skip_empty=config.skip_empty)
    folder = Path(config.index).expanduser() if config.index else corpus.path.with_name(corpus.path.name + ".index")
    recorded, precision = choose_precision(config.precision, None if config.rebuild else folder, config.device)
    opened = open_encoder(config.model, config.opening, precision)
    encoder, documents = opened.encoder, opened.of_role("document")
    similarity = encoder.similarity if config.normalize else "dot"
    inexact = "--approximate" if config.approximate else "--quantize" if config.quantize else ""
    if similarity in NORMS and inexact:
        raise NearfarError(
            f"{inexact}: finds texts by inner products, and {config.model} compares by minus the {similarity} "
            "distance; leave it out."
        )
    passages = {"chunk": config.chunk, "overlap": config.overlap} if config.chunk is not None else {}
    how: dict[str, Any] = {"dimensions": config.dimensions, **passages}
    threshold, calibration = apply_threshold(config.threshold, opened, similarity, top=config.top, **how)
    settings = {
        "model": config.model,
        "weights": documents.model,
        "column": corpus.column,
        "show": list(corpus.shown),
        "pooling": documents.encoder.pooling,
        "max_length": encoder.length_of("document"),
        "document_prompt": encoder.document_prompt,
        "normalize": similarity == "cosine",
        "precision": recorded,
    }
    if config.dimensions is not None:
        settings["dimensions"] = choose_width(config.dimensions, encoder.dim, encoder.matryoshka)
    if config.chunk is not None:
        settings |= passages
        corpus.cut = partial(encoder.passages, tokens=config.chunk, overlap=config.overlap)
    named = config.index is not None
    index, encoded = update_index(
        folder, corpus, documents, settings, rebuild=config.rebuild, named=named, progress=progress
    )
    how = {"normalize": similarity == "cosine", "dimensions": config.dimensions, "precision": precision}
    encode_query: Callable[[Sequence[str]], np.ndarray] = partial(encoder.encode_query, **how)
    device, recall = str(encoder.device), ""
    find_texts: Callable[[np.ndarray, int], Neighbours] = partial(index.nearest, similarity=similarity, device=device)
    if inexact:
        sample = encode_query([queries[n] for n in sample_of(len(queries))]) if queries and config.queries else None
        find_texts, recall = _open_inexact(index, config, device, sample, progress=progress)
    words = WordSearch(index.read_row(int(row))[0] for row in index.first_rows) if config.hybrid else None
    columns = corpus.shown
    if calibration is not None:
        columns = (*columns, "hit_probability" if "probability" in columns else "probability")
    return Search(index, encoded, encode_query, find_texts, columns, config, threshold, calibration, recall, words)


def _open_inexact(
    index: SearchIndex, config: SearchConfig, device: str, queries: np.ndarray | None, *, progress: bool
) -> tuple[Callable[[np.ndarray, int], Neighbours], str]:
    """Search by a graph or by codes, and its recall in words, on vectors of ``queries`` or on the index's own texts."""
    what = "building the graph" if config.quantize is None else "quantizing"
    with (
        folder_lock(index.folder, what=index.folder, flag="--index"),
        progress_bar(what, len(index.vectors), shown=progress, stderr=True) as advance,
    ):
        if config.quantize is None:
            kind, inexact = "Approximate", search_graph(index, on_added=advance)
        else:
            how: dict[str, Any] = {"factor": config.rescore, "device": device, "on_added": advance}
            kind, inexact = "Quantized", search_codes(index, config.quantize, **how)
    recall, sample = inexact.recall, "of its texts, each without itself"
    if queries is not None:
        recall, sample = measure_recall(inexact.search, index.vectors, queries), "queries"
    measured = f"{recall.value:.3f} (measured on {recall.queries} {sample})"
    return inexact.search, f"{kind} search: recall@{recall.at} against exact search: {measured}"


def search_all(opened: Search, queries: Sequence[str]) -> Iterator[list[Hit]]:
    """The hits of each query.

    Raises:
        NearfarError: the index is damaged.
    """
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        yield from opened.hits(queries[start : start + QUERIES_AT_ONCE])


def write_hits(
    output: Path | IO[str], queries: Sequence[str], results: Iterable[Sequence[Hit]], columns: Sequence[str]
) -> None:
    """Write the hits of each query to a .jsonl or .tsv file, or to a stream as to a .tsv file.

    In .tsv, white space in the other columns is normalised, and what is not a text there is written as JSON.

    Raises:
        NearfarError: the output cannot be written, or the index is damaged.
    """
    names = [*FIELDS]
    for column in columns:
        name = column
        while name in names:
            name = f"input_{name}"
        names.append(name)
    is_json = isinstance(output, Path) and output.suffix == ".jsonl"

    def rows() -> Iterator[tuple[Any, ...]]:
        for query, hits in zip(queries, results, strict=True):
            for hit in hits:
                values = hit.columns.values() if is_json else map(show_value, hit.columns.values())
                yield query, hit.rank, round(hit.score, 6), hit.row, hit.text, hit.count, *values

    if isinstance(output, Path):
        write_table(output, names, rows())
    else:
        lines = csv.writer(output, delimiter="\t", lineterminator="\n")
        lines.writerow(names)
        lines.writerows(rows())


def show_value(value: Any) -> str:
    """A value of another column as one line of text; empty for a missing one."""
    if value is None:
        return ""
    return normalize_whitespace(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
