"""Pairs and triplets: which columns hold them, under many names, and how NLI rows and captions become them.

A cell of a positive or of negatives holds a text or a list of texts. Beside each may be its score by a teacher, such as
a reranker.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, groupby, product, repeat, zip_longest

from nearfar.data import cells
from nearfar.data.catalog import find
from nearfar.data.named_sets import CATALOG, NamedSet
from nearfar.data.rows import NLI_COLUMNS, Described, TextData, as_specs, collect_rows, load_nli, require_different
from nearfar.data.sources import Entry, Table, column_names
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError, NliRow

PAIR_NAMES = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "document"),
    ("query", "pos"),
    ("question", "answer"),
    ("sent0", "sent1"),
)
"""Names of the columns of pairs."""

NEGATIVE_NAMES = ("negative", "hard_neg", "hard_negative", "neg")
"""Names of the columns of hard negatives; numbered ones and lists have these names too (``negative_1``)."""


def pair_columns(names: Sequence[str], columns: Sequence[str] = PAIR_NAMES[0]) -> tuple[str, str] | None:
    """Return the columns of pairs among ``names``; None if there are none, or several that they can be.

    They are ``columns``, or in place of ``anchor`` and ``positive``, the defaults, others of :data:`PAIR_NAMES`.
    """
    anchor, positive = columns
    usual = [(anchor, positive)] + [
        (other if anchor == PAIR_NAMES[0][0] else anchor, match if positive == PAIR_NAMES[0][1] else positive)
        for other, match in PAIR_NAMES
    ]
    found = [(pair[0], pair[1]) for each in dict.fromkeys(usual) if (pair := cells.find_columns(names, each))]
    distinct = [pair for pair in found if pair[0] != pair[1]]
    return distinct[0] if len(distinct) == 1 or (distinct and cells.find_columns(names, columns)) else None


def negative_columns(names: Sequence[str], column: str | None = None) -> list[str]:
    """Return the columns of hard negatives among ``names``: all that are called ``column``, with or without a number.

    Without ``column``, the first of :data:`NEGATIVE_NAMES` that is there.

    >>> negative_columns(["anchor", "positive", "Negative 1", "negative_2"])
    ['Negative 1', 'negative_2']
    """
    if column is not None and column in names and column[-1:].isdigit():
        return [column]
    for stem in NEGATIVE_NAMES if column is None else (column,):
        numbered = re.compile(re.escape(cells.fold_name(stem)) + r"s?\d*")
        if found := [name for name in names if name == stem or numbered.fullmatch(cells.fold_name(name))]:
            return found
    return []


def score_columns(names: Sequence[str], positive: str, negatives: Sequence[str], where: object) -> list[str]:
    """Return the columns of a teacher's scores: that of the positive, then that of each column of ``negatives``.

    They are called as those of the texts: ``positive_score``, ``pos_scores``, ``negative_score_2``; that of the
    positive may also be ``score`` or ``positive_score``, whatever the texts are called. [] without any.

    >>> score_columns(["query", "pos", "neg", "pos_scores", "neg_scores"], "pos", ["neg"], "file")
    ['pos_scores', 'neg_scores']

    Raises:
        NearfarError: some of the negatives have scores, other texts have none; ``where`` begins the message.
    """
    matches = [(re.fullmatch(r"(.*?)scores?(\d*)", cells.fold_name(name)), name) for name in names]
    scores = {match[1] + match[2]: name for match, name in matches if match}
    texts = {text: cells.fold_name(text) for text in (positive, *negatives)}
    columns = {text: scores.get(key) or scores.get(key.removesuffix("s"), "") for text, key in texts.items()}
    columns[positive] = columns[positive] or scores.get("positive") or scores.get("", "")
    missing = [text for text, column in columns.items() if not column]
    if missing and any(columns[text] for text in negatives):
        raise NearfarError(
            f"{where}: no column has the scores of {missing[0]!r}, beside {', '.join(filter(None, columns.values()))}. "
            "Call it as its texts: negative_score_2 has the scores of negative_2."
        )
    return [] if missing else list(columns.values())


def load_tuples(
    specs: str | Sequence[str],
    *,
    columns: Sequence[str] = PAIR_NAMES[0],
    find_negatives: bool = False,
    scores: bool = False,
    limit: int | None = None,
) -> TextData:
    """Read pairs (two ``columns``) or triplets (three: anchor, positive, negative) from tables.

    Any two columns of related texts are pairs: a sentence and its back-translation, a question and its answer. In place
    of the default names, others of :data:`PAIR_NAMES` are found. Hard negatives may be in several columns
    (:func:`negative_columns`). Cells of positives and negatives may hold lists; each positive with each negative makes
    a row. With ``find_negatives``, those that all tables have are read without being named. With ``scores``, the
    targets are the scores of the positive and of the negative, if the row has one (:func:`score_columns`). Some named
    sets are pairs, whatever the ``columns``:

    - captions of the same image (``flickr8k``, five per image), in the order of the file: the first with the second,
      the third with the fourth; an odd last one is dropped, so that no caption occurs twice. ``flickr8k:test`` has the
      last 1,000 images, ``flickr8k:train`` the others, ``flickr8k:dev`` the last 1,000 of these;
    - ``microworld``, ``microworld:test``: generated premises with entailed hypotheses; ``microworld-paraphrases``.

    Repeated rows are dropped, and so are rows with the same text twice.

    Raises:
        NearfarError: a source cannot be found or read, a missing column, an empty or non-string text, a score that is
            no number or has no text (each with file and line), a source without a row, texts that are all equal, a
            ``limit`` below 2.

    """
    tables = []
    for spec in as_specs(specs):
        entry = set_of_pairs(spec)
        if entry and len(columns) == 3:
            raise NearfarError(f"{spec.partition(':')[0]} has pairs, without negatives: name two columns.")
        tables += [(entry, found, [] if entry else column_names(found)) for found in find(spec, "pairs")]
    named = columns[2] if len(columns) == 3 else None
    triplets = bool(named or (find_negatives and tables and all(negative_columns(names) for _, _, names in tables)))

    def described(entry: NamedSet | None, found: Table, names: Sequence[str]) -> Described:
        if entry is None:
            pair = pair_columns(names, columns[:2]) or (columns[0], columns[1])
            return _tuples(found, pair, negative_columns(names, named) if triplets else [], named, scores=scores)
        pairs = _captions(found, entry.captions_by, *entry.sentences) if entry.captions_by else None
        return found.title, pairs or found.entries(entry.sentences), ""

    kind = "triplets" if triplets else "pairs"
    return require_different(collect_rows(kind, limit, (described(*table) for table in tables)), kind)


def _tuples(
    found: Table, pair: tuple[str, str], negatives: Sequence[str], missing: str | None = None, *, scores: bool = False
) -> Described:
    """The pairs of a table, with their ``negatives``; ``missing`` is the name of negatives that must be there."""
    columns = pair if negatives or missing is None else (*pair, missing)
    names = column_names(found) if scores else []
    scored = score_columns(names, pair[1], negatives, found.title)
    if not scored and cells.find_columns(names, columns):
        raise NearfarError(
            f"{found.title}: has no scores. Name their columns as those of the texts: positive_score (or score) and "
            f"negative_score_1. Its columns: {', '.join(map(cells.printable_name, names[:20]))}."
        )
    parse = partial(_parse_tuple, columns=(*pair, *negatives), scores=scored)
    entries = found.entries(columns, optional=(*negatives, *scored), parse=parse)
    return found.title, entries, found.note((*columns, *negatives, *scored))


def _parse_tuple(
    where: cells.Location, values: Sequence[object], *, columns: Sequence[str], scores: Sequence[str]
) -> list[Entry]:
    """An entry for each positive of a row with each of its negatives; ``scores`` are the columns of their scores."""
    anchor = cells.text_field(values[0], columns[0], where)
    lists = [cell if isinstance(cell, list) else [] if cells.is_blank(cell) else [cell] for cell in values[1:]]
    count = len(columns) - 1
    by_column = zip_longest(columns[1:], lists[:count], scores, lists[count:])
    positives, *others = (list(_documents(where, *column)) for column in by_column)
    negatives = list(chain(*others))
    if not positives or (others and not negatives):
        raise cells.EmptyCellError(f"{where}: column {columns[2 if positives else 1]!r} is empty.")
    rows = product(positives, negatives) if others else zip(positives, strict=True)
    return [
        Entry((anchor, *texts), numbers if scores else None, (anchor != values[0]) + sum(repaired))
        for texts, repaired, numbers in (zip(*row, strict=True) for row in rows)
    ]


def _documents(
    where: cells.Location,
    column: str,
    texts: Sequence[object],
    scores_column: str | None,
    scores: Sequence[object] | None,
) -> Iterator[tuple[str, bool, float | None]]:
    """The texts of a cell, without blank ones: each, whether its white space was normalised, and its score."""
    if scores_column and len(scores or ()) != len(texts):
        problem = f"has {len(scores)} scores, for {len(texts)} texts in {column!r}" if scores else "is empty"
        raise (NearfarError if scores else cells.EmptyCellError)(f"{where}: column {scores_column!r} {problem}.")
    for raw, score in zip(texts, scores or repeat(None), strict=False):
        if not cells.is_blank(raw):
            text = cells.text_field(raw, column, where)
            yield text, text != raw, cells.score_check()(score, scores_column, where) if scores_column else None


def set_of_pairs(spec: str) -> NamedSet | None:
    """Return the named set of pairs that ``spec`` means, which has columns of its own; None for other data."""
    name = spec.partition(":")[0]
    entry = CATALOG[name].of_kind("pairs") if name in CATALOG else None
    return entry if entry and (entry.pairs or entry.captions_by) else None


def load_triplets(specs: str | Sequence[str], *, limit: int | None = None) -> TextData:
    """Read triplets: from tables with the columns of pairs and of hard negatives, else by :func:`nli_triplets`.

    The columns are found as by :func:`load_tuples`.
    NLI rows are read by :func:`nearfar.data.rows.load_nli` (``snli``, ``snli+mnli``, ``microworld``, own data), each
    spec separately. Repetitions are dropped as in :func:`load_tuples`.

    Raises:
        NearfarError: as ``load_tuples`` and ``load_nli``; also for a table with neither the columns of triplets nor
            those of NLI rows, and for NLI rows without a triplet.

    """
    repaired = 0

    def described(spec: str) -> Iterator[Described]:
        nonlocal repaired
        tables = find(spec)
        names = column_names(tables[0])
        pair, negatives = pair_columns(names), negative_columns(names)
        if pair and negatives:
            yield from (_tuples(found, pair, negatives) for found in tables)
            return
        if cells.find_columns(names, NLI_COLUMNS) is None:
            raise NearfarError(
                f"{tables[0].title}: triplets need the columns anchor, positive, negative; or sent0, sent1, hard_neg; "
                f"or {', '.join(NLI_COLUMNS)}. Its columns: {', '.join(map(cells.printable_name, names[:20]))}."
            )
        nli = load_nli(spec)
        repaired += nli.repaired
        yield f"{spec} ({'; '.join(nli.sources)})", map(Entry, nli_triplets(nli.rows)), ""

    data = collect_rows("triplets", limit, chain.from_iterable(map(described, as_specs(specs))))
    return require_different(replace(data, repaired=data.repaired + repaired), "triplets")


def nli_triplets(rows: Sequence[NliRow]) -> list[tuple[str, str, str]]:
    """Return (premise, entailed, contradicted) for every entailment whose premise also has a contradiction.

    The entailed hypotheses of a premise text, in the order of ``rows``, are combined with its contradicted ones in
    turn, cyclically. SimCSE's 275,601 triplets have this form (Gao et al. 2021, section 4.1).

    >>> nli_triplets([NliRow("p", "a", 0), NliRow("p", "x", 2), NliRow("p", "b", 0), NliRow("q", "c", 0)])
    [('p', 'a', 'x'), ('p', 'b', 'x')]

    Raises:
        NearfarError: no premise has both.

    """
    hypotheses: dict[int, dict[str, list[str]]] = {ENTAILMENT: {}, NEUTRAL: {}, CONTRADICTION: {}}
    for row in rows:
        hypotheses[row.label].setdefault(row.premise, []).append(row.hypothesis)
    triplets = [
        (premise, positive, negative)
        for premise, positives in hypotheses[ENTAILMENT].items()
        for positive, negative in zip(positives, cycle(hypotheses[CONTRADICTION].get(premise, ())), strict=False)
    ]
    if not triplets:
        raise NearfarError("No premise has both an entailment and a contradiction; a triplet needs both.")
    return triplets


def _captions(table: Table, image_column: str, caption_column: str) -> Iterator[Entry]:
    """Pair the captions of each image: consecutive rows, first with second, third with fourth."""
    for _, rows in groupby(table.rows((image_column, caption_column)), key=lambda row: row[1][0]):
        captions = [(cells.text_field(caption, caption_column, where), caption) for where, (_, caption) in rows]
        for (first, first_raw), (second, second_raw) in zip(captions[::2], captions[1::2], strict=False):
            yield Entry((first, second), repaired=(first != first_raw) + (second != second_raw))
