"""Read transfer tasks: labelled texts and pairs for probing embeddings, as in SentEval, and own data.

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

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from nearfar.data.catalog import find
from nearfar.data.labelled import Reader, Split, default_columns
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.sources import label_field, sort_labels
from nearfar.types import NearfarError


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
    """Return a task by name (module docstring), with white space as in :func:`nearfar.data.sources.text_field`.

    Raises:
        NearfarError: no such task; its data cannot be found or read; an empty text, an unknown label, an invalid score
            (each with file and line).
    """
    if name not in PROBE_TASKS:
        close = get_close_matches(name, PROBE_TASKS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise NearfarError(
            f"{name}: no such transfer task.{hint} Known tasks: {', '.join(PROBE_TASKS)}. Load a labelled file of your "
            "own by its path."
        )
    task = PROBE_TASKS[name]
    reader = Reader(
        columns=task.columns,
        label_column="label" if task.labels else "score",
        label_names=task.labels,
        labels={label: number for number, label in enumerate(task.labels)},
        label_source=f"those of {name}",
    )
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
    entries = [entry for found in tables for entry in found.table.entries(default_columns(found), "label", label_field)]
    title = tables[0].table.title
    name = spec if tables[0].name == "all" else "+".join(found.name for found in tables)
    if not entries:
        raise NearfarError(f"{title}: no rows, only a header.")
    names = sort_labels({entry.target for entry in entries})
    number = {label: index for index, label in enumerate(names)}
    pool = Split([entry.texts for entry in entries], [number[entry.target] for entry in entries])
    return TransferTask(name=name, splits={"all": pool}, label_names=tuple(names), source=title)
