"""Cases of Parquet files whose columns have other types, names and layouts."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign.case import Case
from tests.campaign.input_files import LIMITS, loader
from tests.campaign.server import Server

TYPES = (
    *("string", "large_string", "string_view", "binary", "large_binary", "dictionary", "dictionary of large"),
    *("int8", "int64", "uint64", "float16", "float32", "float64", "bool", "null", "decimal", "large decimal"),
    *(
        "timestamp",
        "timestamp with zone",
        "date",
        "time",
        "duration",
        "list",
        "list of lists",
        "large list",
        "fixed list",
    ),
    *("struct", "map", "empty list", "fixed binary", "some null", "all null", "extension"),
)
LAYOUTS = (
    *(
        "row groups of one",
        "no rows",
        "dotted name",
        "struct with the same prefix",
        "twice the same name",
        "empty name",
    ),
    *(
        "other order",
        "more columns",
        "name with spaces",
        "uppercase",
        "no compression",
        "brotli",
        "version 1.0",
        "pages of 1",
    ),
    *("hugging face labels", "hugging face nonsense", "pandas metadata", "encrypted", "page index", "delta encoding"),
)
KINDS = {"scored": ("sentence1", "sentence2", "score"), "labelled": ("text", "label"), "sentences": ("text",)}


def cases(seed: int) -> Iterator[Case]:
    """Cases of types and layouts, for each reader and each of its columns."""
    for repeat in range(2):
        for door, columns in KINDS.items():
            for column in columns:
                for kind in TYPES:
                    yield _case(seed, "types of Parquet columns", door, column, kind, repeat)
            for kind in LAYOUTS:
                yield _case(seed, "layouts of Parquet", door, columns[0], kind, repeat)


def _case(seed: int, group: str, door: str, column: str, kind: str, repeat: int) -> Case:
    name = f"{group}: {door} {column} {kind} {repeat}"

    def check(server: Server, shared: Path, folder: Path) -> str:
        arguments = {"door": door, "column": column, "kind": kind, "seed": f"{seed} {name}"}
        done = server.function("tests.campaign.parquet_files:write", arguments, cwd=folder, **LIMITS)
        if done.status:
            return f"the check failed: {done.last_line}"
        if not done.result:
            return ""
        return loader(door)(server, folder / "rows.parquet", Random(name))

    return Case(group, name, check)
