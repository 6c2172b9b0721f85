"""Read pairs and triplets: from tables, from captions of the same image, and from NLI rows."""

from collections.abc import Iterator, Sequence
from itertools import cycle, groupby

from nearfar.data.catalog import find
from nearfar.data.files import MissingColumnError
from nearfar.data.named_sets import CATALOG, NamedSet
from nearfar.data.nli import load_nli
from nearfar.data.rows import RowCollector, TextData, as_specs
from nearfar.data.sources import Entry, Table, text_field
from nearfar.types import CONTRADICTION, ENTAILMENT, NearfarError, NliRow

SIMCSE_COLUMNS = ("sent0", "sent1", "hard_neg")
"""Column names of the triplets published by Gao et al. 2021."""


def load_tuples(
    specs: str | Sequence[str], *, columns: Sequence[str] = ("anchor", "positive"), limit: int | None = None
) -> TextData:
    """Read pairs (two ``columns``) or triplets (three: anchor, positive, negative) from tables.

    Any two columns of related texts are pairs: a sentence and its back-translation, a question and its answer. Some
    named sets are pairs, whatever the ``columns``:

    - captions of the same image (``flickr8k``, five per image), in the order of the file: the first with the second,
      the third with the fourth; an odd last one is dropped, so that no caption occurs twice. ``flickr8k:test`` has the
      last 1,000 images, ``flickr8k:train`` the others, ``flickr8k:dev`` the last 1,000 of these;
    - ``microworld``, ``microworld:test``: generated premises with entailed hypotheses; ``microworld-paraphrases``.

    Repeated rows are dropped, and so are rows with the same text twice.

    Raises:
        NearfarError: a source cannot be found or read, a missing column, an empty or non-string text (with file and
            line), a source without a row, texts that are all equal, a ``limit`` below 2.

    """
    if len(columns) not in (2, 3):
        raise NearfarError(
            f"Name two columns (anchor, positive) or three (anchor, positive, negative), not {len(columns)}: "
            f"{', '.join(columns) or 'none'}."
        )
    collector = RowCollector("pairs" if len(columns) == 2 else "triplets", limit)
    for spec in as_specs(specs):
        entry = set_of_pairs(spec)
        if entry and len(columns) == 3:
            raise NearfarError(f"{spec.partition(':')[0]} has pairs, without negatives: name two columns.")
        for found in find(spec, "pairs"):
            if entry and entry.captions_by:
                entries = _captions(found.table, entry.captions_by, *entry.sentences)
            else:
                entries = found.table.entries(entry.sentences if entry else columns)
            collector.add(found.table.title, entries)
    return collector.texts()


def set_of_pairs(spec: str) -> NamedSet | None:
    """Return the named set of pairs that ``spec`` means, which has columns of its own; None for other data."""
    name = spec.partition(":")[0]
    entry = CATALOG[name].of_kind("pairs") if name in CATALOG else None
    return entry if entry and (entry.pairs or entry.captions_by) else None


def load_triplets(
    specs: str | Sequence[str],
    *,
    columns: Sequence[str] = ("anchor", "positive", "negative"),
    premise_column: str = "premise",
    hypothesis_column: str = "hypothesis",
    label_column: str = "label",
    label_order: Sequence[str] | None = None,
    limit: int | None = None,
) -> TextData:
    """Read triplets: from tables that have ``columns`` or :data:`SIMCSE_COLUMNS`, else by :func:`nli_triplets`.

    NLI rows are read by :func:`nearfar.data.nli.load_nli` (``snli``, ``snli+mnli``, ``microworld``, own data), each
    spec separately. Repetitions are dropped as in :func:`load_tuples`.

    Raises:
        NearfarError: as ``load_tuples`` and ``load_nli``; also for a table with neither the columns of triplets nor
            those of NLI rows, and for NLI rows without a triplet.

    """
    nli_columns = (premise_column, hypothesis_column, label_column)
    collector = RowCollector("triplets", limit)
    for spec in as_specs(specs):
        tables = find(spec)
        choices = [tuple(columns), SIMCSE_COLUMNS, nli_columns]
        try:
            available = tables[0].table.first_columns(choices)
        except MissingColumnError as error:
            named = "; or ".join(", ".join(choice) for choice in choices)
            raise NearfarError(f"{tables[0].table.title}: triplets need the columns {named}.\n  {error}") from None
        if available != nli_columns:
            for found in tables:
                collector.add(found.table.title, found.table.entries(available))
            continue
        nli = load_nli(
            spec,
            premise_column=premise_column,
            hypothesis_column=hypothesis_column,
            label_column=label_column,
            label_order=label_order,
        )
        triplets = nli_triplets(nli.rows)
        collector.repaired += nli.repaired
        collector.add(f"{spec} ({'; '.join(nli.sources)})", (Entry(triplet) for triplet in triplets))
    return collector.texts()


def nli_triplets(rows: Sequence[NliRow]) -> list[tuple[str, str, str]]:
    """Return (premise, entailed, contradicted) for every entailment whose premise also has a contradiction.

    The entailed hypotheses of a premise text, in the order of ``rows``, are combined with its contradicted ones in
    turn, cyclically. SimCSE's 275,601 triplets have this form (Gao et al. 2021, section 4.1).

    >>> nli_triplets([NliRow("p", "a", 0), NliRow("p", "x", 2), NliRow("p", "b", 0), NliRow("q", "c", 0)])
    [('p', 'a', 'x'), ('p', 'b', 'x')]

    Raises:
        NearfarError: no premise has both.

    """
    entailed: dict[str, list[str]] = {}
    contradicted: dict[str, list[str]] = {}
    for row in rows:
        if row.label in (ENTAILMENT, CONTRADICTION):
            of_label = entailed if row.label == ENTAILMENT else contradicted
            of_label.setdefault(row.premise, []).append(row.hypothesis)
    triplets = [
        (premise, positive, negative)
        for premise, positives in entailed.items()
        if premise in contradicted
        for positive, negative in zip(positives, cycle(contradicted[premise]), strict=False)
    ]
    if not triplets:
        raise NearfarError(
            f"None of the {len(entailed)} premises with an entailment also has a contradiction; a triplet needs both."
        )
    return triplets


def _captions(table: Table, image_column: str, caption_column: str) -> Iterator[Entry]:
    """Pair the captions of each image: consecutive rows, first with second, third with fourth."""
    for _, rows in groupby(table.rows((image_column, caption_column)), key=lambda row: row[1][0]):
        captions = [(text_field(caption, caption_column, where), caption) for where, (_, caption) in rows]
        for (first, first_raw), (second, second_raw) in zip(captions[::2], captions[1::2], strict=False):
            yield Entry((first, second), repaired=(first != first_raw) + (second != second_raw))
