"""Cases of flags: each flag of each verb with values of other types and ranges, and flags twice or together."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from tests.campaign import verdicts
from tests.campaign.case import Case
from tests.campaign.input_files import LIMITS
from tests.campaign.input_workspace import workspace
from tests.campaign.server import Server

BASES = {
    "mine": "--model nowhere --data nowhere.tsv --output new.tsv",
    "soup": "nowhere elsewhere --output new",
    "static": "nowhere --output new",
    "back-translate": "--input nowhere.txt --output new.tsv",
    "evaluate": "nowhere --tasks nowhere.tsv",
    "study": "nowhere.toml --output new",
    "reproduce": "nowhere --output new",
    "compare": "nowhere.json elsewhere.json",
    "geometry": "nowhere --output new",
    "report": "nowhere --output new.html",
    "encode": "nowhere --input nowhere.txt --output new.npy",
    "search": "dog --model nowhere --input nowhere.txt",
    "predict": "nowhere --input nowhere.txt --output new.tsv",
    "export": "nowhere --output new",
    "push": "nowhere owner/name",
    "dedup": "--model nowhere --input nowhere.txt",
    "get-data": "nowhere --source nowhere",
    "demo": "--model nowhere --output new",
    "env": "--offline",
    "finetune": "nowhere.tsv --model nowhere --output new",
}
"""Verb -> arguments that are valid but for files and models that do not exist, so that nothing slow begins."""
TRAIN = "--model nowhere --data nowhere.tsv --output new"
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "x" * 300,
    "x/" * 3000,
    "x" * 100_000,
    "\ud800",
    "é\u202e\u2028",
    "a\nb",
    "\x1b[31mred",
    ".",
    "..",
)
TEXTS += (
    "tiny",
    "texts.txt",
    "/dev/null",
    "/dev/zero",
    "~nobody-here/x",
    "../x",
    "none",
    "None",
    "[bold]x",
    "{start}",
    "hub:a",
    "a:b:c",
    "-",
)
NUMBERS = (
    "abc",
    "",
    " ",
    "1.5",
    "-1",
    "0",
    "-0",
    "-0.0",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e400",
    "1e-400",
    "1e308",
    "9" * 5000,
)
NUMBERS += (
    "2147483648",
    "9223372036854775808",
    "0x10",
    "1_0",
    "1,2",
    "1e3",
    "none",
    "true",
    "１２",
    "٣",
    "1 2",
    "+3",
    " 3 ",
    "3\0",
    "\ud800",
)
WORDS = ("no-such", "", " ", "\0", "\x1b[31m", "NONE", "true", "x" * 100_000, "\ud800", "é")
SEVERAL = (("1", "x"), ("x", "", "y"), ("1", "1"), ("nan", "2"), ("a\0", "b"))


class Flag(NamedTuple):
    """A flag as its config class declares it."""

    name: str
    scalar: type | None
    choices: tuple[Any, ...]
    nullable: bool
    several: bool


def cases(seed: int) -> Iterator[Case]:
    """Cases of all flags of all verbs and methods."""
    from nearfar.config import METHODS

    for verb, words in BASES.items():
        yield from _cases_of(seed, f"flags of {verb}", [verb, *words.split()], _flags(_class_of(verb)))
    seen: set[str] = set()
    for method, kind in METHODS.items():
        flags = [flag for flag in _flags(kind) if flag.name not in seen or Random(flag.name + method).random() < 0.05]
        seen |= {flag.name for flag in flags}
        yield from _cases_of(seed, "flags of train", ["train", method, *TRAIN.split()], flags)


def _class_of(verb: str) -> type:
    import nearfar
    from nearfar import config

    name = "".join(part.title() for part in verb.split("-")) + "Config"
    return getattr(config, name, None) or getattr(nearfar, name)


def _flags(kind: type) -> list[Flag]:
    return [_flag(field.name, field.type, default=field.default) for field in fields(kind)]


def _flag(name: str, hint: Any, *, default: Any) -> Flag:
    scalar: type | None = None
    choices: tuple[Any, ...] = ()
    nullable = several = False
    waiting = [hint]
    while waiting:
        one = waiting.pop()
        origin = get_origin(one)
        if origin is Annotated:
            waiting.append(get_args(one)[0])
        elif origin is Literal:
            choices += get_args(one)
        elif origin is tuple:
            several = True
            waiting.append(get_args(one)[0])
        elif origin is not None:
            waiting += get_args(one)
        elif one is NoneType:
            nullable = True
        else:
            scalar = one
    written = name.replace("_", "-")
    return Flag(
        f"--no-{written}" if scalar is bool and default is True else f"--{written}", scalar, choices, nullable, several
    )


def must_be_refused(flag: Flag, value: str) -> bool:
    """Whether a single value is certainly not one of the flag's type; bounds are the config's own."""
    if flag.nullable and value.lower() == "none":
        return False
    if flag.scalar is bool or value in map(str, flag.choices):
        return flag.scalar is bool
    if flag.several and "," in value and flag.scalar is not str:
        return False
    if flag.scalar is int:
        return not value.strip().lstrip("+-").replace("_", "").isdecimal() or len(value) > 1000
    if flag.scalar is float:
        try:
            return abs(float(value)) in (float("inf"),) or float(value) != float(value)
        except ValueError:
            return True
    if flag.scalar is str:
        return "\0" in value or "\ud800" in value
    return True


def _values(flag: Flag) -> Sequence[str]:
    if flag.scalar in (int, float):
        return NUMBERS
    return TEXTS if flag.scalar is str else WORDS


def _cases_of(seed: int, group: str, base: list[str], flags: Sequence[Flag]) -> Iterator[Case]:
    for flag in flags:
        draw = Random(f"{seed} {group} {base[1]} {flag.name}")
        values = _values(flag)
        for value in draw.sample(values, min(len(values), 4)):
            equals = draw.random() < 0.5 or value.startswith("-")
            words = [f"{flag.name}={value}"] if equals or flag.scalar is bool else [flag.name, value]
            refused = must_be_refused(flag, value)
            yield _case(group, base, flag.name, words, f"{value[:20]!a} {len(value)}", refused=refused)
        if flag.scalar is not bool:
            yield _case(group, base, flag.name, [flag.name], "without a value", refused=True)
        some = "3" if flag.scalar in (int, float) else "x"
        value = [] if flag.scalar is bool else [str(flag.choices[0]) if flag.choices else some]
        yield _case(group, base, flag.name, [flag.name, *value, flag.name, *value], "twice", refused=True)
        if flag.several:
            several = draw.choice(SEVERAL)
            refused = any(must_be_refused(flag, one) for one in several)
            yield _case(group, base, flag.name, [flag.name, *several], f"{several!a}", refused=refused)
        other = draw.choice(flags)
        if other.name != flag.name:
            value_of_other = [] if other.scalar is bool else [str(other.choices[0]) if other.choices else "2"]
            words = [flag.name, *value, other.name, *value_of_other]
            yield _case(group, base, flag.name, words, f"with {other.name}", refused=False)


def _case(group: str, base: list[str], name: str, words: list[str], what: str, *, refused: bool) -> Case:
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    argv = [*_without(base, given), *words]

    def check(server: Server, shared: Path, folder: Path) -> str:
        for entry in workspace(server, shared).iterdir():
            (folder / entry.name).symlink_to(entry)
        done = server.command(argv, cwd=folder, **LIMITS)
        if problem := verdicts.of_command(done, [name] if refused else [""]):
            return problem
        return "" if done.status or not refused else f"accepted {' '.join(words)!a:.200}"

    return Case(group, f"{' '.join(base[:2])} {name} {what}", check)


def _without(base: list[str], flags: set[str]) -> list[str]:
    """The arguments without these flags and their values."""
    kept: list[str] = []
    dropping = False
    for word in base:
        dropping = word in flags if word.startswith("--") else dropping
        if not dropping:
            kept.append(word)
    return kept
