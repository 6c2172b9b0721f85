"""Study files: rows, axes, replicates, columns, the paper's numbers and what is compared; TOML -> :class:`Study`.

A table of the file is a struct whose types msgspec checks. What its tables say together (a row's steps and replicates,
the pairs that are compared) is resolved once, in :class:`Study` and :class:`Row`.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, field, structs

from nearfar.config.bounds import Points
from nearfar.settings import read_toml
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value, unknown_name_message

Verb: TypeAlias = Literal["train", "script", "finetune", "evaluate", "geometry", "speed"]
VERBS: tuple[Verb, ...] = ("train", "script", "finetune", "evaluate", "geometry", "speed")
"""The kinds of steps, in their default order."""
MODEL_VERBS: tuple[Verb, ...] = ("train", "script", "finetune")
"""The steps that make a model."""
TABLE = "study.json"
"""The name of the record of a table."""
AVERAGE = "average"
"""The column of the mean over tasks, and the label of the mean over the labels of an axis."""
ONLY_TASK = ("score", "accuracy", "f1", "matthews", "spearman", "pearson")
"""Columns of the only task of a result."""
GEOMETRY = ("uniformity", "alignment", "isotropy", "mean_cosine", "effective_rank")
BYTES = "bytes_per_vector"
UNSEEN_BY_ALL = ".unseen_by_all"
"""End of the columns on pairs that no run of the study has seen."""
NO_SCORES = (
    *(*GEOMETRY, BYTES, "seconds", "inference_seconds", "training_seconds", "texts_per_second", "texts"),
    *("updates_per_second", "steps", "best_step", "parameters"),
)
"""Columns of which a higher number is not better."""
_TESTED = (".task", ".tasks", ".pairs", ".labelled", ".mteb")
"""Ends of the settings that say what is tested."""
_WITH_SETTINGS = (*VERBS, "axes", "rows", "replicates")
"""Keys whose texts may have placeholders."""
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_ENTRIES = {"rows": ("id", "row"), "axes": ("name", "axis")}
"""Lists of tables that are merged entry by entry -> the key that identifies an entry, and what it is called."""
_PICKS = ("only_rows", "drop_rows", "only_axes", "drop_axes")
_REPLACED = ("replicates", "best")
"""Tables that a scale replaces as a whole."""
_ONE_OR_SEVERAL = ("paper", "plot", "compare_with")
"""Keys whose value may stand alone, without a list."""
_SHOWN_ELSEWHERE = (
    *("paper", "title", "notes", "caption", "source", "plot", "titles", "placeholders"),
    *("compare", "compare_with", "needs"),
)
"""Keys that :func:`changes` leaves out."""
_MAX_SHOWN = 200

_Text: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
_Settings: TypeAlias = dict[str, Any]
_Converted = TypeVar("_Converted")
Coordinates: TypeAlias = Mapping[str, str]
"""Axis -> label."""


class _Table(Struct, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A table of a study file."""


class Axis(_Table, kw_only=True):
    """A list of values that the cells of a row are repeated over."""

    name: _Text
    setting: _Text = ""
    settings: tuple[_Text, ...] = ()
    """Dotted settings, such as ``train.scl_weight``; ``model`` is the model of the first step."""
    values: list[Any]
    """For each label, one value for each setting."""
    labels: tuple[Any, ...] = ()
    use: Literal["rows", "columns", "x"] = field(default="rows", name="as")
    """Whether each label is a line of the table, a column, or a point on the x axis of a plot."""
    average: bool | list[Any] = False
    """Labels whose mean is shown as one more entry, ``average``."""
    compare_with: Any = UNSET

    def __post_init__(self) -> None:
        """Write a single setting as several, labels as texts; refuse what does not fit together."""
        if bool(self.setting) == bool(self.settings) or not self.values:
            problem = 'needs setting = "train.seed", or settings = [...] for several that change together, and values'
            raise InvalidValueError(problem)
        if self.setting:
            self.settings, self.values, self.setting = (self.setting,), [[value] for value in self.values], ""
        if not all(isinstance(entry, list) and len(entry) == len(self.settings) for entry in self.values):
            problem = f"must be lists, each with {len(self.settings)} values: one for each of its settings"
            raise InvalidValueError(problem, "values")
        self.labels = tuple(map(label_of, self.labels or [entry[0] for entry in self.values]))
        if len(set(self.labels)) != len(self.values):
            problem = f"{', '.join(self.labels)}: there must be {len(self.values)} different ones, as there are values"
            raise InvalidValueError(problem, "labels")
        for label in (*self.averaged, *filter(None, [self.baseline])):
            if label not in self.labels:
                raise InvalidValueError(unknown_name_message(label, self.labels, what="label"))

    @property
    def averaged(self) -> tuple[str, ...]:
        """The labels of the average; empty for none."""
        return self.labels * self.average if isinstance(self.average, bool) else tuple(map(label_of, self.average))

    @property
    def baseline(self) -> str | None:
        """The label that all others are compared with, within each row."""
        return None if self.compare_with is UNSET else label_of(self.compare_with)

    @property
    def shown_labels(self) -> tuple[str, ...]:
        """The labels, and the average last."""
        return (*self.labels, AVERAGE) if self.averaged else self.labels

    @property
    def places(self) -> dict[str, float]:
        """Label -> its place on an x axis: the values if they are numbers, or the labels, or 0, 1, 2."""
        values = [one[0] for one in self.values] if len(self.settings) == 1 else [None]
        for numbers in (values, self.labels, range(len(self.labels))):
            try:
                return {label: float(str(one)) for label, one in zip(self.labels, numbers, strict=True)}
            except ValueError:
                continue
        raise AssertionError

    @property
    def says_what_is_tested(self) -> bool:
        """Whether its labels are tested on different tasks, so that their scores have no order."""
        return any(setting.endswith(_TESTED) for setting in self.settings)


def words_of(places: Mapping[str, Any], sign: str = " ") -> str:
    """Labels of axes, or settings, in words: ``lambda 0.3, seed 1``."""
    return ", ".join(f"{name}{sign}{label}" for name, label in places.items())


def label_of(value: Any) -> str:
    """A value as a label.

    >>> [label_of(value) for value in (0.3, 1.0, True, "a", ["a", "b"])]
    ['0.3', '1', 'true', 'a', 'a, b']
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(label_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Plot(Struct, frozen=True, forbid_unknown_fields=True):
    """A plot of the table."""

    kind: Literal["heat map", "lines", "spectrum", "layers", "curves", "pairs", "labels"]
    x: str | None = None
    y: str | None = None
    value: str | None = None
    title: str | None = None


class _Best(Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1)]
    by: Literal["validation"] = "validation"


class _Steps(_Table, kw_only=True):
    """Settings by verb, in the file or in a row."""

    train: _Settings | None = None
    script: _Settings | None = None
    finetune: _Settings | None = None
    evaluate: _Settings | None = None
    geometry: _Settings | None = None
    speed: _Settings | None = None
    replicates: _Settings | None = None

    @property
    def settings(self) -> dict[str, _Settings]:
        """Verb -> settings, for the verbs that are there."""
        return {verb: own for verb in VERBS if (own := getattr(self, verb)) is not None}


class Step(NamedTuple):
    """One step of a row, with its own settings."""

    verb: Verb
    settings: Mapping[str, Any]


class PaperNumber(NamedTuple):
    """A number printed in the paper."""

    coordinates: Coordinates
    """Without an axis, the number is for all its labels."""
    column: str
    value: float
    sd: float | None = None


class Row(_Steps, kw_only=True):
    """A method or baseline: its own settings, by verb; :class:`Study` says what they are together with the file's."""

    id: _Text
    name: _Text = ""
    """By default the id."""
    model: _Text | None = None
    """Model of the first step; None for the one in its settings."""
    needs: tuple[_Text, ...] = ()
    """Files that the row needs, as ``FILE: how to make it``."""
    note: _Text | None = None
    written_steps: list[Verb | dict[Verb, _Settings]] | None = field(default=None, name="steps")
    crossed_with: tuple[_Text, ...] | None = field(default=None, name="axes")
    printed: list[dict[str, bool | int | float | str | tuple[float, float]]] = field(default=[], name="paper")

    def __post_init__(self) -> None:
        """Refuse an id that cannot be part of a name."""
        self.name = self.name or self.id
        if not _ID.fullmatch(self.id):
            problem = "must be lower-case letters, digits and the signs '.', '+', '-'"
            raise InvalidValueError(problem, "id", value=self.id)


def agree(first: Coordinates, second: Coordinates) -> bool:
    """Whether two sets of coordinates agree on the axes that both have."""
    return all(second[name] == label for name, label in first.items() if name in second)


class _File(_Steps, kw_only=True):
    title: _Text
    columns: tuple[_Text, ...]
    rows: list[Row]
    source: _Text | None = None
    notes: _Text | None = None
    caption: _Text | None = None
    titles: dict[str, Any] = {}
    """Column -> its heading, where that is another text."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    best: _Best | None = None
    compare: list[tuple[str, str]] = []
    compare_with: tuple[_Text, ...] = ()
    compare_columns: tuple[_Text, ...] | None = None
    """The columns that are tested; None for all."""
    claims: tuple[_Text, ...] | None = None
    """The tested columns that have verdicts, corrected together; others have intervals alone. None for all."""
    margin: Points = 0.5
    """The largest difference, in points, that counts as level."""
    axes: list[Axis] = []
    scales: dict[str, dict[str, Any]] = {}
    """Name -> changes."""
    plots: list[Plot] | None = field(default=None, name="plot")
    """None if the file has no plots, so that the table decides."""

    def __post_init__(self) -> None:
        """Refuse what is empty or occurs twice."""
        rows, axes = [row.id for row in self.rows], [axis.name for axis in self.axes]
        named = {"columns": self.columns, "rows": rows, "axes": axes, "claims": self.claims or ()}
        for key, names in {**named, "compare_columns": self.compare_columns or ()}.items():
            if key in ("columns", "rows") and not names:
                raise InvalidValueError("is empty; give at least one", key)
            if key == "columns" and all(name.split(".")[0] == AVERAGE for name in names):
                raise InvalidValueError("has the average alone; name the columns that it is the mean of", key)
            for name, count in Counter(names).items():
                if count > 1:
                    raise InvalidValueError(f"names {name!r} twice", key)


class Study(_File, kw_only=True):
    """A study file, at one of its scales."""

    file: str
    """Where it was read, for messages."""
    scale: str | None = None
    base: Mapping[str, Any] = {}
    """The content of the file before the scale's changes."""
    content: Mapping[str, Any]
    """The content of the file after the scale's changes, without ``scales``; ``compare`` holds all pairs. Placeholders
    are not filled; their values are in ``placeholders``, folders by their names."""

    @property
    def kept(self) -> int | None:
        """Number of replicates that enter means and tests, the best ones by validation; None for all."""
        return None if self.best is None else self.best.count

    def row(self, name: str) -> Row:
        """The row with this id."""
        return next(row for row in self.rows if row.id == name)

    def axes_of(self, row: Row) -> list[Axis]:
        """The axes that a row is crossed with."""
        return [axis for axis in self.axes if row.crossed_with is None or axis.name in row.crossed_with]

    def replicates_of(self, row: Row | None) -> tuple[Mapping[str, Any], ...]:
        """The replicates of a row, or of the file: for each, dotted setting -> value; one without settings by default.

        Raises:
            NearfarError: lists of different lengths, or of a setting that an axis changes.
        """
        where = f"{self.file}: " + ("replicates" if row is None else f"row {row.id!r}: replicates")
        lists = _flat((self.replicates if row is None or row.replicates is None else row.replicates) or {})
        for setting, values in lists.items():
            if not isinstance(values, list) or not values or len(values) != len(next(iter(lists.values()))):
                problem = f"{setting} = {format_value(values)}: must be a list, as in [1, 2, 3], and all of one length"
                raise NearfarError(f"{where}: {problem}.")
            if any(setting in axis.settings for axis in self.axes):
                raise NearfarError(f"{where}: {setting} is a setting of an axis too; leave one of them out.")
        replicates = tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))
        return replicates or ({},)

    def steps_of(self, row: Row) -> tuple[Step, ...]:
        """The steps of a row; none for a line with the paper's numbers only.

        By default those that the row or file has settings of, in the order of :data:`VERBS`.
        """
        named = [verb for verb in VERBS if verb in row.settings or verb in self.settings]
        default: list[Verb | dict[Verb, _Settings]] = [*named]
        default += [] if set(named) - {"train", "script"} else ["evaluate"]
        steps = default if row.written_steps is None else row.written_steps
        return tuple(
            Step(verb, settings)
            for one in steps
            for verb, settings in ({one: {}} if isinstance(one, str) else one).items()
        )

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of row ids: first minus second is tested. Those with a row that the scale leaves out are dropped."""
        rows = [row.id for row in self.rows]
        pairs = self.compare or [(row, other) for other in self.compare_with for row in rows if row != other]
        return list(dict.fromkeys((first, second) for first, second in pairs if first in rows and second in rows))

    @cached_property
    def paper(self) -> dict[str, list[PaperNumber]]:
        """Row -> the paper's numbers, without those of columns, axes and labels that the scale leaves out.

        Raises:
            NearfarError: a number that is none.
        """
        known = {axis.name for axis in self.axes} | {axis["name"] for axis in self.base.get("axes", ())}
        numbers: dict[str, list[PaperNumber]] = {row.id: [] for row in self.rows}
        for row, entry in [(one, entry) for one in self.rows for entry in one.printed]:
            used = {axis.name: (*axis.labels, AVERAGE) for axis in self.axes_of(row)}
            at = {key: label_of(value) for key, value in entry.items() if key not in self.columns and key in known}
            for key in (key for key in entry if key in self.columns):
                if isinstance(value := entry[key], bool | str):
                    where = f"{self.file}: row {row.id!r}: paper: {key} = {format_value(value)}"
                    raise NearfarError(f"{where}: must be a number, or [mean, standard deviation].")
                parts = value if isinstance(value, tuple) else (value,)
                if all(label in used.get(name, ()) for name, label in at.items()):
                    numbers[row.id].append(PaperNumber(at, key, *map(float, parts)))
        return numbers

    def paper_number(self, row: str, coordinates: Coordinates, column: str) -> PaperNumber | None:
        """The paper's number at these coordinates, of several the first of those with the most labels.

        A number for all labels of an axis is not their average.
        """
        averages = {name for name, label in coordinates.items() if label == AVERAGE}
        fitting = [
            one
            for one in self.paper[row]
            if one.column == column
            and one.coordinates.items() <= coordinates.items()
            and averages <= one.coordinates.keys()
        ]
        return max(fitting, key=lambda one: len(one.coordinates), default=None)


def read_study(file: str | Path, scale: str | None, values: Mapping[str, str]) -> Study:
    """The study of a file at one of its scales; ``values`` are those of its placeholders.

    Tables of a scale are merged key by key, rows by ``id`` and axes by ``name``; other values are replaced. The keys
    ``only_rows``, ``drop_rows``, ``only_axes`` and ``drop_axes`` of a scale remove rows and axes. ``paper`` is the file
    itself if it has no scale of that name.

    Raises:
        NearfarError: the file cannot be read; an unknown key (with the nearest one); a value of the wrong type or out
            of bounds; a row without id; ids that occur twice; paper numbers of unknown columns or labels; a comparison
            of unknown rows; an unknown scale; a placeholder without a value. The message names the file, the table and
            the key.
    """
    source, content = str(file), read_toml(file)
    base = _checked(content, source)
    scales, merged = content.pop("scales", {}), content
    if scale is not None and (scale != "paper" or scale in scales):
        _check_name(scale, [*scales, "paper"], "scale", source)
        merged = _at_scale(content, scales[scale], f"{source}: [scales.{scale}]")
    filled = {key: _filled(one, values, source) if key in _WITH_SETTINGS else one for key, one in merged.items()}
    study = Study(**structs.asdict(_checked(filled, source)), file=source, scale=scale, base=content, content={})
    _check_together(study, base)
    used = {
        name: Path(value).name if Path(value).is_absolute() else value  # no places on this machine
        for name, value in values.items()
        if f"{{{name}}}" in str(merged)
    }
    kept = {key: value for key, value in merged.items() if key not in ("compare", "compare_with")}
    study.content = kept | {"compare": [*map(list, study.pairs)]} | ({"placeholders": used} if used else {})
    return study


def read_recorded(content: Mapping[str, Any]) -> Study:
    """The study of the record of a table, study.json; its placeholders are not filled.

    Raises:
        NearfarError: it is no study.
    """
    known = {key: value for key, value in content.items() if key != "placeholders"}
    source = "the study of the table"
    return Study(**structs.asdict(_checked(known, source)), file=source, content=known)


def _at_scale(base: Mapping[str, Any], scale: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content of a study file with the changes of a scale."""
    merged = _merge(_by_name(base), _by_name({key: one for key, one in scale.items() if key not in _PICKS}, where))
    for pick in (key for key in scale if key in _PICKS):
        kind, part = pick.split("_")
        names, entries = scale[pick], merged.get(part, {})
        for name in names:
            _check_name(str(name), entries, _ENTRIES[part][1], f"{where} {pick}")
        merged[part] = {name: entry for name, entry in entries.items() if (name in names) == (kind == "only")}
    return {key: [*value.values()] if key in _ENTRIES else value for key, value in merged.items()}


def _by_name(content: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The content with rows and axes as tables by their names."""
    named = dict(content)
    for part, (key, _) in _ENTRIES.items():
        if part in content:
            try:
                named[part] = {str(entry[key]): entry for entry in content[part]}
            except (KeyError, TypeError):
                raise NearfarError(f"{where} {part}: must be tables with the key {key!r}.") from None
    return named


def _merge(before: Any, change: Any) -> Any:
    """A value with its change: tables are merged key by key.

    >>> _merge({"train": {"seed": 1, "epochs": 3}}, {"train": {"epochs": 1}})
    {'train': {'seed': 1, 'epochs': 1}}
    """
    if not isinstance(before, Mapping) or not isinstance(change, Mapping):
        return change
    named = change.keys() >= {"values"} and "labels" not in change  # the labels are of the values that are replaced
    kept = {key: value for key, value in before.items() if key != "labels" or not named}
    return kept | {key: one if key in _REPLACED else _merge(kept.get(key), one) for key, one in change.items()}


def _filled(content: Any, values: Mapping[str, str], where: str) -> Any:
    """``content`` with ``{name}`` replaced in all texts in it."""

    def value_of(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name not in values:
            raise NearfarError(f"{where}: {{{name}}} has no value. Give one: --{name} VALUE")
        return json.dumps(values[name])[1:-1]

    return json.loads(_PLACEHOLDER.sub(value_of, json.dumps(content, default=str)))


def _checked(content: Mapping[str, Any], source: str) -> _File:
    """The tables of a study file by their types.

    Raises:
        NearfarError: a value that does not fit; it names the row or axis that has it.
    """
    listed = _with_lists(content)
    for part, (key, what) in _ENTRIES.items():
        if isinstance(content.get(part), list):
            kind: Any = Row if part == "rows" else Axis
            listed[part] = [_with_lists(entry) if isinstance(entry, Mapping) else entry for entry in content[part]]
            for number, entry in enumerate(listed[part], start=1):
                name = entry.get(key) if isinstance(entry, Mapping) else None
                _convert(entry, kind, f"{source}: {what} {repr(name) if name else number}")
    return _convert(listed, _File, source)


def _convert(value: Any, kind: type[_Converted], where: str) -> _Converted:
    try:
        return convert(value, kind, null="none")
    except InvalidValueError as error:
        fault = ": ".join(map(str, [*error.path, error.problem])) if error.value is UNSET else str(error)
        raise NearfarError(f"{where}: {fault}{'' if fault.endswith('?') else '.'}") from None


def _with_lists(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [value] if key in _ONE_OR_SEVERAL and isinstance(value, Mapping | str) else value
        for key, value in content.items()
    }


def _check_name(name: str, known: Collection[str], what: str, where: str) -> None:
    """Refuse an unknown name, with the nearest known one."""
    if name not in known:
        raise NearfarError(f"{where}: {unknown_name_message(name, known, what=what)}")


def _check_together(study: Study, base: _File) -> None:
    """Refuse a study that does not fit together, or names what is neither in it nor in its file before the scale."""
    study.replicates_of(None)
    for row in map(study.row, study.paper):  # which checks the numbers
        study.replicates_of(row)
    if study.compare and study.compare_with:
        raise NearfarError(f"{study.file}: compare and compare_with exclude each other; give one.")
    for names, known, what, where in _named(study, base):
        for name in names:
            _check_name(name, known, what, f"{study.file}: {where}")


def _named(study: Study, base: _File) -> Iterator[tuple[Iterable[str], Collection[str], str, str]]:
    """What a study names: the names, those that there are, what they are of, and where they stand."""
    columns = dict.fromkeys([*study.columns, *base.columns])
    rows = dict.fromkeys(row.id for row in [*study.rows, *base.rows])
    labels: dict[str, list[str]] = {}
    for axis in [*study.axes, *base.axes]:
        labels[axis.name] = [*labels.get(axis.name, [AVERAGE]), *axis.labels]
    for row in study.rows:
        yield row.crossed_with or (), labels, "axis", f"row {row.id!r}: axes"
        for key, value in (item for entry in row.printed for item in entry.items()):
            if key in labels and key not in study.columns:
                yield [label_of(value)], labels[key], "label", f"row {row.id!r}: paper: {key}"
            else:
                yield [key], columns, "column", f"row {row.id!r}: paper"
    for key in ("titles", "compare_columns", "claims"):
        yield getattr(study, key) or (), columns, "column", key
    yield (*study.compare_with, *chain(*study.compare)), rows, "row", "compare_with or compare"


def _flat(settings: Mapping[str, Any], *, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Nested tables as dotted keys: TOML reads ``finetune.seed = 1`` as a table in a table.

    >>> _flat({"seed": [1, 2], "finetune": {"sample_seed": [3, 4]}})
    {'seed': [1, 2], 'finetune.sample_seed': [3, 4]}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and key not in left_out:
            flat |= {f"{key}.{name}": one for name, one in _flat(value, left_out=left_out).items()}
        elif key not in left_out:
            flat[key] = value
    return flat


def changes(base: Mapping[str, Any], study: Mapping[str, Any]) -> list[str]:
    """What a scale changes of a study file, a line for each setting, such as ``train.epochs: 1 (paper: 3)``.

    Placeholders such as ``{start}`` are filled from the table ``placeholders`` of the study.
    """
    old, new, lines = _by_name(base), _by_name(study), list[str]()
    for part in _ENTRIES:
        gone = old.get(part, {}).keys() - new.get(part, {}).keys()
        lines += [f"without {part} {', '.join(name for name in old[part] if name in gone)}"] if gone else []
        old[part] = {name: entry for name, entry in old.get(part, {}).items() if name not in gone}
    before, after = (_flat(side, left_out=_SHOWN_ELSEWHERE) for side in (old, new))
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            here, paper = (_shown(side[key]) if key in side else "not set" for side in (after, before))
            lines.append(f"{key}: {here} (paper: {paper})")
    for name, value in (study.get("placeholders") or {}).items():
        lines = [line.replace(f"{{{name}}}", str(value)) for line in lines]
    return lines


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
