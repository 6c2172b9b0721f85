"""The one table of named data: each data set's files and hub copy, its public sources, and the tasks on the sets.

``named_sets.toml`` is the table; the classes here say what its keys mean. A new data set is a table ``[sets.NAME]``; to
probe or to fine-tune on it, also ``[probes.NAME]`` or ``[finetuning.NAME]``; to download it, ``[sources.NAME]``, the
numbers of its ``[rows]`` and its ``[[recipes]]``. Everything else reads these tables: loading
(:mod:`nearfar.data.catalog`), the suites of ``nearfar evaluate``, ``nearfar finetune``, ``nearfar get-data``, ``nearfar
env`` and the lists in error messages.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from nearfar.validation import convert

Metric: TypeAlias = Literal["accuracy", "matthews", "accuracy_f1", "pearson_spearman"]
RowKind: TypeAlias = Literal["pairs", "scored", "labelled"]
"""Pairs of texts, scored pairs, or labelled texts: kinds of rows that a named set can have beside its own."""


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """A data set with a name: where its files are, and what the name alone means."""

    folder: str
    """Folder in the local data folder, with one TSV file per split or subset, or with :attr:`files`."""
    splits: tuple[str, ...]
    """The splits that the name alone means; for an STS set with several subsets, these."""
    hub: str | None = None
    """The hub data set with the same rows, ``owner/name`` or ``owner/name/config``."""
    hub_splits: Mapping[str, str] = field(default_factory=dict)
    """Split here -> split on the hub, or several: ``train+validation``. A split ``all`` holds the rows of all
    ``splits`` without distinction."""
    scale: tuple[float, float] | None = None
    """Lowest and highest gold score; only STS sets have one."""
    advice: str = ""
    """What to do if the files are missing and have no public source (:mod:`nearfar.data.named_sets`)."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Split -> file name, for a set whose files are not named by split; such a set has no other splits."""
    sentences: tuple[str, ...] = ("text",)
    """The columns that hold sentences, for loaders that need only sentences."""
    hub_columns: Mapping[str, str] = field(default_factory=dict)
    """Column of the hub copy -> column of the local files, where they differ."""
    hub_text: tuple[str, ...] = ()
    """Columns of the hub copy that are joined by a space to the column ``text``."""
    hub_labels: Mapping[str, str] = field(default_factory=dict)
    """Label of the hub copy -> label of the local files, where they differ."""
    in_sts_suite: bool = False
    """Whether ``nearfar evaluate --suite sts`` includes it."""
    without: tuple[str, ...] = ()
    """Named sets of scored pairs whose pairs are left out of this one, in either order of the sentences."""
    pairs: bool = False
    """Whether the two :attr:`sentences` of a row are a pair with the same meaning."""
    captions_by: str | None = None
    """Column with the image of a caption. Pairs are captions of the same image, in consecutive rows."""
    parts_by: str | None = None
    """Column that divides one file into splits, in their order in :attr:`files` after ``all``: the second has the last
    fifth of the column's values, at most 1,000; the first the others; the third as many before the second's, which are
    also in the first."""
    packaged: bool = False
    """Whether its files are a part of this package: :attr:`folder` is beside this module."""
    cite: str = ""
    """Its paper, where that of its first source is of several sets."""
    used_in: tuple[str, ...] = ()
    """The tables of the papers that need it."""
    kinds: "Mapping[RowKind, NamedSet]" = field(default_factory=dict)
    """Kind of rows -> the set that a loader of this kind reads under the same name."""

    def of_kind(self, kind: RowKind | None) -> "NamedSet":
        """Return the set that a loader of rows of ``kind`` reads; None means this set's own rows."""
        return self if kind is None else self.kinds.get(kind, self)


@dataclass(frozen=True)
class ProbeTask:
    """A transfer task of ``nearfar evaluate``: a classifier or regression trained on frozen embeddings."""

    spec: str
    """Name in :data:`nearfar.data.named_sets.CATALOG` with its splits: all; train, test; or train, dev, test."""
    labels: tuple[str, ...] = ()
    """The labels in the order of their numbers; empty for a task with scores (learned relatedness)."""
    columns: tuple[str, ...] = ("text",)
    in_suite: bool = True
    """Whether ``nearfar evaluate --suite transfer`` includes it."""


@dataclass(frozen=True)
class FinetuningTask:
    """A task of ``nearfar finetune``."""

    source: str
    """Name in :data:`nearfar.data.named_sets.CATALOG`; its split ``train`` is trained on."""
    test: str | None = None
    """Spec of the test rows; None holds out a fifth of the training rows."""
    columns: tuple[str, ...] = ("text",)
    label_names: tuple[str, ...] = ()
    """The labels in the order of their numbers; empty for a task with scores."""
    metric: Metric = "accuracy"
    """``accuracy_f1``: F1 of the label with number 1, as in GLUE."""
    label_aliases: Mapping[str, str] | None = None
    """Label in the data, in addition to the names -> name; an empty one drops the row. By default the numbers are
    aliases."""
    note: str = "GLUE's validation set, as the labels of its test set are not published"
    validation: str | None = None
    """Spec of the validation rows; None holds out training rows."""
    label_column: str = "label"
    glue: bool = False
    """Whether ``test`` is GLUE's validation set; then ``--splits auto`` follows Gunel et al. (2021)."""


@dataclass(frozen=True)
class Download:
    """A file to download; ``sha256`` and ``size`` (bytes) are None where they are not published."""

    address: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Downloads that belong together."""

    downloads: tuple[Download, ...]
    gives: tuple[str, ...]
    """The files of the local data folder that are made from them: paths, or folders ending in ``/``."""
    licence: str
    cite: str

    def makes(self, file: str) -> bool:
        """Whether ``file``, a path in the local data folder, is made from these downloads."""
        return any(file == path or (path.endswith("/") and file.startswith(path)) for path in self.gives)


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """How downloads become files of the local data folder (:mod:`nearfar.commands.get_data.recipes`)."""

    target: str
    """Path in the local data folder, with names in braces."""
    columns: tuple[str, ...] = ()
    """Its columns; none for plain text."""
    reader: str
    """The form of the download."""
    inputs: tuple[str, ...]
    """The end of the path of each file that the reader needs; ``|``, brackets and ``.*`` are special."""
    each: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name in braces -> what it stands for, one for each file."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the reader."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Text in the column ``label`` of the download -> label here, empty where the row has none."""


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """The content of ``named_sets.toml``."""

    sets: dict[str, NamedSet]
    mixtures: dict[str, tuple[str, ...]]
    sources: dict[str, Source]
    rows: dict[str, int]
    recipes: tuple[Conversion, ...]
    probes: dict[str, ProbeTask]
    finetuning: dict[str, FinetuningTask]


_FILE = Path(__file__).with_suffix(".toml")
_TABLES = convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), _Tables, source=_FILE)
CATALOG = _TABLES.sets
MIXTURES: Mapping[str, tuple[str, ...]] = _TABLES.mixtures
"""Name -> the sets that it means together."""
SOURCES = _TABLES.sources
"""Name -> source. Where several make the same file, an earlier one has precedence."""
PUBLISHED_ROWS = _TABLES.rows
"""File in the local data folder -> its published number of rows."""
CONVERSIONS = _TABLES.recipes
"""Where several make the same file, an earlier one has precedence."""
PROBE_TASKS = _TABLES.probes
FINETUNING_TASKS = _TABLES.finetuning

UNLABELLED = ("", "-", "-1")
"""How NLI sets mark a row whose annotators disagreed: SNLI's files by ``-``, its hub copy by -1, others by nothing."""
VOCABULARY = "vocabulary"
"""The name of texts of random words of a model's vocabulary (:mod:`nearfar.encoder.tokens`)."""
OWN = "own"
"""The name of the texts of a run's own rows, as sentences beside these rows."""


def suite_tasks(suite: str) -> tuple[str, ...]:
    """Return the names of a suite's tasks: ``sts``, ``transfer``, or ``all`` for both, in the order of the tables.

    >>> suite_tasks("sts")
    ('sts12', 'sts13', 'sts14', 'sts15', 'sts16', 'stsb', 'sickr', 'sickr-full')
    """
    sts = tuple(name for name, entry in CATALOG.items() if entry.in_sts_suite) if suite != "transfer" else ()
    transfer = tuple(name for name, task in PROBE_TASKS.items() if task.in_suite) if suite != "sts" else ()
    return (*sts, *transfer)


def sources_of(file: str) -> list[str]:
    """Return the names of the sources that make a file of the local data folder, in order of precedence."""
    return [name for name, source in SOURCES.items() if source.makes(file)]


def files_of(name: str) -> tuple[str, ...]:
    """Return the files of a named set, as paths in the local data folder: of all its splits.

    A set that has no public source has only the files that its row in the catalog names.
    """
    entry = CATALOG[name]
    public = [file for file in PUBLISHED_ROWS if str(PurePosixPath(file).parent) == entry.folder]
    own = [_file(entry, split) for split in entry.files or entry.splits]
    return tuple(dict.fromkeys(own if entry.files else [*public, *own]))


def _file(entry: NamedSet, split: str) -> str:
    return str(PurePosixPath(entry.folder, entry.files.get(split, f"{split}.tsv")))


def sets_of(name: str) -> tuple[str, ...]:
    """Return the named sets of a set, a mixture, a probe task or a fine-tuning task; of a spec, its name is used.

    >>> sets_of("snli+mnli:dev"), sets_of("sick-e"), sets_of("sst2"), sets_of("nowhere")
    (('snli', 'mnli'), ('sickr',), ('sst2',), ())
    """
    head = name.partition(":")[0]
    if head in CATALOG:
        return (head,)
    if head in MIXTURES:
        return MIXTURES[head]
    if head in PROBE_TASKS:
        return (PROBE_TASKS[head].spec.partition(":")[0],)
    if head in FINETUNING_TASKS:
        task = FINETUNING_TASKS[head]
        specs = [spec for spec in (task.source, task.test, task.validation) if spec]
        return tuple(dict.fromkeys(spec.partition(":")[0] for spec in specs))
    return ()


def how_to_get(name: str) -> str:
    """Return one sentence per named set of ``name``: a set, a mixture, a task, or a spec of one (``snli:dev``).

    For another name (a file, a hub data set) it says to check the name.

    >>> how_to_get("mr")
    'nearfar get-data mr downloads it.'
    """
    names = sets_of(name)
    if not names:
        return f"{name} is not a named data set: check the path, or the name of the hub data set."
    spec = name.partition(":")[2]
    return " ".join(_advice(one, spec) for one in names)


def _advice(name: str, splits: str) -> str:
    entry = CATALOG[name]
    wanted = splits.split("+") if splits else entry.splits
    files = [_file(entry, split) for split in (entry.splits if "all" in wanted and not entry.files else wanted)]
    if not all(file in files_of(name) and sources_of(file) for file in files):
        if entry.hub and set(wanted) <= set(entry.hub_splits):
            return f"The hub has it as {entry.hub}; it is downloaded on first use."
        return entry.advice or "No public source of it is known: save it as the file above, or name another split."
    more = ""
    if not splits and entry.in_sts_suite and "test" not in entry.splits:
        more = f" with its subsets, which the hub copy {entry.hub} lacks and the aggregates mean and wmean need"
    return f"nearfar get-data {name} downloads it{more}."
