"""Settings: dataclasses whose values are checked, in the same way for flags, TOML and Python.

Types are strict (see :mod:`nearfar.validation`). Accepted are also a path for a text, and NumPy numbers.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from nearfar.config.bounds import check_text
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_text, format_value

Made = TypeVar("Made", bound="Settings")


class FieldType:
    """The values that a field accepts, by its annotation: a scalar, choices, a list of one of them, or a table."""

    def __init__(self, hint: Any) -> None:
        self.hint, self.nullable, self.is_sequence = hint, False, False
        self.choices: tuple[Any, ...] = ()
        self.scalar: type | None = None
        self.number: type | None = None
        """The type of numbers among its values, which may also be texts."""
        extra: dict[str, Any] = {}
        parts = [hint]
        for part in parts:
            origin, inner = get_origin(part), get_args(part)
            if origin is Literal:
                self.choices = inner
            elif origin is Annotated:
                extra = {key: value for meta in inner[1:] for key, value in (meta.extra or {}).items()}
                parts.append(inner[0])
            elif origin is tuple:
                self.is_sequence = True
                parts.append(inner[0])
            elif origin is dict:
                self.scalar = dict
            elif inner:  # a union
                parts += inner
            elif part is NoneType:
                self.nullable = True
            else:
                self.scalar, self.number = part, part if part in (int, float) else self.number
        self.check: Callable[[Any], str | None] | None = extra.get("check", check_text if self.scalar is str else None)
        self.names_model: bool = extra.get("names_model", False)

    @property
    def metavar(self) -> str:
        """The placeholder for the value in ``--help``."""
        every = [kind.__name__.upper() for kind in dict.fromkeys((self.number, self.scalar)) if kind]
        every += [*map(str, self.choices), *(["none"] if self.nullable else [])]
        if self.is_sequence and not self.choices:
            return f"{every[0]} [{every[0]} ...]"
        single = "|".join(every) if self.scalar else f"{{{','.join(every)}}}"
        return f"{single} [...]" if self.is_sequence else single

    def validate(self, value: Any) -> Any:
        """``value``, converted to a tuple, text or plain number if it is a list, path or NumPy number.

        Raises:
            InvalidValueError: the field does not accept it.
        """
        if self.nullable and isinstance(value, str) and value == "none":  # TOML has no null
            return None
        plain = [_plain(part) for part in value] if isinstance(value, (list, tuple)) else _plain(value)
        if self.is_sequence and not isinstance(plain, list) and not (self.nullable and plain is None):
            example = '["one", "two"]' if self.scalar is str else "[1, 2]"
            example = f'["{self.choices[0]}"]' if self.choices else example
            raise InvalidValueError(f"must be a list, as in {example}", value=value)
        clean = convert(plain, self.hint, null="none")
        for number, part in enumerate(clean if self.is_sequence and clean is not None else (clean,)):
            problem = self.check(part) if self.check and part is not None and part not in self.choices else None
            if problem:
                raise InvalidValueError(problem, *[number] * self.is_sequence, value=part)
        return value if type(value) is type(clean) and value == clean else clean

    def from_words(self, words: list[str]) -> Any:
        """The value from its words on the command line; lists of numbers or choices may have commas.

        Raises:
            InvalidValueError: the field does not accept it.
        """
        if self.nullable and [word.lower() for word in words] == ["none"]:
            return None
        if self.is_sequence and (self.choices or self.scalar is not str):
            words = [part for word in words for part in word.split(",")]
        values = [self._parse(word) for word in words]
        return self.validate(values if self.is_sequence else values[0])

    def _parse(self, word: str) -> Any:
        """A word as a choice or a number; as it is if it is none."""
        for choice in self.choices:
            if word == str(choice):
                return choice
        try:
            return self.number(word) if self.number else word
        except ValueError:
            return word


def _plain(value: Any) -> Any:
    """A path as a text, and a number of NumPy as one of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value) in (bool, int, float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def field_types(of: "type[Settings]") -> dict[str, FieldType]:
    """The type of each field of a settings class, by name."""
    settings: Any = of
    return _field_types(settings)


@cache
def _field_types(of: Any) -> dict[str, FieldType]:
    return {field.name: FieldType(field.type) for field in fields(of)}


def named_models(settings: "Settings") -> dict[str, str]:
    """Field -> the model that it names, of the fields that name models beside the one that is trained."""
    named = {name: getattr(settings, name) for name, kind in field_types(type(settings)).items() if kind.names_model}
    return {name: model for name, model in named.items() if model is not None}


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def as_lists(kind: "type[Settings]", values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a call from Python, where one text or path may stand for a list of one."""
    lists = {name for name, field_type in field_types(kind).items() if field_type.is_sequence}
    return {
        name: (value,) if name in lists and isinstance(value, (str, os.PathLike)) else value
        for name, value in values.items()
    }


def convert_values(kind: "type[Settings]", values: Mapping[str, Any], *, source: object = None) -> dict[str, Any]:
    """The values of settings, each checked by itself, as the config has them; "none" stands for None.

    Raises:
        NearfarError: a value of the wrong type or out of bounds; the sentence names source, setting and value, or
            without a source the flag and the value.
    """
    clean = {}
    for name, value in values.items():
        try:
            clean[name] = field_types(kind)[name].validate(value)
        except InvalidValueError as error:
            shown = format_value(error.value if error.path else value)
            place = name + "".join(f"[{part}]" for part in error.path)
            start = f"{flag(name)} {shown}" if source is None else f"{source}: {place} = {shown}"
            raise NearfarError(f"{start}: {error.problem}.") from None
    return clean


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of all settings; values are checked when an instance is created.

    A class whose values can exclude each other says so by a method ``conflicts``, which yields sentences; the first is
    raised. Those of its bases are checked before.
    """

    needs: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Settings, each with another one without which it has no effect, and the value of that one if it must have one, as
    in ("calibrate", "quantize int8")."""

    def __post_init__(self) -> None:
        """Check all values, and then their combinations."""
        for name, value in convert_values(type(self), vars(self)).items():
            object.__setattr__(self, name, value)
        defaults = {field.name: field.default for field in fields(self)}
        for kind in reversed(type(self).__mro__):
            for name, needed in vars(kind).get("needs", ()):
                other, _, expected = needed.partition(" ")
                value, of_other = getattr(self, name), getattr(self, other)
                if value != defaults[name] and (of_other != expected if expected else not of_other):
                    given = "" if value is True else f" {format_text(str(value))}"
                    raise NearfarError(f"{flag(name)}{given}: needs {flag(other)}{expected and f' {expected}'}.")
            for problem in vars(kind).get("conflicts", lambda _: ())(self):
                raise NearfarError(problem)


def make(kind: type[Made], values: Mapping[str, Any], *, source: object, given: Made | None = None) -> Made:
    """The settings of plain values; those of ``given``, if there are some, where ``values`` has none.

    Raises:
        NearfarError: a value of the wrong type or out of bounds, a value that is missing, or values that exclude each
            other; the sentence begins with the source.
    """
    clean = convert_values(kind, values, source=source)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in clean]
    if given is None and missing:
        raise NearfarError(f"{source}: lacks {', '.join(missing)}.")
    try:
        return kind(**clean) if given is None else replace(given, **clean)
    except NearfarError as error:  # values that are valid alone but not together
        raise NearfarError(f"{source}: {error}") from None
