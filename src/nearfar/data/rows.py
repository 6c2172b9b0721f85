"""Read sentences, labelled texts and scored pairs from any source that the catalog can find.

:mod:`nearfar.data.triplets` reads pairs and triplets. Every loader reads the tables of its ``specs`` (see
:mod:`nearfar.data.catalog`) one after the other, normalises white space as in
:func:`nearfar.data.cells.text_field`, and stops after ``limit`` rows, in the order of the files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nearfar.data.catalog import NamedTable, find
from nearfar.data.cells import label_field, sort_labels
from nearfar.data.named_sets import OWN
from nearfar.data.paths import shown
from nearfar.data.sources import Entry
from nearfar.data.sts import scored_entries
from nearfar.types import NearfarError


@dataclass(frozen=True)
class TextData:
    """Rows in the order of their sources, and statistics of what was read."""

    rows: list[tuple[str, ...]]
    """One text (sentences, labelled), two (pairs) or three (anchor, positive, negative)."""
    targets: list[float] | list[int] | None
    """Label number or score (0 to 1) of each row; None without labels or scores."""
    sources: tuple[str, ...]
    """The location of each table and its number of rows, for display."""
    repaired: int
    """Number of fields whose control characters or irregular white space were replaced by single spaces."""
    dropped: int
    """Number of rows dropped: repeated sentences, pairs and triplets, and rows with the same text twice."""
    label_names: tuple[str, ...] = ()
    """The label names in the order of their numbers."""
    held_out: int = 0
    """Number of rows that were taken out of ``rows``, to evaluate on."""


class RowCollector:
    """Collects the rows of several tables: drops repetitions, stops at a limit, and counts both.

    ``kind`` names the rows in messages. Without ``distinct``, repeated rows are kept.
    """

    def __init__(self, kind: str, limit: int | None, *, distinct: bool = True) -> None:
        if limit is not None and limit < 2:
            raise NearfarError(f"The limit on {kind} is {limit}, but must be at least 2.")
        self._kind, self._limit, self._distinct = kind, limit, distinct
        self._seen: set[tuple[str, ...]] = set()
        self._sources: list[str] = []
        self._dropped = self.repaired = 0
        self.rows: list[tuple[str, ...]] = []
        self.targets: list[Any] = []

    def add(self, title: str, entries: Iterable[Entry], note: str = "") -> None:
        """Add the rows of a table, unless the limit is reached. ``note`` ends its description."""
        if self._is_full():
            return
        before, dropped = len(self.rows), self._dropped
        for entry in entries:
            if self._distinct and (entry.texts in self._seen or len(set(entry.texts)) < len(entry.texts)):
                self._dropped += 1
                continue
            self._seen.add(entry.texts)
            self.rows.append(entry.texts)
            self.targets.append(entry.target)
            self.repaired += entry.repaired
            if self._is_full():
                break
        if (len(self.rows), self._dropped) == (before, dropped):
            raise NearfarError(f"{title}: no {self._kind}.")
        duplicates = f", {self._dropped - dropped} duplicates dropped" if self._distinct else ""
        self._sources.append(f"{title}: {len(self.rows) - before} {self._kind}{duplicates}{note}")

    def texts(self, targets: list[float] | list[int] | None = None, label_names: Sequence[str] = ()) -> TextData:
        """Return the collected rows; raises NearfarError if there are none, or if all texts are equal."""
        if not self._sources:
            raise NearfarError(f"No source of {self._kind} was named; name at least one.")
        distinct = {text for row in self.rows[:1000] for text in row}
        if len(distinct) < 2 and len({text for row in self.rows for text in row}) < 2:
            text = f" ({shown(next(iter(distinct)))})" if distinct else ""
            raise NearfarError(f"All {self._kind} are equal{text}: there is nothing to learn. {self._sources[0]}.")
        return TextData(self.rows, targets, tuple(self._sources), self.repaired, self._dropped, tuple(label_names))

    def _is_full(self) -> bool:
        return self._limit is not None and len(self.rows) >= self._limit


def as_specs(specs: str | Sequence[str]) -> Sequence[str]:
    """Return ``specs`` as a list; a string becomes a list of one."""
    return [specs] if isinstance(specs, str) else specs


def load_sentences(
    specs: str | Sequence[str],
    *,
    column: str = "text",
    limit: int | None = None,
    generated: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> TextData:
    """Read sentences: plain text files (``.txt``, ``.txt.gz``: one per line), or tables with the column ``column``.

    A named set defines its own columns: ``snli`` has premises and hypotheses, ``stsb-text`` both sentences of every
    STS-B row (the 17,256 that Kim et al. 2021 train on). ``wiki1m`` is the million Wikipedia sentences of Gao et al.
    2021. ``generated`` has the texts of further names. Repeated sentences are dropped.

    Raises:
        NearfarError: a source cannot be found or read, an empty or non-string text (with file and line), a source
            without a sentence, sentences that are all equal, a ``limit`` below 2.

    """
    return _collect_sentences(specs, "sentences", column, limit, generated).texts()


def load_documents(specs: str | Sequence[str], *, column: str = "text") -> list[str]:
    """Read the distinct texts of documents to search in; sources are those of :func:`load_sentences`.

    Raises:
        NearfarError: a source cannot be found or read, an empty or non-string text (with file and line), a source
            without a text.

    """
    return [row[0] for row in _collect_sentences(specs, "documents", column, None).rows]


def _collect_sentences(
    specs: str | Sequence[str],
    kind: str,
    column: str,
    limit: int | None,
    generated: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> RowCollector:
    collector = RowCollector(kind, limit)
    for spec in as_specs(specs):
        if spec in generated:
            title = "texts of the rows" if spec == OWN else f"{spec}, generated"
            collector.add(title, (Entry((text,)) for text in generated[spec]))
            continue
        for found in find(spec):
            columns = (column,) if found.table.is_plain_text else found.sentences or (column,)
            note = ". It is evaluation text: scores on it will be transductive" if _is_evaluation(found) else ""
            collector.add(found.table.title, _sentence_entries(found, columns), note or found.note(columns))
    return collector


def load_labelled(
    specs: str | Sequence[str], *, text_column: str = "text", label_column: str = "label", limit: int | None = None
) -> TextData:
    """Read labelled texts: a named set with labels (``trec``, ``sst2``, ``mr``, ...), or own tables.

    Labels are strings or integers; they are numbered in numeric order if all are integers, else in text order.
    Repeated rows are kept, as in the published counts of the sets.

    Raises:
        NearfarError: a source cannot be found or read; a text that is empty or not a string, a label that is empty or
            neither string nor integer (each with file and line); a source without a row, texts that are all equal, a
            single label, a label with a single text (contrastive losses need two), a ``limit`` below 2.

    """
    collector = RowCollector("labelled texts", limit, distinct=False)
    for spec in as_specs(specs):
        for found in find(spec, "labelled"):
            entries = found.table.entries((text_column,), label_column, label_field)
            collector.add(found.table.title, entries, found.note((text_column, label_column)))
    labels = [str(target) for target in collector.targets]
    texts_of: dict[str, set[tuple[str, ...]]] = {name: set() for name in sort_labels(set(labels))}
    for row, label in zip(collector.rows, labels, strict=True):
        texts_of[label].add(row)
    numbers = {name: number for number, name in enumerate(texts_of)}
    loaded = collector.texts([numbers[label] for label in labels], list(texts_of))
    if len(texts_of) < 2:
        raise NearfarError(
            f"Every text has the label {shown(labels[0])}; there must be at least two labels. {loaded.sources[0]}."
        )
    for name, texts in texts_of.items():
        if len(texts) < 2:
            raise NearfarError(
                f"The label {shown(name)} has a single text, {shown(min(texts)[0])}; contrastive losses need two texts "
                f"per label. Add another, or remove that one. {loaded.sources[0]}."
            )
    return loaded


def load_scored(
    specs: str | Sequence[str],
    *,
    columns: Sequence[str] = ("sentence1", "sentence2", "score"),
    limit: int | None = None,
) -> TextData:
    """Read scored pairs for training, by :func:`nearfar.data.sts.load_task`, with scores rescaled to 0..1.

    The scale of a named set (``stsb:train``, ``sickr:train``) is in the catalog. For own data it is the range from the
    lowest to the highest score in the spec, and is noted in ``sources``. Repeated pairs are kept.

    Raises:
        NearfarError: as ``load_task``; also for scores or texts that are all equal and for a ``limit`` below 2.

    """
    if len(columns) != 3:
        raise NearfarError(f"Scored pairs need three columns, two texts and a score, not {', '.join(columns)}.")
    first, second, score = columns
    collector = RowCollector("scored pairs", limit, distinct=False)
    for spec in as_specs(specs):
        tables = find(spec, "scored")
        scale = tables[0].scale
        read = [scored_entries(found, (first, second), score, scale) for found in tables]
        scores = [entry.target for entries in read for entry in entries]
        low, high = scale or (min(scores), max(scores))
        if low == high:
            raise NearfarError(f"{spec}: every score is {low:g}; there is nothing to learn from equal scores.")
        note = "" if scale else f", scores of {low:g} to {high:g} rescaled to 0 to 1"
        for found, entries in zip(tables, read, strict=True):
            warning = ". They are evaluation pairs: scores on them will be meaningless" if _is_evaluation(found) else ""
            scaled = (entry._replace(target=(entry.target - low) / (high - low)) for entry in entries)
            collector.add(found.table.title, scaled, note + found.note(columns) + warning)
    return collector.texts([float(target) for target in collector.targets])


def _is_evaluation(found: NamedTable) -> bool:
    return found.scale is not None and found.name != "train"  # only STS sets have a scale


def _sentence_entries(found: NamedTable, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the sentences of a table: the lines of plain text, or some columns."""
    for entry in found.table.entries(columns):
        yield Entry(entry.texts[:1], repaired=entry.repaired)
        yield from (Entry((text,)) for text in entry.texts[1:])
