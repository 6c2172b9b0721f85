"""``nearfar search``: the nearest texts of a file, for each query."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearfar.commands.encode.vectors import open_encoder
from nearfar.commands.search.corpus import Corpus, read_queries
from nearfar.commands.search.hits import Hit, Searcher, format_hits, table_header
from nearfar.commands.search.update import IndexUpdate, choose_precision, update_index
from nearfar.config.calls import accepts_settings
from nearfar.config.search import SearchConfig
from nearfar.data.cells import normalize_whitespace
from nearfar.data.memory import takes_rows
from nearfar.disk import check_output_file, new_file, path_errors
from nearfar.disk.folders import folder_lock
from nearfar.encoder.precision import check_computing
from nearfar.neighbours import NORMS
from nearfar.neighbours.inexact import (
    ApproximateSearch,
    QuantizedSearch,
    RecallSearch,
    check_installed,
    measure_recall,
    sample_of,
)
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

QUERIES_AT_ONCE = 512
"""Number of queries that are encoded and searched together."""


class OpenedSearch(NamedTuple):
    """An index that is up to date, and what was done for that."""

    searcher: Searcher
    folder: Path
    update: IndexUpdate
    recall: str | None
    """The recall of approximate or quantized search, in words."""
    quantized: bool = False
    """Whether codes are searched."""


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
    :class:`nearfar.SearchConfig`. The score compares the embeddings of query and text
    (:meth:`nearfar.Encoder.encode_query`, :meth:`nearfar.Encoder.encode_document`) as the model's folder says
    (:attr:`nearfar.Encoder.similarity`): by cos(q, d) = q·d / (|q| |d|), the inner product, or minus a distance; if
    ``normalize`` is False, by the inner product. The index is brought up to date first.

    Args:
        query: a query, or several; none if ``config.queries`` names a file.
        config: the settings.
        progress: show a progress bar while texts are encoded.

    Raises:
        NearfarError: there is no query, or an empty one; a file, a column or the output cannot be used; the index is
            damaged, in use, or of another model; approximate search by a distance is asked for;
            :meth:`nearfar.Encoder.from_pretrained` refuses the model.
    """
    assert config is not None  # the decorator makes one from the settings
    queries = gather_queries([query] if isinstance(query, str) else query, config)
    if queries is None:
        raise NearfarError("search() needs a query: a text, a list of texts, or queries=FILE.")
    check_output(config)
    opened = open_search(config, queries=queries, progress=progress)
    return list(search_all(opened.searcher, queries, config))


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


def check_output(config: SearchConfig) -> None:
    """Check that ``config.output`` can be written.

    Raises:
        NearfarError: it exists, is an input, or its folder is missing or not writable.
    """
    if config.output is not None:
        check_output_file(Path(config.output), [config.input, config.queries], overwrite=config.overwrite)


@path_errors()
def open_search(config: SearchConfig, *, queries: Sequence[str] | None = None, progress: bool = False) -> OpenedSearch:
    """Open the model, and bring the index up to date.

    ``queries`` from a file are the sample on which the recall of approximate or quantized search is measured.

    Raises:
        NearfarError: see :func:`search`.
    """
    check_computing(config.device, config.precision)
    if config.approximate:
        check_installed()
    corpus = Corpus(config.input, config.column, config.show, skip_empty=config.skip_empty)
    folder = Path(config.index).expanduser() if config.index else corpus.path.with_name(corpus.path.name + ".index")

    from nearfar.encoder.prompts import choose_width

    recorded, precision = choose_precision(config.precision, None if config.rebuild else folder, config.device)
    opened = open_encoder(config.model, config.opening, precision)
    encoder = opened.encoder
    similarity = encoder.similarity if config.normalize else "dot"
    if similarity in NORMS and (config.approximate or config.quantize is not None):
        raise NearfarError(
            f"{'--approximate' if config.approximate else '--quantize'}: finds texts by inner products, and "
            f"{config.model} compares by minus the {similarity} distance; leave it out."
        )
    settings = {
        "model": opened.model,
        "model_name": config.model,
        "column": corpus.column,
        "show": list(corpus.shown),
        "pooling": encoder.pooling,
        "max_length": encoder.length_of("document"),
        "document_prompt": encoder.document_prompt,
        "normalize": similarity == "cosine",
        "precision": recorded,
    }
    if config.dimensions is not None:
        settings["dimensions"] = choose_width(config.dimensions, encoder.dim, encoder.matryoshka)
    index, update = update_index(
        folder,
        corpus,
        opened,
        settings,
        rebuild=config.rebuild,
        shared=config.index is not None,
        progress=progress,
    )

    def encode_query(texts: Sequence[str]) -> np.ndarray:
        return encoder.encode_query(
            texts, normalize=similarity == "cosine", dimensions=config.dimensions, precision=precision
        )

    searcher = Searcher(
        index,
        encode_query,
        corpus.shown,
        config.top,
        config.keep_duplicates,
        similarity=similarity,
        device=str(encoder.device),
    )
    recall = None
    if config.approximate or config.quantize is not None:
        searcher, recall = _inexact(searcher, folder, config, queries if config.queries else None, progress=progress)
    return OpenedSearch(searcher, folder, update, recall, config.quantize is not None)


def search_all(searcher: Searcher, queries: Sequence[str], config: SearchConfig) -> Iterator[list[Hit]]:
    """The hits of each query; after the last one, ``config.output`` is complete, if it is given.

    Raises:
        NearfarError: the output cannot be written, or the index is damaged.
    """
    with _hits_file(config, searcher.columns) as write:
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part = queries[start : start + QUERIES_AT_ONCE]
            for text, hits in zip(part, searcher.search(part), strict=True):
                write(text, hits)
                yield hits


@contextmanager
def _hits_file(config: SearchConfig, columns: Sequence[str]) -> Iterator[Callable[[str, Sequence[Hit]], None]]:
    """Yield a function that writes the hits of a query to ``config.output``, which appears complete or not at all."""
    if config.output is None:
        yield lambda _, __: None
        return
    output, json_lines = Path(config.output), config.output.endswith(".jsonl")
    with (
        new_file(output, refuse_busy=True) as new,
        new.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        stream.write("" if json_lines else table_header(columns))
        yield lambda text, hits: stream.writelines(format_hits(text, hits, columns, json_lines=json_lines))


def _inexact(
    searcher: Searcher, folder: Path, config: SearchConfig, queries: Sequence[str] | None, *, progress: bool
) -> tuple[Searcher, str]:
    """The searcher with a graph or with codes, and the recall of that in words."""
    search: RecallSearch
    texts = len(searcher.index.vectors)
    what = "building the graph" if config.quantize is None else "quantizing"
    with (
        folder_lock(folder, what=folder, flag="--index"),
        progress_bar(what, texts, shown=progress, stderr=True) as advance,
    ):
        if config.quantize is None:
            search = ApproximateSearch(searcher.index, on_added=advance)
        else:
            how: dict[str, Any] = {"factor": config.rescore, "device": searcher.device, "on_added": advance}
            search = QuantizedSearch(searcher.index, config.quantize, **how)
    recall, sample = search.recall, "of its texts, each without itself"
    if queries:
        chosen = [queries[number] for number in sample_of(len(queries))]
        recall, sample = measure_recall(search.search, searcher.index.vectors, searcher.encode_query(chosen)), "queries"
    words = f"recall@{recall.at} against exact search: {recall.value:.3f} (measured on {recall.queries} {sample})"
    return replace(searcher, inexact=search), words
