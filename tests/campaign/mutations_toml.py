"""Changes to the values and lines of TOML files."""

from collections.abc import Mapping
from random import Random

from tests.campaign.mutations import BYTES, TEXT, Change, on_lines

TOML_VALUES = (
    "",
    "1",
    "-1",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "true",
    '""',
    '"\\u0000"',
    '"x"',
    "[]",
    "[1]",
    '["a", 1]',
)
TOML_VALUES += (
    "{a = 1}",
    "1979-05-27",
    "07:32:00",
    "9" * 30,
    '"' + "x" * 5000 + '"',
    "'''\na\nb'''",
    "0x10",
    "1_000",
    "-0.0",
)
TOML_VALUES += ("[" * 2000 + "]" * 2000, '"none"', '"{start}"', '"\\ud800"', '".."', '"a\\nb"', '"\\u001b[31m"')
TOML_LINES = (
    "unknown = 1",
    "[table]",
    "[[table]]",
    'method = "scl"',
    "a.b.c = 1",
    "seed = 1",
    "=",
    "'' = 1",
    '"\\u0000" = 1',
)


def _toml_value(line: bytes, draw: Random) -> bytes:
    key, equals, _ = line.partition(b"=")
    return key + b"= " + draw.choice(TOML_VALUES).encode() if equals else line + b" x"


def _toml_line(lines: list[bytes], draw: Random) -> list[bytes]:
    at = draw.choice((0, draw.randrange(len(lines) + 1), len(lines)))
    return [*lines[:at], draw.choice(TOML_LINES).encode(), *lines[at:]]


def _any_line(change: Change) -> Change:
    """A change of one line that assigns a value."""

    def apply(lines: list[bytes], draw: Random) -> list[bytes]:
        at = draw.choice([number for number, line in enumerate(lines) if b"=" in line] or [0])
        return [*lines[:at], change(lines[at], draw), *lines[at + 1 :]]

    return on_lines(apply)


TOML: Mapping[str, Change] = {
    "other value": _any_line(_toml_value),
    "another value": _any_line(_toml_value),
    "other line": on_lines(_toml_line),
    "misspelt key": _any_line(lambda line, draw: b"x" + line),
    **{name: TEXT[name] for name in TEXT if name not in ("50,000 lines", "lone CR")},
    "2 MB": lambda content, draw: content + b"# comment\n" * 200_000,
    **BYTES,
}
"""Changes of a TOML file."""
