"""Malformed files: a valid file is changed and given to a command, which accepts it or refuses it in one sentence.

The changes are to bytes, lines, fields and JSON values, and to what kind of file it is, drawn by a seed.
"""

import codecs
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nearfar.cli import main
from tests.campaign.forks import in_fork, nearfar
from tests.campaign.scenarios import prepared, succeeded
from tests.campaign.verdict import wrong_ending
from tests.encode_helpers import Killed, stop_after
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN, make_runs
from tests.invalid_input.tables import COMMANDS, FORMATS, ROWS, argv_of, rows_of, write_rows
from tests.tiny import make_workspace, sentences, write_colours

ROOT = Path(__file__).parents[2]
TURNS = 40
"""Cases of each command and file."""
RESUME, FINISHED = " ".join([*STOPPED, "--resume"]), " ".join([*TRAIN, "--output run --resume"])
TUNING, TUNED = " ".join([*STOPPED_FINETUNE, "--resume"]), " ".join([*FINETUNE, "--output classifier --resume"])
SEARCH = "search dog --model tiny --input texts.txt --index index --top 3"
ENCODE = "encode tiny --input texts.txt --output cut.npy"
OPEN = "encode {} --input texts.txt --output new.npy"
REPORT = "report {} --output new.html"
FILES: tuple[tuple[str, str], ...] = (
    *((" ".join(argv_of(reader, f"t/{kind}.{end}")), f"t/{kind}.{end}")
      for reader, (kind, _) in COMMANDS.items() for end in FORMATS),
    (RESUME, "stopped/config.toml stopped/inputs.json stopped/metrics.jsonl stopped/best.safetensors"),
    (RESUME, "stopped/checkpoint/progress.json stopped/checkpoint/weights.safetensors"),
    (RESUME, "stopped/checkpoint/optimiser.safetensors"),
    (TUNING, "tuning/checkpoint/progress.json"),
    (FINISHED, "run/run.json"),
    (TUNED, "classifier/result.json"),
    (REPORT.format("run"), "run/run.json run/metrics.jsonl run/config.toml"),
    (REPORT.format("result.json"), "result.json"),
    (REPORT.format("two.json"), "two.json"),
    ("compare result.json other.json --resamples 9", "other.json"),
    ("evaluate run --tasks pairs.tsv --resamples 0", "run/model/nearfar_seen.safetensors"),
    ("predict classifier --input texts.txt --output new.tsv", "classifier/run.json"),
    (SEARCH, "index/manifest.json index/rows.jsonl index/vectors.npy texts.txt"),
    (f"{ENCODE} --resume", "cut.npy.partial/_nearfar/plan.json cut.npy.partial/part-00000.parquet"),
    (OPEN.format("tiny"), "tiny/config.json tiny/tokenizer.json tiny/tokenizer_config.json tiny/model.safetensors"),
    (OPEN.format("run"), "run/model/modules.json run/model/1_Pooling/config.json"),
    ("train run.toml --model nowhere --output new", "run.toml"),
    ("study study.toml --output new --dry-run", "study.toml"),
)  # fmt: skip
"""A command, and files that it reads."""

# --- changes ---

Change = Callable[[bytes, Random], bytes]
VALUES = [*"0 -0.0 -1 1e400 1e-400 NaN inf 0x10 +3 1_000 1,5 ٣ .5 null true TRUE - \" ' \\ =1+1 <script> ../..".split()]
VALUES += ["", " ", "9" * 400, "18446744073709551616", "\0", "\x1b[31m", "\r", "\t", '",', "x " * 50_000]
VALUES += [*"\u2028\x85\x0b\u200d\ufeff\u00a0\u202e\uffff\U0001f469"]
ODD_BYTES = (b"\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\0")
ODD_JSON = (None, True, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, 10**400, 1e308, "\0", "a\ud800b", "x" * 10_000)
RAW = (*"1e400 NaN -Infinity 0x1 01 1. .5 1e".split(), "1" * 5000, "[" * 100_000, "[" * 1000 + "]" * 1000)


def replaced(new: Callable[[bytes, Random], bytes], lengths: tuple[int, ...]) -> Change:
    """Some bytes in a row are replaced by others."""

    def apply(content: bytes, draw: Random) -> bytes:
        start, length = draw.randrange(len(content) + 1), draw.choice(lengths)
        return content[:start] + new(content[start : start + length], draw) + content[start + length :]

    return apply


def on_lines(new: Callable[[list[bytes], Random], list[bytes]]) -> Change:
    """Up to two lines in a row are replaced by others; more often the first ones or the last one."""

    def apply(content: bytes, draw: Random) -> bytes:
        lines = content.split(b"\n")
        at = draw.choice((0, 0, draw.randrange(len(lines)), len(lines) - 1))
        return b"\n".join([*lines[:at], *new(lines[at : at + 2], draw), *lines[at + 2 :]])

    return apply


def on_field(new: Callable[[bytes, Random], list[bytes]]) -> Change:
    """One field of a line is replaced by others; a field ends at a tab, comma, space, or = of TOML."""

    def apply(lines: list[bytes], draw: Random) -> list[bytes]:
        end = next((end for end in (b"\t", b",", b" = ", b" ") if end in lines[0]), b"\t")
        fields = lines[0].split(end)
        at = draw.randrange(len(fields))
        return [end.join([*fields[:at], *new(fields[at], draw), *fields[at + 1 :]]), *lines[1:]]

    return on_lines(apply)


def value(draw: Random) -> bytes:
    return draw.choice(VALUES).encode("utf-8", "surrogatepass")


BYTES: Mapping[str, Change] = {
    "cut": lambda content, draw: content[: draw.randrange(len(content) + 1)],
    "other bytes": replaced(lambda old, draw: draw.randbytes(draw.choice((0, 1, 7, 50))), (0, 1, 2, 7, 50)),
    "repeated bytes": replaced(lambda old, draw: old * draw.choice((2, 3, 50)), (1, 5, 40)),
    "zeroed bytes": replaced(lambda old, draw: bytes(len(old)), (1, 8, 512)),
    "random": lambda content, draw: draw.randbytes(draw.choice((0, 1, 100, 5000))),
}
TEXT: Mapping[str, Change] = {
    "repeated line": on_lines(lambda lines, draw: [*lines[:1] * draw.choice((2, 31)), *lines[1:]]),
    "missing line": on_lines(lambda lines, draw: lines[1:]),
    "joined lines": on_lines(lambda lines, draw: [b"".join(lines)]),
    "blank line": on_lines(lambda lines, draw: [draw.choice((b"", b" ", b"\r", b"\t", b"\0")), *lines]),
    "line of 2 MB": on_lines(lambda lines, draw: [lines[0] + draw.choice((b"x ", b"\xc3\xa9")) * 10**6, *lines[1:]]),
    "no line": lambda content, draw: draw.choice((b"\n", b"\r\n", b" \n")) * draw.choice((1, 1000)),
    "byte order mark": lambda content, draw: codecs.BOM_UTF8 * draw.choice((1, 2)) + content,
    "UTF-16": lambda content, draw: content.decode().encode(draw.choice(("utf-16", "utf-16-le"))),
    "no UTF-8": replaced(lambda old, draw: draw.choice(ODD_BYTES), (0,)),
    "line ends": lambda content, draw: content.replace(b"\n", draw.choice((b"\r\n", b"\r\r\n", b"\r"))),
    "another field": on_field(lambda field, draw: [value(draw)]),
    "words in a field": on_field(lambda field, draw: [field[:1] + value(draw) + field[1:]]),
    "missing field": on_field(lambda field, draw: []),
    "field more": on_field(lambda field, draw: [field, field]),
}


def on_json(content: bytes, draw: Random) -> bytes:
    """One value inside a JSON document, or in one of its lines, is another, is written otherwise, or gone."""

    def holders(inside: Any) -> Iterator[tuple[Any, Any]]:
        keys = list(inside) if isinstance(inside, dict) else range(len(inside[:3]))
        for key in keys:
            yield inside, key
            if isinstance(inside[key], dict | list):
                yield from holders(inside[key])

    try:
        document = [json.loads(content)]
    except ValueError:  # lines of JSON
        lines = content.split(b"\n")
        at = draw.randrange(len(lines) - 1)
        return b"\n".join([*lines[:at], on_json(lines[at], draw), *lines[at + 1 :]])
    holder, key = draw.choice([*holders(document)])
    how = draw.choice(("other", "raw", "more", "gone", "text", "twice"))
    old = holder[key]
    holder[key] = {"other": draw.choice(ODD_JSON), "raw": "RAW", "text": str(old)}.get(how, old)
    if how == "more" and isinstance(old, dict | list):
        holder[key] = {**old, draw.choice(("unknown", "", "a.b")): 1} if isinstance(old, dict) else old * 50
    if how == "gone" and isinstance(holder, dict):
        del holder[key]
    text = json.dumps(document[0])
    if how == "twice" and text[:2] == '{"':
        text = f"{{{text[1 : text.index(':')]}: 1, {text[1:]}"
    return text.replace('"RAW"', draw.choice(RAW)).encode()


def on_header(content: bytes, draw: Random) -> bytes:
    """A change of the JSON header of a safetensors file, whose length is adapted."""
    size = int.from_bytes(content[:8], "little")
    header = on_json(content[8 : 8 + size].rstrip(), draw)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def on_gzip(change: Change) -> Change:
    return lambda content, draw: gzip.compress(change(gzip.decompress(content), draw), 1)


CHANGES: dict[str, Mapping[str, Change]] = {
    "parquet": BYTES,
    "npy": BYTES,
    "json": {f"value {number}": on_json for number in range(8)} | {**BYTES},
    "jsonl": {f"value {number}": on_json for number in range(8)} | {**BYTES, **TEXT},
    "safetensors": {f"header {number}": on_header for number in range(8)} | {**BYTES},
}
"""The end of a file's name -> its changes; other files have those of text."""
for end in ("tsv", "jsonl"):
    inside = CHANGES.get(end, {**BYTES, **TEXT})
    CHANGES[f"{end}.gz"] = {**BYTES, **{f"{name}, in gzip": on_gzip(change) for name, change in inside.items()}}
OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "folder": Path.mkdir,
    "link to itself": lambda file: file.symlink_to(file.name),
    "pipe": os.mkfifo,
    "device": lambda file: file.symlink_to("/dev/zero"),
}


# --- cases ---


def cases(seed: int) -> Iterator[tuple[str, Callable[[Path, Path], str]]]:
    """Cases of each command and file in turn."""
    for number in range(TURNS):
        for words, files in FILES:
            for file in files.split():
                changes = CHANGES.get(Path(file).name.partition(".")[2], {**BYTES, **TEXT})
                kinds = [*changes, *OTHER_KINDS]
                kind = kinds[(5 * number + len(words)) % len(kinds)]
                name = f"inputs: {words.partition(' ')[0]}, {file} {number}: {kind}"
                yield name, partial(check, words, file, changes.get(kind), kind, f"{seed} {name}")


def check(words: str, file: str, change: Change | None, kind: str, seed: str, shared: Path, folder: Path) -> str:
    """Change a file of a folder with links to the valid ones, and run the command there."""
    valid = prepared(shared / "valid", lambda fresh: succeeded(in_fork(build, fresh)))
    shutil.copytree(valid, folder, dirs_exist_ok=True, copy_function=os.link)
    path = folder / file
    content = path.read_bytes()
    path.unlink()
    if change is None:
        OTHER_KINDS[kind](path)
    else:
        path.write_bytes(change(content, Random(seed)))
    names = [path.name, file.partition("/")[0], "nowhere", "cut.npy"]
    return wrong_ending(in_fork(partial(nearfar, words), folder), names)


def build() -> None:
    """Write the valid files, by small runs of the commands; runs in a fork, in this folder."""
    from nearfar.commands import encode

    os.environ.pop("NEARFAR_DATA", None)
    make_workspace(Path())
    write_colours(Path("labelled.tsv"))
    Path("texts.txt").write_text("\n".join(sentences(60, longest=5)) + "\n")
    Path("t").mkdir()
    for kind in ROWS:
        for extension in FORMATS:
            write_rows(Path(f"t/{kind}.{extension}"), rows_of(kind))
    shutil.copy(ROOT / "configs/liao-scl.toml", "run.toml")
    shutil.copy(next(iter(sorted((ROOT / "studies/tables").glob("*.toml")))), "study.toml")
    evaluate = "evaluate tiny --tasks pairs.tsv --labelled labelled.tsv"
    for words in (
        " ".join([*TRAIN, "--output run"]),
        " ".join([*FINETUNE, "--output classifier"]),
        f"{evaluate} --output result.json",
        f"{evaluate} --pooling cls --output other.json",
        "compare result.json other.json --resamples 9 --output two.json",
        SEARCH,
    ):
        if main(words.split()) != 0:
            raise RuntimeError(f"nearfar {words} failed.")
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(encode, "encode_parts", partial(encode.encode_parts, block=20))
        stop_after(1, patch)
        main(ENCODE.split())
    assert Path("cut.npy.partial/part-00000.parquet").exists()
    make_runs(Path(), None)
