"""The parts of a study file, and the settings of the step that measures speed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from nearfar.config.bounds import Count, File, Length, Prompt, Rows, Runs, Seed
from nearfar.config.values import Settings

Verb: TypeAlias = Literal["train", "script", "finetune", "evaluate", "geometry", "speed"]
VERBS: tuple[Verb, ...] = ("train", "script", "finetune", "evaluate", "geometry", "speed")
"""The kinds of steps, in their default order."""
MODEL_VERBS: tuple[Verb, ...] = ("train", "script", "finetune")
"""The steps that make a model."""
AxisUse: TypeAlias = Literal["rows", "columns", "x"]
PlotKind: TypeAlias = Literal["heat map", "lines", "spectrum", "layers", "curves", "pairs", "labels"]


@dataclass(frozen=True, kw_only=True)
class SpeedConfig(Settings):
    """Measure how fast a model encodes texts, and count its parameters."""

    texts: File
    """Texts to encode: a named set, or a file with one text per line."""
    limit: Rows = 2000
    """Use only the first LIMIT distinct texts."""
    repeats: Runs = 3
    """Number of timed passes over the texts, after one that is not timed; their mean counts."""
    batch_size: Count | None = None
    """Number of texts to encode at a time; by default all, in batches of similar length."""
    pooling: str | None = None
    """Override the model's pooling: cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max."""
    prompt: Prompt | None = None
    """Text before each text, or the name of one of the model's prompts; by default the model's own."""
    max_length: Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available."""
    seed: Seed = 0
    """Seed of baselines that are fitted."""


@dataclass(frozen=True)
class Axis:
    """A list of values that the cells of a row are repeated over."""

    name: str
    settings: tuple[str, ...]
    """Dotted settings, such as ``train.scl_weight``; ``model`` is the model of the first step."""
    values: tuple[tuple[Any, ...], ...]
    """For each label, one value for each setting."""
    labels: tuple[str, ...]
    use: AxisUse = "rows"
    """Whether each label is a line of the table, a column, or a point on the x axis of a plot."""
    average: tuple[str, ...] = ()
    """Labels whose mean is shown as one more entry, ``average``; empty for none."""
    baseline: str | None = None
    """The label that all others are compared with, within each row."""


@dataclass(frozen=True)
class PaperNumber:
    """A number printed in the paper."""

    coordinates: Mapping[str, str]
    """Axis -> label; without an axis, the number is for all its labels."""
    column: str
    value: float
    sd: float | None = None


@dataclass(frozen=True)
class Step:
    """One step of a row."""

    verb: Verb
    name: str
    """The first part of dotted settings; by default the verb."""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A method or baseline: its steps and their settings."""

    id: str
    name: str
    steps: tuple[Step, ...]
    """Empty for a line with the paper's numbers only."""
    model: str | None
    """Model of the first step; None for the one in its settings."""
    settings: Mapping[str, Mapping[str, Any]]
    """Verb -> the row's own settings."""
    axes: tuple[str, ...]
    """The axes that the row is crossed with."""
    replicates: tuple[Mapping[str, Any], ...]
    """For each replicate, dotted setting -> value."""
    needs: tuple[str, ...] = ()
    """Files that the row needs, as ``FILE: how to make it``."""
    paper: tuple[PaperNumber, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class Best:
    """Only the best ``count`` replicates, by a score, enter the mean."""

    count: int
    by: Literal["validation"] = "validation"


@dataclass(frozen=True)
class Plot:
    """A plot of the table."""

    kind: PlotKind
    x: str | None = None
    y: str | None = None
    value: str | None = None
    row: str | None = None
    title: str | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study file, at one of its scales."""

    file: str
    """Where it was read, for messages."""
    title: str
    source: str | None = None
    notes: str | None = None
    caption: str | None = None
    scale: str | None = None
    scales: tuple[str, ...] = ()
    """The names of the file's scales."""
    columns: tuple[str, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    """Column -> its heading, where that is another text."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    replicates: tuple[Mapping[str, Any], ...] = ({},)
    best: Best | None = None
    compare: tuple[tuple[str, str], ...] = ()
    """Pairs of row ids: first minus second is tested."""
    compare_columns: tuple[str, ...] | None = None
    """The columns that are tested; None for all."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Verb -> settings of all its steps."""
    axes: tuple[Axis, ...] = ()
    rows: tuple[Row, ...]
    plots: tuple[Plot, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file before the scale's changes."""
    content: Mapping[str, Any]
    """The content of the file after the scale's changes, without ``scales``; ``compare`` holds all pairs. Placeholders
    are not filled; their values are in ``placeholders``, folders by their names."""

    def row(self, name: str) -> Row:
        """The row with this id."""
        return next(row for row in self.rows if row.id == name)

    def axis(self, name: str) -> Axis:
        """The axis with this name."""
        return next(axis for axis in self.axes if axis.name == name)
