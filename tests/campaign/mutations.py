"""Changes to the bytes, lines, fields and JSON values of valid files, drawn from a seeded generator."""

import codecs
import contextlib
import gzip
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

Change = Callable[[bytes, Random], bytes]

NUMBERS = ("0", "-0.0", "-1", "1e400", "-1e400", "1e-400", "NaN", "nan", "inf", "Infinity", "9" * 400, "1e308", "0x10")
NUMBERS += ("2147483648", "-9223372036854775809", "18446744073709551616", "1_000", "1,5", "٣", "1e5", ".5", "5.", "+3")
WORDS = (
    "",
    " ",
    "null",
    "None",
    "NA",
    "true",
    "TRUE",
    "-",
    '"',
    "'",
    "\\",
    "\\N",
    "=1+1",
    "<script>",
    "../..",
    "%s{}$x",
)
UNICODE = (
    "\u2028",
    "\x85",
    "\x0b",
    "\x1c",
    "\u200d",
    "\ufeff",
    "\u00a0",
    "\U0001f469\u200d\U0001f52c",
    "e\u0301",
    "\u202e",
    "\uffff",
)
ODD_JSON = (None, True, False, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, 10**400, -0.0, 1e308, "\0", "9" * 500)


def position(content: bytes, draw: Random) -> int:
    return draw.randrange(len(content) + 1)


def _cut(content: bytes, draw: Random) -> bytes:
    return content[: position(content, draw)]


def _flip_bits(content: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8)) if content else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _delete_bytes(content: bytes, draw: Random) -> bytes:
    start = position(content, draw)
    return content[:start] + content[start + draw.choice((1, 2, 7, 50)) :]


def _insert_bytes(content: bytes, draw: Random) -> bytes:
    start = position(content, draw)
    return content[:start] + draw.randbytes(draw.choice((1, 2, 7, 50))) + content[start:]


def _repeat_bytes(content: bytes, draw: Random) -> bytes:
    start = position(content, draw)
    end = min(len(content), start + draw.choice((1, 5, 40)))
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def _zero_bytes(content: bytes, draw: Random) -> bytes:
    start = position(content, draw)
    length = min(draw.choice((1, 8, 512)), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]


def _random_bytes(content: bytes, draw: Random) -> bytes:
    return draw.randbytes(draw.choice((1, 3, 100, 5000)))


BYTES: Mapping[str, Change] = {
    "cut": _cut,
    "flipped bits": _flip_bits,
    "deleted bytes": _delete_bytes,
    "inserted bytes": _insert_bytes,
    "repeated bytes": _repeat_bytes,
    "zeroed bytes": _zero_bytes,
    "random bytes": _random_bytes,
    "empty": lambda content, draw: b"",
}


def on_lines(change: Callable[[list[bytes], Random], list[bytes]]) -> Change:
    """A change of the list of lines, which have no line ends."""

    def apply(content: bytes, draw: Random) -> bytes:
        lines = content.split(b"\n")
        return b"\n".join([*change(lines[:-1], draw), lines[-1]])

    return apply


def _duplicate_line(lines: list[bytes], draw: Random) -> list[bytes]:
    at = draw.randrange(len(lines))
    return [*lines[:at], *[lines[at]] * draw.choice((1, 2, 30)), *lines[at:]]


def _delete_line(lines: list[bytes], draw: Random) -> list[bytes]:
    at = draw.choice((0, draw.randrange(len(lines)), len(lines) - 1))
    return [*lines[:at], *lines[at + 1 :]]


def _swap_lines(lines: list[bytes], draw: Random) -> list[bytes]:
    changed = list(lines)
    one, two = draw.choice((0, draw.randrange(len(lines)))), draw.randrange(len(lines))
    changed[one], changed[two] = changed[two], changed[one]
    return changed


def _join_lines(lines: list[bytes], draw: Random) -> list[bytes]:
    at = draw.randrange(len(lines))
    return [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]]


def _blank_lines(lines: list[bytes], draw: Random) -> list[bytes]:
    at = draw.choice((0, 1, draw.randrange(len(lines)), len(lines)))
    return [*lines[:at], *[draw.choice((b"", b" ", b"\r", b"\t", b"\0"))] * draw.choice((1, 3)), *lines[at:]]


def on_one_line(change: Callable[[bytes, Random], bytes]) -> Change:
    """A change of one line, more often one of the first two."""

    def apply(lines: list[bytes], draw: Random) -> list[bytes]:
        at = min(draw.choice((0, 1, draw.randrange(len(lines)))), len(lines) - 1)
        return [*lines[:at], change(lines[at], draw), *lines[at + 1 :]]

    return on_lines(apply)


def on_fields(separator: bytes, change: Callable[[list[bytes], Random], list[bytes]]) -> Change:
    """A change of the fields of one line."""
    return on_one_line(lambda line, draw: separator.join(change(line.split(separator), draw)))


def _replace_field(values: tuple[str, ...]) -> Callable[[list[bytes], Random], list[bytes]]:
    def change(fields: list[bytes], draw: Random) -> list[bytes]:
        at = draw.randrange(len(fields))
        return [*fields[:at], draw.choice(values).encode(), *fields[at + 1 :]]

    return change


def _insert_into_field(values: tuple[str, ...]) -> Callable[[list[bytes], Random], list[bytes]]:
    def change(fields: list[bytes], draw: Random) -> list[bytes]:
        at = draw.randrange(len(fields))
        middle = draw.choice((0, len(fields[at]) // 2, len(fields[at])))
        field = fields[at][:middle] + draw.choice(values).encode() + fields[at][middle:]
        return [*fields[:at], field, *fields[at + 1 :]]

    return change


def fields(separator: str) -> dict[str, Change]:
    """Changes of the fields of a line that ``separator`` separates."""
    cut = separator.encode()
    controls = ("\0", "\x1b[31m", "\x07", "\x7f", "\r", "\x08" * 9)
    return {
        "number in a field": on_fields(cut, _replace_field(NUMBERS)),
        "word in a field": on_fields(cut, _replace_field(WORDS)),
        "unicode in a field": on_fields(cut, _insert_into_field(UNICODE)),
        "control character in a field": on_fields(cut, _insert_into_field(controls)),
        "quote in a field": on_fields(cut, _insert_into_field(('"', '""', "'", '"\n', '",', '\\"'))),
        "separator in a field": on_fields(cut, _insert_into_field(("\t", ",", ";", "|", "\t\t", ",,"))),
        "missing field": on_fields(cut, lambda found, draw: found[:-1] if draw.random() < 0.5 else found[1:]),
        "repeated field": on_fields(cut, lambda found, draw: [*found, draw.choice(found)]),
        "swapped fields": on_fields(cut, lambda found, draw: found[::-1]),
        "field of 100 kB": on_fields(cut, lambda found, draw: [draw.choice((b"x ", b"y")) * 50_000, *found[1:]]),
    }


def _utf16(content: bytes, draw: Random) -> bytes:
    text = content.decode()
    return draw.choice(
        (text.encode("utf-16"), text.encode("utf-16-le"), codecs.BOM_UTF16_BE + text.encode("utf-16-be"))
    )


def _latin1(content: bytes, draw: Random) -> bytes:
    at = position(content, draw)
    return content[:at] + draw.choice(("é", "ß", "\xa0", "Ã©")).encode("latin-1") + content[at:]


def _invalid_utf8(content: bytes, draw: Random) -> bytes:
    at = position(content, draw)
    return (
        content[:at]
        + draw.choice((b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80"))
        + content[at:]
    )


def _crlf(content: bytes, draw: Random) -> bytes:
    lines = content.split(b"\n")
    return b"".join(
        line + (draw.choice((b"\r\n", b"\r\n", b"\n", b"\r\r\n")) if number < len(lines) - 1 else b"")
        for number, line in enumerate(lines)
    )


TEXT: Mapping[str, Change] = {
    "repeated line": on_lines(_duplicate_line),
    "missing line": on_lines(_delete_line),
    "swapped lines": on_lines(_swap_lines),
    "joined lines": on_lines(_join_lines),
    "blank lines": on_lines(_blank_lines),
    "only blank lines": lambda content, draw: (
        draw.choice((b"\n", b"\r\n", b" \n", b"\t\n")) * draw.choice((1, 3, 1000))
    ),
    "only the first line": lambda content, draw: content.split(b"\n")[0] + draw.choice((b"", b"\n")),
    "byte order mark": lambda content, draw: codecs.BOM_UTF8 * draw.choice((1, 1, 2)) + content,
    "UTF-16": _utf16,
    "Latin-1": _latin1,
    "invalid UTF-8": _invalid_utf8,
    "CRLF": lambda content, draw: content.replace(b"\n", b"\r\n"),
    "mixed line ends": _crlf,
    "lone CR": lambda content, draw: content.replace(b"\n", b"\r", draw.choice((1, 2, -1))),
    "NUL": lambda content, draw: content[: (at := position(content, draw))] + b"\0" + content[at:],
    "no final line end": lambda content, draw: content.rstrip(b"\n"),
    "line of 2 MB": on_one_line(lambda line, draw: line + draw.choice((b"x ", b"y", b"\xc3\xa9")) * 1_000_000),
    "50,000 lines": lambda content, draw: content + (content.split(b"\n")[-2] + b"\n") * 50_000,
}


def _deep(draw: Random) -> str:
    depth = draw.choice((50, 1_000, 100_000))
    return draw.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value inside a JSON value; of a list, of its first three values."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:3]):
            found += _places(inner, (*path, number))
    return found


def _replace(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    inner = _replace(value[path[0]], path[1:], change)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]


def _json_at(change: Callable[[Any, Random], Any], *, inside: type | tuple[type, ...] = object) -> Change:
    """A change of one value inside a JSON document, of the type ``inside``."""

    def apply(content: bytes, draw: Random) -> bytes:
        document = json.loads(content)
        places = []
        for path in _places(document):
            found = document
            for key in path:
                found = found[key]
            if isinstance(found, inside) and not (
                inside is not object and isinstance(found, bool) and bool not in _types(inside)
            ):
                places.append(path)
        if not places:
            return content
        path = draw.choice(places)
        return json.dumps(_replace(document, path, lambda value: change(value, draw)), allow_nan=True).encode()

    return apply


def _types(inside: type | tuple[type, ...]) -> tuple[type, ...]:
    return inside if isinstance(inside, tuple) else (inside,)


_MARK = "MARK-OF-A-RAW-VALUE"


def _raw(values: Callable[[Random], str], *, inside: type | tuple[type, ...] = object) -> Change:
    """Replace a JSON value by raw text, which need not be JSON."""
    mark = _json_at(lambda value, draw: _MARK, inside=inside)
    return lambda content, draw: mark(content, draw).replace(
        f'"{_MARK}"'.encode(), values(draw).encode("utf-8", "surrogatepass")
    )


def _other_key(value: Any, draw: Random) -> Any:
    name = draw.choice(("unknown", "", "\0", "__class__", "9" * 300, "a.b", "é", "toString"))
    return {**value, name: draw.choice(ODD_JSON)} if isinstance(value, dict) else value


def _without_key(value: Any, draw: Random) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    gone = draw.choice(list(value))
    return {key: inner for key, inner in value.items() if key != gone}


def _repeated_key(content: bytes, draw: Random) -> bytes:
    document = json.loads(content)
    if not isinstance(document, dict) or not document:
        return content
    key = draw.choice(list(document))
    rest = json.dumps(document)[1:]
    return ("{" + json.dumps(key) + ": " + json.dumps(draw.choice(ODD_JSON)) + ", " + rest).encode()


_JSON_TEXTS = (
    "\u2028",
    "\x1b[31mred",
    "\0",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a\nb",
    "\U0001f600",
    "x" * 10_000,
)

JSON: Mapping[str, Change] = {
    "other value": _json_at(lambda value, draw: draw.choice(ODD_JSON)),
    "other number": _json_at(
        lambda value, draw: draw.choice((0, -1, 1, 1e308, -0.0, 0.5, 2**31, 2**63, 10**30, True)), inside=(int, float)
    ),
    "raw number": _raw(
        lambda draw: draw.choice(
            ("1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1" * 5000, "0x1", "01", "1.", ".5", "1e", "1_0")
        ),
        inside=(int, float),
    ),
    "other text": _json_at(lambda value, draw: draw.choice(_JSON_TEXTS), inside=str),
    "half a surrogate pair": _json_at(lambda value, draw: "a\ud800b", inside=str),
    "deep value": _raw(_deep),
    "unknown key": _json_at(_other_key, inside=dict),
    "missing key": _json_at(_without_key, inside=dict),
    "repeated key": _repeated_key,
    "list in place of object": _json_at(lambda value, draw: list(value.items()), inside=dict),
    "number as text": _json_at(lambda value, draw: str(value), inside=(int, float)),
    "longer list": _json_at(lambda value, draw: value * draw.choice((2, 50)), inside=list),
    "shorter list": _json_at(lambda value, draw: value[: len(value) // 2], inside=list),
    "other document": lambda content, draw: json.dumps(draw.choice(ODD_JSON)).encode(),
    "two documents": lambda content, draw: content + draw.choice((b"", b"\n", b" ")) + content,
    "trailing comma": lambda content, draw: content.rstrip()[:-1] + b",}",
    "single quotes": lambda content, draw: content.replace(b'"', b"'"),
    "comment": lambda content, draw: b"// comment\n" + content,
    "UTF-16": _utf16,
    "byte order mark": lambda content, draw: codecs.BOM_UTF8 + content,
    **{name: BYTES[name] for name in ("cut", "flipped bits", "deleted bytes", "empty", "random bytes", "zeroed bytes")},
}
"""Changes of a file that is one JSON document."""


def json_lines() -> dict[str, Change]:
    """Changes of one line of a JSON lines file, by those of a JSON document."""
    names = [name for name in JSON if name not in BYTES and name != "UTF-16"]
    return {f"{name}, in a line": on_one_line(JSON[name]) for name in names}


def gzipped(changes: Mapping[str, Change]) -> dict[str, Change]:
    """Changes of what a gzip file contains."""
    return {
        f"{name}, in gzip": (
            lambda content, draw, change=change: gzip.compress(change(gzip.decompress(content), draw), 1)
        )
        for name, change in changes.items()
    }


def _trailing(content: bytes, draw: Random) -> bytes:
    return content + draw.choice(
        (b"\0" * 20, b"x", content, content[:10], gzip.compress(b""), gzip.compress(b"more\n"))
    )


GZIP: Mapping[str, Change] = {
    **{
        name: BYTES[name]
        for name in ("cut", "flipped bits", "deleted bytes", "inserted bytes", "zeroed bytes", "empty", "random bytes")
    },
    "after the end": _trailing,
    "not gzip": lambda content, draw: gzip.decompress(content),
    "gzip in gzip": lambda content, draw: gzip.compress(content),
}


KINDS_OF_FILE = (
    "folder",
    "link to itself",
    "link to nothing",
    "pipe",
    "device zero",
    "device null",
    "socket",
    "missing",
)


def replace_by(kind: str, file: Path) -> None:
    """Replace a file by something that is not a regular file."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "link to itself":
        file.symlink_to(file.name)
    elif kind == "link to nothing":
        file.symlink_to("nothing-here")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        folder = os.open(file.parent, os.O_RDONLY)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:  # a path of a socket has at most 107 bytes
            made.bind(f"/proc/self/fd/{folder}/{file.name}" if sys.platform == "linux" else str(file))
        os.close(folder)
    elif kind.startswith("device"):
        file.symlink_to(f"/dev/{kind.split()[1]}")


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


def _header(change: Change) -> Change:
    """A change of the JSON header of a safetensors file, whose length is adapted."""

    def apply(content: bytes, draw: Random) -> bytes:
        size = int.from_bytes(content[:8], "little")
        header = change(content[8 : 8 + size].rstrip(), draw)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]

    return apply


def _tensor(content: bytes, draw: Random) -> bytes:
    header = json.loads(content)
    name = draw.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    which = draw.choice(("dtype", "shape", "offsets", "rename", "delete", "copy", "swap"))
    if which == "dtype":
        entry["dtype"] = draw.choice(("F16", "BF16", "F64", "I32", "U8", "BOOL", "F8_E4M3", "F33", "", None))
    elif which == "shape":
        entry["shape"] = draw.choice(
            ([], [0], [-1], [1, 1], [2**62, 2**62], entry["shape"][::-1], [*entry["shape"], 1], "x")
        )
    elif which == "offsets":
        start, end = entry["data_offsets"]
        entry["data_offsets"] = draw.choice(
            ([end, start], [start, start], [start + 1, end], [0, end - start], [-1, 2**64], [0])
        )
    elif which == "rename":
        header[draw.choice(("x", "../x", "", "\0", name.upper(), f"model.{name}"))] = header.pop(name)
    elif which == "delete":
        del header[name]
    elif which == "copy":
        header[f"{name}.copy"] = dict(entry)
    else:
        other = draw.choice([one for one in header if one not in (name, "__metadata__")])
        header[name], header[other] = header[other], header[name]
    return json.dumps(header).encode()


def _weights(content: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    start = draw.randrange(len(content) // 2, len(content) - 8) // 4 * 4
    changed[start : start + 4] = draw.choice(
        (b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\x01\0\0\0")
    )
    return bytes(changed)


SAFETENSORS: Mapping[str, Change] = {
    "tensor in the header": _header(_tensor),
    "another tensor in the header": _header(_tensor),
    **{f"{name} in the header": _header(change) for name, change in JSON.items()},
    "length of the header": lambda content, draw: (
        draw.choice((0, 1, 2**20, 2**40, 2**63, 2**64 - 1)).to_bytes(8, "little") + content[8:]
    ),
    "NaN, infinity or a huge weight": _weights,
    "data cut off": lambda content, draw: content[: -draw.choice((1, 4, 1000))],
    "data appended": lambda content, draw: content + bytes(draw.choice((1, 4, 1000))),
    **BYTES,
}
"""Changes of a safetensors file."""
