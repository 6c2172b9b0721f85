"""What a scale changes of a study file, in words."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_KEYS = {"rows": "id", "axes": "name"}
_HIDDEN = (
    "paper",
    "title",
    "notes",
    "caption",
    "source",
    "plot",
    "titles",
    "placeholders",
    "compare",
    "compare_with",
    "needs",
)
"""Keys that are shown elsewhere."""
_MAX_SHOWN = 200


def changes(base: Mapping[str, Any], study: Mapping[str, Any]) -> list[str]:
    """The settings of ``study`` that differ from ``base``, a line for each, such as ``train.epochs: 1 (paper: 3)``.

    Placeholders such as ``{start}`` are filled from the table ``placeholders`` of the study.
    """
    found = list(_changes(base, study, ""))
    for name, value in (study.get("placeholders") or {}).items():
        found = [line.replace(f"{{{name}}}", str(value)) for line in found]
    return found


def _changes(base: Mapping[str, Any], study: Mapping[str, Any], where: str) -> Iterator[str]:
    for key in dict.fromkeys([*base, *study]):
        if key in _HIDDEN or base.get(key) == study.get(key):
            continue
        before, after = base.get(key), study.get(key)
        name = f"{where}{key}"
        if key in _KEYS and not where:
            yield from _entries(before or [], after or [], key)
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after, f"{name}.")
        elif key not in study:
            yield f"{name}: not set (paper: {_shown(before)})"
        elif key not in base:
            yield f"{name}: {_shown(after)} (paper: not set)"
        else:
            yield f"{name}: {_shown(after)} (paper: {_shown(before)})"


def _entries(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], part: str) -> Iterator[str]:
    key, one = _KEYS[part], {"rows": "row", "axes": "axis"}[part]
    old = {str(entry.get(key)): entry for entry in before}
    new = {str(entry.get(key)): entry for entry in after}
    dropped = [name for name in old if name not in new]
    if dropped:
        yield f"without {part} {', '.join(dropped)}"
    for name, entry in new.items():
        if name in old:
            yield from _changes(old[name], entry, f"{one} {name}: ")
        else:
            yield f"{one} {name} is added"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
