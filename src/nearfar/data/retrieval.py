"""Retrieval tasks from data sets in BEIR's layout, from pairs of texts, and from NLI rows.

BEIR's layout (Thakur et al. 2021), in a folder or on the hub, is a corpus, queries, and relevance judgements by ids:

===================  ==================================================================================================
``corpus.jsonl``     documents: ``_id``, ``text``, and ``title`` if there is one. Title and text are joined by a space
``queries.jsonl``    queries: ``_id``, ``text``
``qrels/SPLIT.tsv``  judgements: ``query-id``, ``corpus-id``, ``score``, a whole number; below 1 means not relevant
===================  ==================================================================================================

On the hub these are the configs ``corpus``, ``queries`` and ``qrels`` of a data set, or ``default`` instead of
``qrels`` (NanoBEIR, MTEB). White space is normalised as in :func:`nearfar.data.cells.text_field`.

Judgements of unknown queries and documents are left out and counted. trec_eval counts the latter as relevant documents
that are not found. Documents and queries without text are kept, as in BEIR, and counted; they are encoded as the empty
text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias, get_args

from nearfar.data.catalog import find
from nearfar.data.cells import Location, bad_cell, find_columns, is_blank, parse_number, text_field
from nearfar.data.files import is_known, stem
from nearfar.data.named_sets import CATALOG, MIXTURES
from nearfar.data.paths import as_path, list_names
from nearfar.data.rows import NLI_COLUMNS, load_documents, load_nli
from nearfar.data.sources import SAVED_DATASET, Table, column_names, load_hub, open_table
from nearfar.data.triplets import load_tuples, pair_columns, set_of_pairs
from nearfar.types import ENTAILMENT, NearfarError, RetrievalMeasure
from nearfar.validation import format_value

MEASURES: tuple[RetrievalMeasure, ...] = get_args(RetrievalMeasure)
"""The measures, in the order of tables and result files."""


@dataclass(frozen=True)
class RetrievalTask:
    """Queries and documents as texts; relevance by their positions."""

    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, int]]
    """For each query: position of a relevant document -> its grade, at least 1. No query is without one."""
    query_ids: list[str]
    """Identifiers in the source; the positions as text where the source has none."""
    document_ids: list[str]
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was left out or is worth knowing: in words, such as "queries without relevant documents" -> number."""
    main: RetrievalMeasure = "ndcg@10"
    """The measure that tables and comparisons show first."""
    excluded: Mapping[int, int] = field(default_factory=dict)
    """Position of a query -> position of the document that is the query itself and is not ranked for it."""


def task_of_pairs(
    pairs: Iterable[tuple[str, str]], positions: Mapping[str, int], counts: Mapping[str, int]
) -> RetrievalTask:
    """A task of pairs of a query and a relevant document, given the positions of all documents.

    A query that is a document too is not ranked for itself.
    """
    relevant: dict[str, dict[int, int]] = {}
    for query, document in pairs:
        relevant.setdefault(query, {})[positions[document]] = 1
    return RetrievalTask(
        queries=list(relevant),
        documents=list(positions),
        relevant=list(relevant.values()),
        query_ids=list(map(str, range(len(relevant)))),
        document_ids=list(map(str, range(len(positions)))),
        counts=counts,
        main="mrr@10",
        excluded={number: positions[query] for number, query in enumerate(relevant) if query in positions},
    )


QRELS_COLUMNS = ("query-id", "corpus-id", "score")
MAX_GRADE = 2**31 - 1
"""The greatest grade; sums of much greater ones would overflow."""


class Judgement(NamedTuple):
    """How relevant a document is to a query, by their identifiers."""

    where: Location
    query: str
    document: str
    grade: int


Layout: TypeAlias = tuple[Table, Table, Table]
"""The tables of a data set, not yet read: documents, queries, judgements."""


def _read_layout(layout: Layout, *, exclude_same_id: bool) -> RetrievalTask:
    """Read the tables; see :func:`load_retrieval`."""
    documents, queries = _by_id(layout[0], "document"), _by_id(layout[1], "query")
    positions = {name: position for position, name in enumerate(documents)}
    relevant: dict[str, dict[int, int]] = {}
    left_out = Counter[str]()
    for _, query, document, grade in agreeing(read_judgements(layout[2])):
        if query not in queries or document not in documents:
            left_out["queries" if query not in queries else "documents"] += 1
        elif grade >= 1:
            relevant.setdefault(query, {})[positions[document]] = grade
    kept = [name for name in queries if name in relevant]
    unknown = {f"judgements of unknown {what}": left_out[what] for what in ("queries", "documents")}
    if not kept:
        counted = ", ".join(f"{count} {what}" for what, count in unknown.items())
        raise NearfarError(f"{layout[2].title}: no query has a relevant document. {counted}.")
    same = {number: positions[name] for number, name in enumerate(kept) if name in positions}
    excluded = {number: place for number, place in same.items() if place not in relevant[kept[number]]}
    counts = {
        "queries without relevant documents": len(queries) - len(kept),
        **unknown,
        "empty documents": sum(not text for text, _ in documents.values()),
        "empty queries": sum(not queries[name][0] for name in kept),
    }
    if exclude_same_id:
        counts["queries with the id of a document, not ranked for them"] = len(excluded)
    else:
        same_texts = sum(queries[kept[number]][0] == documents[kept[number]][1] for number in same)
        counts["queries with the id and text of a document, ranked for them (see --exclude-same-id)"] = same_texts
    return RetrievalTask(
        queries=[queries[name][0] for name in kept],
        documents=[text for text, _ in documents.values()],
        relevant=[relevant[name] for name in kept],
        query_ids=kept,
        document_ids=list(documents),
        counts=counts,
        excluded=excluded if exclude_same_id else {},
    )


def agreeing(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    """The judgements.

    Raises:
        NearfarError: a query and a document have two grades.
    """
    seen: dict[tuple[str, str], int] = {}
    for one in judgements:
        if seen.setdefault((one.query, one.document), one.grade) != one.grade:
            raise NearfarError(f"{one.where}: {one.query!r} and {one.document!r} have another score in a line above.")
        yield one


def _open_folder(folder: Path, split: str | None) -> Layout:
    """The data set in a folder.

    Raises:
        NearfarError: a part is missing, or the split is; the message names what is there.
    """

    def texts(name: str) -> dict[str, Table]:
        for file in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
            if file.exists():
                return {name: open_table(file)}
        raise NearfarError(f"{folder}: has no {name}.jsonl, as BEIR's layout does.")

    files = [folder / "qrels" / name for name in list_names(folder / "qrels")]
    judgements = {stem(file): open_table(file) for file in files if is_known(file)}
    return _choose_splits(f"{folder}", (texts("corpus"), texts("queries"), judgements), split)


def _open_hub(repository: str, split: str | None) -> Layout | None:
    """The hub data set ``owner/name``; None if it has no config ``corpus``, so that it is not in this layout.

    Raises:
        NearfarError: the hub is unreachable and the data set is not cached, or a config or the split is missing.
    """

    def config(name: str) -> dict[str, Table]:
        splits = dict(load_hub(f"{repository}/{name}"))
        return {split: Table(f"hub:{repository}/{name}:{split}", data) for split, data in splits.items()}

    try:
        documents = config("corpus")
    except NearfarError:
        return None
    try:
        judgements = config("qrels")
    except NearfarError:
        judgements = config("default")
    return _choose_splits(f"hub:{repository}", (documents, config("queries"), judgements), split)


def _choose_splits(title: str, parts: tuple[Mapping[str, Table], ...], split: str | None) -> Layout:
    """The tables of a split of the judgements: by default ``test``, or the only one. Texts may have a single split."""
    chosen = split or (next(iter(parts[-1])) if len(parts[-1]) == 1 else "test")
    tables = []
    for what, splits in zip(("documents", "queries", "judgements (qrels)"), parts, strict=True):
        name = chosen if len(splits) != 1 or splits is parts[-1] else next(iter(splits))
        if name not in splits:
            raise NearfarError(f"{title}: has no split {name!r} of {what}. It has: {', '.join(splits) or 'none'}.")
        tables.append(splits[name])
    return tables[0], tables[1], tables[2]


def _field(value: object, column: str, where: Location) -> str:
    """A text that may be empty, or missing."""
    return "" if is_blank(value) else text_field(value, column, where)


def _id(value: object, column: str, where: Location) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str) or not value:
        raise bad_cell(value, column, where, ". An id is a text that is not empty.")
    return value


def _by_id(table: Table, what: str) -> dict[str, tuple[str, str]]:
    """Id -> the text with its title, and the text alone."""
    rows: dict[str, tuple[str, str]] = {}
    titles = ("title",) if what == "document" and _may_have(table, "title") else ()
    for where, (value, text, *title) in table.rows(("_id", "text"), optional=titles):
        name, body = _id(value, "_id", where), _field(text, "text", where)
        if name in rows:
            raise NearfarError(f"{where}: the {what} id {format_value(name)} is already that of a row above.")
        head = "".join(_field(cell, "title", where) for cell in title)
        rows[name] = (f"{head} {body}".strip(), body)
    if not rows:
        raise NearfarError(f"{table.title}: holds no {what}.")
    return rows


def _may_have(table: Table, column: str) -> bool:
    return isinstance(table.data, Path) or column in table.data.column_names


def read_judgements(table: Table) -> Iterator[Judgement]:
    """The judgements; without a column ``score``, as in NanoBEIR on the hub, all are relevant, with grade 1."""
    columns = QRELS_COLUMNS if _may_have(table, "score") else QRELS_COLUMNS[:2]
    for where, (query, document, *scores) in table.rows(columns):
        grade = grade_field(scores[0], "score", where) if scores else 1
        yield Judgement(where, _id(query, "query-id", where), _id(document, "corpus-id", where), grade)


def grade_field(value: object, column: str, where: Location) -> int:
    """The grade of relevance that a cell holds.

    Raises:
        NearfarError: it is not a whole number, or too large.
    """
    number = parse_number(value)
    if not number.is_integer() or abs(number) > MAX_GRADE:
        raise bad_cell(value, column, where, f". A grade of relevance is a whole number, at most {MAX_GRADE}.")
    return int(number)


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
      ``hub:owner/name:SPLIT``: see :mod:`nearfar.data.retrieval`. The main measure is ``ndcg@10``;
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
    if layout is not None:
        if corpus is not None:
            raise NearfarError(f"{spec}: has its own corpus; --corpus is for pairs and NLI rows only.")
        return _read_layout(layout, exclude_same_id=exclude_same_id)
    if exclude_same_id:
        raise NearfarError(f"{spec}: has no ids; --exclude-same-id is for data in BEIR's layout.")
    if _has_nli_rows(spec, columns := (anchor_column, positive_column)):
        data = load_nli(spec)
        pairs = [(row.premise, row.hypothesis) for row in data.rows if row.label == ENTAILMENT]
        if not pairs:
            raise NearfarError(f"{spec}: no NLI row is an entailment, so no document is relevant.")
        silent = {row.premise for row in data.rows} - {premise for premise, _ in pairs}
        counts = {
            "rows without a label dropped": data.dropped,
            "premises without an entailed hypothesis, which are no queries": len(silent),
        }
        documents = dict.fromkeys([*(document for _, document in pairs), *(row.hypothesis for row in data.rows)])
    else:
        data = load_tuples(spec, columns=columns)
        pairs, counts = list(data.rows), {"pairs dropped, because repeated or with the same text twice": data.dropped}
        documents = dict.fromkeys(document for _, document in pairs)
    if corpus is not None:
        own = len(documents)
        documents |= dict.fromkeys(load_documents(corpus))
        counts["documents added by the corpus"] = len(documents) - own
    task = task_of_pairs(pairs, {text: place for place, text in enumerate(documents)}, counts)
    return replace(task, counts={**counts, "queries that are documents, not ranked for themselves": len(task.excluded)})


def _open_layout(spec: str) -> Layout | None:
    """The data set in BEIR's layout; None if the spec means pairs."""
    name = spec.partition(":")[0]
    if name in CATALOG or name in MIXTURES:
        return None
    if spec.startswith("hub:"):
        repository, _, split = spec.removeprefix("hub:").partition(":")
        return _open_hub(repository, split or None) if repository.count("/") == 1 else None
    path, chosen = as_path(spec), None
    if not path.exists() and ":" in spec:
        head, _, chosen = spec.rpartition(":")
        path = as_path(head)
    if not path.is_dir() or any((path / marker).is_file() for marker in SAVED_DATASET):
        return None
    if any(name.startswith(("qrels", "corpus.jsonl", "queries.jsonl")) for name in list_names(path)):
        return _open_folder(path, chosen)
    raise NearfarError(f"{path}: is a folder, but not in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.")


def _has_nli_rows(spec: str, columns: tuple[str, str]) -> bool:
    """Whether the source has no pairs but NLI rows. Errors of other sources are those of pairs."""
    if set_of_pairs(spec) is not None:
        return False
    names = column_names(find(spec)[0])
    return pair_columns(names, columns) is None and find_columns(names, NLI_COLUMNS) is not None
