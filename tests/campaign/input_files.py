"""Cases of changed data files: each reader of tables, texts and loaders, compared with a plain reader."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from tests.campaign import mutations, verdicts
from tests.campaign.case import Case
from tests.campaign.input_workspace import workspace
from tests.campaign.mutations import BYTES, GZIP, TEXT, Change
from tests.campaign.mutations_json import json_lines
from tests.campaign.no_files import KINDS_OF_FILE, replace_by
from tests.campaign.server import Server

LIMITS = {"processor_seconds": 2 * verdicts.PROCESSOR_SECONDS, "wall_seconds": verdicts.WALL_SECONDS}

TSV = {**BYTES, **TEXT, **mutations.fields("\t")}
CSV = {**BYTES, **TEXT, **mutations.fields(",")}
JSON_LINES = {**BYTES, **TEXT, **json_lines()}
PLAIN = {**BYTES, **TEXT, **mutations.fields(" ")}
CHANGES: Mapping[str, Mapping[str, Change]] = {
    "tsv": TSV,
    "csv": CSV,
    "jsonl": JSON_LINES,
    "json": JSON_LINES,
    "txt": PLAIN,
    "parquet": BYTES,
    "tsv.gz": {**GZIP, **mutations.gzipped(TSV)},
    "csv.gz": {**GZIP, **mutations.gzipped(CSV)},
    "jsonl.gz": {**GZIP, **mutations.gzipped(JSON_LINES)},
    "txt.gz": {**GZIP, **mutations.gzipped(PLAIN)},
}
"""Extension -> the changes of its files."""
COLUMNS = {
    "nli": ("premise", "hypothesis", "label"),
    "scored": ("sentence1", "sentence2", "score"),
    "labelled": ("text", "label"),
    "pairs": ("anchor", "positive"),
}
TABLES = {
    "tsv": 450,
    "csv": 400,
    "jsonl": 450,
    "json": 60,
    "parquet": 250,
    "tsv.gz": 200,
    "csv.gz": 150,
    "jsonl.gz": 150,
}
"""Format -> number of cases of the reader of tables."""
LOADERS = ("nli", "scored", "labelled", "pairs", "triplets", "sentences", "translations")
LOADER_CASES = {"tsv": 80, "csv": 35, "jsonl": 60, "parquet": 10}

Call = Callable[[Server, Path, Random], str]
"""Gives the changed file, in the working directory, to nearfar; returns what is wrong."""


def cases(seed: int) -> Iterator[Case]:
    """Cases of files with rows or texts."""
    for extension, count in TABLES.items():
        for number in range(count):
            kind = list(COLUMNS)[number % len(COLUMNS)]
            yield changed_file(
                seed, f"rows of {extension}", number, f"tables/{kind}.{extension}", CHANGES[extension], _rows(kind)
            )
    for extension, count in {"txt": 300, "txt.gz": 120}.items():
        for number in range(count):
            yield changed_file(
                seed, f"lines of {extension}", number, f"tables/texts.{extension}", CHANGES[extension], loader("lines")
            )
    for kind in LOADERS:
        for extension, count in LOADER_CASES.items():
            file = f"tables/{'translated' if kind == 'translations' else kind}.{extension}"
            for number in range(count):
                yield changed_file(
                    seed, f"loader of {kind}", number, file, CHANGES[extension], loader(kind), note=extension
                )
    for number in range(120):
        yield changed_file(seed, "loader of texts", number, "tables/texts.txt", PLAIN, loader("sentences"))
    for name, changes, count in (
        ("corpus.jsonl", JSON_LINES, 200),
        ("queries.jsonl", JSON_LINES, 120),
        ("qrels/test.tsv", TSV, 250),
    ):
        for number in range(count):
            yield changed_file(
                seed, f"BEIR {name}", number, f"tables/beir/{name}", changes, _beir, inside="tables/beir"
            )
    for kind in KINDS_OF_FILE:
        for extension in (*TABLES, "txt", "txt.gz"):
            table = "texts" if extension.startswith("txt") else "nli"
            yield replaced_file(
                kind, f"tables/{table}.{extension}", loader("lines") if table == "texts" else _rows("nli")
            )
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels"):
            yield replaced_file(kind, f"tables/beir/{name}", _beir, inside="tables/beir")


def changed_file(
    seed: int,
    group: str,
    number: int,
    file: str,
    changes: Mapping[str, Change],
    call: Call,
    *,
    inside: str | None = None,
    note: str = "",
    linked: bool = False,
) -> Case:
    """A case that changes one valid file.

    With ``inside``, in a copy of that folder of the workspace; with ``linked``, the folder of the case has links to
    the rest of the workspace, for a command that runs there.
    """
    kind = list(changes)[number % len(changes)]
    name = f"{group} {note} {number}: {kind}".replace("  ", " ")

    def check(server: Server, shared: Path, folder: Path) -> str:
        draw = Random(f"{seed} {name}")
        path = copied(workspace(server, shared), file, inside, folder, linked=linked)
        path.write_bytes(changes[kind](path.read_bytes(), draw))
        return call(server, path, draw)

    return Case(group, name, check)


def replaced_file(kind: str, file: str, call: Call, *, inside: str | None = None, linked: bool = False) -> Case:
    """A case that replaces a file by something else than a file."""
    name = f"{kind} in place of {file}"

    def check(server: Server, shared: Path, folder: Path) -> str:
        path = copied(workspace(server, shared), file, inside, folder, linked=linked)
        replace_by(kind, path)
        return call(server, path, Random(name))

    return Case(f"{kind} in place of a file", name, check)


def copied(valid: Path, file: str, inside: str | None, folder: Path, *, linked: bool = False) -> Path:
    """Copy a valid file, or the folder ``inside`` that contains it, to the folder of a case."""
    if linked:
        (folder / "CASE").touch()
        for entry in valid.iterdir():
            if entry.name not in (file.partition("/")[0], "CASE"):
                (folder / entry.name).symlink_to(entry)
    if inside is None:
        changed = folder / Path(file).name
        changed.unlink(missing_ok=True)  # a link to a valid file of this name
        return Path(shutil.copy(valid / file, changed))
    shutil.copytree(valid / inside, folder / Path(inside).name, symlinks=True)
    return folder / Path(inside).name / Path(file).relative_to(inside)


def loader(door: str) -> Call:
    """Calls a loader of :data:`tests.campaign.doors.DOORS`."""

    def call(server: Server, path: Path, draw: Random) -> str:
        done = server.function(
            "tests.campaign.doors:read", {"door": door, "file": path.name}, cwd=path.parent, **LIMITS
        )
        return verdicts.of_reader(done, [path.name])

    return call


def _rows(kind: str) -> Call:
    def call(server: Server, path: Path, draw: Random) -> str:
        arguments = {"file": path.name, "columns": COLUMNS[kind]}
        done = server.function("tests.campaign.doors:read_rows", arguments, cwd=path.parent, **LIMITS)
        return verdicts.of_reader(done, [path.name])

    return call


def _beir(server: Server, path: Path, draw: Random) -> str:
    folder = next(place for place in path.parents if place.name == "beir").parent
    done = server.function("tests.campaign.doors:read", {"door": "beir", "file": "beir"}, cwd=folder, **LIMITS)
    return verdicts.of_reader(done, ["beir"])
