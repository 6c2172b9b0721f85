"""Reads a study file: TOML -> the changes of a scale -> :class:`Study`, with every setting checked."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from nearfar.config.files import read_toml
from nearfar.studies.spec import AVERAGE, VERBS, Axis, AxisUse, PaperNumber, Plot, PlotKind, Row, Step, Study
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

_TEXTS = ("title", "source", "notes", "caption")
_KEYS = (
    *_TEXTS,
    *("columns", "titles", "aggregate", "replicates", "best", "compare", "compare_with", "compare_columns"),
    *VERBS,
    *("axes", "rows", "plot"),
)
_AXIS_KEYS = ("name", "setting", "settings", "values", "labels", "as", "average", "compare_with")
_ROW_KEYS = ("id", "name", "steps", "model", *VERBS, "axes", "replicates", "needs", "paper", "note")
_WITH_SETTINGS = (*VERBS, "axes", "rows", "replicates")
"""Keys whose texts may have placeholders."""
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_ENTRIES = {"rows": "id", "axes": "name"}
"""Lists of tables that are merged entry by entry, and the key that identifies an entry."""
_PICKS = ("only_rows", "drop_rows", "only_axes", "drop_axes")


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
    study = _study(filled, source=source, names=_Names.of(base, filled), base=base)
    kept = {key: value for key, value in merged.items() if key not in ("compare", "compare_with")}
    used = {
        name: Path(value).name if Path(value).is_absolute() else value  # no places on this machine
        for name, value in values.items()
        if f"{{{name}}}" in str(merged)
    }
    kept |= {"compare": [list(pair) for pair in study.compare], **({"placeholders": used} if used else {})}
    study = replace(study, scale=scale, scales=tuple(content.get("scales", {})), content=kept)
    plan_cells(study)
    return study


def read_recorded(content: Mapping[str, Any]) -> Study:
    """The study of the record of a table, study.json; its placeholders are not filled.

    Raises:
        NearfarError: it is no study.
    """
    known = {key: value for key, value in content.items() if key != "placeholders"}
    return _study(known, source="the study of the table", names=None, base={})


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
    if scale not in scales:
        raise NearfarError(f"{source}: {unknown_name_message(scale, [*scales, 'paper'], what='scale')}")
    where = f"{source}: [scales.{scale}]"
    merged = _merge(base, {key: one for key, one in scales[scale].items() if key not in _PICKS}, where=where)
    for pick in (key for key in scales[scale] if key in _PICKS):
        kind, part = pick.split("_")
        names, entries = scales[scale][pick], merged.get(part, [])
        if not isinstance(names, list):
            raise NearfarError(f'{where} {pick}: must be a list, as in ["one", "two"].')
        ids = [str(one.get(_ENTRIES[part])) if isinstance(one, Mapping) else "" for one in entries]
        for name in names:
            if name not in ids:
                what = {"rows": "row", "axes": "axis"}[part]
                raise NearfarError(f"{where} {pick}: {unknown_name_message(str(name), ids, what=what)}")
        merged[part] = [one for one, id_ in zip(entries, ids, strict=True) if (id_ in names) == (kind == "only")]
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
            merged[key] = _merge_entries(before, value, _ENTRIES[key], where=f"{where} {key}")
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


@dataclass(frozen=True)
class _Table:
    """A TOML table, and where it is: file and table, as ``study.toml: row 'scl'``."""

    content: Mapping[str, Any]
    where: str

    def error(self, message: str) -> NearfarError:
        """An error about this table."""
        return NearfarError(f"{self.where}: {message}")

    def refuse(self, key: str, reason: str) -> NearfarError:
        """An error about the value of a key."""
        return self.error(f"{key} = {format_value(self.content[key])}: {reason}")

    def check_name(self, name: str, known: Collection[str], what: str, *, where: str = "") -> None:
        """Refuse an unknown name, with the nearest known one."""
        if name not in known:
            raise self.error(where + unknown_name_message(name, known, what=what))

    def get(self, key: str, default: Any = None, *, required: bool = False) -> Any:
        """The value of a key, of any type."""
        if key not in self.content and required:
            raise self.error(f"lacks the key {key!r}.")
        return self.content.get(key, default)

    def text(self, key: str, default: Any = None, *, required: bool = False) -> Any:
        """A text that is not empty."""
        value = self.get(key, default, required=required)
        if key in self.content and (not isinstance(value, str) or not value.strip()):
            raise self.refuse(key, "must be a text.")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = None, *, required: bool = False) -> Any:
        """One of several texts."""
        value = self.get(key, default, required=required)
        if key in self.content and value not in choices:
            raise self.refuse(key, f"must be one of {', '.join(choices)}.")
        return value

    def list(self, key: str, default: Any = (), *, required: bool = False) -> Any:
        """A list."""
        value = self.get(key, default, required=required)
        if key in self.content and not isinstance(value, list):
            raise self.refuse(key, "must be a list.")
        return value

    def texts(self, key: str, default: Any = (), *, required: bool = False) -> Any:
        """A list of distinct texts."""
        value = self.get(key, default, required=required)
        if key not in self.content:
            return value
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            raise self.refuse(key, 'must be a list of texts, as in ["one", "two"].')
        if len(set(value)) < len(value):
            raise self.refuse(key, "names one twice.")
        return tuple(value)

    def table(self, key: str) -> dict[str, Any]:
        """A table; empty if it is missing."""
        value = self.content.get(key, {})
        if not isinstance(value, Mapping):
            raise self.refuse(key, f"must be a table, as in {key} = {{ name = value }}.")
        return dict(value)

    def tables(self, key: str, *, required: bool = False) -> Sequence[Mapping[str, Any]]:
        """A list of tables."""
        value = self.get(key, [], required=required)
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise self.error(f"{key}: must be tables, each with the heading [[{key}]].")
        if required and not value:
            raise self.error(f"{key}: is empty; give at least one, with the heading [[{key}]].")
        return value


@dataclass(frozen=True)
class _Names:
    """Columns, rows and labels of axes of a file, those that the scale leaves out too: paper numbers may name them."""

    columns: Collection[str]
    rows: Collection[str]
    labels: Mapping[str, Collection[str]]

    @classmethod
    def of(cls, *contents: Mapping[str, Any]) -> "_Names":
        """The names in study files, which are not checked yet."""
        columns: dict[str, None] = {}
        rows: dict[str, None] = {}
        labels: dict[str, dict[str, None]] = {}
        for content in contents:
            listed = content.get("columns")
            columns |= dict.fromkeys(map(str, listed if isinstance(listed, list) else ()))
            rows |= dict.fromkeys(str(row.get("id")) for row in _mappings(content.get("rows")))
            for axis in _mappings(content.get("axes")):
                values = axis.get("values")
                if "settings" in axis and isinstance(values, list):
                    values = [one[0] for one in values if isinstance(one, list) and one]
                given = axis.get("labels", values)
                own = labels.setdefault(str(axis.get("name")), {})
                own |= dict.fromkeys(map(label_of, given if isinstance(given, list) else ()))
        return cls(columns, rows, labels)


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


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


def _study(content: Mapping[str, Any], *, source: str, names: _Names | None, base: Mapping[str, Any]) -> Study:
    """The study of a table; without ``names``, it may name columns, rows and labels that it does not have."""
    table = _Table(content, source)
    for key in content:
        table.check_name(key, _KEYS, "key")
    texts = {key: table.text(key, required=key == "title") for key in _TEXTS}
    columns = table.texts("columns", required=True)
    if not columns:
        raise table.error("columns: is empty; name at least one.")
    axes = tuple(_axis(one, source, number) for number, one in enumerate(table.tables("axes"), start=1))
    for axis in axes:
        if sum(other.name == axis.name for other in axes) > 1:
            raise table.error(f"[[axes]]: the name {axis.name!r} occurs twice.")
    replicates = _replicates(table, axes)
    rows = tuple(
        _row(one, table, number=number, axes=axes, columns=columns, names=names, replicates=replicates)
        for number, one in enumerate(table.tables("rows", required=True), start=1)
    )
    for row in rows:
        if sum(other.id == row.id for other in rows) > 1:
            raise table.error(f"[[rows]]: the id {row.id!r} occurs twice.")
    titles, compared = table.table("titles"), table.texts("compare_columns", None)
    for key, some in (("titles", titles), ("compare_columns", compared or ())):
        for column in some:
            if names is not None and column not in names.columns:
                table.check_name(column, columns, "column", where=f"{key}: ")
    return Study(
        file=source,
        **texts,
        columns=columns,
        titles={key: str(value) for key, value in titles.items()},
        compare_columns=compared,
        aggregate=table.choice("aggregate", ("all", "mean", "wmean"), "all"),
        replicates=replicates,
        best=_best(table, len(replicates)),
        compare=_pairs(table, [row.id for row in rows], names),
        settings={verb: table.table(verb) for verb in VERBS if verb in content},
        axes=axes,
        rows=rows,
        plots=_plots(table, axes, [*(row.id for row in rows), *(names.rows if names else ())]),
        base=base,
        content=content,
    )


def _axis(content: Mapping[str, Any], source: str, number: int) -> Axis:
    table = _Table(content, f"{source}: [[axes]] number {number}")
    for key in content:
        table.check_name(key, _AXIS_KEYS, "key")
    name = table.text("name", required=True)
    table = _Table(content, f"{source}: axis {name!r}")
    if ("setting" in content) == ("settings" in content):
        raise table.error('needs setting = "train.seed", or settings = [...] for several that change together.')
    values = table.list("values", required=True)
    if "setting" in content:
        settings, entries = (table.text("setting"),), [[value] for value in values]
    else:
        settings, entries = table.texts("settings"), values
        if not all(isinstance(one, list) and len(one) == len(settings) for one in values):
            raise table.error(
                f"values: must be a list of lists, each with {len(settings)} values: one for each of its settings."
            )
    if not settings or not entries:
        raise table.error("values: is empty; give at least one value.")
    labels = tuple(label_of(value) for value in table.list("labels", [entry[0] for entry in entries]))
    if len(labels) != len(entries):
        raise table.error(f"labels: there are {len(labels)} labels for {len(entries)} values.")
    if len(set(labels)) < len(labels):
        raise table.error(f"labels: {', '.join(labels)}: one occurs twice.")
    average = content.get("average", False)
    averaged = (labels if average else ()) if isinstance(average, bool) else tuple(map(label_of, table.list("average")))
    baseline = label_of(content["compare_with"]) if "compare_with" in content else None
    for key, named in (("average", averaged), ("compare_with", () if baseline is None else (baseline,))):
        for label in named:
            table.check_name(label, labels, "label", where=f"{key}: ")
    use = table.choice("as", get_args(AxisUse), "rows")
    return Axis(name, tuple(settings), tuple(map(tuple, entries)), labels, use, averaged, baseline)


def _replicates(table: _Table, axes: Sequence[Axis]) -> tuple[Mapping[str, Any], ...]:
    """The replicates of a study or row: for each, dotted setting -> value; one without settings by default."""
    lists = _flat(table.table("replicates"))
    if not lists:
        return ({},)
    for setting, values in lists.items():
        if not isinstance(values, list) or not values:
            raise table.error(f"replicates: {setting} = {format_value(values)}: must be a list, as in [1, 2, 3].")
        if any(setting in axis.settings for axis in axes):
            raise table.error(f"replicates: {setting} is a setting of an axis too; leave one of them out.")
    if len({len(values) for values in lists.values()}) > 1:
        raise table.error(f"replicates: the lists of {', '.join(lists)} must have the same length.")
    replicates = tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))
    if any(one in replicates[:place] for place, one in enumerate(replicates)):
        raise table.error("replicates: a replicate occurs twice.")
    return replicates


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as dotted keys: TOML reads ``finetune.seed = 1`` as a table in a table.

    >>> _flat({"seed": [1, 2], "finetune": {"sample_seed": [3, 4]}})
    {'seed': [1, 2], 'finetune.sample_seed': [3, 4]}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= (
            {f"{key}.{name}": one for name, one in _flat(value).items()} if isinstance(value, Mapping) else {key: value}
        )
    return flat


def _best(table: _Table, replicates: int) -> int | None:
    if "best" not in table.content:
        return None
    best = _Table(table.table("best"), f"{table.where}: best")
    for key in best.content:
        best.check_name(key, ("count", "by"), "key")
    best.choice("by", ("validation",))
    count = best.get("count", required=True)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise best.refuse("count", "must be a whole number from 1.")
    if count > replicates:
        raise best.error(f"count = {count}: there are only {replicates} replicates.")
    return count


def _pairs(table: _Table, rows: list[str], names: _Names | None) -> tuple[tuple[str, str], ...]:
    """The pairs of rows to compare. Pairs with a row that the scale leaves out are dropped."""
    if "compare" in table.content and "compare_with" in table.content:
        raise table.error("compare and compare_with exclude each other; give one.")
    pairs = []
    given = table.content.get("compare_with")
    for reference in (table.text("compare_with"),) if isinstance(given, str) else table.texts("compare_with"):
        table.check_name(reference, [*rows, *(names.rows if names else ())], "row", where="compare_with: ")
        pairs += [(row, reference) for row in rows if row != reference and reference in rows]
    for pair in table.list("compare"):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
            raise table.error('compare: must be a list of pairs of row ids, as in [["scl", "sbert"]].')
        for name in pair:
            table.check_name(name, [*rows, *(names.rows if names else ())], "row", where="compare: ")
        if pair[0] == pair[1]:
            raise table.error(f"compare: compares {pair[0]!r} with itself.")
        if all(name in rows for name in pair):
            pairs.append((pair[0], pair[1]))
    return tuple(dict.fromkeys(pairs))


def _row(
    content: Mapping[str, Any],
    study: _Table,
    *,
    number: int,
    axes: Sequence[Axis],
    columns: Sequence[str],
    names: _Names | None,
    replicates: tuple[Mapping[str, Any], ...],
) -> Row:
    table = _Table(content, f"{study.where}: [[rows]] number {number}")
    row_id = table.text("id", required=True)
    if not _ID.fullmatch(row_id):
        raise table.error(f"id = {row_id!r}: must be lower-case letters, digits and the signs '.', '+', '-'.")
    table = _Table(content, f"{study.where}: row {row_id!r}")
    for key in content:
        table.check_name(key, _ROW_KEYS, "key")
    known = [axis.name for axis in axes]
    own_axes = table.texts("axes", tuple(known))
    for name in own_axes:
        if names is not None and name not in names.labels:
            table.check_name(name, known, "axis", where="axes: ")
    crossed = [axis for axis in axes if axis.name in own_axes]
    return Row(
        id=row_id,
        name=table.text("name", row_id),
        steps=_steps(table, study),
        model=table.text("model"),
        settings={verb: table.table(verb) for verb in VERBS if verb in content},
        axes=tuple(axis.name for axis in crossed),
        replicates=_replicates(table, axes) if "replicates" in content else replicates,
        needs=table.texts("needs"),
        paper=_paper(table, columns, crossed, axes, names),
        note=table.text("note"),
    )


def _steps(table: _Table, study: _Table) -> tuple[Step, ...]:
    """The steps of a row. By default those that the row or file has settings of, in the order of :data:`VERBS`."""
    named = [verb for verb in VERBS if verb in table.content or verb in study.content]
    default = named if set(named) - {"train", "script"} else [*named, "evaluate"]
    steps: list[Step] = []
    for given in table.list("steps", default):
        entry = {given: {}} if isinstance(given, str) else given
        if not isinstance(entry, Mapping):
            raise table.error(
                f'steps: {format_value(entry)}: must be a verb, or a table as {{ finetune = {{ task = "rte" }} }}.'
            )
        verbs = [key for key in entry if key != "name"]
        if len(verbs) != 1:
            raise table.error(f"steps: {format_value(dict(entry))}: must have one verb of {', '.join(VERBS)}.")
        table.check_name(verbs[0], VERBS, "step", where="steps: ")
        own = _Table(entry, f"{table.where}: steps")
        steps.append(Step(verbs[0], own.text("name", verbs[0]), own.table(verbs[0])))
    for step in steps:
        if step.name != step.verb and (step.name in VERBS or sum(one.name == step.name for one in steps) > 1):
            raise table.error(f"steps: the name {step.name!r} occurs twice or is a verb.")
    return tuple(steps)


def _paper(
    table: _Table, columns: Sequence[str], crossed: Sequence[Axis], axes: Sequence[Axis], names: _Names | None
) -> tuple[PaperNumber, ...]:
    """The paper's numbers of a row, without those of columns, axes and labels that the scale leaves out."""
    value = table.content.get("paper", [])
    entries = [value] if isinstance(value, Mapping) else value
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise table.error("paper: must be a table { COLUMN = NUMBER }, or a list of such tables with labels of axes.")
    used = {axis.name: {*axis.labels, AVERAGE} for axis in crossed}
    axis_names = names.labels if names is not None else [axis.name for axis in axes]
    numbers: list[PaperNumber] = []
    for entry in entries:
        coordinates = {key: label_of(value) for key, value in entry.items() if key not in columns and key in axis_names}
        for key, label in coordinates.items():
            if names is not None and label != AVERAGE:
                table.check_name(label, sorted(names.labels[key]), "label", where=f"paper: {key}: ")
        is_used = all(label in used.get(key, ()) for key, label in coordinates.items())
        for key, value in entry.items():
            if key in coordinates:
                continue
            if names is not None and key not in names.columns:
                table.check_name(key, columns, "column", where="paper: ")
            if names is None and key not in columns:
                continue
            parts = value if isinstance(value, list) and len(value) == 2 else [value]
            if any(isinstance(part, bool) or not isinstance(part, int | float) for part in parts):
                raise table.error(
                    f"paper: {key} = {format_value(value)}: must be a number, or [mean, standard deviation]."
                )
            if is_used and key in columns:
                sd = float(parts[1]) if len(parts) == 2 else None
                numbers.append(PaperNumber(coordinates, key, float(parts[0]), sd))
    return tuple(numbers)


def _plots(table: _Table, axes: Sequence[Axis], rows: Collection[str]) -> tuple[Plot, ...] | None:
    """The plots of a study: the table ``[plot]``, or several under ``[[plot]]``."""
    if "plot" not in table.content:
        return None
    value = table.content["plot"]
    plots = []
    for content in [value] if isinstance(value, Mapping) else table.tables("plot"):
        plot = _Table(content, f"{table.where}: plot")
        for key in content:
            plot.check_name(key, ("kind", "x", "y", "value", "row", "title"), "key")
        kind = plot.choice("kind", get_args(PlotKind), required=True)
        texts = {key: plot.text(key) for key in ("x", "y", "value", "row", "title")}
        known = [*(axis.name for axis in axes), "row"]
        for key in ("x", "y") if kind in ("heat map", "lines") else ():
            if texts[key] is not None:
                plot.check_name(texts[key], known, "axis", where=f"{key}: ")
        if texts["row"] is not None:
            plot.check_name(texts["row"], rows, "row", where="row: ")
        plots.append(Plot(kind, **texts))
    return tuple(plots)
