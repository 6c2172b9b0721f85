"""Settings: dataclasses whose values are checked, in the same way for flags, TOML and Python.

Types are strict (see :mod:`nearfar.validation`). Accepted are also a path for a text, and NumPy numbers.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args, get_origin

from msgspec import inspect as kinds

from nearfar.config.bounds import check_text
from nearfar.types import NearfarError
from nearfar.validation import (
    MAX_DIGITS,
    InvalidValueError,
    convert,
    format_value,
    join_or,
    options,
    scalar_problem,
    type_info,
)

Made = TypeVar("Made", bound="Settings")
_SCALARS: dict[type, tuple[type, str, str]] = {
    bool: (kinds.BoolType, "true or false", "BOOL"),
    int: (kinds.IntType, "a whole number", "INT"),
    float: (kinds.FloatType, "a number", "FLOAT"),
    str: (kinds.StrType, "text", "STR"),
}
"""Type -> its kind in msgspec, its name in messages, its name in help."""


class FieldType:
    """The values that a field accepts, read from its type annotation: a scalar, choices, or a list of one of them."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        every = options(type_info(hint))
        self.nullable = any(isinstance(option, kinds.NoneType) for option in every)
        listed = next((option for option in every if isinstance(option, kinds.VarTupleType)), None)
        self.is_sequence = listed is not None
        self.item = listed.item_type if listed else type_info(hint)
        self.items = [option for option in options(self.item) if not isinstance(option, kinds.NoneType)]
        self.choices = _choices(hint)
        scalars = [one for one, (kind, *_) in _SCALARS.items() if any(isinstance(item, kind) for item in self.items)]
        self.scalar = scalars[0] if scalars else None
        extra = _extra(type_info(hint))
        self.check: Callable[[Any], str | None] | None = extra.get("check", check_text if self.scalar is str else None)
        self.names_model: bool = extra.get("names_model", False)

    @property
    def expected(self) -> str:
        """The accepted single values, in words."""
        words = [_SCALARS[self.scalar][1]] if self.scalar else []
        return join_or([*words, *map(str, self.choices), *(["none"] if self.nullable else [])])

    @property
    def metavar(self) -> str:
        """The placeholder for the value in ``--help``."""
        every = [*([_SCALARS[self.scalar][2]] if self.scalar else []), *map(str, self.choices)]
        every += ["none"] if self.nullable else []
        if self.is_sequence and self.choices:
            return f"{{{','.join(every)}}} [...]"
        if self.is_sequence:
            return f"{every[0]} [{every[0]} ...]"
        return "|".join(every) if self.scalar else f"{{{','.join(every)}}}"

    def validate(self, value: Any) -> Any:
        """``value``, converted to a tuple, text or plain number if it is a list, path or NumPy number.

        Raises:
            InvalidValueError: the field does not accept it.
        """
        plain = [_plain(part) for part in value] if isinstance(value, (list, tuple)) else _plain(value)
        if self.is_sequence and not isinstance(plain, list) and not (self.nullable and plain is None):
            example = {int: "[1, 2]", float: "[0.1, 0.2]"}.get(self.scalar or str, '["one", "two"]')
            example = f'["{self.choices[0]}"]' if self.choices else example
            raise InvalidValueError(f"must be a list, as in {example}")
        try:
            clean = convert(plain, self.hint)
        except InvalidValueError:
            raise InvalidValueError(self._problem(plain)) from None
        for part in clean if self.is_sequence and clean is not None else (clean,):
            problem = self.check(part) if self.check and part is not None and part not in self.choices else None
            if problem:
                raise InvalidValueError(problem)
        return value if type(value) is type(clean) and value == clean else clean

    def _problem(self, value: Any) -> str:
        """Why a value is invalid: a number out of bounds, or another type."""
        for part in value if self.is_sequence else (value,):
            if problem := next((one for one in (scalar_problem(part, item) for item in self.items) if one), None):
                return problem
        if not self.is_sequence:
            return f"must be {self.expected}"
        words = {int: "whole numbers", float: "numbers"}.get(self.scalar or str, "texts")
        return f"must be a list of {join_or(map(str, self.choices)) if self.choices else words}"

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
        try:
            value: Any = _parse_int(text) if self.scalar is int else float(text) if self.scalar is float else text
        except ValueError:
            raise InvalidValueError(f"must be {self.expected}") from None
        if not self.is_sequence:
            return self.validate(value)
        try:
            return self.validate([value])[0]
        except InvalidValueError as error:
            if error.problem.startswith("must be a list"):
                raise InvalidValueError(f"must be {self.expected}") from None
            raise


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values of the Literals in a type, in their order."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for part in get_args(hint) for choice in _choices(part))


def _extra(info: Any) -> dict[str, Any]:
    """What the annotations anywhere in a type say beside its bounds."""
    if isinstance(info, kinds.Metadata):
        return {**_extra(info.type), **(info.extra or {})}
    inner = info.types if isinstance(info, kinds.UnionType) else (info.item_type,) if hasattr(info, "item_type") else ()
    return {key: value for part in inner for key, value in _extra(part).items()}


def _plain(value: Any) -> Any:
    """A path as a text, and a number of NumPy as one of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value) in (bool, int, float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        digits = text.strip().lstrip("+-")
        if digits.isdecimal() and len(digits) > MAX_DIGITS:
            return -(10**MAX_DIGITS) if text.strip().startswith("-") else 10**MAX_DIGITS
        raise


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


def convert_values(
    kind: "type[Settings]", values: Mapping[str, Any], *, source: object, nulls: bool = False
) -> dict[str, Any]:
    """The values of settings, each checked by itself, as the config has them; ``nulls`` as in :func:`make`.

    Raises:
        NearfarError: a value of the wrong type or out of bounds; the sentence names source, setting and value.
    """
    clean = {}
    for name, value in values.items():
        field_type = field_types(kind)[name]
        try:
            clean[name] = None if nulls and value == "none" and field_type.nullable else field_type.validate(value)
        except InvalidValueError as error:
            raise NearfarError(f"{source}: {name} = {format_value(value)}: {error.problem}.") from None
    return clean


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of all settings; values are checked when an instance is created.

    A class whose values can exclude each other says so by a method ``conflicts``, which yields sentences; the first is
    raised. Those of its bases are checked before.
    """

    def __post_init__(self) -> None:
        """Check all values, and then their combinations."""
        for name, field_type in field_types(type(self)).items():
            value = getattr(self, name)
            try:
                clean = field_type.validate(value)
            except InvalidValueError as error:
                raise NearfarError(f"{flag(name)} {format_value(value)}: {error.problem}.") from None
            if clean is not value:
                object.__setattr__(self, name, clean)
        for kind in reversed(type(self).__mro__):
            for problem in vars(kind).get("conflicts", lambda _: ())(self):
                raise NearfarError(problem)


def make(
    kind: type[Made], values: Mapping[str, Any], *, source: object, given: Made | None = None, nulls: bool = False
) -> Made:
    """The settings of plain values; those of ``given``, if there are some, where ``values`` has none.

    With ``nulls`` the text "none" stands for None, as TOML has no null.

    Raises:
        NearfarError: a value of the wrong type or out of bounds, a value that is missing, or values that exclude each
            other; the sentence begins with the source.
    """
    clean = convert_values(kind, values, source=source, nulls=nulls)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in clean]
    if given is None and missing:
        raise NearfarError(f"{source}: lacks {', '.join(missing)}.")
    try:
        return kind(**clean) if given is None else replace(given, **clean)
    except NearfarError as error:  # values that are valid alone but not together
        raise NearfarError(f"{source}: {error}") from None
