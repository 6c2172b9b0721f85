"""BEIR's layout of retrieval data (Thakur et al. 2021), in a folder or on the hub.

It is a corpus, queries, and relevance judgements by their ids:

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nearfar.data.cells import is_blank, parse_number, text_field
from nearfar.data.columns import Location
from nearfar.data.files import is_known, read_file, stem
from nearfar.data.hub import load_hub_splits, read_dataset
from nearfar.data.paths import is_folder, list_names, shown, status
from nearfar.data.retrieval_task import RetrievalTask
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from datasets import Dataset

QRELS_COLUMNS = ("query-id", "corpus-id", "score")
MAX_GRADE = 2**31 - 1
"""The greatest grade; sums of much greater ones would overflow."""
_QRELS_CONFIGS = ("qrels", "default")


class _Text(NamedTuple):
    where: Location
    id: str
    text: str
    """Title and text, normalised."""
    body: str
    """Without the title."""


class _Judgement(NamedTuple):
    where: Location
    query: str
    document: str
    grade: int


@dataclass(frozen=True)
class Layout:
    """The three tables of a data set, not yet read."""

    title: str
    """The source of the judgements, for messages."""
    documents: Iterable[_Text]
    queries: Iterable[_Text]
    judgements: Iterable[_Judgement]

    def task(self, *, exclude_same_id: bool) -> RetrievalTask:
        """Read the tables; see :func:`nearfar.data.retrieval.load_retrieval`."""
        documents, queries = _by_id(self.documents, "document"), _by_id(self.queries, "query")
        if not documents:
            raise NearfarError(f"{self.title}: the corpus has no documents.")
        if not queries:
            raise NearfarError(f"{self.title}: there are no queries.")
        judged = _Judged(self.judgements, queries, documents)
        kept = [name for name in queries if name in judged.relevant]
        if not kept:
            raise NearfarError(
                f"{self.title}: no query has a relevant document. Of {judged.number} judgements, "
                f"{judged.unknown_queries} are of unknown queries, {judged.unknown_documents} of unknown documents, "
                f"and {judged.not_relevant} have a score below 1."
            )
        positions = {name: position for position, name in enumerate(documents)}
        same_ids = {
            number: positions[name]
            for number, name in enumerate(kept)
            if name in positions and name not in judged.relevant[name]
        }
        same_texts = sum(queries[name].text == documents[name].body for name in kept if name in documents)
        counts = {
            "queries without relevant documents": len(queries) - len(kept),
            "judgements of unknown queries": judged.unknown_queries,
            "judgements of unknown documents": judged.unknown_documents,
            "empty documents": sum(not row.text for row in documents.values()),
            "empty queries": sum(not queries[name].text for name in kept),
        }
        if exclude_same_id:
            counts["queries with the id of a document, not ranked for them"] = len(same_ids)
        else:
            counts["queries with the id and text of a document, ranked for them (see --exclude-same-id)"] = same_texts
        return RetrievalTask(
            queries=[queries[name].text for name in kept],
            documents=[row.text for row in documents.values()],
            relevant=[
                {positions[document]: grade for document, grade in judged.relevant[name].items()} for name in kept
            ],
            query_ids=kept,
            document_ids=list(documents),
            counts=counts,
            excluded=same_ids if exclude_same_id else {},
        )


class _Judged:
    """The relevant documents of each query, and counts of the other judgements."""

    def __init__(self, judgements: Iterable[_Judgement], queries: dict[str, _Text], documents: dict[str, _Text]):
        self.relevant: dict[str, dict[str, int]] = {}
        self.number = self.unknown_queries = self.unknown_documents = self.not_relevant = 0
        seen: dict[tuple[str, str], int] = {}
        for where, query, document, grade in judgements:
            if seen.setdefault((query, document), grade) != grade:
                raise NearfarError(
                    f"{where}: query {query!r} and document {document!r} have the score {grade}, and "
                    f"{seen[query, document]} in a line above. Remove one of them."
                )
            self.number += 1
            if query not in queries:
                self.unknown_queries += 1
            elif document not in documents:
                self.unknown_documents += 1
            elif grade < 1:
                self.not_relevant += 1
            else:
                self.relevant.setdefault(query, {})[document] = grade


def is_layout(folder: Path) -> bool:
    """Whether a folder has at least one part of the layout."""
    return is_folder(folder / "qrels") or any(_text_file(folder, name) for name in ("corpus", "queries"))


def open_folder(folder: Path, split: str | None) -> Layout:
    """The data set in a folder; ``split`` is by default ``test``, or else the only one.

    Raises:
        NearfarError: a part is missing, or the split is; the message names what is there.
    """
    for name, what in (("corpus", "documents"), ("queries", "queries")):
        if _text_file(folder, name) is None:
            raise NearfarError(f"{folder}: has no {name}.jsonl, the {what} of BEIR's layout.")
    names = [Path(name) for name in list_names(folder / "qrels") if is_known(Path(name))]
    chosen = _choose_split(f"{folder}", [stem(name) for name in names], split)
    qrels = folder / "qrels" / next(name for name in names if stem(name) == chosen)
    return Layout(
        f"{qrels}",
        _read_texts(_text_file(folder, "corpus"), titled=True),
        _read_texts(_text_file(folder, "queries"), titled=False),
        _read_judgements(read_file(qrels, QRELS_COLUMNS)),
    )


def open_hub(repository: str, split: str | None) -> Layout | None:
    """The hub data set ``owner/name``; None if it has no config ``corpus``, so that it is not in this layout.

    Raises:
        NearfarError: the hub is unreachable and the data set is not cached, or a config or the split is missing.
    """
    try:
        corpora = load_hub_splits(f"{repository}/corpus")
    except NearfarError:
        return None
    error: NearfarError | None = None
    for config in _QRELS_CONFIGS:
        try:
            qrels = load_hub_splits(f"{repository}/{config}")
            break
        except NearfarError as found:
            error = error or found
    else:
        raise NearfarError(f"hub:{repository}: has a config corpus, but no judgements.\n  {error}")
    chosen = _choose_split(f"hub:{repository}", list(qrels), split)
    title = f"hub:{repository}:{chosen}"
    return Layout(
        title,
        _dataset_texts(_only(corpora, chosen, f"hub:{repository}/corpus"), f"hub:{repository}/corpus", titled=True),
        _dataset_texts(
            _only(load_hub_splits(f"{repository}/queries"), chosen, f"hub:{repository}/queries"),
            f"hub:{repository}/queries",
            titled=False,
        ),
        _dataset_judgements(qrels[chosen], title),
    )


def _text_file(folder: Path, name: str) -> Path | None:
    files = (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz")
    return next((file for file in files if status(file) is not None), None)


def _choose_split(title: str, available: Sequence[str], split: str | None) -> str:
    if not available:
        raise NearfarError(f"{title}: has no qrels/SPLIT.tsv, the judgements of BEIR's layout.")
    if split is not None and split not in available:
        raise NearfarError(f"{title}: has no split {split!r}. It has: {', '.join(available)}.")
    if split is None and "test" not in available and len(available) > 1:
        raise NearfarError(
            f"{title}: has several splits and none is called test. Name one: "
            f"{', '.join(f'{title}:{name}' for name in available)}."
        )
    return split or ("test" if "test" in available else available[0])


def _only(splits: "dict[str, Dataset]", split: str, title: str) -> "Dataset":
    """The one split of a corpus or of queries; if there are several, the one of the judgements."""
    if len(splits) > 1 and split not in splits:
        raise NearfarError(f"{title}: has several splits, and none is called {split!r}: {', '.join(splits)}.")
    return splits[split] if len(splits) > 1 else next(iter(splits.values()))


def _read_texts(file: Path | None, *, titled: bool) -> Iterator[_Text]:
    assert file is not None
    for where, (name, text, *titles) in read_file(file, ("_id", "text"), optional=("title",) if titled else ()):
        yield _text(where, name, text, titles[0] if titles else None)


def _dataset_texts(dataset: "Dataset", title: str, *, titled: bool) -> Iterator[_Text]:
    optional = ["title"] if titled and "title" in dataset.column_names else []
    for where, (name, text, *titles) in read_dataset(dataset, ["_id", "text", *optional], title=title):
        yield _text(where, name, text, titles[0] if titles else None)


def _text(where: Location, name: object, text: object, title: object) -> _Text:
    body, head = _field(text, "text", where), "" if title is None else _field(title, "title", where)
    return _Text(where, _id(name, "_id", where), f"{head} {body}".strip() if head else body, body)


def _field(value: object, column: str, where: Location) -> str:
    """A text that may be empty, or missing."""
    return "" if is_blank(value) else text_field(value, column, where)


def _id(value: object, column: str, where: Location) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str) or not value:
        raise NearfarError(f"{where}: column {column!r} holds {shown(value)}. An id is a text that is not empty.")
    return value


def _by_id(rows: Iterable[_Text], what: str) -> dict[str, _Text]:
    found: dict[str, _Text] = {}
    for row in rows:
        if row.id in found:
            raise NearfarError(
                f"{row.where}: the {what} id {shown(row.id)} is already that of {found[row.id].where}. "
                "Give each row an id of its own."
            )
        found[row.id] = row
    return found


def _read_judgements(rows: Iterable[tuple[Location, tuple[object, ...]]]) -> Iterator[_Judgement]:
    for where, (query, document, score) in rows:
        number = parse_number(score)
        if not number.is_integer():
            raise NearfarError(f"{where}: column 'score' holds {shown(score)}. A grade of relevance is a whole number.")
        if abs(number) > MAX_GRADE:
            raise NearfarError(f"{where}: column 'score' holds {shown(score)}. A grade is at most {MAX_GRADE}.")
        yield _Judgement(where, _id(query, "query-id", where), _id(document, "corpus-id", where), int(number))


def _dataset_judgements(dataset: "Dataset", title: str) -> Iterator[_Judgement]:
    """Judgements of the hub; without a column ``score`` (NanoBEIR) all are relevant, with grade 1."""
    if "score" in dataset.column_names:
        yield from _read_judgements(read_dataset(dataset, QRELS_COLUMNS, title=title))
        return
    rows = read_dataset(dataset, QRELS_COLUMNS[:2], title=title)
    yield from _read_judgements((where, (*values, 1)) for where, values in rows)
