"""Typed access to the values of a TOML table, with errors that name the file, the table and the key."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
_MISSING = object()


@dataclass(frozen=True)
class Table:
    """A TOML table, and where it is."""

    content: Mapping[str, Any]
    where: str
    """File and table, as ``study.toml: row 'scl'``."""

    def error(self, message: str) -> NearfarError:
        """An error about this table."""
        return NearfarError(f"{self.where}: {message}")

    def check_keys(self, known: Collection[str], *, what: str = "key") -> None:
        """Refuse unknown keys, with the nearest known one."""
        for key in self.content:
            if key not in known:
                raise self.error(unknown_name_message(key, known, what=what))

    def text(self, key: str, default: Any = None, *, required: bool = False) -> Any:
        """A text that is not empty."""
        value = self._get(key, default, required=required)
        if value is not default and (not isinstance(value, str) or not value.strip()):
            raise self.error(f"{key} = {format_value(value)}: must be a text.")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = None, *, required: bool = False) -> Any:
        """One of several texts."""
        value = self._get(key, default, required=required)
        if value is not default and value not in choices:
            raise self.error(f"{key} = {format_value(value)}: must be one of {', '.join(choices)}.")
        return value

    def whole(self, key: str, *, low: int) -> int:
        """A required whole number."""
        value = self._get(key, None, required=True)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self.error(f"{key} = {format_value(value)}: must be a whole number from {low}.")
        return value

    def texts(self, key: str, default: Any = (), *, required: bool = False) -> Any:
        """A list of distinct texts."""
        value = self._get(key, default, required=required)
        if value is default:
            return value
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            raise self.error(f'{key} = {format_value(value)}: must be a list of texts, as in ["one", "two"].')
        if len(set(value)) < len(value):
            raise self.error(f"{key} = {format_value(value)}: names one twice.")
        return tuple(value)

    def list(self, key: str, default: Any = (), *, required: bool = False) -> Any:
        """A list."""
        value = self._get(key, default, required=required)
        if value is not default and not isinstance(value, list):
            raise self.error(f"{key} = {format_value(value)}: must be a list.")
        return value

    def table(self, key: str) -> dict[str, Any]:
        """A table; empty if it is missing."""
        value = self.content.get(key, {})
        if not isinstance(value, Mapping):
            raise self.error(f"{key} = {format_value(value)}: must be a table, as in {key} = {{ name = value }}.")
        return dict(value)

    def tables(self, key: str, *, required: bool = False) -> Sequence[Mapping[str, Any]]:
        """A list of tables."""
        value = self._get(key, [], required=required)
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise self.error(f"{key}: must be tables, each with the heading [[{key}]].")
        if required and not value:
            raise self.error(f"{key}: is empty; give at least one, with the heading [[{key}]].")
        return value

    def _get(self, key: str, default: Any, *, required: bool) -> Any:
        value = self.content.get(key, _MISSING)
        if value is _MISSING:
            if required:
                raise self.error(f"lacks the key {key!r}.")
            return default
        return value


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as dotted keys: TOML reads ``finetune.seed = 1`` as a table in a table.

    >>> flatten({"seed": [1, 2], "finetune": {"sample_seed": [3, 4]}})
    {'seed': [1, 2], 'finetune.sample_seed': [3, 4]}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in flatten(value).items()}
        else:
            flat[key] = value
    return flat


def fill_placeholders(value: Any, values: Mapping[str, str], *, where: str) -> Any:
    """``value`` with ``{name}`` replaced in all texts in it.

    Raises:
        NearfarError: a placeholder that has no value.
    """
    if isinstance(value, Mapping):
        return {key: fill_placeholders(one, values, where=where) for key, one in value.items()}
    if isinstance(value, list):
        return [fill_placeholders(one, values, where=where) for one in value]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise NearfarError(f"{where}: {format_value(value)}: {found[0]} has no value. Give one: --{found[1]} VALUE")
        return values[found[1]]

    return PLACEHOLDER.sub(replace, value)
