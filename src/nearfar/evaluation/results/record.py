"""Typed JSON objects: frozen dataclasses that check what they read and write their keys in a fixed order."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from nearfar.types import NearfarError

Parser = Callable[[Any], Any]
"""JSON value -> checked value; raises :class:`InvalidValueError`."""
MAX_NUMBER = 1e100
_MAX_SHOWN_CHARS = 40


class InvalidValueError(ValueError):
    """A JSON value that does not fit its field."""

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        """Keys and list positions from the outermost object to the value, such as ``tasks``, ``stsb``, ``[3]``."""

    def inside(self, key: str) -> "InvalidValueError":
        """The same error, seen from the object or list that holds the value under ``key``."""
        return InvalidValueError(self.problem, key, *self.path)

    def __str__(self) -> str:
        place = ""
        for key in self.path:
            place += key if key.startswith("[") or not place else f".{key}"
        return f"{place or 'it'} {self.problem}"


OMITTED = {"omit": True}
"""Metadata of a field whose key is left out of the file where the value is None or an empty object."""


class RecordField(NamedTuple):
    """One key of a JSON object."""

    name: str
    type: Any
    required: bool
    omitted: bool
    """Whether the key is left out of the file where the value is None or an empty object."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A JSON object with known keys. Unknown keys are ignored on reading."""

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
            return _record_parser(cls)(content)
        except InvalidValueError as error:
            raise NearfarError(
                f"{source}: is damaged, or was written by another version of nearfar: {error}."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: plain dicts, lists, texts and numbers, with the keys in the order of the fields."""
        content = {}
        for field in record_fields(self.__class__):
            value = getattr(self, field.name)
            if not field.omitted or (value is not None and value != {}):
                content[field.name] = _plain(value)
        return content

    def problem(self) -> InvalidValueError | None:
        """An inconsistency between the fields, or None. Checked on reading, after each field's type."""
        return None


_FIELDS: dict[Any, tuple[RecordField, ...]] = {}


def record_fields(kind: type[Any]) -> tuple[RecordField, ...]:
    """The fields of a record class, in the order of the file."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind)
        _FIELDS[kind] = tuple(
            RecordField(
                field.name,
                hints[field.name],
                field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
                bool(field.metadata.get("omit")),
            )
            for field in dataclasses.fields(kind)
        )
    return _FIELDS[kind]


def choices_of(kind: type[Any], name: str) -> tuple[Any, ...]:
    """The values that a field with a Literal type can have."""
    return next(get_args(field.type) for field in record_fields(kind) if field.name == name)


@cache
def parser_of(hint: Any) -> Parser:
    """The function that checks and converts JSON values of a field's type."""
    if isinstance(hint, type) and issubclass(hint, Record):
        return _record_parser(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_parser(arguments)
    if origin is Literal:
        return _literal_parser(arguments)
    if origin is list:
        return _list_parser(arguments[0])
    return _dict_parser(arguments[1]) if origin is dict else _SCALARS[hint]


def _record_parser(kind: type[Any]) -> Parser:
    def parse(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidValueError("is not an object")
        found = {}
        for field in record_fields(kind):
            if field.name in value:
                found[field.name] = _within(field.name, parser_of(field.type), value[field.name])
            elif field.required:
                raise InvalidValueError(f"lacks {field.name!r}")
        record = kind(**found)
        if problem := record.problem():
            raise problem
        return record

    return parse


def _within(key: str, parse: Parser, value: Any) -> Any:
    try:
        return parse(value)
    except InvalidValueError as error:
        raise error.inside(key) from None


def _dict_parser(inner: Any) -> Parser:
    parse_value = parser_of(inner)

    def parse(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidValueError("is not an object")
        return {key: _within(str(key), parse_value, item) for key, item in value.items()}

    return parse


def _list_parser(inner: Any) -> Parser:
    parse_item = parser_of(inner)

    def parse(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise InvalidValueError("is not a list")
        return [_within(f"[{number}]", parse_item, item) for number, item in enumerate(value)]

    def parse_numbers(value: Any) -> Any:
        if isinstance(value, list) and all(map(is_number, value)):
            return list(value)
        return parse(value)

    return parse_numbers if inner is float else parse


def _union_parser(kinds: tuple[Any, ...]) -> Parser:
    """Null or a value; or one of several records, distinguished by their field ``kind``."""
    others = [kind for kind in kinds if kind is not NoneType]
    nullable = len(others) < len(kinds)
    parse_other = parser_of(others[0]) if len(others) == 1 else _tagged_parser(others)
    names = "" if others[0] not in TYPE_NAMES else f"{TYPE_NAMES[others[0]]} or null"

    def parse(value: Any) -> Any:
        if value is None and nullable:
            return None
        try:
            return parse_other(value)
        except InvalidValueError:
            if names:
                raise InvalidValueError(f"is {short_repr(value)}, not {names}") from None
            raise

    return parse


def _tagged_parser(kinds: list[Any]) -> Parser:
    by_tag = {tag: kind for kind in kinds for tag in choices_of(kind, "kind")}

    def parse(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidValueError("is not an object")
        tag = value.get("kind")
        if not isinstance(tag, str) or tag not in by_tag:
            problem = f"is {short_repr(tag)}, not {' or '.join(map(repr, by_tag))}" if "kind" in value else "is missing"
            raise InvalidValueError(problem, "kind")
        return parser_of(by_tag[tag])(value)

    return parse


def _literal_parser(choices: tuple[Any, ...]) -> Parser:
    def parse(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise InvalidValueError(f"is {short_repr(value)}, not {' or '.join(map(repr, choices))}")
        return value

    return parse


def is_number(value: object) -> bool:
    """A finite int or float of a usable size; no bool."""
    return type(value) in (int, float) and abs(value) < MAX_NUMBER and math.isfinite(value)  # type: ignore[arg-type]


def _scalar_parser(kind: type, accepts: Callable[[object], bool]) -> Parser:
    def parse(value: Any) -> Any:
        if not accepts(value):
            raise InvalidValueError(f"is {short_repr(value)}, not {TYPE_NAMES[kind]}")
        return value

    return parse


TYPE_NAMES: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_SCALARS: dict[Any, Parser] = {
    Any: lambda value: value,
    str: _scalar_parser(str, lambda value: isinstance(value, str)),
    int: _scalar_parser(int, lambda value: type(value) is int and is_number(value)),
    float: _scalar_parser(float, is_number),
    bool: _scalar_parser(bool, lambda value: isinstance(value, bool)),
}


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
