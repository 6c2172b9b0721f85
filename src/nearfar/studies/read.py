"""Reads a study file: TOML -> the changes of a scale -> :class:`Study`, with every setting checked."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, field

from nearfar.settings import read_toml
from nearfar.studies.spec import AVERAGE, VERBS, Axis, AxisUse, PaperNumber, Plot, Row, Step, Study
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value, unknown_name_message

_WITH_SETTINGS = (*VERBS, "axes", "rows", "replicates")
"""Keys whose texts may have placeholders."""
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_ENTRIES = {"rows": ("id", "row"), "axes": ("name", "axis")}
"""Lists of tables that are merged entry by entry -> the key that identifies an entry, and what it is called."""
_PICKS = ("only_rows", "drop_rows", "only_axes", "drop_axes")
_ONE_OR_SEVERAL = ("paper", "plot", "compare_with")
"""Keys whose value may stand alone, without a list."""

_Text: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
_Settings: TypeAlias = dict[str, Any]


class _Steps(Struct, forbid_unknown_fields=True, kw_only=True):
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


class _RowTable(_Steps, kw_only=True):
    id: _Text
    name: _Text = ""
    steps: list[str | _Settings] | None = None
    model: _Text | None = None
    axes: tuple[_Text, ...] | None = None
    needs: tuple[_Text, ...] = ()
    paper: list[dict[str, Any]] = []
    note: _Text | None = None


class _AxisTable(Struct, forbid_unknown_fields=True, kw_only=True):
    name: _Text
    values: list[Any]
    setting: _Text = ""
    settings: tuple[_Text, ...] = ()
    labels: list[Any] = []
    use: AxisUse = field(default="rows", name="as")
    average: bool | list[Any] = False
    compare_with: Any = UNSET


class _Best(Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1)]
    by: Literal["validation"] = "validation"


class _File(_Steps, kw_only=True):
    title: _Text
    columns: tuple[_Text, ...]
    rows: list[_RowTable]
    source: _Text | None = None
    notes: _Text | None = None
    caption: _Text | None = None
    titles: dict[str, Any] = {}
    aggregate: Literal["all", "mean", "wmean"] = "all"
    best: _Best | None = None
    compare: list[tuple[str, str]] = []
    compare_with: tuple[_Text, ...] = ()
    compare_columns: tuple[_Text, ...] | None = None
    axes: list[_AxisTable] = []
    plot: list[Plot] | None = None


def load_study(file: str | Path, scale: str | None = None, *, placeholders: Mapping[str, str] | None = None) -> Study:
    """Read a study file, at one of its scales, and check all of its settings.

    ``placeholders`` are the values of ``{name}`` in the texts of settings, as in ``model = "{start}"``.

    Raises:
        NearfarError: the file cannot be read; an unknown key or setting (with the nearest one); a value of the wrong
            type or out of bounds; a row without id; ids that occur twice; paper numbers of unknown columns or labels;
            a comparison of unknown rows; an unknown scale; a placeholder without a value. The message names the file,
            the table and the key.
    """
    from nearfar.studies.cells import plan_cells

    source, values = str(file), placeholders or {}
    content = read_toml(file)
    base = {key: value for key, value in content.items() if key != "scales"}
    merged = at_scale(content, scale, source=source)
    filled = {
        key: _filled(value, values, where=source) if key in _WITH_SETTINGS else value for key, value in merged.items()
    }
    table = _checked(filled, source)
    names = _Names.of(table, *([] if merged == base else [_checked(base, source)]))
    study = _study(table, names, source=source)
    kept = {key: value for key, value in merged.items() if key not in ("compare", "compare_with")}
    kept["compare"] = [list(pair) for pair in study.compare]
    used = {
        name: Path(value).name if Path(value).is_absolute() else value  # no places on this machine
        for name, value in values.items()
        if f"{{{name}}}" in str(merged)
    }
    kept |= {"placeholders": used} if used else {}
    study = replace(study, scale=scale, scales=tuple(content.get("scales", {})), base=base, content=kept)
    plan_cells(study)
    return study


def read_recorded(content: Mapping[str, Any]) -> Study:
    """The study of the record of a table, study.json; its placeholders are not filled.

    Raises:
        NearfarError: it is no study.
    """
    known = {key: value for key, value in content.items() if key != "placeholders"}
    source = "the study of the table"
    table = _checked(known, source)
    return replace(_study(table, replace(_Names.of(table), strict=False), source=source), content=known)


def at_scale(content: Mapping[str, Any], scale: str | None, *, source: str) -> dict[str, Any]:
    """The content of a study file with the changes of one of its scales, without the table ``scales``.

    Tables are merged key by key, rows by ``id`` and axes by ``name``; other values are replaced. The keys
    ``only_rows``, ``drop_rows``, ``only_axes`` and ``drop_axes`` of a scale remove rows and axes. ``paper`` is the file
    itself if it has no scale of that name.

    Raises:
        NearfarError: an unknown scale (the message lists those that exist), or an unknown row or axis to keep or drop.
    """
    base = {key: value for key, value in content.items() if key != "scales"}
    scales = content.get("scales", {})
    if not isinstance(scales, Mapping) or not all(isinstance(value, Mapping) for value in scales.values()):
        raise NearfarError(f"{source}: scales: must be tables, as in [scales.here].")
    if scale is None or (scale == "paper" and scale not in scales):
        return base
    _check_name(scale, [*scales, "paper"] if scale not in scales else scales, "scale", source)
    where = f"{source}: [scales.{scale}]"
    merged = _merge(base, {key: one for key, one in scales[scale].items() if key not in _PICKS}, where=where)
    for pick in (key for key in scales[scale] if key in _PICKS):
        kind, part = pick.split("_")
        key, what = _ENTRIES[part]
        names, entries = scales[scale][pick], merged.get(part, [])
        if not isinstance(names, list):
            raise NearfarError(f'{where} {pick}: must be a list, as in ["one", "two"].')
        ids = [str(entry.get(key)) if isinstance(entry, Mapping) else "" for entry in entries]
        for name in names:
            _check_name(str(name), ids, what, f"{where} {pick}")
        merged[part] = [entry for entry, id_ in zip(entries, ids, strict=True) if (id_ in names) == (kind == "only")]
    return merged


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """``base`` with ``changes``: tables are merged key by key, rows and axes entry by entry.

    >>> _merge({"train": {"seed": 1, "epochs": 3}}, {"train": {"epochs": 1}}, where="")
    {'train': {'seed': 1, 'epochs': 1}}
    """
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and key not in ("replicates", "best"):
            merged[key] = _merge(before, value, where=where)
        elif key in _ENTRIES and isinstance(before, list):
            merged[key] = _merge_entries(before, value, _ENTRIES[key][0], where=f"{where} {key}")
        else:
            merged[key] = value
    return merged


def _merge_entries(before: list[Any], changes: Any, key: str, *, where: str) -> list[Any]:
    if not isinstance(changes, list) or not all(isinstance(one, Mapping) and key in one for one in changes):
        raise NearfarError(f"{where}: must be tables with the key {key!r}.")
    merged = list(before)
    for change in changes:
        known = [place for place, one in enumerate(merged) if isinstance(one, Mapping) and one.get(key) == change[key]]
        if not known:
            merged.append(dict(change))
            continue
        merged[known[0]] = _merge(merged[known[0]], change, where=where)
        if "values" in change and "labels" not in change:
            merged[known[0]].pop("labels", None)  # they name the values that are replaced
    return merged


def _filled(value: Any, values: Mapping[str, str], *, where: str) -> Any:
    """``value`` with ``{name}`` replaced in all texts in it."""
    if isinstance(value, Mapping):
        return {key: _filled(one, values, where=where) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, values, where=where) for one in value]
    if not isinstance(value, str):
        return value

    def fill(placeholder: re.Match[str]) -> str:
        if placeholder[1] not in values:
            raise NearfarError(
                f"{where}: {format_value(value)}: {placeholder[0]} has no value. Give one: --{placeholder[1]} VALUE"
            )
        return values[placeholder[1]]

    return _PLACEHOLDER.sub(fill, value)


def _checked(content: Mapping[str, Any], source: str) -> _File:
    """The tables of a study file by their types.

    Raises:
        NearfarError: a value that does not fit; it names the row or axis that has it.
    """
    listed = _with_lists(content)
    if isinstance(listed.get("rows"), list):
        listed["rows"] = [_with_lists(row) if isinstance(row, Mapping) else row for row in listed["rows"]]
    try:
        return convert(listed, _File, null="none")
    except InvalidValueError as error:
        path, where = error.path, source
        if len(path) > 1 and path[0] in _ENTRIES:
            key, what = _ENTRIES[str(path[0])]
            entry = listed[str(path[0])][path[1]]
            name = entry.get(key) if isinstance(entry, Mapping) else None
            named = isinstance(name, str) and path[2:] != (key,)
            where += f": {what} {name!r}" if named else f": [[{path[0]}]] number {int(path[1]) + 1}"
            path = path[2:]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
        shown = place if error.value is UNSET or not place else f"{place} = {format_value(error.value)}"
        text = ": ".join(filter(None, [where, shown, error.problem]))
        raise NearfarError(text if text.endswith(("?", ".")) else f"{text}.") from None


def _with_lists(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [value] if key in _ONE_OR_SEVERAL and isinstance(value, Mapping | str) else value
        for key, value in content.items()
    }


def _check_name(name: str, known: Collection[str], what: str, where: str) -> None:
    """Refuse an unknown name, with the nearest known one."""
    if name not in known:
        raise NearfarError(f"{where}: {unknown_name_message(name, known, what=what)}")


def _check_distinct(names: Iterable[str], where: str, reason: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise NearfarError(f"{where}: {reason.format(name)}")


@dataclass(frozen=True)
class _Names:
    """Columns, rows and labels of axes of a file, those that the scale leaves out too: paper numbers may name them."""

    columns: Collection[str]
    rows: Collection[str]
    labels: Mapping[str, Collection[str]]
    strict: bool = True
    """Whether other names are refused; those of a record are left out."""

    @classmethod
    def of(cls, *tables: _File) -> "_Names":
        """The names in the tables of a file."""
        labels: dict[str, dict[str, None]] = {}
        for axis in (axis for table in tables for axis in table.axes):
            given = axis.labels or [one[0] if axis.settings and isinstance(one, list) else one for one in axis.values]
            labels.setdefault(axis.name, {}).update(dict.fromkeys(map(label_of, given)))
        columns = dict.fromkeys(column for table in tables for column in table.columns)
        return cls(columns, dict.fromkeys(row.id for table in tables for row in table.rows), labels)


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


def _study(table: _File, names: _Names, *, source: str) -> Study:
    for key in ("columns", "rows"):
        if not getattr(table, key):
            raise NearfarError(f"{source}: {key}: is empty; give at least one.")
    for key in ("columns", "compare_with", "compare_columns"):
        value = getattr(table, key) or ()
        _check_distinct(value, source, f"{key} = {format_value(list(value))}: names one twice.")
    axes = tuple(_axis(axis, f"{source}: axis {axis.name!r}") for axis in table.axes)
    _check_distinct((axis.name for axis in axes), source, "[[axes]]: the name {!r} occurs twice.")
    _check_distinct((row.id for row in table.rows), source, "[[rows]]: the id {!r} occurs twice.")
    replicates = _replicates(table.replicates, axes, source)
    rows = tuple(_row(row, table, axes, names, f"{source}: row {row.id!r}") for row in table.rows)
    for key in ("titles", "compare_columns"):
        for column in getattr(table, key) or () if names.strict else ():
            _check_name(column, names.columns, "column", f"{source}: {key}")
    if table.best is not None and table.best.count > len(replicates):
        raise NearfarError(f"{source}: best: count = {table.best.count}: there are only {len(replicates)} replicates.")
    for plot in table.plot or ():
        where = f"{source}: plot: "
        for key in ("x", "y") if plot.kind in ("heat map", "lines") else ():
            if getattr(plot, key) is not None:
                _check_name(getattr(plot, key), [*(axis.name for axis in axes), "row"], "axis", where + key)
        if plot.row is not None:
            _check_name(plot.row, names.rows, "row", f"{where}row")
    return Study(
        file=source,
        title=table.title,
        source=table.source,
        notes=table.notes,
        caption=table.caption,
        columns=table.columns,
        titles={key: str(value) for key, value in table.titles.items()},
        compare_columns=table.compare_columns,
        aggregate=table.aggregate,
        replicates=replicates,
        best=None if table.best is None else table.best.count,
        compare=_pairs(table, [row.id for row in rows], names.rows, source),
        settings=table.settings,
        axes=axes,
        rows=rows,
        plots=None if table.plot is None else tuple(table.plot),
        content={},
    )


def _axis(axis: _AxisTable, where: str) -> Axis:
    if bool(axis.setting) == bool(axis.settings):
        raise NearfarError(
            f'{where}: needs setting = "train.seed", or settings = [...] for several that change together.'
        )
    settings = axis.settings or (axis.setting,)
    if not axis.values:
        raise NearfarError(f"{where}: values: is empty; give at least one value.")
    entries = axis.values if axis.settings else [[value] for value in axis.values]
    if not all(isinstance(entry, list) and len(entry) == len(settings) for entry in entries):
        raise NearfarError(
            f"{where}: values: must be a list of lists, each with {len(settings)} values: one for each of its settings."
        )
    labels = tuple(label_of(value) for value in axis.labels or [entry[0] for entry in entries])
    if len(labels) != len(entries):
        raise NearfarError(f"{where}: labels: there are {len(labels)} labels for {len(entries)} values.")
    _check_distinct(labels, where, f"labels: {', '.join(labels)}: one occurs twice.")
    if isinstance(axis.average, bool):
        averaged = labels if axis.average else ()
    else:
        averaged = tuple(map(label_of, axis.average))
    baseline = None if axis.compare_with is UNSET else label_of(axis.compare_with)
    for key, named in (("average", averaged), ("compare_with", () if baseline is None else (baseline,))):
        for label in named:
            _check_name(label, labels, "label", f"{where}: {key}")
    return Axis(axis.name, settings, tuple(map(tuple, entries)), labels, axis.use, averaged, baseline)


def _replicates(settings: Mapping[str, Any] | None, axes: Sequence[Axis], where: str) -> tuple[Mapping[str, Any], ...]:
    """The replicates of a study or row: for each, dotted setting -> value; one without settings by default."""
    lists = _flat(settings or {})
    if not lists:
        return ({},)
    where += ": replicates"
    for setting, values in lists.items():
        if not isinstance(values, list) or not values:
            raise NearfarError(f"{where}: {setting} = {format_value(values)}: must be a list, as in [1, 2, 3].")
        if any(setting in axis.settings for axis in axes):
            raise NearfarError(f"{where}: {setting} is a setting of an axis too; leave one of them out.")
    if len({len(values) for values in lists.values()}) > 1:
        raise NearfarError(f"{where}: the lists of {', '.join(lists)} must have the same length.")
    replicates = tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))
    if any(one in replicates[:place] for place, one in enumerate(replicates)):
        raise NearfarError(f"{where}: a replicate occurs twice.")
    return replicates


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as dotted keys: TOML reads ``finetune.seed = 1`` as a table in a table.

    >>> _flat({"seed": [1, 2], "finetune": {"sample_seed": [3, 4]}})
    {'seed': [1, 2], 'finetune.sample_seed': [3, 4]}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": one for name, one in _flat(value).items()} if isinstance(value, Mapping) else None
        flat |= {key: value} if inner is None else inner
    return flat


def _pairs(table: _File, rows: list[str], known: Collection[str], where: str) -> tuple[tuple[str, str], ...]:
    """The pairs of rows to compare. Pairs with a row that the scale leaves out are dropped."""
    if table.compare and table.compare_with:
        raise NearfarError(f"{where}: compare and compare_with exclude each other; give one.")
    for key, named in (("compare_with", table.compare_with), ("compare", sum(table.compare, ()))):
        for name in named:
            _check_name(name, known, "row", f"{where}: {key}")
    for first, second in table.compare:
        if first == second:
            raise NearfarError(f"{where}: compare: compares {first!r} with itself.")
    pairs = table.compare or [(row, other) for other in table.compare_with for row in rows if row != other]
    return tuple(dict.fromkeys((first, second) for first, second in pairs if first in rows and second in rows))


def _row(row: _RowTable, file: _File, axes: Sequence[Axis], names: _Names, where: str) -> Row:
    if not _ID.fullmatch(row.id):
        raise NearfarError(f"{where}: id = {row.id!r}: must be lower-case letters, digits and the signs '.', '+', '-'.")
    for name in row.axes or () if names.strict else ():
        _check_name(name, names.labels, "axis", f"{where}: axes")
    crossed = [axis for axis in axes if row.axes is None or axis.name in row.axes]
    return Row(
        id=row.id,
        name=row.name or row.id,
        steps=_steps(row, file, where),
        model=row.model,
        settings=row.settings,
        axes=tuple(axis.name for axis in crossed),
        replicates=_replicates(file.replicates if row.replicates is None else row.replicates, axes, where),
        needs=row.needs,
        paper=_paper(row, file.columns, crossed, names, where),
        note=row.note,
    )


def _steps(row: _RowTable, file: _File, where: str) -> tuple[Step, ...]:
    """The steps of a row. By default those that the row or file has settings of, in the order of :data:`VERBS`."""
    named = [verb for verb in VERBS if verb in row.settings or verb in file.settings]
    default = named if set(named) - {"train", "script"} else [*named, "evaluate"]
    steps: list[Step] = []
    for given in default if row.steps is None else row.steps:
        entry = {given: {}} if isinstance(given, str) else given
        verbs = [key for key in entry if key != "name"]
        if len(verbs) != 1:
            raise NearfarError(f"{where}: steps: {format_value(entry)}: must have one verb of {', '.join(VERBS)}.")
        _check_name(verbs[0], VERBS, "step", f"{where}: steps")
        try:
            steps.append(Step(verbs[0], convert(entry.get("name", verbs[0]), str), convert(entry[verbs[0]], _Settings)))  # type: ignore[arg-type]
        except InvalidValueError:
            raise NearfarError(
                f'{where}: steps: {format_value(entry)}: must be a table as {{ finetune = {{ task = "rte" }} }}.'
            ) from None
    for step in steps:
        if step.name != step.verb and (step.name in VERBS or sum(one.name == step.name for one in steps) > 1):
            raise NearfarError(f"{where}: steps: the name {step.name!r} occurs twice or is a verb.")
    return tuple(steps)


def _paper(
    row: _RowTable, columns: Sequence[str], crossed: Sequence[Axis], names: _Names, where: str
) -> tuple[PaperNumber, ...]:
    """The paper's numbers of a row, without those of columns, axes and labels that the scale leaves out."""
    used = {axis.name: {*axis.labels, AVERAGE} for axis in crossed}
    numbers: list[PaperNumber] = []
    for entry in row.paper:
        coordinates = {
            key: label_of(value) for key, value in entry.items() if key not in columns and key in names.labels
        }
        for key, label in coordinates.items():
            if names.strict and label != AVERAGE:
                _check_name(label, sorted(names.labels[key]), "label", f"{where}: paper: {key}")
        is_used = all(label in used.get(key, ()) for key, label in coordinates.items())
        for key, value in entry.items():
            if key in coordinates:
                continue
            if key not in columns:
                if names.strict:
                    _check_name(key, names.columns, "column", f"{where}: paper")
                continue
            parts = value if isinstance(value, list) and len(value) == 2 else [value]
            if any(isinstance(part, bool) or not isinstance(part, int | float) for part in parts):
                raise NearfarError(
                    f"{where}: paper: {key} = {format_value(value)}: must be a number, or [mean, standard deviation]."
                )
            if is_used:
                sd = float(parts[1]) if len(parts) == 2 else None
                numbers.append(PaperNumber(coordinates, key, float(parts[0]), sd))
    return tuple(numbers)
