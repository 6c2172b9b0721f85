"""Changes to the bytes, lines, fields and values of valid files, and to what kind of file they are, drawn by a seed."""

import codecs
import contextlib
import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

Change = Callable[[bytes, Random], bytes]

NUMBERS = ("0", "-0.0", "-1", "1e400", "-1e400", "1e-400", "NaN", "inf", "Infinity", "9" * 400, "1e308", "0x10", "+3")
NUMBERS += ("2147483648", "-9223372036854775809", "18446744073709551616", "1_000", "1,5", "٣", "1e5", ".5", "5.")
WORDS = ("", " ", *r"""null None NA true TRUE - " ' \ \N =1+1 <script> ../.. %s{}$x""".split())
UNICODE = (*"\u2028\x85\x0b\x1c\u200d\ufeff\u00a0\u202e\uffff", "\U0001f469\u200d\U0001f52c")
CONTROLS = ("\0", "\x1b[31m", "\x07", "\x7f", "\r", "\x08" * 9)


def _at(content: bytes, draw: Random) -> int:
    return draw.randrange(len(content) + 1)


def _flip_bits(content: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8)) if content else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _replaced(new: Callable[[bytes, Random], bytes], lengths: tuple[int, ...]) -> Change:
    """Some bytes in a row are replaced by others."""

    def apply(content: bytes, draw: Random) -> bytes:
        start, length = _at(content, draw), draw.choice(lengths)
        return content[:start] + new(content[start : start + length], draw) + content[start + length :]

    return apply


BYTES: Mapping[str, Change] = {
    "cut": lambda content, draw: content[: _at(content, draw)],
    "flipped bits": _flip_bits,
    "deleted bytes": _replaced(lambda old, draw: b"", (1, 2, 7, 50)),
    "inserted bytes": _replaced(lambda old, draw: draw.randbytes(draw.choice((1, 2, 7, 50))), (0,)),
    "repeated bytes": _replaced(lambda old, draw: old * draw.choice((2, 3, 50)), (1, 5, 40)),
    "zeroed bytes": _replaced(lambda old, draw: bytes(len(old)), (1, 8, 512)),
    "random bytes": lambda content, draw: draw.randbytes(draw.choice((1, 3, 100, 5000))),
    "empty": lambda content, draw: b"",
}


def _on_lines(change: Callable[[list[bytes], Random], list[bytes]]) -> Change:
    """A change of the list of lines, which have no line ends."""

    def apply(content: bytes, draw: Random) -> bytes:
        lines = content.split(b"\n")
        return b"\n".join([*change(lines[:-1] or [b""], draw), lines[-1]])

    return apply


def _on_one_line(change: Change) -> Change:
    """A change of one line, more often one of the first two."""

    def apply(lines: list[bytes], draw: Random) -> list[bytes]:
        at = min(draw.choice((0, 1, draw.randrange(len(lines)))), len(lines) - 1)
        return [*lines[:at], change(lines[at], draw), *lines[at + 1 :]]

    return _on_lines(apply)


def _some_lines(new: Callable[[list[bytes], Random], list[bytes]]) -> Change:
    """Up to two lines in a row are replaced by others."""

    def apply(lines: list[bytes], draw: Random) -> list[bytes]:
        at = draw.choice((0, draw.randrange(len(lines)), len(lines) - 1))
        return [*lines[:at], *new(lines[at : at + 2], draw), *lines[at + 2 :]]

    return _on_lines(apply)


def _inserted(values: tuple[bytes, ...]) -> Change:
    return _replaced(lambda old, draw: draw.choice(values), (0,))


def _line_ends(content: bytes, draw: Random) -> bytes:
    ends = draw.choice(((b"\r\n",), (b"\r\n", b"\n", b"\r\r\n"), (b"\r",), (b"\r", b"\n")))
    return b"".join(line + draw.choice(ends) for line in content.split(b"\n")[:-1])


def _utf16(content: bytes, draw: Random) -> bytes:
    text = content.decode()
    return draw.choice(
        (text.encode("utf-16"), text.encode("utf-16-le"), codecs.BOM_UTF16_BE + text.encode("utf-16-be"))
    )


TEXT: Mapping[str, Change] = {
    "repeated line": _some_lines(lambda lines, draw: [*lines[:1] * draw.choice((2, 31)), *lines[1:]]),
    "missing line": _some_lines(lambda lines, draw: lines[1:]),
    "swapped lines": _some_lines(lambda lines, draw: lines[::-1]),
    "joined lines": _some_lines(lambda lines, draw: [b"".join(lines)]),
    "blank lines": _some_lines(lambda lines, draw: [draw.choice((b"", b" ", b"\r", b"\t", b"\0")), *lines]),
    "only blank lines": lambda content, draw: draw.choice((b"\n", b"\r\n", b" \n", b"\t\n")) * draw.choice((1, 1000)),
    "only the first line": lambda content, draw: content.split(b"\n")[0] + draw.choice((b"", b"\n")),
    "byte order mark": lambda content, draw: codecs.BOM_UTF8 * draw.choice((1, 1, 2)) + content,
    "UTF-16": _utf16,
    "Latin-1": _inserted((b"\xe9", b"\xdf", b"\xa0", b"\xc3\xa9")),
    "invalid UTF-8": _inserted((b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80")),
    "NUL": _inserted((b"\0",)),
    "other line ends": _line_ends,
    "no final line end": lambda content, draw: content.rstrip(b"\n"),
    "line of 2 MB": _on_one_line(lambda line, draw: line + draw.choice((b"x ", b"y", b"\xc3\xa9")) * 1_000_000),
    "50,000 lines": lambda content, draw: content + (content.split(b"\n")[-2] + b"\n") * 50_000,
}


def _fields(separator: bytes) -> dict[str, Change]:
    """Changes of the fields of a line that ``separator`` separates."""

    def on_one(change: Callable[[bytes, Random], bytes]) -> Change:
        def apply(line: bytes, draw: Random) -> bytes:
            fields = line.split(separator)
            at = draw.randrange(len(fields))
            return separator.join([*fields[:at], change(fields[at], draw), *fields[at + 1 :]])

        return _on_one_line(apply)

    def inserted(values: tuple[str, ...]) -> Change:
        return on_one(_inserted(tuple(value.encode() for value in values)))

    return {
        "number in a field": on_one(lambda field, draw: draw.choice(NUMBERS).encode()),
        "word in a field": on_one(lambda field, draw: draw.choice(WORDS).encode()),
        "unicode in a field": inserted(UNICODE),
        "control character in a field": inserted(CONTROLS),
        "quote in a field": inserted(('"', '""', "'", '"\n', '",', '\\"')),
        "separator in a field": inserted(("\t", ",", ";", "|", "\t\t", ",,")),
        "missing field": _on_one_line(lambda line, draw: separator.join(line.split(separator)[1:])),
        "swapped fields": _on_one_line(lambda line, draw: separator.join(line.split(separator)[::-1])),
        "field of 100 kB": on_one(lambda field, draw: draw.choice((b"x ", b"y")) * 50_000),
    }


# --- JSON, safetensors and TOML ---

ODD_JSON = (None, True, False, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, 10**400, -0.0, 1e308, "\0", "9" * 500)
JSON_TEXTS = ("\u2028", "\x1b[31mred", "\0", "<script>x</script>", "../../etc/passwd", "a\nb", "a\ud800b", "x" * 10_000)
RAW = (*"1e400 NaN -Infinity 0x1 01 1. .5 1e 1_0".split(), "1" * 5000, "[" * 100_000, "[" * 1000 + "]" * 1000)
MARK = "MARK-OF-A-RAW-VALUE"


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value inside a JSON value; of a list, of its first three values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in _places(one, (*path, key)))]


def _json(change: Callable[[Any, Random], Any], kind: type | tuple[type, ...] = object) -> Change:
    """A change of one value, of the type ``kind``, inside a JSON document."""

    def apply(content: bytes, draw: Random) -> bytes:
        document = [json.loads(content)]
        places = []
        for path in _places(document):
            found: Any = document
            for key in path:
                found = found[key]
            if path and isinstance(found, kind):
                places.append(path)
        if not places:
            return content
        *outer, last = draw.choice(places)
        inside: Any = document
        for key in outer:
            inside = inside[key]
        inside[last] = change(inside[last], draw)
        return json.dumps(document[0]).replace(f'"{MARK}"', draw.choice(RAW)).encode()

    return apply


def _without_key(value: dict[str, Any], draw: Random) -> dict[str, Any]:
    gone = draw.choice(list(value) or [""])
    return {key: inner for key, inner in value.items() if key != gone}


def _repeated_key(content: bytes, draw: Random) -> bytes:
    document = json.loads(content)
    if not isinstance(document, dict) or not document:
        return content
    key = json.dumps(draw.choice(list(document)))
    return f"{{{key}: {json.dumps(draw.choice(ODD_JSON))}, {json.dumps(document)[1:]}".encode()


JSON: Mapping[str, Change] = {
    "other value": _json(lambda value, draw: draw.choice(ODD_JSON)),
    "other number": _json(lambda value, draw: draw.choice((0, -1, 1e308, 0.5, 2**63, 10**30, True)), (int, float)),
    "raw value": _json(lambda value, draw: MARK),
    "other text": _json(lambda value, draw: draw.choice(JSON_TEXTS), str),
    "unknown key": _json(lambda value, draw: {**value, draw.choice(("unknown", "", "\0", "a.b")): 1}, dict),
    "missing key": _json(_without_key, dict),
    "repeated key": _repeated_key,
    "list in place of object": _json(lambda value, draw: list(value.items()), dict),
    "number as text": _json(lambda value, draw: str(value), (int, float)),
    "other length": _json(lambda value, draw: value * draw.choice((0, 2, 50)), list),
    "two documents": lambda content, draw: content + draw.choice((b"", b"\n", b" ")) + content,
    "trailing comma": lambda content, draw: content.rstrip()[:-1] + b",}",
    "single quotes": lambda content, draw: content.replace(b'"', b"'"),
    **BYTES,
}
TOML_VALUES = tuple(
    """-1 1.5 nan 1e400 true "" "\\u0000" "x" [] ["a",1] {a=1} 1979-05-27 0x10 1_000 "none" "..\"""".split()
)
TOML_VALUES += ("", "9" * 30, '"' + "x" * 5000 + '"', "'''\na\nb'''", "[" * 2000 + "]" * 2000)
TOML_LINES = ("unknown = 1", "[table]", "[[table]]", 'method = "scl"', "a.b.c = 1", "seed = 1", "=", "'' = 1")


def _toml_value(line: bytes, draw: Random) -> bytes:
    key, equals, _ = line.partition(b"=")
    return key + b"= " + draw.choice(TOML_VALUES).encode() if equals else line + b" x"


def _header(change: Change) -> Change:
    """A change of the JSON header of a safetensors file, whose length is adapted."""

    def apply(content: bytes, draw: Random) -> bytes:
        size = int.from_bytes(content[:8], "little")
        header = change(content[8 : 8 + size].rstrip(), draw)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]

    return apply


def _gzipped(changes: Mapping[str, Change]) -> dict[str, Change]:
    """Changes of a gzip file, and of what it contains."""
    inside = {
        f"{name}, in gzip": lambda content, draw, change=change: gzip.compress(
            change(gzip.decompress(content), draw), 1
        )
        for name, change in changes.items()
    }
    more = (b"\0" * 20, b"x", gzip.compress(b""), gzip.compress(b"more\n"))
    return {**BYTES, "after the end": lambda content, draw: content + draw.choice(more), **inside}


_TSV, _CSV, _LINES = ({**BYTES, **TEXT, **_fields(separator)} for separator in (b"\t", b",", b" "))
_JSON_LINES = {**BYTES, **TEXT} | {
    f"{name}, in a line": _on_one_line(change) for name, change in JSON.items() if name not in BYTES
}
CHANGES: Mapping[str, Mapping[str, Change]] = {
    "tsv": _TSV,
    "csv": _CSV,
    "jsonl": _JSON_LINES,
    "txt": _LINES,
    "parquet": BYTES,
    "npy": BYTES,
    "tsv.gz": _gzipped(_TSV),
    "jsonl.gz": _gzipped(_JSON_LINES),
    "txt.gz": _gzipped(_LINES),
    "json": JSON,
    "toml": {"other value": _on_one_line(_toml_value), "misspelt key": _on_one_line(lambda line, draw: b"x" + line)}
    | {"other line": _some_lines(lambda lines, draw: [draw.choice(TOML_LINES).encode(), *lines]), **TEXT, **BYTES},
    "safetensors": {**{f"{name}, in the header": _header(change) for name, change in JSON.items()}, **BYTES},
}
"""Extension -> the changes of its files, by name."""
KINDS_OF_FILE = "folder,link to itself,link to nothing,pipe,device zero,device null,socket,missing".split(",")


def replace_by(kind: str, file: Path) -> None:
    """Replace a file by something that is not a regular file."""
    shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
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
            made.bind(f"/proc/self/fd/{folder}/{file.name}")
        os.close(folder)
    elif kind.startswith("device"):
        file.symlink_to(f"/dev/{kind.split()[1]}")
