"""Read rows from any source that the catalog can find: sentences, labelled texts, scored pairs, NLI rows, tuples.

Tuples are pairs and triplets: from tables, from captions of the same image, and from NLI rows. Every loader reads the
tables of its ``specs`` (see :mod:`nearfar.data.catalog`) one after the other, and normalises white space as in
:func:`nearfar.data.cells.text_field`. Loaders with a ``limit`` stop after so many rows, in the order of the files.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

from nearfar.data.catalog import find
from nearfar.data.cells import Check, Location, is_blank, label_field, parse_number, score_check, sort_labels
from nearfar.data.named_sets import CATALOG, OWN, UNLABELLED
from nearfar.data.sources import Entry, Table
from nearfar.disk.rows import NumberedItems, RowWriter
from nearfar.types import LABEL_NAMES, NearfarError, NliRow, ScoredPair
from nearfar.validation import format_value


@dataclass(frozen=True)
class TextData:
    """Rows in the order of their sources, and statistics of what was read."""

    rows: Sequence[Any]
    """One text (sentences, labelled), two (pairs) or three (anchor, positive, negative); or NLI rows. Many rows are on
    disk (:mod:`nearfar.disk.rows`)."""
    targets: list[Any] | None
    """Label number or score (0 to 1) of each row; of triplets, a teacher's scores of positive and negative, on any
    scale; None without labels or scores."""
    sources: tuple[str, ...]
    """The location of each table and its number of rows, for display."""
    repaired: int
    """Number of fields whose control characters or irregular white space were replaced by single spaces."""
    dropped: int
    """Number of rows dropped: repeated sentences, pairs and triplets, rows with the same text twice, and NLI rows
    without a label (:data:`nearfar.data.named_sets.UNLABELLED`)."""
    label_names: tuple[str, ...] = ()
    """The label names in the order of their numbers."""
    held_out: int = 0
    """Number of rows that were taken out of ``rows``, to evaluate on."""

    @property
    def is_nli(self) -> bool:
        """Whether its rows are NLI rows."""
        return bool(self.rows) and isinstance(self.rows[0], NliRow)


Described: TypeAlias = tuple[str, Iterable[Entry], str]
"""A table to read: its title, its rows, and what ends its description."""


def collect_rows(kind: str, limit: int | None, tables: Iterable[Described], *, distinct: bool = True) -> TextData:
    """The rows of several tables, up to a limit; ``kind`` names the rows in messages.

    Rows without a label, and with ``distinct`` those that repeat one, or a text within themselves, are dropped and
    counted. Many rows are written to disk.

    Raises:
        NearfarError: a ``limit`` below 2, no table, or one without a row.
    """
    if limit is not None and limit < 2:
        raise NearfarError(f"The limit on {kind} is {limit}, but must be at least 2.")
    kept, seen = RowWriter(), NumberedItems()
    targets: list[Any] = []
    sources: list[str] = []
    dropped = repaired = 0
    for title, entries, note in tables:
        if len(kept) == limit:
            break
        before, dropped_before = len(kept), dropped
        for entry in entries:
            texts = entry.texts
            if not texts or (distinct and (len(set(texts)) < len(texts) or not seen.add(texts))):
                dropped += 1
                continue
            kept.add(texts)
            repaired += entry.repaired
            if entry.target is not None:
                targets.append(entry.target)
            if len(kept) == limit:
                break
        left_out = f", {dropped - dropped_before:,} dropped" if dropped > dropped_before else ""
        if len(kept) == before and not (distinct and left_out):
            raise NearfarError(f"{title}: no {kind}{left_out}.")
        sources.append(f"{title}: {len(kept) - before} {kind}{left_out}{note}")
    if not sources:
        raise NearfarError(f"No source of {kind} was named; name at least one.")
    have_targets = len(targets) == len(kept) > 0
    return TextData(kept.finish(), targets if have_targets else None, tuple(sources), repaired, dropped)


def require_different(data: TextData, kind: str) -> TextData:
    """The rows; raises NearfarError if all of their texts are equal."""
    texts = chain.from_iterable(data.rows)
    first = next(texts, "")
    if all(text == first for text in texts):
        raise NearfarError(f"All {kind} are equal ({format_value(first)}). {data.sources[0]}.")
    return data


NLI_COLUMNS = ("premise", "hypothesis", "label")
SCORED_COLUMNS = ("sentence1", "sentence2", "score")


def load_nli(specs: str | Sequence[str], *, columns: Sequence[str] = NLI_COLUMNS) -> TextData:
    """Read the tables of ``specs`` (see :mod:`nearfar.data.catalog`), one after the other.

    A label is entailment, neutral or contradiction, in upper or lower case, or the integer 0, 1 or 2. Integers mean
    these three in this order, as in SNLI and MultiNLI on the hub. Data sets that declare class names are read by those
    names.

    Raises:
        NearfarError: a source cannot be found or read, an unknown label, an empty or non-string text (each with file
            and line), a table without a labelled row.

    """
    tables = _described(specs, columns[:2], columns[2], _label)
    data = collect_rows("labelled NLI rows", None, tables, distinct=False)
    labelled = zip(data.rows, data.targets or (), strict=True)
    rows = [NliRow(premise, hypothesis, int(label)) for (premise, hypothesis), label in labelled]
    return replace(data, rows=rows, targets=None)


def _described(specs: str | Sequence[str], columns: Sequence[str], target: str, check: Check) -> Iterator[Described]:
    """The tables of labelled texts or NLI rows."""
    for spec in as_specs(specs):
        for found in find(spec, "labelled" if len(columns) == 1 else None):
            yield found.title, found.entries(columns, target, check), found.note((*columns, target))


_NLI_LABELS: Mapping[str, int | None] = {
    **dict.fromkeys(UNLABELLED),
    **{word: label for label, name in enumerate(LABEL_NAMES) for word in (name, str(label))},
}


def _label(value: object, column: str, where: Location) -> int | None:
    text = "" if is_blank(value) else label_field(value, column, where).lower()
    if text not in _NLI_LABELS:
        raise NearfarError(
            f"{where}: unknown label {format_value(value)}. Known: {', '.join(LABEL_NAMES)}; 0, 1, 2 for these, as in "
            "SNLI; and '-', -1 or nothing for a row without a label, which is dropped."
        )
    return _NLI_LABELS[text]


def load_task(spec: str) -> dict[str, list[ScoredPair]]:
    """Return subset name -> pairs of the subset.

    ``spec`` (see :mod:`nearfar.data.catalog`) is

    - ``sts12`` to ``sts16``: the SemEval test sets, by their official subsets. The hub copies do not distinguish
      subsets: from the hub, a task has a single subset ``all``, and its subset aggregates are meaningless;
    - ``stsb`` (the test split), ``stsb:dev``, ``stsb:train``;
    - ``sickr``, the official 4,927 test pairs, or ``sickr-full``, all 9,927, as in MTEB. The two give different
      scores; always say which. Scores are 1 to 5, elsewhere 0 to 5;
    - ``microworld`` (its test pairs) or ``microworld:dev``, generated sentences, 0 to 5;
    - a path or hub data set with columns ``sentence1``, ``sentence2``, ``score``: one subset, named by the file or
      split.

    Scores are returned unchanged. White space is normalised as in :func:`nearfar.data.cells.text_field`.

    Raises:
        NearfarError: a source cannot be found or read; a text that is empty or not a string, a score that is not a
            number or is off the scale of a named set (each with file and line); a subset without a pair.

    """
    return {
        found.name: [ScoredPair(texts[0], texts[1], score) for texts, score, _ in scored_entries(found, SCORED_COLUMNS)]
        for found in find(spec, "scored")
    }


def load_pairs(spec: str) -> list[ScoredPair]:
    """Return the pairs of all subsets of :func:`load_task`, concatenated."""
    return list(chain(*load_task(spec).values()))


def known_scale(spec: str) -> tuple[float, float] | None:
    """Return the lowest and highest score of a named set, or None for own data."""
    name = spec.partition(":")[0]
    return CATALOG[name].of_kind("scored").scale if name in CATALOG else None


def scored_entries(found: Table, columns: Sequence[str]) -> list[Entry]:
    """Return the pairs of a table with their scores; raises NearfarError as :func:`load_task`."""
    entries = list(found.entries(columns[:2], columns[2], score_check(found.scale)))
    if not entries:
        raise NearfarError(f"{found.title}: no pairs, only a header.")
    return entries


PREFIX = "mteb:"
"""Before the name of a task in results, so that it is no name of nearfar's own."""


def load_mteb_pairs(name: str) -> dict[str, list[ScoredPair]]:
    """Return subset -> pairs of an STS task of mteb, from the splits that mteb evaluates on.

    Subsets are mteb's, such as languages; a task without subsets has its splits. The data come from the hub's cache or
    the hub, as ``task.load_data()`` finds them. Texts and scores are unchanged.

    Raises:
        NearfarError: mteb is not installed, has no such task or cannot load its data; the task is of another type; a
            row without two texts and a score.
    """
    try:
        import mteb

        task: Any = mteb.get_task(name)
        kind = task.metadata.type
        if kind == "STS":
            task.load_data()
    except ImportError as error:
        raise NearfarError(f"--mteb {name}: needs the extra mteb: pip install 'nearfar[mteb]'") from error
    except Exception as error:  # whatever mteb, datasets, the hub's client or the task's own code raises
        reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        raise NearfarError(f"--mteb {name}: its data cannot be loaded, nor found in the cache ({reason})") from error
    if kind != "STS":
        raise NearfarError(f"--mteb {name}: is a task of the type {kind}, and --mteb takes those of the type STS")
    subsets: dict[str, list[ScoredPair]] = {}
    for subset in task.hf_subsets if task.metadata.is_multilingual else [""]:
        splits = task.dataset[subset] if subset else task.dataset
        for split in filter(splits.__contains__, task.eval_splits):
            title = f"{subset}:{split}" if subset and len(task.eval_splits) > 1 else subset or split
            subsets[title] = [_mteb_pair(task, title, *numbered) for numbered in enumerate(splits[split])]
    if not any(subsets.values()):
        raise NearfarError(f"--mteb {name}: has no pairs in its splits {', '.join(task.eval_splits)}")
    return subsets


def _mteb_pair(task: Any, subset: str, number: int, row: Mapping[str, Any]) -> ScoredPair:
    first, second = (row.get(column) for column in task.column_names)
    score = parse_number(row.get("score"))
    if not isinstance(first, str) or not isinstance(second, str) or math.isnan(score):
        raise NearfarError(f"--mteb {task.metadata.name}: row {number} of {subset} must have two texts and a score")
    return ScoredPair(first, second, score)


def as_specs(specs: str | Sequence[str]) -> Sequence[str]:
    """Return ``specs`` as a list; a string becomes a list of one."""
    return [specs] if isinstance(specs, str) else specs


def load_sentences(
    specs: str | Sequence[str],
    *,
    column: str = "text",
    limit: int | None = None,
    generated: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> TextData:
    """Read sentences: plain text files (``.txt``, ``.txt.gz``: one per line), or tables with the column ``column``.

    A named set defines its own columns: ``snli`` has premises and hypotheses, ``stsb-text`` both sentences of every
    STS-B row (the 17,256 that Kim et al. 2021 train on). ``wiki1m`` is the million Wikipedia sentences of Gao et al.
    2021. ``generated`` has the texts of further names. Repeated sentences are dropped.

    Raises:
        NearfarError: a source cannot be found or read, an empty or non-string text (with file and line), a source
            without a sentence, sentences that are all equal, a ``limit`` below 2.

    """
    tables = _sentence_tables(specs, column, generated)
    return require_different(collect_rows("sentences", limit, tables), "sentences")


def load_documents(specs: str | Sequence[str], *, column: str = "text") -> list[str]:
    """Read the distinct texts of documents to search in; sources are those of :func:`load_sentences`.

    Raises:
        NearfarError: a source cannot be found or read, an empty or non-string text (with file and line), a source
            without a text.

    """
    return [row[0] for row in collect_rows("documents", None, _sentence_tables(specs, column, {})).rows]


def _sentence_tables(
    specs: str | Sequence[str], column: str, generated: Mapping[str, Iterable[str]]
) -> Iterator[Described]:
    for spec in as_specs(specs):
        if spec in generated:
            title = "texts of the rows" if spec == OWN else f"{spec}, generated"
            yield title, (Entry((text,)) for text in generated[spec]), ""
            continue
        for found in find(spec):
            columns = (column,) if found.is_plain_text else found.sentences or (column,)
            note = ". It is evaluation text: scores on it will be transductive" if _is_evaluation(found) else ""
            yield found.title, _sentence_entries(found, columns), note or found.note(columns)


def _sentence_entries(found: Table, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the sentences of a table: the lines of plain text, or some columns."""
    for entry in found.entries(columns):
        yield Entry(entry.texts[:1], repaired=entry.repaired)
        yield from (Entry((text,)) for text in entry.texts[1:])


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
    tables = _described(specs, (text_column,), label_column, label_field)
    data = require_different(collect_rows("labelled texts", limit, tables, distinct=False), "labelled texts")
    labels: Sequence[Any] = data.targets or ()
    numbers = {name: number for number, name in enumerate(sort_labels(set(labels)))}
    if len(numbers) < 2:
        raise NearfarError(f"Every text has the label {format_value(*numbers)}. {data.sources[0]}.")
    texts = Counter(label for _, label in set(zip(data.rows, labels, strict=True)))
    for name in (name for name in numbers if texts[name] < 2):
        text = format_value(data.rows[labels.index(name)][0])
        raise NearfarError(
            f"The label {format_value(name)} has a single text, {text}; contrastive losses need two. {data.sources[0]}."
        )
    return replace(data, targets=[numbers[label] for label in labels], label_names=tuple(numbers))


def load_scored(
    specs: str | Sequence[str], *, columns: Sequence[str] = SCORED_COLUMNS, limit: int | None = None
) -> TextData:
    """Read scored pairs for training, by :func:`nearfar.data.rows.load_task`, with scores rescaled to 0..1.

    The scale of a named set (``stsb:train``, ``sickr:train``) is in the catalog. For own data it is the range from the
    lowest to the highest score in the spec, and is noted in ``sources``. Repeated pairs are kept.

    Raises:
        NearfarError: as ``load_task``; also for scores or texts that are all equal and for a ``limit`` below 2.

    """
    kind, tables = "scored pairs", chain.from_iterable(_scaled_tables(spec, columns) for spec in as_specs(specs))
    return require_different(collect_rows(kind, limit, tables, distinct=False), kind)


def _scaled_tables(spec: str, columns: Sequence[str]) -> Iterator[Described]:
    tables = find(spec, "scored")
    scale = tables[0].scale
    read = [scored_entries(found, columns) for found in tables]
    scores = [entry.target for entries in read for entry in entries]
    low, high = scale or (min(scores), max(scores))
    if low == high:
        raise NearfarError(f"{spec}: every score is {low:g}; there is nothing to learn from equal scores.")
    note = "" if scale else f", scores of {low:g} to {high:g} rescaled to 0 to 1"
    for found, entries in zip(tables, read, strict=True):
        warning = ". They are evaluation pairs: scores on them will be meaningless" if _is_evaluation(found) else ""
        scaled = (entry._replace(target=(entry.target - low) / (high - low)) for entry in entries)
        yield found.title, scaled, note + found.note(columns) + warning


def _is_evaluation(found: Table) -> bool:
    return found.scale is not None and found.name != "train"  # only STS sets have a scale
