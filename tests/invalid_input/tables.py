"""Valid rows of every kind in every file format, for tests that introduce one fault."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COUNT = 12

ROWS: Mapping[str, Callable[[int], Row]] = {
    "nli": lambda n: {
        "premise": f"a dog {n // 3}",
        "hypothesis": f"the cat {n}",
        "label": ("entailment", "neutral", "contradiction")[n % 3],
    },
    "pairs": lambda n: {"anchor": f"a dog {n}", "positive": f"the cat {n}"},
    "triplets": lambda n: {"anchor": f"a dog {n}", "positive": f"the cat {n}", "negative": f"one bird {n}"},
    "sentences": lambda n: {"text": f"a dog {n}"},
    "labelled": lambda n: {"text": f"a dog {n}", "label": ("warm", "cold")[n % 2]},
    "scored": lambda n: {"sentence1": f"a dog {n}", "sentence2": f"the cat {n}", "score": str(n % 6)},
    "scores": lambda n: {"system": "ab"[n % 2], "unit": str(n // 2), "score": str(n / 20)},
    "translated": lambda n: {"sentence": f"a dog {n}", "translation": f"the cat {n}"},
}
FORMATS = ("tsv", "csv", "jsonl", "parquet", "tsv.gz", "jsonl.gz")

_TRAIN = "--model nowhere --evaluate-on pairs.tsv --output new --data FILE"  # read before the encoder is opened
_MINE = "--model nowhere --output t.tsv --data nli.tsv --anchor-column premise --positive-column hypothesis"
COMMANDS: Mapping[str, tuple[str, str]] = {
    "scl": ("nli", f"train scl {_TRAIN}"),
    "nli, no method": ("nli", f"train {_TRAIN}"),
    "pairs, no method": ("pairs", f"train {_TRAIN}"),
    "labelled, no method": ("labelled", f"train {_TRAIN}"),
    "simcse-sup": ("triplets", f"train simcse-sup {_TRAIN}"),
    "simcse-unsup": ("sentences", f"train simcse-unsup {_TRAIN}"),
    "regression": ("scored", f"train regression {_TRAIN}"),
    "bt": ("translated", f"train bt {_TRAIN}"),
    "evaluate-on": ("scored", "train scl --model nowhere --data nli.tsv --output new --evaluate-on FILE"),
    "finetune": ("labelled", "finetune FILE --model nowhere --output new"),
    "validation": ("labelled", "finetune labelled.tsv --model nowhere --output new --validation FILE"),
    "noise": ("translated", "finetune labelled.tsv --model nowhere --output new --noise FILE"),
    "tasks": ("scored", "evaluate nowhere --tasks FILE"),
    "evaluate": ("labelled", "evaluate nowhere --labelled FILE"),
    "geometry": ("scored", "geometry tiny --output space --task pairs.tsv --labelled labelled.tsv --pairs FILE"),
    "encode": ("sentences", "encode tiny --output v.npy --column text --input FILE"),
    "mine": ("pairs", "mine --model nowhere --output t.tsv --data FILE"),
    "mine corpus": ("sentences", f"mine {_MINE} --corpus FILE"),
    "dedup": ("sentences", "dedup --model nowhere --column text --input FILE"),
    "predict": ("sentences", "predict classifier --output p.tsv --input FILE"),
    "search": ("sentences", "search dog --model tiny --column text --input FILE"),
    "compare scores": ("scores", "compare FILE --resamples 9"),
    "search queries": ("sentences", "search --model tiny --input texts.txt --query-column text --queries FILE"),
}
"""Reader -> the kind of rows that it reads, and a command that reads FILE."""


def paired(first: Collection[str], second: Collection[str]) -> list[tuple[str, str]]:
    """Return each of both collections in a pair, in turn: what two axes share is tested once, not in every product."""
    count = max(len(first), len(second))
    return list(zip(islice(cycle(first), count), islice(cycle(second), count), strict=True))


def rows_of(kind: str) -> list[Row]:
    return [ROWS[kind](n) for n in range(COUNT)]


def argv_of(reader: str, file: str) -> list[str]:
    return [file if word == "FILE" else word for word in COMMANDS[reader][1].split()]


def row_location(number: int, extension: str) -> str:
    """Return the location of the row ``number``, counted from 0, as error messages name it."""
    if extension == "parquet":
        return f"row {number + 1}"
    return f"line {number + 1 + (not extension.startswith('json'))}"


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write the rows in the format of the file's extension; the first row determines the columns."""
    extension = file.name.partition(".")[2]
    if extension == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), file)
        return
    text = io.StringIO()
    if extension.startswith("json"):
        text.writelines(json.dumps(row) + "\n" for row in rows)
    elif extension.startswith("csv"):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([rows[0].keys(), *(row.values() for row in rows)])
    else:
        text.writelines("\t".join(map(str, row)) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)])
    content = text.getvalue().encode("utf-8", "surrogatepass")
    file.write_bytes(gzip.compress(content, 1) if extension.endswith(".gz") else content)
