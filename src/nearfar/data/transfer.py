"""Transfer tasks: labelled texts and pairs to probe embeddings with, as SentEval has them, and one's own.

=====================  ================================  ==============================================================
task                   splits                            labels
=====================  ================================  ==============================================================
mr cr mpqa             one pool                          0 negative, 1 positive
subj                   one pool                          0 subjective, 1 objective
sst2 sst5              train, dev, test                  0 negative, 1 positive; 0 very negative to 4 very positive
sst2-phrases           train (phrases too), dev, test    as sst2
trec                   train, test                       ABBR DESC ENTY HUM LOC NUM
mrpc                   train, test; pairs                1 paraphrase
sick-e                 train, dev, test; pairs           CONTRADICTION NEUTRAL ENTAILMENT
sickr-learned          train, dev, test; scored pairs    1 to 5
stsb-learned           train, dev, test; scored pairs    0 to 5
=====================  ================================  ==============================================================

SentEval trains SST-2 on the 67,349 phrases of its sentences: that is ``sst2-phrases``, and the one to compare with
published numbers; ``sst2`` trains on the 6,920 sentences, which takes a tenth of the time. SentEval's CR and MPQA have
4 and 3 empty lines as texts, which are left out here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from nearfar.data.catalog import NamedTable, find
from nearfar.data.files import Location, MissingColumnError
from nearfar.data.sources import in_label_order, label_field, text_field
from nearfar.data.sts import load_task
from nearfar.types import NearfarError

PAIR = ("sentence1", "sentence2")


class Rows(NamedTuple):
    """One split: each row's one or two texts, and its label's number or its score."""

    texts: list[tuple[str, ...]]
    targets: list[int] | list[float]


@dataclass(frozen=True, kw_only=True)
class TransferTask:
    """A task to probe with: ``splits`` is one pool ``all``, or ``train`` and ``test``, with ``dev`` between or not."""

    name: str
    splits: Mapping[str, Rows]
    label_names: tuple[str, ...] = ()
    """The name of each label's number; empty where targets are scores."""
    source: str | None = None
    """Where the data is, where it is the user's own: what is wrong with it is then the user's to mend."""

    @property
    def pairs(self) -> bool:
        """Whether rows have two texts."""
        return any(len(row) == 2 for rows in self.splits.values() for row in rows.texts[:1])


class _Named(NamedTuple):
    spec: str
    """In the catalog, with its splits in the order all, or train, dev, test."""
    labels: tuple[str, ...]
    columns: tuple[str, ...] = ("text",)


_BINARY = ("0", "1")
_LEARNED = {"sickr-learned": "sickr:train+dev+test", "stsb-learned": "stsb:train+dev+test"}
_LABELLED: Mapping[str, _Named] = {
    "mr": _Named("mr", _BINARY),
    "cr": _Named("cr", _BINARY),
    "subj": _Named("subj", _BINARY),
    "mpqa": _Named("mpqa", _BINARY),
    "sst2": _Named("sst2:train+dev+test", _BINARY),
    "sst2-phrases": _Named("sst2:train_phrases+dev+test", _BINARY),
    "sst5": _Named("sst5:train+dev+test", ("0", "1", "2", "3", "4")),
    "trec": _Named("trec:train+test", ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")),
    "mrpc": _Named("mrpc:train+test", _BINARY, PAIR),
    "sick-e": _Named("sickr:train+dev+test", ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), PAIR),
}
NAMES = (*_LABELLED, *_LEARNED)
_SPLITS = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}


def load_transfer(name: str) -> TransferTask:
    """Return a task by its name (module docstring), texts tidied as :func:`nearfar.data.sources.text_field` says.

    Raises:
        NearfarError: no such task; its data cannot be found or read; an empty text, a label or score that the task
            does not have (each with file and line).
    """
    if name in _LEARNED:
        splits = {
            split: Rows([(pair.first, pair.second) for pair in pairs], [pair.score for pair in pairs])
            for split, pairs in load_task(_LEARNED[name]).items()
        }
        return TransferTask(name=name, splits=splits)
    if name not in _LABELLED:
        close = get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise NearfarError(
            f"{name}: no such transfer task.{hint} There are: {', '.join(NAMES)}. A labelled file of your own is "
            "loaded by its path."
        )
    task = _LABELLED[name]
    number = {label: place for place, label in enumerate(task.labels)}
    tables = find(task.spec)
    read: dict[str, Rows] = {}
    for split, found in zip(_SPLITS[len(tables)], tables, strict=True):
        rows = Rows([], [])
        for where, texts, label in _labelled(found, task.columns):
            if label not in number:
                raise NearfarError(f"{where}: the label {label!r} is none of {name}'s: {', '.join(task.labels)}.")
            rows.texts.append(texts)
            rows.targets.append(number[label])
        read[split] = rows
    return TransferTask(name=name, splits=read, label_names=task.labels)


def load_labelled_task(spec: str) -> TransferTask:
    """Return one's own labelled data as one pool: a file or hub data set (see :mod:`nearfar.data.catalog`).

    Its columns are ``text`` and ``label``, or ``sentence1``, ``sentence2`` and ``label``. Labels are strings or
    integers, numbered by value where all are integers, else as text. ``microworld`` gives its generated sentences by
    kind of activity. The task is named by the file.

    Raises:
        NearfarError: no such source, other columns, an empty text or label (with file and line), no rows.
    """
    if spec == "microworld":
        from nearfar.data.microworld import generate

        rows: list[tuple[tuple[str, ...], str]] = [((text,), label) for text, label in generate(seed=0).labelled]
        name = title = spec
    else:
        tables = find(spec)
        rows = [(texts, label) for found in tables for _, texts, label in _own(found)]
        name, title = "+".join(found.name for found in tables), tables[0].table.title
    if not rows:
        raise NearfarError(f"{title}: no rows, only the names of the columns.")
    names = in_label_order({label for _, label in rows})
    number = {label: place for place, label in enumerate(names)}
    pool = Rows([texts for texts, _ in rows], [number[label] for _, label in rows])
    return TransferTask(name=name, splits={"all": pool}, label_names=tuple(names), source=title)


def _own(found: NamedTable) -> Iterator[tuple[Location, tuple[str, ...], str]]:
    try:
        next(found.table.rows(("text", "label")), None)
        columns: tuple[str, ...] = ("text",)
    except MissingColumnError as error:
        columns = PAIR
        try:
            next(found.table.rows((*PAIR, "label")), None)
        except MissingColumnError:
            raise NearfarError(
                f"{error} Labelled data has the columns text and label, or sentence1, sentence2 and label."
            ) from None
    return _labelled(found, columns)


def _labelled(found: NamedTable, columns: Sequence[str]) -> Iterator[tuple[Location, tuple[str, ...], str]]:
    for where, (*values, label) in found.table.rows((*columns, "label")):
        texts = tuple(text_field(value, column, where) for column, value in zip(columns, values, strict=True))
        yield where, texts, label_field(label, "label", where)
