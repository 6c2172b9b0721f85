"""Changes to the values of JSON documents and of lines of JSON, and to the headers and data of safetensors files."""

import codecs
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.campaign.mutations import BYTES, Change, on_one_line, utf16

ODD_JSON = (None, True, False, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, 10**400, -0.0, 1e308, "\0", "9" * 500)


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
    "UTF-16": utf16,
    "byte order mark": lambda content, draw: codecs.BOM_UTF8 + content,
    **{name: BYTES[name] for name in ("cut", "flipped bits", "deleted bytes", "empty", "random bytes", "zeroed bytes")},
}
"""Changes of a file that is one JSON document."""


def json_lines() -> dict[str, Change]:
    """Changes of one line of a JSON lines file, by those of a JSON document."""
    names = [name for name in JSON if name not in BYTES and name != "UTF-16"]
    return {f"{name}, in a line": on_one_line(JSON[name]) for name in names}


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
