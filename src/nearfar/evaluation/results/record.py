"""Typed JSON objects: frozen dataclasses that check what they read and write their keys in a fixed order."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self, TypeAlias

from msgspec import Meta

from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert

OMITTED = {"omit": True}
"""Metadata of a field whose key is left out of the file where the value is None or an empty object."""
MAX_NUMBER = 1e100
Number: TypeAlias = int | Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
"""A number that stays as it is written: 1 is not rewritten as 1.0. NaN and infinity are refused."""
_MAX_SHOWN_CHARS = 40


@dataclass(frozen=True)
class Record:
    """A JSON object with known keys. Unknown keys are ignored on reading.

    ``__post_init__`` of a record raises an :class:`~nearfar.validation.InvalidValueError` where its fields disagree.
    """

    @classmethod
    def from_dict(cls, content: object, *, source: object = "the result") -> Self:
        """Check and convert the content of a JSON file.

        Args:
            content: what the JSON parser returned.
            source: the file's name, for error messages.

        Raises:
            NearfarError: a missing key or a value of the wrong type; the message names source, key and problem.
        """
        try:
            return convert(content, cls)
        except InvalidValueError as error:
            raise NearfarError(
                f"{source}: is damaged, or was written by another version of nearfar: {error}."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: plain dicts, lists, texts and numbers, with the keys in the order of the fields."""
        content = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if "omit" not in field.metadata or (value is not None and value != {}):
                content[field.name] = _plain(value)
        return content


def is_number(value: object) -> bool:
    """A finite int or float of a usable size; no bool."""
    return type(value) in (int, float) and abs(value) < MAX_NUMBER and math.isfinite(value)  # type: ignore[arg-type]


def short_repr(value: object) -> str:
    """A value in an error message, at most 40 characters."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
