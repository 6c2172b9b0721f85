"""Writes Parquet files of other column types and layouts; runs in a fork."""

import datetime
import decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.campaign.input_parquet import KINDS, LAYOUTS
from tests.invalid_input.tables import rows_of

_NOW = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def write(door: str, column: str, kind: str, seed: str) -> bool:
    """Write rows.parquet; False where this pyarrow cannot."""
    draw = Random(seed)
    rows = rows_of(door)
    table = {name: pa.array([row[name] for row in rows]) for name in KINDS[door]}
    if kind in LAYOUTS:
        return _write_layout(table, column, kind, draw)
    try:
        table[column] = _array(kind, [str(value) for value in table[column].to_pylist()], draw)
        pq.write_table(pa.table(table), "rows.parquet", row_group_size=draw.choice((3, 100)))
    except (pa.ArrowException, AttributeError):
        return False
    return True


def _array(kind: str, texts: list[str], draw: Random) -> pa.Array:
    numbers = [draw.choice((0, 1, 2)) for _ in texts]
    simple: dict[str, Any] = {
        "string": (texts, pa.string()),
        "large_string": (texts, pa.large_string()),
        "string_view": (texts, getattr(pa, "string_view", pa.string)()),
        "binary": (texts, pa.binary()),
        "large_binary": (texts, pa.large_binary()),
        "float16": ([float(one) for one in numbers], pa.float16()),
        "float32": ([0.1 + one for one in numbers], pa.float32()),
        "float64": ([draw.choice((1.0, 0.5, float("nan"), float("inf"), -0.0, 2.0)) for _ in texts], pa.float64()),
        "uint64": ([2**64 - 1 - one for one in numbers], pa.uint64()),
        "bool": ([bool(one) for one in numbers], pa.bool_()),
        "null": ([None] * len(texts), pa.null()),
        "decimal": ([decimal.Decimal(one) for one in numbers], pa.decimal128(10, draw.choice((0, 2)))),
        "large decimal": ([decimal.Decimal(one) * 10**60 for one in numbers], pa.decimal256(70, 0)),
        "timestamp": ([_NOW.replace(tzinfo=None)] * len(texts), pa.timestamp(draw.choice(("s", "ns")))),
        "timestamp with zone": ([_NOW] * len(texts), pa.timestamp("us", "Europe/Berlin")),
        "date": ([_NOW.date()] * len(texts), pa.date32()),
        "time": ([_NOW.time()] * len(texts), pa.time64("us")),
        "duration": ([datetime.timedelta(days=one) for one in numbers], pa.duration("us")),
        "list": ([[one] for one in texts], pa.list_(pa.string())),
        "list of lists": ([[[one]] for one in texts], pa.list_(pa.list_(pa.string()))),
        "large list": ([[one] for one in texts], pa.large_list(pa.string())),
        "fixed list": ([[one, one] for one in texts], pa.list_(pa.string(), 2)),
        "struct": ([{"a": one} for one in texts], pa.struct([("a", pa.string())])),
        "map": ([[("a", one)] for one in texts], pa.map_(pa.string(), pa.string())),
        "empty list": ([[] for _ in texts], pa.list_(pa.int64())),
        "fixed binary": ([b"abc"] * len(texts), pa.binary(3)),
        "some null": ([None if number % 5 == 4 else one for number, one in enumerate(texts)], pa.string()),
        "all null": ([None] * len(texts), pa.string()),
        "int8": (numbers, pa.int8()),
        "int64": ([one * 2**40 for one in numbers], pa.int64()),
    }
    if kind.startswith("dictionary"):
        array = pa.array(texts, pa.large_string() if "large" in kind else pa.string())
        return array.dictionary_encode()
    if kind == "extension":
        return pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array([f'"{one}"' for one in texts]))
    values, type_ = simple[kind]
    return pa.array(values, type_)


def _write_layout(table: dict[str, Any], column: str, kind: str, draw: Random) -> bool:
    made = pa.table(table)
    options: dict[str, Any] = {}
    names = list(made.column_names)
    if kind == "row groups of one":
        options["row_group_size"] = 1
    elif kind == "no rows":
        made = made.slice(0, 0)
    elif kind in ("dotted name", "name with spaces", "uppercase", "empty name"):
        other = {"dotted name": f"{column}.x", "name with spaces": f" {column} ", "uppercase": column.upper()}
        made = made.rename_columns([other.get(kind, "") if name == column else name for name in names])
        if draw.random() < 0.5:
            made = made.append_column(column, table[column])
    elif kind == "struct with the same prefix":
        inner = pa.array([{"y": "z"}] * made.num_rows)
        made = made.append_column(f"{column}.x", table[column]).append_column(f"{column}s", inner)
    elif kind == "twice the same name":
        made = made.append_column(column, pa.array(["other"] * made.num_rows))
    elif kind == "other order":
        made = made.select(names[::-1])
    elif kind == "more columns":
        for number in range(draw.choice((1, 300))):
            made = made.append_column(f"extra{number}", pa.array([[number]] * made.num_rows))
    elif kind in ("no compression", "brotli"):
        options["compression"] = "none" if kind == "no compression" else kind
    elif kind == "version 1.0":
        options["version"] = "1.0"
    elif kind == "pages of 1":
        options |= {"data_page_size": 1, "write_batch_size": 1, "use_dictionary": draw.random() < 0.5}
    elif kind == "hugging face nonsense":
        content = draw.choice(
            (b"", b"{}", b"[]", b"{", b'{"info": 1}', b'{"info": {"features": {"text": 3}}}', b"\xff")
        )
        made = made.replace_schema_metadata({b"huggingface": content})
    elif kind == "hugging face labels":
        names_of = draw.choice((["a", "b"], [], ["a"] * 3, None, ["1", "0", "2"]))
        import json

        features = {name: {"dtype": "string", "_type": "Value"} for name in names}
        features[names[-1]] = {"names": names_of, "_type": "ClassLabel"}
        made = made.set_column(len(names) - 1, names[-1], pa.array([number % 3 for number in range(made.num_rows)]))
        made = made.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    elif kind == "pandas metadata":
        made = made.replace_schema_metadata({b"pandas": b'{"index_columns": ["' + column.encode() + b'"]}'})
    elif kind == "page index":
        options["write_page_index"] = True
    elif kind == "delta encoding":
        options |= {"use_dictionary": False, "column_encoding": dict.fromkeys(names, "DELTA_BYTE_ARRAY")}
    elif kind == "encrypted":
        from pathlib import Path

        pq.write_table(made, "rows.parquet")
        content = Path("rows.parquet").read_bytes()
        Path("rows.parquet").write_bytes(b"PARE" + content[4:-4] + b"PARE")
        return True
    pq.write_table(made, "rows.parquet", **options)
    return True
