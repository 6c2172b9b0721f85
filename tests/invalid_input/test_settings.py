"""Every setting of every config, from its declaration: what it refuses, as a keyword and as a flag."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from itertools import cycle
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import pytest
from msgspec import Meta

import nearfar
from nearfar.cli.parsing import parse
from nearfar.config.bounds import Output, Prompt, Shard, ThresholdFile
from nearfar.config.values import Settings
from nearfar.types import NearfarError

CLASSES: list[type[Settings]] = [getattr(nearfar, name) for name in nearfar.__all__ if name.endswith("Config")]


class Declared(NamedTuple):
    """What a type annotation says."""

    hint: Any
    scalar: type | None = None
    meta: Meta | None = None
    choices: tuple[Any, ...] = ()
    nullable: bool = False
    several: bool = False
    or_file: bool = False
    """A number, or the name of a file."""

    @property
    def name(self) -> str:
        """The accepted single values, in words."""
        words = {None: [], int: ["a whole number"], float: ["a number"], bool: ["true or false"], str: ["text"]}
        *first, last = [
            *words[self.scalar],
            *["text"] * self.or_file,
            *map(str, sorted(self.choices)),
            *["none"] * self.nullable,
        ]
        return f"{', '.join(first)} or {last}" if first else last


def declared(hint: Any) -> Declared:
    found, waiting = Declared(hint), [hint]
    while waiting:
        one = waiting.pop()
        if one == ThresholdFile:
            found = found._replace(or_file=True)
        elif get_origin(one) is Annotated:
            found = found._replace(meta=get_args(one)[1])
            waiting.append(get_args(one)[0])
        elif get_origin(one) is Literal:
            found = found._replace(choices=get_args(one))
        elif get_origin(one) is tuple:
            found = found._replace(several=True)
            waiting.append(get_args(one)[0])
        elif get_origin(one) is not None:
            waiting += get_args(one)
        elif one is NoneType:
            found = found._replace(nullable=True)
        else:
            found = found._replace(scalar=one)
    return found


def out_of_bounds(kind: Declared) -> list[tuple[Any, str]]:
    """A number below and one above the bounds, which every number has, with the sentences."""
    meta = kind.meta
    assert meta is not None, kind
    low, high = (meta.ge if meta.gt is None else meta.gt), (meta.le if meta.lt is None else meta.lt)
    assert low is not None
    assert high is not None
    below = low if meta.gt is not None else low - 1 if kind.scalar is int else math.nextafter(low, -math.inf)
    above = high if meta.lt is not None else high + 1 if kind.scalar is int else 2 * high
    lowest, highest = (f"{bound:,}".removesuffix(".0") for bound in (low, high))
    return [
        (below, f"must be {'at least' if meta.gt is None else 'above'} {lowest}"),
        (above, f"must be {'at most' if meta.lt is None else 'below'} {highest}"),
    ]


def bad_texts(kind: Declared) -> Iterator[tuple[str, str]]:
    """Texts that no setting, or no name of a file, can be."""
    if Shard in (kind.hint, *get_args(kind.hint)):
        yield from ((text, "must be NUMBER/COUNT, with a number from 1 to COUNT") for text in ("", "a", "0/3", "4/3"))
        return
    if Prompt not in (kind.hint, *get_args(kind.hint)):
        yield "", "must not be empty"
    yield "  ", "must not be empty"
    yield "a\0b", "must not hold a NUL character"
    yield "\udcff", "must be UTF-8 text"
    if kind.meta is not None and Prompt not in (kind.hint, *get_args(kind.hint)):
        longest = 230 if Output in (kind.hint, *get_args(kind.hint)) else 255
        yield "d/" + "é" * (longest // 2 + 1), f"has a name of over {longest} bytes; choose a shorter one"
        yield "a/" * 2500, "is a path of over 4,095 bytes; choose a shorter one"


def bad_values(kind: Declared) -> list[tuple[Any, str]]:
    """Single values, as from TOML or Python, with the sentences."""
    other = [(value, f"must be {kind.name}") for value in ({"a": 1}, "no\nsuch", 3, True)]
    if kind.scalar is None:
        return other
    if kind.or_file:
        return [*out_of_bounds(kind), other[0], other[3], *bad_texts(kind)]
    if kind.scalar is bool:
        return [(0, "must be true or false"), *other[:3]]
    if kind.scalar is str:
        return [*other[2:], other[0], *bad_texts(kind)]
    numbers = [*out_of_bounds(kind), *other[:2], other[3]]
    if kind.scalar is int:
        return [*numbers, (2.0, f"must be {kind.name}"), (10**5000, numbers[1][1])]
    return [*numbers, *((value, "must be a finite number") for value in (math.nan, -math.inf, 10**400))]


def bad_lists(kind: Declared) -> list[tuple[Any, str]]:
    """Values of a setting that is a list."""
    items = [([value], sentence) for value, sentence in bad_values(kind._replace(nullable=False))]
    return [*items, *((value, "must be a list, as in [") for value in ("x", True, {"a": 1}))]


def bad_words(kind: Declared) -> list[tuple[str, str]]:
    """Words of a flag, with the sentences."""
    if kind.scalar is bool:
        return [("yes", "this flag takes no value")]
    if kind.scalar is str:
        return list(bad_texts(kind))
    if kind.or_file:
        return [*bad_texts(kind), *((repr(value), sentence) for value, sentence in out_of_bounds(kind))]
    kind = kind._replace(nullable=kind.nullable and not kind.several)
    words = [(word, f"must be {kind.name}") for word in ("nonsense", "", "true")]
    if kind.scalar is None:
        return words
    words += [(repr(value), sentence) for value, sentence in out_of_bounds(kind)]
    odd = (
        [("2.0", words[0][1])]
        if kind.scalar is int
        else [("nan", "must be a finite number"), ("1e999", "must be a fini")]
    )
    return [*words, *odd]


def settings() -> Iterator[tuple[type[Settings], str, Declared]]:
    """Each setting once: of those with the same name and type, that of the first class; but for tables of sets."""
    seen = set()
    for kind in CLASSES:
        for field in fields(kind):
            if (key := (field.name, repr(field.type))) not in seen and field.name != "sets":
                seen.add(key)
                yield kind, field.name, declared(field.type)


EVERY = list(settings())
by_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def needed(kind: type[Settings]) -> dict[str, Any]:
    """Values of the settings that have no default."""
    found = {field.name: declared(field.type) for field in fields(kind) if field.default is MISSING}
    return {name: ("x",) if one.several else "x" for name, one in found.items()}


@contextmanager
def refused(*words: str) -> Iterator[None]:
    with pytest.raises(NearfarError) as caught:
        yield
    for one in words:
        assert one in str(caught.value)


@by_class
def test_as_a_keyword(kind: type[Settings]) -> None:
    for name, one in [(name, one) for of, name, one in EVERY if of is kind]:
        for value, sentence in bad_lists(one) if one.several else bad_values(one):
            with refused(f"--{name.replace('_', '-')} ", f": {sentence}"):
                kind(**{**needed(kind), name: value})


@pytest.mark.long
@by_class
def test_as_a_flag(kind: type[Settings]) -> None:
    """One word of each setting; which one differs from setting to setting."""
    turns = {scalar: cycle(range(12)) for scalar in (None, bool, int, float, str)}
    for name, one in [(name, one) for of, name, one in EVERY if of is kind]:
        words = bad_words(one)
        word, sentence = words[next(turns[one.scalar]) % len(words)]
        default = next(field.default for field in fields(kind) if field.name == name)
        flag = f"--{'no-' * (default is True)}{name.replace('_', '-')}"
        others = [f"--{other.replace('_', '-')}=x" for other in needed(kind) if other != name]
        with refused(flag, sentence):
            parse(kind, [*others, f"{flag}={word}"], prog="nearfar")
