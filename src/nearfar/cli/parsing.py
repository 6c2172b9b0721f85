"""Turns a settings class into flags, and flags into settings.

tyro prints the help and the errors about missing flags. It receives plain texts, which takes a third of the time that
typed values take; :mod:`nearfar.config.values` converts them.
"""

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, TypeVar

from nearfar.config.encoder import fields_in_order
from nearfar.config.values import FieldType, Settings, flag
from nearfar.settings import check_values
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, format_text, unknown_name_message

Parsed = TypeVar("Parsed", bound=Settings)


class ExtraOption(NamedTuple):
    """An option that is not in the command's config: a flag or, with ``positional_name``, positional arguments."""

    name: str
    type: Any
    help: str
    default: Any = MISSING
    positional_name: str | None = None


class _Default:
    """Marks a value that was not given on the command line."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def texts(self) -> list[str]:
        """The default as ``--help`` shows it."""
        if self.value is None:
            return ["none"]
        return [str(value) for value in (self.value if isinstance(self.value, tuple) else (self.value,))]


def parse(
    kind: type[Parsed],
    argv: Sequence[str],
    *,
    prog: str,
    extras: Sequence[ExtraOption] = (),
    values: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> tuple[Parsed, dict[str, Any]]:
    """The config given by the flags, and the values of ``extras`` by name.

    ``values`` come from the file ``source``; flags override them.

    Raises:
        NearfarError: a value of the wrong type or out of bounds, settings that conflict, a flag that is unknown
            or given twice.
        SystemExit: with 0 after ``--help``; with 2, after an error message, for a missing flag or value.
    """
    import tyro

    from_file = check_values(kind, values or {}, source=source or prog.partition(" [")[0])
    help_of = _field_help(kind)
    every = [
        *extras,
        *(
            ExtraOption(field.name, field.type, help_of.get(field.name, ""), from_file.get(field.name, field.default))
            for field in fields_in_order(kind)
        ),
    ]
    known = {one.name: FieldType(one.type) for one in every}
    flags = {_flag_name(one, known[one.name]): known[one.name].scalar for one in every if not one.positional_name}
    _check_flags(argv, flags)
    parameters = [_parameter(one, known[one.name]) for one in every]

    def command(**found: Any) -> dict[str, Any]:
        return found

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    settings = (tyro.conf.FlagCreatePairsOff,)
    doc = inspect.cleandoc(kind.__doc__ or "")
    found = tyro.cli(command, args=list(argv), prog=prog, description=doc, config=settings)
    clean = {one.name: _value(one, known[one.name], found[one.name]) for one in every}
    extra_values = {extra.name: clean.pop(extra.name) for extra in extras}
    try:
        return kind(**clean), extra_values
    except NearfarError as error:  # each value is valid alone, so the error is about a combination
        raise NearfarError(f"{source}: {error}" if source else str(error)) from None


def _parameter(one: ExtraOption, kind: FieldType) -> inspect.Parameter:
    """The parameter from which tyro makes a flag."""
    import tyro
    from tyro.constructors import PrimitiveConstructorSpec

    hint: Any = bool
    default = one.default
    if kind.scalar is not bool:
        spec: PrimitiveConstructorSpec[Any] = PrimitiveConstructorSpec(
            nargs="*" if kind.is_sequence else 1,
            metavar=one.positional_name or kind.metavar,
            instance_from_str=list,
            is_instance=lambda _: True,
            str_from_instance=lambda default: default.texts,
        )
        hint = Annotated[object, spec]
        default = inspect.Parameter.empty if default is MISSING else _Default(default)
    no_default = default.texts == [] if isinstance(default, _Default) else False
    text = _negative_help(one) if kind.scalar is bool and default else one.help
    hint = Annotated[hint, tyro.conf.arg(help=text, help_behavior_hint="" if no_default else None)]
    if one.positional_name:
        hint = Annotated[hint, tyro.conf.Positional]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _negative_help(one: ExtraOption) -> str:
    """What the flag does that turns an option off: the part of its help after ``--no-NAME:``."""
    before, marked, text = one.help.partition(f"{flag(f'no_{one.name}')}: ")
    return f"{text[0].upper()}{text[1:]}" if marked else f"Turns this off: {before}"


def _value(one: ExtraOption, kind: FieldType, found: Any) -> Any:
    """The value of an option from the words on the command line."""
    name = one.positional_name.split()[0] if one.positional_name else flag(one.name)
    if isinstance(found, _Default):
        return found.value
    if not isinstance(found, list):
        return found  # a flag without a value
    if not found:
        raise NearfarError(f"{name}: needs a value; give one or more.")
    try:
        if not kind.is_sequence:
            return kind.from_text(found[0])
        if kind.nullable and [text.lower() for text in found] == ["none"]:
            return None
        if kind.scalar in (int, float) or kind.choices:  # a list of numbers or of fixed names may also have commas
            return tuple(kind.from_text(part) for text in found for part in text.split(","))
        return tuple(kind.from_text(text) for text in found)
    except InvalidValueError as error:
        raise NearfarError(f"{name} {' '.join(map(format_text, found))}: {error.problem}.") from None


def _flag_name(one: ExtraOption, kind: FieldType) -> str:
    """The flag as it is typed."""
    return flag(f"no_{one.name}" if kind.scalar is bool and one.default else one.name)


def _check_flags(argv: Sequence[str], known: Mapping[str, type | None]) -> None:
    """Raise for an unknown flag, a flag given twice, and a value of a flag that takes none.

    tyro would silently drop a value, or name only the value. ``known`` maps each flag to the type of its values.
    """
    seen = set()
    for word in argv:
        if word == "--":
            return
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if not name.startswith("--") or name == "--help":
            continue
        if name not in known:
            raise NearfarError(unknown_name_message(name, sorted(known), what="flag"))
        if equals and known[name] is bool:
            raise NearfarError(f"{name}={format_text(value)}: this flag takes no value; write {name} alone.")
        if name in seen:
            raise NearfarError(f"{name}: is given twice; give it once.")
        seen.add(name)


def _field_help(kind: type) -> dict[str, str]:
    """The docstring of each field of a class and its base classes."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Settings):
            texts |= _field_docstrings(base.__module__).get(base.__name__, {})
    return texts


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> its docstring, parsed from the module's source."""
    try:
        source = inspect.getsource(import_module(module))
    except (OSError, TypeError):  # no file, as in a notebook
        source = ""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        texts = found.setdefault(node.name, {})
        for field, below in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        texts[field.target.id] = " ".join(text.split())
    return found
