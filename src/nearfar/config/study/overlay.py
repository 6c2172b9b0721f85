"""The scales of a study file: changes that are merged over it."""

from collections.abc import Mapping
from typing import Any

from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

LISTS_BY_KEY = {"rows": "id", "axes": "name"}
"""Lists of tables that are merged entry by entry, and the key that identifies an entry."""


def overlay(content: Mapping[str, Any], scale: str | None, *, source: str) -> dict[str, Any]:
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
    changes = dict(scales[scale])
    where = f"{source}: [scales.{scale}]"
    picks = {key: changes.pop(key) for key in list(changes) if key in _PICKS}
    merged = merge(base, changes, where=where)
    for key, names in picks.items():
        kind, part = key.split("_")
        _pick(merged, part, names, keep=kind == "only", where=f"{where} {key}")
    return merged


_PICKS = ("only_rows", "drop_rows", "only_axes", "drop_axes")


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """``base`` with ``changes``: tables are merged key by key, rows and axes entry by entry.

    >>> merge({"train": {"seed": 1, "epochs": 3}}, {"train": {"epochs": 1}}, where="")
    {'train': {'seed': 1, 'epochs': 1}}
    """
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and key not in ("replicates", "best"):
            merged[key] = merge(before, value, where=where)
        elif key in LISTS_BY_KEY and isinstance(before, list):
            merged[key] = _merge_entries(before, value, LISTS_BY_KEY[key], where=f"{where} {key}")
        else:
            merged[key] = value
    return merged


def _merge_entries(before: list[Any], changes: Any, key: str, *, where: str) -> list[Any]:
    if not isinstance(changes, list) or not all(isinstance(one, Mapping) and key in one for one in changes):
        raise NearfarError(f"{where}: must be tables with the key {key!r}.")
    merged = list(before)
    for change in changes:
        places = [
            number for number, one in enumerate(merged) if isinstance(one, Mapping) and one.get(key) == change[key]
        ]
        if not places:
            merged.append(dict(change))
            continue
        entry = merge(merged[places[0]], change, where=where)
        if "values" in change and "labels" not in change:
            entry.pop("labels", None)  # they name the values that are replaced
        merged[places[0]] = entry
    return merged


def _pick(merged: dict[str, Any], part: str, names: Any, *, keep: bool, where: str) -> None:
    key = LISTS_BY_KEY[part]
    entries = merged.get(part, [])
    known = [str(one[key]) for one in entries if isinstance(one, Mapping) and key in one]
    if not isinstance(names, list):
        raise NearfarError(f'{where}: must be a list, as in ["one", "two"].')
    for name in names:
        if name not in known:
            what = {"rows": "row", "axes": "axis"}[part]
            raise NearfarError(f"{where}: {unknown_name_message(str(name), known, what=what)}")
    merged[part] = [one for one in entries if (isinstance(one, Mapping) and one.get(key) in names) == keep]
