"""Turns a settings class into flags and their help, and flags into settings.

The docstring of a field is the help of its flag. A comment ``# --- Title ---`` in a class begins a group of fields,
which the help lists under that title; a field that a subclass overrides stays in its group.
"""

import ast
import inspect
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache, cached_property
from importlib import import_module
from textwrap import wrap
from typing import Any, TypeVar

from nearfar.config.encoder import fields_in_order
from nearfar.config.values import FieldType, Settings, flag
from nearfar.settings import check_values
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, format_text, unknown_name_message

Parsed = TypeVar("Parsed", bound=Settings)
OPTIONS = "Options"
"""The group of fields without a title; it comes first."""
_TITLE = re.compile(r"    # --- (.+) ---")
_HELP = ("-h", "--help")
_INDENT = 24
"""Columns before the texts of flags in ``--help``."""
_NUMBER = re.compile(r"-[.\d]")


@dataclass(frozen=True)
class Option:
    """An option of a verb: a flag or, with ``positional_name``, positional arguments."""

    name: str
    type: Any
    help: str
    default: Any = field(default_factory=lambda: MISSING)
    """MISSING: the option must be given."""
    positional_name: str | None = None
    group: str = OPTIONS

    @cached_property
    def kind(self) -> FieldType:
        """The values that it accepts."""
        return FieldType(self.type)

    @property
    def is_switch(self) -> bool:
        """Whether it is a flag without a value."""
        return self.kind.scalar is bool

    @property
    def typed(self) -> str:
        """The flag as it is typed, or the name of the argument."""
        negative = self.is_switch and self.default
        return self.positional_name or flag(f"no_{self.name}" if negative else self.name)

    @property
    def usage(self) -> str:
        """The flag and the placeholder for its values."""
        return self.typed if self.is_switch or self.positional_name else f"{self.typed} {self.kind.metavar}"

    @property
    def text(self) -> str:
        """What it does, and its default."""
        if self.is_switch:  # the text of one that turns something off is the part after --no-NAME:
            what = self.help.partition(f"{self.typed}: ")[2] if self.default else self.help
            return what[:1].upper() + what[1:]
        if self.default is MISSING:
            return f"{self.help} (required)"
        shown = " ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)
        return self.help if shown == "" else f"{self.help} (default: {'none' if self.default is None else shown})"

    def value(self, words: list[str]) -> Any:
        """The value that the words on the command line give.

        Raises:
            NearfarError: there is none, or the option does not accept it.
        """
        name = self.typed.split()[0]
        if self.is_switch:
            return not self.default
        if not words:
            raise NearfarError(f"{name}: needs a value{'; give one or more' * self.kind.is_sequence}.")
        try:
            return self.kind.from_words(words)
        except InvalidValueError as error:
            raise NearfarError(f"{name} {' '.join(map(format_text, words))}: {error.problem}.") from None


def parse(
    kind: type[Parsed],
    argv: Sequence[str],
    *,
    prog: str,
    extras: Sequence[Option] = (),
    values: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> tuple[Parsed, dict[str, Any]]:
    """The config given by the flags, and the values of ``extras`` by name.

    ``values`` come from the file ``source``; flags override them.

    Raises:
        NearfarError: a value of the wrong type or out of bounds, settings that conflict, a flag that is missing,
            unknown or given twice.
        SystemExit: with 0 after ``--help``.
    """
    from_file = check_values(kind, values or {}, source=source or prog.partition(" [")[0])
    described, options = describe_fields(kind), [*extras]
    for setting in fields_in_order(kind):
        if FieldType(setting.type).scalar is dict:
            continue  # tables are written in a file
        group, text = described.get(setting.name, (OPTIONS, ""))
        default = from_file.get(setting.name, setting.default)
        options.append(Option(setting.name, setting.type, text, default, group=group))
    if any(word in _HELP for word in argv):
        sys.stdout.writelines(f"{line}\n" for line in _help_lines(kind, options, prog))
        raise SystemExit(0)
    given = _split(argv, options)
    missing = [option.typed for option in options if option.default is MISSING and option.name not in given]
    if missing:
        verb = prog.partition(" [")[0]
        raise NearfarError(f"{verb}: lacks {', '.join(missing)}; {verb} --help describes them.")
    clean = {option.name: option.value(given[option.name]) for option in options if option.name in given}
    extra_values = {extra.name: clean.pop(extra.name, extra.default) for extra in extras}
    try:
        return kind(**{**from_file, **clean}), extra_values
    except NearfarError as error:  # each value is valid alone, so the error is about a combination
        raise NearfarError(f"{source}: {error}" if source else str(error)) from None


def _split(argv: Sequence[str], options: Sequence[Option]) -> dict[str, list[str]]:
    """The words on the command line of each option that is given.

    Raises:
        NearfarError: a flag that is unknown, is given twice, or has a value though it takes none; a word too many.
    """
    flags = {option.typed: option for option in options if not option.positional_name}
    free = [option for option in options if option.positional_name]
    given: dict[str, list[str]] = {}
    taking, only_words = None, False
    for word in argv:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        lone_dash = word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and taking is None
        if word == "--" and not only_words:
            taking, only_words = None, True
        elif not only_words and (name.startswith("--") or lone_dash):
            if name not in flags:
                raise NearfarError(unknown_name_message(name, sorted(flags), what="flag"))
            option = flags[name]
            if equals and option.is_switch:
                raise NearfarError(f"{name}={format_text(value)}: this flag takes no value; write {name} alone.")
            if option.name in given:
                raise NearfarError(f"{name}: is given twice; give it once.")
            given[option.name] = [value] if equals else []
            taking = None if option.is_switch or (equals and not option.kind.is_sequence) else option
        elif taking or free:
            option = taking or free[0]
            given.setdefault(option.name, []).append(word)
            if option is taking:
                taking = option if option.kind.is_sequence else None
            elif not option.kind.is_sequence:
                free.pop(0)
        else:
            raise NearfarError(f"{format_text(word)}: is neither a flag nor the value of one.")
    return given


def _help_lines(kind: type[Settings], options: Sequence[Option], prog: str) -> Iterator[str]:
    """The text of ``--help``: usage, what the verb does, and the options by groups."""
    groups: dict[str, list[Option]] = {"Arguments": [], OPTIONS: []}
    for option in options:
        groups.setdefault("Arguments" if option.positional_name else option.group, []).append(option)
    required = [option for option in options if option.default is MISSING and not option.positional_name]
    words = [*(option.typed for option in groups["Arguments"]), *(option.usage for option in required), "[flags]"]
    yield f"usage: {' '.join([prog, *words])}\n"
    yield inspect.cleandoc(kind.__doc__ or "")
    width, indent = min(shutil.get_terminal_size().columns, 120), " " * _INDENT
    for title, members in groups.items():
        if members:
            yield f"\n{title}:"
        for option in members:
            head = f"  {option.usage}"
            if len(head) > _INDENT - 2:
                yield head
                head = ""
            first = head.ljust(_INDENT)
            yield from wrap(option.text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def describe_fields(kind: type) -> dict[str, tuple[str, str]]:
    """The group and the help of each field of a class."""
    described: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        for name, (group, text) in _fields_of(base.__module__).get(base.__name__, {}).items():
            first, inherited = described.get(name, (OPTIONS, ""))
            described[name] = (group if first == OPTIONS else first, text or inherited)
    return described


@cache
def _fields_of(module: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Class -> field -> its group and its docstring, parsed from the module's source."""
    try:
        source = inspect.getsource(import_module(module))
    except (OSError, TypeError):  # no file, as in a notebook
        source = ""
    titles = {number: title[1] for number, line in enumerate(source.splitlines(), 1) if (title := _TITLE.match(line))}
    described: dict[str, dict[str, tuple[str, str]]] = {}
    for kind in ast.parse(source).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        members = described.setdefault(kind.name, {})
        for member, below in zip(kind.body, [*kind.body[1:], None], strict=True):
            match member, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    above = [title for line, title in titles.items() if kind.lineno < line < member.lineno]
                    members[name] = [OPTIONS, *above][-1], " ".join(text.split())
    return described
