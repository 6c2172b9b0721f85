"""What a study file says: rows, axes, replicates, columns, the paper's numbers and what is compared."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from nearfar.config.bounds import Count, File, Length, Prompt, RowCount, Runs, Seed
from nearfar.config.values import Settings
from nearfar.settings import build
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value

Verb: TypeAlias = Literal["train", "script", "finetune", "evaluate", "geometry", "speed"]
VERBS: tuple[Verb, ...] = ("train", "script", "finetune", "evaluate", "geometry", "speed")
"""The kinds of steps, in their default order."""
MODEL_VERBS: tuple[Verb, ...] = ("train", "script", "finetune")
"""The steps that make a model."""
AxisUse: TypeAlias = Literal["rows", "columns", "x"]
PlotKind: TypeAlias = Literal["heat map", "lines", "spectrum", "layers", "curves", "pairs", "labels"]
AVERAGE = "average"
"""The column of the mean over tasks, and the label of the mean over the labels of an axis."""
ONLY_TASK = ("score", "accuracy", "f1", "matthews", "spearman", "pearson")
"""Columns of the only task of a result."""
GEOMETRY = ("uniformity", "alignment", "isotropy", "mean_cosine", "effective_rank")
BYTES = "bytes_per_vector"
DATA_ARGUMENTS = ("data", "evaluate_on")
"""Arguments of a script that name data sets: their content is part of the key of the job."""
_TESTED = (".task", ".tasks", ".pairs", ".labelled", ".mteb")
"""Ends of the settings that say what is tested."""
_FLAG = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


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

    @property
    def shown_labels(self) -> tuple[str, ...]:
        """The labels, and the average last."""
        return (*self.labels, AVERAGE) if self.average else self.labels

    @property
    def places(self) -> dict[str, float]:
        """Label -> its place on an x axis: the values if they are numbers, or the labels, or 0, 1, 2."""
        for numbers in ([one[0] for one in self.values] if len(self.settings) == 1 else [], self.labels):
            known = [number for one in numbers if (number := _number(one)) is not None]
            if len(known) == len(self.labels):
                return dict(zip(self.labels, known, strict=True))
        return {label: float(place) for place, label in enumerate(self.labels)}

    @property
    def says_what_is_tested(self) -> bool:
        """Whether its labels are tested on different tasks, so that their scores have no order."""
        return any(setting.endswith(_TESTED) for setting in self.settings)


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(str(value))
    except ValueError:
        return None


def agree(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether two sets of coordinates agree on the axes that both have."""
    return all(second[name] == label for name, label in first.items() if name in second)


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

    def paper_number(self, coordinates: Mapping[str, str], column: str) -> PaperNumber | None:
        """The paper's number at these coordinates, of several the first of those with the most labels.

        A number for all labels of an axis is not their average.
        """
        fitting = [
            one
            for one in self.paper
            if one.column == column
            and all(coordinates.get(name) == label for name, label in one.coordinates.items())
            and all(name in one.coordinates for name, label in coordinates.items() if label == AVERAGE)
        ]
        return max(fitting, key=lambda one: len(one.coordinates), default=None)


class Plot(Struct, frozen=True, forbid_unknown_fields=True):
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
    best: int | None = None
    """Number of replicates that enter means and tests, the best ones by validation; None for all."""
    compare: tuple[tuple[str, str], ...] = ()
    """Pairs of row ids: first minus second is tested."""
    compare_columns: tuple[str, ...] | None = None
    """The columns that are tested; None for all."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Verb -> settings of all its steps."""
    axes: tuple[Axis, ...] = ()
    rows: tuple[Row, ...]
    plots: tuple[Plot, ...] | None = None
    """None if the file has no plots, so that the table decides."""
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


@dataclass(frozen=True, kw_only=True)
class SpeedConfig(Settings):
    """Measure how fast a model encodes texts, and count its parameters."""

    texts: File
    """Texts to encode: a named set, or a file with one text per line."""
    limit: RowCount = 2000
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


Argument: TypeAlias = str | int | float | bool | Annotated[tuple[str | int | float, ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class _ScriptKeys(Settings):
    """The keys of a script step that are not arguments of the script."""

    file: File
    numbers: tuple[str, ...] = ()
    seed: Seed = 1


@dataclass(frozen=True, kw_only=True)
class ScriptConfig(Settings):
    """Run ``python FILE --model START --output FOLDER --seed N --KEY VALUE ...``, which writes ``FOLDER/model``."""

    file: str
    """The script, relative to the folder of the study file."""
    numbers: tuple[str, ...] = ()
    """Numbers that the script writes into ``FOLDER/numbers.json``; each is a column of the study."""
    seed: int = 1
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Name of a flag, with underscores -> its value: a text, a number, true for a flag without value, or a list."""

    def __post_init__(self) -> None:
        """Values are checked by :meth:`read`: the arguments have no declared types."""

    @classmethod
    def read(cls, values: Mapping[str, Any], *, source: str) -> "ScriptConfig":
        """The checked settings of a script step.

        Raises:
            NearfarError: no file; a key that is no name of a flag, or that the study decides; a value that is no text,
                number, boolean or list of texts and numbers.
        """
        names = ("file", "numbers", "seed")
        fixed = build(_ScriptKeys, {name: values[name] for name in names if name in values}, source=source)
        arguments: dict[str, Argument] = {}
        for key, value in values.items():
            if key in names:
                continue
            if not _FLAG.fullmatch(key):
                raise NearfarError(
                    f"{source}: {key!r} is no name of a flag; use lower-case letters, digits, '-' and '_', as in "
                    "learning_rate = 2e-5 for --learning-rate."
                )
            name = key.replace("-", "_")
            if name in ("model", "output"):
                raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
            if name in arguments:
                raise NearfarError(f"{source}: {key} is given twice, with '-' and with '_'.")
            try:
                arguments[name] = convert(value, Argument)  # type: ignore[arg-type]  # a union
            except InvalidValueError:
                raise NearfarError(
                    f"{source}: {key} = {format_value(value)}: must be a text, a number, true, false, or a list of "
                    "texts and numbers."
                ) from None
        return cls(file=fixed.file, numbers=fixed.numbers, seed=fixed.seed, arguments=arguments)

    def command(self) -> list[str]:
        """The arguments as words: ``--learning-rate 2e-05 --languages de fr``."""
        words: list[str] = []
        for name, value in self.arguments.items():
            if value is False:
                continue
            words.append("--" + name.replace("_", "-"))
            if isinstance(value, tuple):
                words += map(str, value)
            elif value is not True:
                words.append(str(value))
        return words
