"""Changes to the bytes, lines and fields of valid files, drawn from a seeded generator."""

import codecs
import gzip
from collections.abc import Callable, Mapping
from random import Random

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


def utf16(content: bytes, draw: Random) -> bytes:
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
    "UTF-16": utf16,
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
