"""Labelled or scored rows of one or two texts: one reader for all splits of a task, so that they share labels.

Transfer tasks, for probing embeddings as in SentEval, and own data:

=====================  ================================  ==============================================================
task                   splits                            labels
=====================  ================================  ==============================================================
mr cr mpqa             one pool                          0 negative, 1 positive
subj                   one pool                          0 subjective, 1 objective
sst2 sst5              train, dev, test                  0 negative, 1 positive; 0 very negative to 4 very positive
sst2-phrases           train (phrases too), dev, test    as sst2
trec                   train, test                       ABBR DESC ENTY HUM LOC NUM
trec-dev               train, dev: of trec's train       as trec
mrpc                   train, test; pairs                1 paraphrase
sick-e                 train, dev, test; pairs           CONTRADICTION NEUTRAL ENTAILMENT
sickr-learned          train, dev, test; scored pairs    1 to 5
stsb-learned           train, dev, test; scored pairs    0 to 5
=====================  ================================  ==============================================================

SentEval trains SST-2 on the 67,349 phrases of its sentences: compare ``sst2-phrases`` with published scores. ``sst2``
trains on the 6,920 sentences, in a tenth of the time. The 4 and 3 empty texts of SentEval's CR and MPQA are dropped.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

from nearfar.data import cells
from nearfar.data.catalog import find
from nearfar.data.cells import Check, Location
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.sources import SKIPS_EMPTY, Table, column_names
from nearfar.types import NearfarError
from nearfar.validation import format_value, nearest

PAIR = ("sentence1", "sentence2")
_MAX_LABELS = 20


class Split(NamedTuple):
    """Rows of a split: the one or two texts of each, and its label number or score."""

    texts: list[tuple[str, ...]]
    targets: list[int] | list[float]


@dataclass(frozen=True)
class Reader:
    """Reads rows: which columns, and how labels are written."""

    columns: tuple[str, ...]
    """One or two columns of text."""
    label_column: str
    label_names: tuple[str, ...]
    """The label names in the order of their numbers; empty if targets are scores."""
    label_source: str = ""
    """Where the labels are from, for error messages."""
    aliases: Mapping[str, int | None] = field(default_factory=dict)
    """Label as it is written, where that is not the name -> its number; None drops the row."""

    @cached_property
    def labels(self) -> dict[str, int | None]:
        """Label as it is written -> its number."""
        return {**{name: number for number, name in enumerate(self.label_names)}, **self.aliases}

    def read(self, spec: str) -> tuple[Split, str]:
        """Return the rows of the tables of ``spec`` (:mod:`nearfar.data.catalog`), and a description of their location.

        Raises:
            NearfarError: tables that cannot be found or read, an empty or non-string text, an unknown label, a score
                that is not a number or is off the scale of a named set (each with file and line), no rows.
        """
        return self.read_tables(find(spec, "labelled"))

    def read_tables(self, tables: Sequence[Table]) -> tuple[Split, str]:
        """Return the rows of ``tables``, and a description of their location; for errors see :meth:`read`."""
        left_out: Counter[str] = Counter()

        def number(value: object, column: str, where: Location) -> int | None:
            label = cells.label_field(value, column, where)
            if label not in self.labels:
                known = ", ".join(islice(self.labels, _MAX_LABELS)) + ", ..." * (len(self.labels) > _MAX_LABELS)
                problem = f"the label {format_value(label)} is not one of {self.label_source}: {known}."
                raise NearfarError(f"{where}: {problem}{nearest(label, self.labels)}")
            left_out[label] += self.labels[label] is None
            return self.labels[label]

        entries, notes = [], []
        for found in tables:
            check: Check = number if self.label_names else cells.score_check(found.scale)
            entries += [entry for entry in found.entries(self.columns, self.label_column, check) if entry.texts]
            notes.append(found.note((*self.columns, self.label_column)).removeprefix("; "))
        title = _title(tables)
        if not entries:
            raise NearfarError(f"{title}: no labelled rows.")
        notes = [*(f"{count:,} labelled {label} left out" for label, count in left_out.items() if count), *notes]
        described = "; ".join(filter(None, notes))
        rows = Split([entry.texts for entry in entries], [entry.target for entry in entries])
        return rows, f"{title} ({described})" if described else title


def infer_reader(spec: str, text_columns: Sequence[str] | None, label_column: str) -> Reader:
    """Return the reader of own data, with the labels of the training data ``spec``.

    ``text_columns`` default to ``text`` or, without that column, to ``sentence1`` and ``sentence2``. If any label is a
    number with a fraction, all of them are scores.

    Raises:
        NearfarError: not one or two text columns, missing columns, a label that is empty or neither string nor number
            (with file and line), no rows.
    """
    tables = find(spec, "labelled")
    columns = default_columns(tables[0], label_column) if text_columns is None else tuple(text_columns)
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise NearfarError(f"Name one or two columns of text, not {len(columns)}: {', '.join(columns) or 'none'}.")
    title, labels = _title(tables), _read_labels(tables, label_column)
    if any(math.isfinite(number) and number % 1 for number in (cells.parse_number(value) for _, value in labels)):
        return Reader(columns, label_column, ())
    names = _label_names(labels, label_column)
    if len(names) < 2:
        raise NearfarError(f"{title}: every row has the label {names[0]!r}; there must be at least two labels.")
    return Reader(columns, label_column, names, f"the labels of {title}")


def _read_labels(tables: Sequence[Table], column: str) -> list[tuple[Location, object]]:
    """The values of the labels; raises NearfarError if there are no rows."""
    labels = chain.from_iterable(found.rows((column,)) for found in tables)
    read = [(where, value) for where, (value,) in labels if not (SKIPS_EMPTY.get() and cells.is_blank(value))]
    if not read:
        raise NearfarError(f"{_title(tables)}: no rows, only a header.")
    return read


def _label_names(labels: Sequence[tuple[Location, object]], column: str) -> tuple[str, ...]:
    return tuple(cells.sort_labels({cells.label_field(value, column, where) for where, value in labels}))


def _title(tables: Sequence[Table]) -> str:
    return "+".join(found.title for found in tables)


def default_columns(found: Table, label_column: str = "label") -> tuple[str, ...]:
    """Return the columns of text of labelled data: ``text`` or, without it, ``sentence1`` and ``sentence2``.

    Raises:
        NearfarError: neither they nor the label are there.
    """
    names = column_names(found)
    for columns in (("text",), PAIR):
        if cells.find_columns(names, (*columns, label_column)):
            return columns
    raise NearfarError(
        f"{found.title}: labelled data has the columns text and {label_column}, or sentence1, sentence2 and "
        f"{label_column}. Its columns: {', '.join(map(cells.printable_name, names[:20]))}."
    )


def label_summary(counts: Mapping[str, int]) -> list[str]:
    """Return a sentence with the first 20 labels and their counts; none without labels.

    >>> label_summary({"cold": 210, "warm": 189, "wram": 1})
    ['labels: cold (210), warm (189), wram (1)']
    """
    listed = ", ".join(f"{name} ({count:,})" for name, count in islice(counts.items(), _MAX_LABELS))
    more = f" and {len(counts) - _MAX_LABELS:,} more" if len(counts) > _MAX_LABELS else ""
    return [f"labels: {listed}{more}"] if counts else []


@dataclass(frozen=True, kw_only=True)
class TransferTask:
    """A task for probing; its splits are ``all`` (cross-validated), or ``train``, ``test`` and possibly ``dev``."""

    name: str
    splits: Mapping[str, Split]
    label_names: tuple[str, ...] = ()
    """The label names in the order of their numbers; empty if targets are scores."""
    source: str | None = None
    """The location of the user's own data; None for a named task."""

    @property
    def pairs(self) -> bool:
        """Whether rows have two texts."""
        return any(len(row) == 2 for rows in self.splits.values() for row in rows.texts[:1])


_SPLITS = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}


def load_transfer(name: str) -> TransferTask:
    """Return a task by name (module docstring), with white space as in :func:`nearfar.data.cells.text_field`.

    Raises:
        NearfarError: no such task; its data cannot be found or read; an empty text, an unknown label, an invalid score
            (each with file and line).
    """
    if name not in PROBE_TASKS:
        known = f"{nearest(name, PROBE_TASKS)} Known tasks: {', '.join(PROBE_TASKS)}."
        raise NearfarError(f"{name}: no such transfer task.{known}")
    task = PROBE_TASKS[name]
    reader = Reader(task.columns, "label" if task.labels else "score", task.labels, f"those of {name}")
    tables = find(task.spec)
    splits = {split: reader.read_tables([found])[0] for split, found in zip(_SPLITS[len(tables)], tables, strict=True)}
    return TransferTask(name=name, splits=splits, label_names=task.labels)


def load_labelled_task(spec: str) -> TransferTask:
    """Return own labelled data as a task with the split ``all``: a file or hub data set (:mod:`nearfar.data.catalog`).

    Its columns are ``text`` and ``label``, or ``sentence1``, ``sentence2`` and ``label``. Labels are strings or
    integers; they are numbered in numeric order if all are integers, else in text order. The task has the name of the
    file, or of a named set of one file (``mr``, ``microworld``).

    Raises:
        NearfarError: no such source, missing columns, an empty text or label (with file and line), no rows.
    """
    tables = find(spec, "labelled")
    columns, names = default_columns(tables[0]), _label_names(_read_labels(tables, "label"), "label")
    pool, _ = Reader(columns, "label", names).read_tables(tables)
    name = spec if tables[0].name == "all" else "+".join(found.name for found in tables)
    return TransferTask(name=name, splits={"all": pool}, label_names=names, source=tables[0].title)
