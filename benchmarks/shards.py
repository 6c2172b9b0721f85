"""Time of dividing a corpus into shards: the same rows as 1, 10, 100 and 1,000 parts, by each engine.

    python benchmarks/shards.py run       writes benchmarks/results/shards.json
    python benchmarks/shards.py report    fills its place in docs/costs.md from that file alone

The encoder is a transformer with random weights and two layers of width 32, so that most of the time is that of the
shards: jobs, files that are flushed to the disk, checksums and records. A measurement includes the start of the
workers, so the time of a shard is the slope from the second to the last number of parts. The texts per second of a
worker with one thread are those of all-MiniLM-L6-v2 on the same texts, in fp32 and in the precision of `auto`. The
model of costs on the page is computed from these numbers.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import common
import pyarrow
import pyarrow.parquet
import torch
import transformers

from nearfar.commands.encode import encode
from nearfar.data.triplets import load_tuples
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.weights import locate
from nearfar.runtime.versions import package_version

PARTS = (1, 10, 100, 1000)
WORKERS = 2
ENGINES: Mapping[str, dict[str, Any]] = {
    "this process": {},
    "two local workers": {"workers": WORKERS, "threads": 1},
    "a local Ray, two workers": {"workers": WORKERS, "threads": 1, "engine": "ray"},
}
RESUMED = "all parts finished, this process"
CORPORA = (10**6, 10**8, 10**10)
CORES, SHARD_ROWS, DIM = 1_000, 1_000_000, 384
"""The machines of the model of costs."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The result of all measurements."""
    rounds, rows, speed_rows = options.rounds, options.rows, options.speed_rows
    parts = PARTS[:2] if options.quick else PARTS
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_model(folder / "model")
        _write_rows(folder / "in.parquet", rows, group=max(rows // 1000, 1))
        _write_rows(folder / "speed.parquet", speed_rows, group=speed_rows)
        sides: dict[str, Callable[[int], float]] = {}
        for name, settings in ENGINES.items():
            for count in parts:
                sides[f"{name}: {count}"] = _run(folder, -(-rows // count), settings)
        for count in parts:
            sides[f"{RESUMED}: {count}"] = _resume(folder, -(-rows // count))
        seconds = common.run_interleaved(sides, rounds, warm_up=0)
        torch.set_num_threads(1)
        speeds = {precision: _speed(folder, precision, speed_rows, rounds) for precision in ("fp32", "auto")}
        torch.set_num_threads(threads)
        sizes = _sizes(folder, rows, parts[-1], speed_rows)
    return {
        **common.record(rounds=rounds, rows=rows, parts=list(parts), speed_rows=speed_rows, model=common.MODEL),
        "ray": package_version("ray"),
        "seconds": seconds,
        "texts_per_second": speeds,
        "sizes": sizes,
    }


def _write_model(folder: Path) -> None:
    """A small encoder with random weights and the tokenizer of all-MiniLM-L6-v2."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(locate(common.MODEL))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_rows(file: Path, rows: int, *, group: int) -> None:
    """Generated sentences, made distinct by numbers."""
    found = [anchor for anchor, _ in load_tuples("microworld-paraphrases").rows[:2000]]
    texts = [f"{found[number % len(found)]} {number}" for number in range(rows)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), file, row_group_size=group)


def _encode(folder: Path, output: Path, shard_rows: int, settings: Mapping[str, Any]) -> None:
    encode(
        str(folder / "model"),
        input=str(folder / "in.parquet"),
        column="text",
        output=str(output),
        shard_rows=shard_rows,
        progress=False,
        **settings,
    )


def _run(folder: Path, shard_rows: int, settings: Mapping[str, Any]) -> Callable[[int], float]:
    """Encode into a new folder."""

    def seconds(number: int) -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return common.timed(lambda _: _encode(folder, Path(place, "out"), shard_rows, settings))(number)

    return seconds


def _resume(folder: Path, shard_rows: int) -> Callable[[int], float]:
    """Resume a run whose parts are all there: their checksums are compared."""

    def seconds(number: int) -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _encode(folder, Path(place, "out"), shard_rows, {})
            resumed = {"resume": True}
            return common.timed(lambda _: _encode(folder, Path(place, "out"), shard_rows, resumed))(number)

    return seconds


def _speed(folder: Path, precision: str, rows: int, rounds: int) -> list[float]:
    """Texts per second of one thread, in each round."""
    encoder = Encoder.from_pretrained(common.MODEL, device="cpu")
    texts = pyarrow.parquet.read_table(folder / "speed.parquet")["text"].to_pylist()
    encode_all = common.timed(lambda _: encoder.encode(texts, precision=precision))
    encode_all(0)
    return [rows / encode_all(number) for number in range(rounds)]


def _sizes(folder: Path, rows: int, parts: int, speed_rows: int) -> dict[str, float]:
    """Bytes of a row in and out, and of a part's record."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        output = Path(place, "out")
        _encode(folder, output, -(-rows // parts), {})
        records = [file.stat().st_size for file in (output / "_nearfar" / "parts").iterdir()]
        manifest = (output / "_manifest.json").stat().st_size
    source = (folder / "speed.parquet").stat().st_size
    return {
        "input_row": source / speed_rows,
        "record": sum(records) / len(records),
        "manifest_part": manifest / len(records),
    }


def body(content: dict[str, Any]) -> list[str]:
    """The measured part of the page."""
    parts, seconds = content["parts"], content["seconds"]
    rows = [
        (
            name,
            *(common.spread(seconds[f"{name}: {count}"], 2) for count in parts),
            f"{1000 * _slope(content, name):.1f}",
        )
        for name in (*ENGINES, RESUMED)
    ]
    speeds = {name: median(values) for name, values in content["texts_per_second"].items()}
    sizes = content["sizes"]
    costs = [_cost(content, corpus) for corpus in CORPORA]
    return [
        f"{content['rows']:,} rows with a tiny encoder, as {', '.join(f'{count:,}' for count in parts)} parts, on "
        f"{content['hardware']['processor']}; Ray {content['ray']}. Seconds, with the start of the workers: median "
        f"[least, greatest] of {content['rounds']} rounds; the last column is the time of one more part.",
        "",
        *common.table(("parts written by", *(f"{count:,}" for count in parts), "ms a part"), rows),
        "",
        f"{content['model']} with one thread encodes {speeds['fp32']:,.0f} such texts a second in fp32, and "
        f"{speeds['auto']:,.0f} with `--precision auto`. A row of the input has {sizes['input_row']:.0f} bytes, the "
        f"record of a part {sizes['record']:,.0f}, and its place in the manifest {sizes['manifest_part']:,.0f}.",
        "",
        f"With these numbers, the formulas give, for {SHARD_ROWS:,} rows a part, {CORES:,} workers with one thread, "
        f"{DIM} dimensions in float32:",
        "",
        *common.table(("rows", "parts", "hours of encoding", "GB read", "GB written", "minutes of overhead"), costs),
    ]


def _slope(content: dict[str, Any], name: str) -> float:
    """Seconds of one more part."""
    first, last = content["parts"][-3 if len(content["parts"]) > 2 else 0], content["parts"][-1]
    low, high = (median(content["seconds"][f"{name}: {count}"]) for count in (first, last))
    return (high - low) / (last - first)


def _cost(content: dict[str, Any], rows: int) -> tuple[str, ...]:
    """A row of the model of costs."""
    parts = -(-rows // SHARD_ROWS)
    speed = median(content["texts_per_second"]["auto"])
    overhead = _slope(content, "a local Ray, two workers") * parts
    hours = rows / speed / min(CORES, parts) / 3600
    read, written = (rows * size / 1e9 for size in (content["sizes"]["input_row"], 4 * DIM + 8))
    return f"{rows:,}", f"{parts:,}", f"{hours:,.1f}", f"{read:,.1f}", f"{written:,.1f}", f"{overhead / 60:,.2f}"


if __name__ == "__main__":
    common.main(
        common.Page("shards", "costs"),
        __doc__,
        measure,
        body,
        common.Sizes("rounds", "measured rounds", 3, 1),
        common.Sizes("rows", "rows of the corpus", 10_000, 100),
        common.Sizes("speed-rows", "rows whose encoding is timed", 2_000, 50),
    )
