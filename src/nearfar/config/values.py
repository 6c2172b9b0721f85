"""Checks the values of settings against the types of their fields, in the same way for flags, TOML and Python.

Types are strict: a boolean or a text is not a number, and 3.0 is not an integer. Accepted are an integer for a
``float``, a list for a tuple, a path for a text, and NumPy numbers.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from nearfar.config.bounds import Bounds, MaxNameLength, MayBeEmpty, NamesModel
from nearfar.types import NearfarError

MAX_PATH_BYTES, MAX_SHOWN_CHARS = 4095, 80
MAX_CHANGES, MAX_CHANGE_CHARS = 5, 200
TYPE_NAMES: dict[type, tuple[str, str]] = {
    bool: ("true or false", "BOOL"),
    int: ("a whole number", "INT"),
    float: ("a number", "FLOAT"),
    str: ("text", "STR"),
}
"""Type -> its name in messages, its name in help."""
MAX_DIGITS = 4300
"""The maximum number of digits that Python converts between text and number."""


class InvalidValueError(ValueError):
    """Why a value is invalid; the message continues a sentence: ``must be at least 1``."""


class FieldType:
    """The values that a field accepts, read from its type annotation."""

    def __init__(self, hint: Any) -> None:
        self.nullable = self.is_sequence = self.may_be_empty = self.names_model = False
        self.choices: tuple[Any, ...] = ()
        self.scalar: type | None = None
        self.bounds: Bounds | None = None
        self.longest_name: int | None = None
        self._read(hint)

    def _read(self, hint: Any) -> None:
        origin = get_origin(hint)
        if origin is Annotated:
            inner, *marks = get_args(hint)
            self._read(inner)
            for mark in marks:
                if isinstance(mark, Bounds):
                    self.bounds = mark
                elif isinstance(mark, MaxNameLength):
                    self.longest_name = mark.longest
                elif isinstance(mark, MayBeEmpty):
                    self.may_be_empty = True
                elif isinstance(mark, NamesModel):
                    self.names_model = True
        elif origin in (Union, UnionType):
            for part in get_args(hint):
                self._read(part)
        elif origin is Literal:
            self.choices = get_args(hint)
        elif origin is tuple:
            inner, dots = get_args(hint)
            assert dots is Ellipsis, hint
            self.is_sequence = True
            self._read(inner)
        elif hint is NoneType:
            self.nullable = True
        else:
            assert hint in (bool, int, float, str), hint
            self.scalar = hint

    @property
    def expected(self) -> str:
        """The accepted single values, in words."""
        every = self._names(0)
        return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} or {every[-1]}"

    @property
    def metavar(self) -> str:
        """The placeholder for the value in ``--help``."""
        every = self._names(1)
        if self.is_sequence and self.choices:
            return f"{{{','.join(every)}}} [...]"
        if self.is_sequence:
            return f"{every[0]} [{every[0]} ...]"
        return "|".join(every) if self.scalar else f"{{{','.join(every)}}}"

    def _names(self, which: int) -> list[str]:
        scalar = [TYPE_NAMES[self.scalar][which]] if self.scalar else []
        return [*scalar, *map(str, self.choices), *(["none"] if self.nullable else [])]

    def validate(self, value: Any) -> Any:
        """``value``, converted to a tuple, text or plain number if it is a list, path or NumPy number.

        Raises:
            InvalidValueError: the field does not accept it.
        """
        if value is None and self.nullable:
            return None
        if not self.is_sequence:
            return self._one(value)
        if not isinstance(value, (tuple, list)):
            example = {int: "[1, 2]", float: "[0.1, 0.2]"}.get(self.scalar or str, '["one", "two"]')
            if self.choices:
                example = f'["{self.choices[0]}"]'
            raise InvalidValueError(f"must be a list, as in {example}")
        clean = tuple(self._one(part, within=True) for part in value)
        return value if clean == value else clean

    def from_text(self, text: str) -> Any:
        """A single value from its text on the command line.

        Raises:
            InvalidValueError: the field does not accept it.
        """
        if self.nullable and text.lower() == "none":
            return None
        for choice in self.choices:
            if text == str(choice):
                return choice
        if self.scalar is int:
            return self._one(_parse_int(text, self.expected))
        if self.scalar is float:
            try:
                return self._one(float(text))
            except ValueError as error:
                raise (
                    error if isinstance(error, InvalidValueError) else InvalidValueError(f"must be {self.expected}")
                ) from None
        return self._one(text)

    def _one(self, value: Any, *, within: bool = False) -> Any:
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return value
        if self.scalar is bool and isinstance(value, bool):
            return value
        if self.scalar is int and not isinstance(value, bool) and isinstance(value, Integral):
            return self._bounded(int(value))
        if self.scalar is float and not isinstance(value, bool) and isinstance(value, Real):
            return self._bounded(_finite(value))
        if self.scalar is str and isinstance(value, (str, os.PathLike)):
            text = os.fspath(value)
            if isinstance(text, str):
                if text or not self.may_be_empty:
                    _check_text(text, self.longest_name)
                return text
        if within and self.choices:
            raise InvalidValueError(f"must be a list of {self.expected}")
        if within:
            of = {int: "whole numbers", float: "numbers"}.get(self.scalar or str, "texts")
            raise InvalidValueError(f"must be a list of {of}")
        raise InvalidValueError(f"must be {self.expected}")

    def _bounded(self, number: Any) -> Any:
        problem = self.bounds.violation(number) if self.bounds else None
        if problem:
            raise InvalidValueError(problem)
        return number


def _finite(value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValueError("must be a finite number")
    return number


def _parse_int(text: str, expected: str) -> int:
    try:
        return int(text)
    except ValueError:
        digits = text.strip().lstrip("+-")
        if digits.isdecimal() and len(digits) > MAX_DIGITS:
            return -(10**MAX_DIGITS) if text.strip().startswith("-") else 10**MAX_DIGITS
        raise InvalidValueError(f"must be {expected}") from None


def _check_text(text: str, longest_name: int | None) -> None:
    if not text or text.isspace():
        raise InvalidValueError("must not be empty")
    if "\0" in text:
        raise InvalidValueError("must not hold a NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidValueError("must be UTF-8 text") from None
    if longest_name is not None and any(len(part.encode()) > longest_name for part in text.split("/")):
        raise InvalidValueError(f"has a name of over {longest_name} bytes; choose a shorter one")
    if longest_name is not None and size > MAX_PATH_BYTES:
        raise InvalidValueError(f"is a path of over {MAX_PATH_BYTES:,} bytes; choose a shorter one")


_FIELD_TYPES: dict[type, dict[str, FieldType]] = {}


def field_types(of: "type[Settings]") -> dict[str, FieldType]:
    """The type of each field of a settings class, by name."""
    if of not in _FIELD_TYPES:
        _FIELD_TYPES[of] = {field.name: FieldType(field.type) for field in fields(of)}
    return _FIELD_TYPES[of]


def named_models(settings: "Settings") -> dict[str, str]:
    """Field -> the model that it names, of the fields that name models beside the one that is trained."""
    named = {name: getattr(settings, name) for name, kind in field_types(type(settings)).items() if kind.names_model}
    return {name: model for name, model in named.items() if model is not None}


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def format_value(value: Any) -> str:
    """A value for an error message, on one line and at most 80 characters long.

    >>> format_value(True), format_value("a\\nb"), len(format_value("x" * 1000))
    ('true', "'a\\\\nb'", 80)
    """
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # Python converts no integer with more digits
        return f"a number of more than {MAX_DIGITS:,} digits"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 4]} ..."


def format_text(text: str) -> str:
    """A text for an error message: as typed if it is printable, else quoted."""
    plain = text.isprintable() and text.strip() == text != ""
    return text if plain and len(text) <= MAX_SHOWN_CHARS else format_value(text)


def join_changes(changes: Sequence[str]) -> str:
    """What changed, for an error message: at most five changes, with at most 200 printable characters each.

    >>> join_changes(["--seed was 1, is 2", "the input\\nchanged"])
    '--seed was 1, is 2; the input\\\\nchanged'
    >>> join_changes(["x" * 1000] * 7) == "; ".join(["x" * 196 + " ..."] * 5) + "; and 2 more"
    True
    """
    lines = (
        "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in change)
        for change in changes[:MAX_CHANGES]
    )
    shown = [line if len(line) <= MAX_CHANGE_CHARS else f"{line[: MAX_CHANGE_CHARS - 4]} ..." for line in lines]
    if (more := len(changes) - MAX_CHANGES) > 0:
        shown.append(f"and {more:,} more")
    return "; ".join(shown)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of all settings; values are checked when an instance is created."""

    def __post_init__(self) -> None:
        """Check all values."""
        for name, field_type in field_types(type(self)).items():
            value = getattr(self, name)
            try:
                clean = field_type.validate(value)
            except InvalidValueError as error:
                raise NearfarError(f"{flag(name)} {format_value(value)}: {error}.") from None
            if clean is not value:
                object.__setattr__(self, name, clean)
