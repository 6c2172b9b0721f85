"""The rows of the tables in :mod:`nearfar.data.named_sets`: a data set, a probe task, a fine-tuning task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

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
    """What to do if the files are missing and have no public source (:mod:`nearfar.data.how_to_get`)."""
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
    kinds: "Mapping[RowKind, NamedSet]" = field(default_factory=dict)
    """Kind of rows -> the set that a loader of this kind reads under the same name."""

    def of_kind(self, kind: RowKind | None) -> "NamedSet":
        """Return the set that a loader of rows of ``kind`` reads; None means this set's own rows."""
        return self if kind is None else self.kinds.get(kind, self)


class ProbeTask(NamedTuple):
    """A transfer task of ``nearfar evaluate``: a classifier or regression trained on frozen embeddings."""

    spec: str
    """Name in :data:`nearfar.data.named_sets.CATALOG` with its splits: all; train, test; or train, dev, test."""
    labels: tuple[str, ...] = ()
    """The labels in the order of their numbers; empty for a task with scores (learned relatedness)."""
    columns: tuple[str, ...] = ("text",)
    in_suite: bool = True
    """Whether ``nearfar evaluate --suite transfer`` includes it."""


class FinetuningTask(NamedTuple):
    """A task of ``nearfar finetune``."""

    source: str
    """Name in :data:`nearfar.data.named_sets.CATALOG`; its split ``train`` is trained on."""
    test: str | None
    """Spec of the test rows; None holds out a fifth of the training rows."""
    columns: tuple[str, ...]
    label_names: tuple[str, ...]
    """The labels in the order of their numbers; empty for a task with scores."""
    metric: Metric = "accuracy"
    """``accuracy_f1``: F1 of the label with number 1, as in GLUE."""
    label_aliases: Mapping[str, str | None] | None = None
    """Label in the data, in addition to the names -> name; None drops the row. By default the numbers are aliases."""
    note: str = "GLUE's validation set, as the labels of its test set are not published"
    validation: str | None = None
    """Spec of the validation rows; None holds out training rows."""
    label_column: str = "label"
    glue: bool = False
    """Whether ``test`` is GLUE's validation set; then ``--splits auto`` follows Gunel et al. (2021)."""
