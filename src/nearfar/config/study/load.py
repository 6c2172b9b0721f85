"""Reads a study file: TOML -> overlay of a scale -> :class:`Study`, with every setting checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.config.files import read_toml
from nearfar.config.study.overlay import overlay
from nearfar.config.study.parts import (
    NamesOfBase,
    read_axis,
    read_plots,
    read_replicates,
    read_row,
)
from nearfar.config.study.plan import plan_cells
from nearfar.config.study.types import VERBS, Best, Study
from nearfar.config.study.values import Table, fill_placeholders
from nearfar.validation import unknown_name_message

_TEXTS = ("title", "source", "notes", "caption")
_KEYS = (
    *_TEXTS,
    *("columns", "titles", "aggregate", "replicates", "best", "compare", "compare_with", "compare_columns"),
    *VERBS,
    *("axes", "rows", "plot"),
)
_WITH_SETTINGS = (*VERBS, "axes", "rows", "replicates")
"""Keys whose texts may have placeholders."""


def load_study(file: str | Path, scale: str | None = None, *, placeholders: Mapping[str, str] | None = None) -> Study:
    """Read a study file, at one of its scales, and check all of its settings.

    ``placeholders`` are the values of ``{name}`` in the texts of settings, as in ``model = "{start}"``.

    Raises:
        NearfarError: the file cannot be read; an unknown key or setting (with the nearest one); a value of the wrong
            type or out of bounds; a row without id; ids that occur twice; paper numbers of unknown columns or labels;
            a comparison of unknown rows; an unknown scale; a placeholder without a value. The message names the file,
            the table and the key.
    """
    source = str(file)
    content = read_toml(file)
    merged = overlay(content, scale, source=source)
    study = parse_study(
        merged,
        source=source,
        scale=scale,
        scales=tuple(content.get("scales", {})),
        base={key: value for key, value in content.items() if key != "scales"},
        placeholders=placeholders or {},
    )
    plan_cells(study)
    return study


def parse_study(
    content: Mapping[str, Any],
    *,
    source: str,
    scale: str | None = None,
    scales: tuple[str, ...] = (),
    base: Mapping[str, Any] | None = None,
    placeholders: Mapping[str, str],
) -> Study:
    """The study of a table. ``base`` is the table before the changes of a scale.

    Raises:
        NearfarError: as :func:`load_study`.
    """
    raw = content
    content = {
        key: fill_placeholders(value, placeholders, where=source) if key in _WITH_SETTINGS else value
        for key, value in content.items()
    }
    table = Table(content, source)
    table.check_keys(_KEYS)
    texts = {key: table.text(key, required=key == "title") for key in _TEXTS}
    columns = table.texts("columns", required=True)
    if not columns:
        raise table.error("columns: is empty; name at least one.")
    axes = tuple(read_axis(one, source, number) for number, one in enumerate(table.tables("axes"), start=1))
    for axis in axes:
        if sum(other.name == axis.name for other in axes) > 1:
            raise table.error(f"[[axes]]: the name {axis.name!r} occurs twice.")
    names = NamesOfBase.read(base or {}, columns=columns, axes=axes)
    replicates = read_replicates(table, axes)
    rows = tuple(
        read_row(one, table, number=number, axes=axes, columns=columns, names=names, replicates=replicates)
        for number, one in enumerate(table.tables("rows", required=True), start=1)
    )
    for row in rows:
        if sum(other.id == row.id for other in rows) > 1:
            raise table.error(f"[[rows]]: the id {row.id!r} occurs twice.")
    titles, compared = table.table("titles"), table.texts("compare_columns", None)
    for key, some in (("titles", titles), ("compare_columns", compared or ())):
        for column in some:
            if column not in names.columns:
                raise table.error(f"{key}: {unknown_name_message(column, columns, what='column')}")
    pairs = _pairs(table, [row.id for row in rows], names)
    kept = {key: value for key, value in raw.items() if key not in ("compare", "compare_with")}
    used = {name: _name_of(value) for name, value in placeholders.items() if f"{{{name}}}" in str(raw)}
    return Study(
        file=source,
        **texts,
        scale=scale,
        scales=scales,
        columns=columns,
        titles={key: str(value) for key, value in titles.items()},
        compare_columns=compared,
        aggregate=table.choice("aggregate", ("all", "mean", "wmean"), "all"),
        replicates=replicates,
        best=_best(table, len(replicates)),
        compare=pairs,
        settings={verb: table.table(verb) for verb in VERBS if verb in content},
        axes=axes,
        rows=rows,
        plots=read_plots(table, axes, {row.id: None for row in rows} | dict.fromkeys(names.rows)),
        base=dict(base or {}),
        content={**kept, "compare": [list(pair) for pair in pairs], **({"placeholders": used} if used else {})},
    )


def _name_of(value: str) -> str:
    """The name of a folder, without its place on this machine; other values as they are."""
    return Path(value).name if Path(value).is_absolute() else value


def _best(table: Table, replicates: int) -> Best | None:
    if "best" not in table.content:
        return None
    best = Table(table.table("best"), f"{table.where}: best")
    best.check_keys(("count", "by"))
    count = best.whole("count", low=1)
    if count > replicates:
        raise best.error(f"count = {count}: there are only {replicates} replicates.")
    return Best(count, best.choice("by", ("validation",), "validation"))


def _pairs(table: Table, rows: list[str], names: NamesOfBase) -> tuple[tuple[str, str], ...]:
    """The pairs of rows to compare. Pairs with a row that the scale leaves out are dropped."""
    known = {*rows, *names.rows}
    if "compare" in table.content and "compare_with" in table.content:
        raise table.error("compare and compare_with exclude each other; give one.")

    def check(name: str, key: str) -> None:
        if name not in known:
            raise table.error(f"{key}: {unknown_name_message(name, rows, what='row')}")

    pairs = []
    given = table.content.get("compare_with")
    for reference in (table.text("compare_with"),) if isinstance(given, str) else table.texts("compare_with"):
        check(reference, "compare_with")
        pairs += [(row, reference) for row in rows if row != reference and reference in rows]
    for pair in table.list("compare"):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
            raise table.error('compare: must be a list of pairs of row ids, as in [["scl", "sbert"]].')
        for name in pair:
            check(name, "compare")
        if pair[0] == pair[1]:
            raise table.error(f"compare: compares {pair[0]!r} with itself.")
        if all(name in rows for name in pair):
            pairs.append((pair[0], pair[1]))
    return tuple(dict.fromkeys(pairs))
