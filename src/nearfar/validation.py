"""Checks values from outside (flags, TOML, Python keywords, JSON) against types, by msgspec.

Types are strict: a boolean or a text is not a number, and 3.0 is not an integer. An integer is a number, a list can
stand for a tuple, and NaN and infinity are refused where a type has bounds. A type is anything that msgspec knows:
scalars, ``Literal``, ``Annotated`` with ``msgspec.Meta``, lists, tuples, dicts, unions, dataclasses and
``msgspec.Struct``.
"""

import operator
import sys
from abc import ABC
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from types import NoneType
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import inspect as kinds

from nearfar.types import NearfarError

Converted = TypeVar("Converted")

MAX_SHOWN_CHARS = 80


class InvalidValueError(ValueError):
    """Why a value does not fit its type."""

    def __init__(self, problem: str, *path: str | int, value: Any = msgspec.UNSET) -> None:
        super().__init__(problem)
        self.problem, self.path, self.value = problem, path, value
        """``path``: keys and positions from the outermost object to the value, such as ``tasks``, ``stsb``, 3."""

    def inside(self, key: str | int) -> "InvalidValueError":
        """The same error, seen from the object or list that holds the value under ``key``."""
        return InvalidValueError(self.problem, key, *self.path, value=self.value)

    def __str__(self) -> str:
        """The sentence, as ``tasks.stsb.gold[3] = 'x': must be a number``."""
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path).removeprefix(".")
        if self.value is msgspec.UNSET:
            return f"{place or 'it'} {self.problem}"
        return f"{place} = {format_value(self.value)}: {self.problem}" if place else f"it {self.problem}"


class Tagged(ABC):  # noqa: B024  # the classes that it stands for count as its subclasses
    """A type that stands for one of several dataclasses, which the value of their field ``kind`` tells apart."""

    kinds: ClassVar[Mapping[str, type]] = {}

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """Count each of the classes as a subclass, as msgspec requires."""
        return other in cls.kinds.values() or NotImplemented

    @classmethod
    def choose(cls, value: Any) -> type:
        """The class of a JSON object.

        Raises:
            InvalidValueError: it is no object, or ``kind`` is missing or unknown.
        """
        if not isinstance(value, Mapping) or "kind" not in value:
            raise InvalidValueError("lacks 'kind'")
        kind = value["kind"]
        if not isinstance(kind, str) or kind not in cls.kinds:
            raise InvalidValueError(f"must be {join_or(map(repr, cls.kinds))}", "kind", value=kind)
        return cls.kinds[kind]


def convert(value: Any, kind: type[Converted], *, source: object | None = None, null: str = "null") -> Converted:
    """``value`` as a ``kind``.

    Args:
        value: what a parser of JSON or TOML returned, or a plain Python value.
        kind: the type.
        source: the file, which begins the sentence of a :class:`NearfarError`.
        null: how None is written there, for messages.

    Raises:
        InvalidValueError: it does not fit, and there is no ``source``.
        NearfarError: it does not fit; the sentence names source, key and problem.

    >>> convert({"a": [1, 2]}, dict[str, tuple[int, ...]])
    {'a': (1, 2)}
    >>> convert({"a": [1, True]}, dict[str, tuple[int, ...]], source="f.json")
    Traceback (most recent call last):
    nearfar.types.NearfarError: f.json: a[1] = true: must be a whole number.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=_convert_tagged)
    except (msgspec.ValidationError, OverflowError) as error:
        problem = _problem(value, kinds.type_info(kind), null) or InvalidValueError(str(error))
    if source is None:
        raise problem
    raise NearfarError(f"{source}: {problem}.")


def _convert_tagged(kind: type, value: Any) -> Any:
    if not issubclass(kind, Tagged):
        raise TypeError(f"{kind.__name__} is no type of settings or records")
    return convert(value, kind.choose(value))


def options(info: kinds.Type) -> list[kinds.Type]:
    """The types of a union; else the type alone. Without metadata."""
    if isinstance(info, kinds.Metadata):
        return options(info.type)
    return [option for part in info.types for option in options(part)] if isinstance(info, kinds.UnionType) else [info]


_NAMES: Mapping[type, str] = {
    kinds.BoolType: "true or false",
    kinds.IntType: "a whole number",
    kinds.FloatType: "a number",
    kinds.StrType: "text",
    **dict.fromkeys((kinds.ListType, kinds.VarTupleType, kinds.TupleType), "a list"),
}
_TYPES: Mapping[type, tuple[type, ...]] = {
    kinds.NoneType: (NoneType,),
    kinds.BoolType: (bool,),
    kinds.StrType: (str,),
    kinds.IntType: (int,),
    kinds.FloatType: (int, float),
}


def expected(info: kinds.Type, *, null: str = "null") -> str:
    """The accepted values, in words.

    >>> expected(kinds.type_info(int | None))
    'a whole number or null'
    """
    words: list[str] = []
    every = sorted(options(info), key=lambda option: isinstance(option, kinds.NoneType))
    has_float = any(isinstance(option, kinds.FloatType) for option in every)
    for option in every:
        if isinstance(option, kinds.LiteralType):
            words += [str(value) if null == "none" else repr(value) for value in option.values]
        elif not (has_float and isinstance(option, kinds.IntType)):
            other = null if isinstance(option, kinds.NoneType) else "an object" if null == "null" else "a table"
            words.append(_NAMES.get(type(option), other))
    return join_or(words)


def join_or(words: Iterable[str]) -> str:
    """Alternatives in words.

    >>> join_or(["a"]), join_or(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


_MISMATCH = InvalidValueError("is of another type")


def _problem(value: Any, info: kinds.Type, null: str) -> InvalidValueError | None:
    """Why ``value`` is no ``info``; None if it is."""
    problems = [_option_problem(value, option, null) for option in options(info)]
    if None in problems:
        return None
    specific = (problem for problem in problems if problem is not _MISMATCH)
    return next(specific, InvalidValueError(f"must be {expected(info, null=null)}", value=value))


def _option_problem(value: Any, info: kinds.Type, null: str) -> InvalidValueError | None:
    """Why ``value`` is no ``info``, which is no union; :data:`_MISMATCH` if it is of another type altogether."""
    match info:
        case kinds.TupleType() if isinstance(value, (list, tuple)) and len(value) != len(info.item_types):
            return InvalidValueError(f"must be a list of {len(info.item_types)}", value=value)
        case kinds.ListType() | kinds.VarTupleType() | kinds.TupleType() if isinstance(value, (list, tuple)):
            every = info.item_types if isinstance(info, kinds.TupleType) else [info.item_type] * len(value)
            problem = _first(zip(range(len(value)), value, every, strict=True), null)
        case kinds.DictType() if isinstance(value, Mapping):
            problem = _first(((key, item, info.value_type) for key, item in value.items()), null)
        case kinds.DataclassType() | kinds.StructType() if isinstance(value, Mapping):
            problem = _object_problem(value, info, null)
        case kinds.CustomType():
            try:
                assert issubclass(info.cls, Tagged), info.cls
                problem = _problem(value, kinds.type_info(info.cls.choose(value)), null)
            except InvalidValueError as error:
                return error
        case _:
            problem = _scalar_problem(value, info)
    return problem


def _scalar_problem(value: Any, info: kinds.Type) -> InvalidValueError | None:
    if isinstance(info, kinds.LiteralType):
        fits = any(type(value) is type(choice) and value == choice for choice in info.values)
    else:
        fits = isinstance(info, kinds.AnyType) or type(value) in _TYPES.get(type(info), ())
    problem = None
    if fits and isinstance(info, kinds.StrType) and info.pattern is not None and not value.strip():
        problem = "must not be empty"
    elif fits and isinstance(info, kinds.IntType | kinds.FloatType):
        problem = _number_problem(value, info)
    return InvalidValueError(problem, value=value) if problem else None if fits else _MISMATCH


def _number_problem(value: float, info: kinds.IntType | kinds.FloatType) -> str | None:
    """Why a number is out of bounds."""
    if isinstance(info, kinds.FloatType) and not -sys.float_info.max <= value <= sys.float_info.max:
        return "must be a finite number"
    for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        bound = getattr(info, name)
        if bound is not None and not getattr(operator, name)(value, bound):
            return f"must be {words} {f'{bound:,}'.removesuffix('.0')}"
    return None


def _object_problem(value: Mapping[str, Any], info: Any, null: str) -> InvalidValueError | None:
    known = {field.encode_name: field for field in info.fields}
    if getattr(info, "forbid_unknown_fields", False):
        for key in value:
            if key not in known and key != info.tag_field:
                return InvalidValueError(unknown_name_message(key, known, what="key"), value=msgspec.UNSET)
    for name, field in known.items():
        if field.required and name not in value:
            return InvalidValueError(f"lacks {name!r}")
    if problem := _first(((name, value[name], field.type) for name, field in known.items() if name in value), null):
        return problem
    try:  # each field is valid, so what is wrong is their combination
        msgspec.convert(value, info.cls, dec_hook=_convert_tagged)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        return cause if isinstance(cause, InvalidValueError) else InvalidValueError(str(error))
    return None


def _first(items: Iterable[tuple[str | int, Any, kinds.Type]], null: str) -> InvalidValueError | None:
    """The first problem of the items of a container: key, value, type."""
    for key, item, info in items:
        if problem := _problem(item, info, null):
            return problem.inside(key)
    return None


def format_value(value: Any) -> str:
    """A value for an error message, on one line and at most 80 characters long.

    >>> format_value(True), format_value("a\\nb"), len(format_value("x" * 1000))
    ('true', "'a\\\\nb'", 80)
    """
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python converts no integer with more than 4,300 digits
        return "a number of more than 4,300 digits" if isinstance(value, int) else f"a nested {type(value).__name__}"
    text = " ".join(text.split()) if "\n" in text else text  # that of a DataFrame has several lines
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 4]} ..."


def format_text(text: str) -> str:
    """A text for an error message: as typed if it is printable, else quoted."""
    plain = text.isprintable() and text.strip() == text != ""
    return text if plain and len(text) <= MAX_SHOWN_CHARS else format_value(text)


def unknown_name_message(name: str, known: Collection[str], *, what: str) -> str:
    """A sentence that refuses ``name`` and offers the nearest known one, never ``name`` itself.

    >>> unknown_name_message("SCL", ["scl", "sbert"], what="method")
    "no method is called 'SCL'. Did you mean 'scl'?"
    """
    hint = nearest(name, known) or f" There are: {', '.join(known)}."
    return f"no {what} is called {format_value(name)}.{hint}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that offers the most similar of the first 1,000 other names, to end a sentence with, or nothing."""
    from difflib import get_close_matches

    folded = {other.casefold(): other for other in islice(known, 1000) if other != name}
    near = get_close_matches(name.strip().casefold()[:200], list(folded), n=1)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""
