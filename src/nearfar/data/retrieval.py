"""Retrieval tasks from data sets in BEIR's layout, from pairs of texts, and from NLI rows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from nearfar.data.beir import Layout, is_layout, open_folder, open_hub
from nearfar.data.catalog import find
from nearfar.data.columns import find_columns
from nearfar.data.files import is_known, is_plain_text
from nearfar.data.hub import HUB_NAME
from nearfar.data.named_sets import CATALOG, MIXTURES
from nearfar.data.nli import load_nli
from nearfar.data.paths import as_path, is_file, is_folder, list_names, status
from nearfar.data.retrieval_task import RetrievalTask, task_of_pairs
from nearfar.data.rows import load_documents
from nearfar.data.sources import column_names
from nearfar.data.triplets import load_tuples, pair_columns, set_of_pairs
from nearfar.types import ENTAILMENT, NearfarError

_SAVED_DATASET = ("state.json", "dataset_dict.json")
_NO_CONFIG = re.compile(r"hub:[\w.-]+/[\w.-]+(:.*)?")
"""A hub data set without a config."""
_NLI_COLUMNS = ("premise", "hypothesis", "label")


def load_retrieval(
    spec: str,
    *,
    anchor_column: str = "anchor",
    positive_column: str = "positive",
    corpus: str | None = None,
    exclude_same_id: bool = False,
) -> RetrievalTask:
    """Read a retrieval task.

    ``spec`` is one of these:

    - a folder in BEIR's layout, ``FOLDER`` or ``FOLDER:SPLIT``, or a hub data set in it, ``hub:owner/name`` or
      ``hub:owner/name:SPLIT``: see :mod:`nearfar.data.beir`. The main measure is ``ndcg@10``;
    - pairs, as :func:`nearfar.data.triplets.load_tuples` reads them: a file with two columns, a named set of pairs
      (``flickr8k``), a hub data set. Each distinct anchor is a query, its positives are its relevant documents, and
      all distinct positives are the documents. An anchor that is itself a document is not ranked for itself. The main
      measure is ``mrr@10``;
    - NLI rows: a named set (``snli``, ``mnli``), or a table with the columns premise, hypothesis and label and without
      the columns of pairs. Each distinct premise with an entailed hypothesis is a query, its entailed hypotheses are
      its relevant documents, and all distinct hypotheses are the documents, also those that contradict the premise.
      Otherwise as pairs.

    Args:
        spec: the source.
        anchor_column: the column of the queries in pairs.
        positive_column: the column of their relevant documents.
        corpus: more documents for pairs, relevant to no query: a text file with one text per line, a table with the
            column text, or a named set. Texts that are documents already are not repeated.
        exclude_same_id: in BEIR's layout, do not rank the document that has the id of the query. BEIR does this for
            ArguAna and Quora, where queries are documents.

    Raises:
        NearfarError: a source cannot be found or read; a malformed row, a duplicate id, a grade that is not a whole
            number (each with file and line); no query with a relevant document; ``corpus`` for a source that has its
            own, or ``exclude_same_id`` for pairs.
    """
    layout = _open_layout(spec)
    if layout is None:
        if exclude_same_id:
            raise NearfarError(f"{spec}: has no ids; --exclude-same-id is for data in BEIR's layout.")
        columns = anchor_column, positive_column
        return _load_nli_rows(spec, corpus) if _has_nli_rows(spec, columns) else _load_pairs(spec, columns, corpus)
    if corpus is not None:
        raise NearfarError(f"{spec}: has its own corpus; --corpus {corpus} adds documents to pairs and NLI rows only.")
    return layout.task(exclude_same_id=exclude_same_id)


def _open_layout(spec: str) -> Layout | None:
    """The data set in BEIR's layout; None if the spec means pairs."""
    name = spec.partition(":")[0]
    if name in CATALOG or name in MIXTURES:
        return None
    path, split = as_path(spec), None
    if status(path) is None and ":" in spec and not spec.startswith("hub:"):
        head, _, split = spec.rpartition(":")
        path = as_path(head)
    if is_folder(path):
        if is_layout(path):
            return open_folder(path, split)
        if not any(is_file(path / marker) for marker in _SAVED_DATASET):
            raise NearfarError(
                f"{path}: is a folder, but not in BEIR's layout: it has no corpus.jsonl, queries.jsonl and "
                f"qrels/SPLIT.tsv. It has: {', '.join(list_names(path)[:12]) or 'nothing'}."
            )
        return None
    return _open_on_hub(spec)


def _open_on_hub(spec: str) -> Layout | None:
    name = spec.partition(":")[0]
    if status(as_path(spec)) is None and HUB_NAME.fullmatch(name) and not _looks_like_a_file(name):
        spec = f"hub:{spec}"
    if not _NO_CONFIG.fullmatch(spec):
        return None
    repository, _, split = spec.removeprefix("hub:").partition(":")
    return open_hub(repository, split or None)


def _looks_like_a_file(name: str) -> bool:
    path = Path(name)
    return is_known(path) or is_plain_text(path) or is_folder(as_path(name).parent)


def _has_nli_rows(spec: str, columns: tuple[str, str]) -> bool:
    """Whether the source has no pairs but NLI rows. Errors of other sources are those of pairs."""
    if set_of_pairs(spec) is not None:
        return False
    names = column_names(find(spec)[0].table)
    return pair_columns(names, columns) is None and find_columns(names, _NLI_COLUMNS) is not None


def _load_pairs(spec: str, columns: tuple[str, str], corpus: str | None) -> RetrievalTask:
    pairs = load_tuples(spec, columns=columns)
    counts = {"pairs dropped, because repeated or with the same text twice": pairs.dropped}
    return _task(((anchor, positive) for anchor, positive in pairs.rows), (), counts, corpus)


def _load_nli_rows(spec: str, corpus: str | None) -> RetrievalTask:
    found = load_nli(spec)
    entailed = [(row.premise, row.hypothesis) for row in found.rows if row.label == ENTAILMENT]
    if not entailed:
        raise NearfarError(
            f"{spec}: none of the {len(found.rows)} NLI rows is an entailment, so no document is relevant."
        )
    counts = {
        "rows without a label dropped": found.dropped,
        "premises without an entailed hypothesis, which are no queries": len(
            {row.premise for row in found.rows} - {premise for premise, _ in entailed}
        ),
    }
    return _task(entailed, (row.hypothesis for row in found.rows), counts, corpus)


def _task(
    pairs: Iterable[tuple[str, str]], documents: Iterable[str], counts: Mapping[str, int], corpus: str | None
) -> RetrievalTask:
    """A task of pairs of a query and a relevant document, and of more documents."""
    listed = list(pairs)
    positions: dict[str, int] = {}
    for document in chain((document for _, document in listed), documents):
        positions.setdefault(document, len(positions))
    if corpus is not None:
        own = len(positions)
        for text in load_documents(corpus):
            positions.setdefault(text, len(positions))
        counts = {**counts, "documents added by the corpus": len(positions) - own}
    task = task_of_pairs(listed, positions, counts)
    same = {"queries that are documents, not ranked for themselves": len(task.excluded)}
    return replace(task, counts={**counts, **same})
