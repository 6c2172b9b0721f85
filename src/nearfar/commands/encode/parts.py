"""The plan of embeddings in parts, which determines their bytes; and the parts in a folder, how one is written."""

import hashlib
import json
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from msgspec import Meta
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile, RowRange
from nearfar.data.lines import Block, blocks
from nearfar.disk import disk_errors, new_file, sha256_of, write_bytes, write_npy
from nearfar.disk.places import OWN, LocalFolder, Place
from nearfar.disk.work import Work
from nearfar.encoder.precision import RECORDED_PRECISIONS
from nearfar.quantization import FEW_VECTORS, have_no_width, int8_ranges, quantize
from nearfar.types import ARRAY_ERRORS, NearfarError
from nearfar.validation import InvalidValueError, convert

if TYPE_CHECKING:
    import pyarrow

    from nearfar.encoder.stream import Encoded

    Write: TypeAlias = Callable[[int, NDArray[Any], Sequence[pyarrow.Array]], None]


KIND, FORMAT = "nearfar embeddings in parts", 1
"""What the folder is, and the version of its layout."""
RANGES = f"{OWN}/ranges.npy"
"""The ranges of int8 codes, float32 [2, dim]."""
MANIFEST = "_manifest.json"
RESOLVED = ("precision", "limit", "block")
"""Settings that the process decides that makes the plan: precision, maximum number of tokens, texts in a block."""
OF_VECTORS = ("column", "pooling", "prompt", "max_length", "normalize", "dimensions", "dtype", "quantize")
"""Flags that are settings of a plan as they are."""
WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}


@dataclass(frozen=True)
class Plan:
    """Everything that determines the bytes of the parts; the same for all processes that write them."""

    settings: Mapping[str, Any]
    """Flags that change the vectors or the columns, the fingerprint of the model, and the precision."""
    dim: Annotated[int, Meta(ge=1)]
    """Number of dimensions of an embedding."""
    files: tuple[InputFile, ...]
    schema: str = ""
    """The kept columns: a serialised Arrow schema, in hexadecimal digits; empty for none."""

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def shard_rows(self) -> int:
        """Number of rows of every part but the last one."""
        return int(self.settings["shard_rows"])

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.rows // self.shard_rows)

    def row_range(self, part: int) -> tuple[int, int]:
        """The first row of a part, and the row after its last one."""
        return part * self.shard_rows, min((part + 1) * self.shard_rows, self.rows)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all that determines the parts; not of the folders of the input files."""
        content = asdict(self)
        content["files"] = [{**file, "address": None} for file in content["files"]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What is known of a finished part. It is written after the part."""

    plan: str
    """The digest of the plan."""
    rows: tuple[int, int]
    """The first row, and the row after the last one."""
    size: int
    """Number of bytes of the file."""
    sha256: str
    texts: str
    """Fingerprint of the texts; empty if they are those of an input that is read as a whole."""
    distinct: int
    """Number of texts that were encoded: the distinct ones of each block."""
    truncated: int
    """How many of them are longer than the maximum length."""


def work_of(place: Place) -> Work:
    """The embeddings in a folder, as work that can be continued."""
    return Work(place, KIND, FORMAT)


def read_plan(place: Place) -> Plan | None:
    """The plan in a folder; None if there is none.

    Raises:
        NearfarError: it is damaged, or a newer version of nearfar wrote it.
    """
    work = work_of(place)
    written = work.settings()
    if written is None:
        return None
    try:
        plan = convert(written, Plan)
        bytes.fromhex(plan.schema)
        if missing := [name for name in ("model", "shard_rows", *OF_VECTORS, *RESOLVED) if name not in plan.settings]:
            raise ValueError(f"it has no {missing[0]}")
        if plan.shard_rows < 1 or plan.rows < 1:
            raise ValueError("it has a wrong number")
        if plan.settings["precision"] not in RECORDED_PRECISIONS:
            raise ValueError(f"precision {plan.settings['precision']!r} is unknown")
    except (ValueError, TypeError) as error:
        raise work.damaged(error) from None
    return plan


OnTexts: TypeAlias = Callable[[int], None]
"""Called with numbers of texts that are done."""


class Piece(NamedTuple):
    """The vectors of a block of rows."""

    start: int
    """The number of the first row."""
    vectors: Float[np.ndarray, "rows dim"]
    distinct: int
    """How many distinct texts the rows have."""
    truncated: int
    """How many of these are longer than the maximum length."""


class Stored(NamedTuple):
    """How vectors are stored in a part."""

    of: Callable[[NDArray[Any]], NDArray[Any]]
    """What is stored of a block of vectors."""
    dtype: str
    width: int
    """Number of values of each vector."""


class Parts:
    """The parts of a plan in a folder: those that are finished, and how one is written.

    Args:
        place: the folder.
        plan: what the parts are.
    """

    def __init__(self, place: Place, plan: Plan) -> None:
        self.place, self.plan, self._work = place, plan, work_of(place)

    def rows_in(self, parts: Iterable[int]) -> int:
        """Number of rows of some parts."""
        return sum(stop - start for start, stop in map(self.plan.row_range, parts))

    def records(self) -> dict[int, PartRecord]:
        """The records of all finished parts, by number, but for those that are damaged or belong to another plan."""
        recorded = set(self._work.recorded())
        names = {part: name for part in range(self.plan.parts) if (name := part_name(part)) in recorded}
        written = self._work.records(list(names.values()))
        records = ((part, self._record(written[name], part)) for part, name in names.items())
        return {part: record for part, record in records if record is not None}

    def finished(self, part: int) -> PartRecord | None:
        """The record of a part, if the part is there with the size and the checksum of its record; reads the part."""
        record, file = self._record(self._work.record(part_name(part)), part), file_name(part)
        if record is None or self.place.size(file) != record.size or self.place.digest(file) != record.sha256:
            return None
        return record

    def _record(self, written: Mapping[str, Any] | None, part: int) -> PartRecord | None:
        try:
            record = convert(written, PartRecord)
        except InvalidValueError:
            return None
        return record if record.plan == self.plan.digest and record.rows == self.plan.row_range(part) else None

    def all_finished(self) -> dict[int, PartRecord]:
        """The records of the parts that are there and valid; what is left of others is removed."""
        recorded, done = set(self._work.recorded()), {}
        for part in range(self.plan.parts):
            if part_name(part) in recorded and (record := self.finished(part)):
                done[part] = record
            else:
                self.place.clean(file_name(part))
        return done

    @cached_property
    def ranges(self) -> NDArray[np.float32]:
        """The ranges of the int8 codes of a run, float32 [2, dim].

        Raises:
            NearfarError: they are missing or damaged.
        """
        content = self.place.read(RANGES)
        with suppress(*ARRAY_ERRORS):
            if content is not None:
                ranges: NDArray[np.float32] = np.load(BytesIO(content), allow_pickle=False)
                return ranges
        what = "missing" if content is None else "damaged"
        raise NearfarError(f"{self.place.address}/{RANGES}: is {what}. Remove the folder to start again.")

    @cached_property
    def stored(self) -> Stored:
        """How the vectors are stored; int8 codes with the ranges of the vectors themselves are made by :meth:`join`."""
        kind, dim = self.plan.settings["quantize"], self.plan.dim
        if kind == "binary":
            return Stored(lambda vectors: quantize(vectors, "binary"), "uint8", -(-dim // 8))
        if kind == "int8" and self.plan.settings["calibrate"] is not None:
            return Stored(lambda vectors: quantize(vectors, "int8", self.ranges), "int8", dim)
        dtype = "float16" if "float16" in (kind, self.plan.settings["dtype"]) else "float32"
        return Stored(lambda vectors: vectors.astype(dtype, copy=False), dtype, dim)

    def missing_blocks(self, texts: Iterator[str], done: Collection[int]) -> Iterator[Block]:
        """The texts of an input that is read as a whole, in blocks, without finished parts; reads to the end."""
        for part in range(self.plan.parts):
            start, stop = self.plan.row_range(part)
            rows = islice(texts, stop - start)
            if part in done:
                deque(rows, maxlen=0)
                continue
            yield from blocks(rows, size=self.plan.settings["block"], start=start)
        next(texts, None)  # after the last text, raises if the texts changed since they were counted

    def store_stream(self, pieces: Iterable[Piece], scratch: Path) -> None:
        """Write each part when all its pieces are there; they may come in any order.

        Raises:
            NearfarError: a part cannot be written.
        """
        waiting: dict[int, list[Piece]] = {}
        for piece in pieces:
            part = piece.start // self.plan.shard_rows
            own = waiting.setdefault(part, [])
            own.append(piece)
            if sum(len(one.vectors) for one in own) == self.rows_in([part]):
                self.store(part, sorted(waiting.pop(part), key=lambda one: one.start), scratch)

    def store(self, part: int, pieces: Iterable[Piece], scratch: Path, rows: RowRange | None = None) -> None:
        """Write the file of a part, publish it, and record it.

        Args:
            part: the number of the part.
            pieces: its vectors, in order.
            scratch: a temporary folder.
            rows: where the kept columns of the same rows come from.

        Raises:
            NearfarError: there are too few pieces, or the part cannot be written.
        """
        start, stop = self.plan.row_range(part)
        name, stored = file_name(part), self.stored
        target = self.place.writing(name, scratch)
        distinct = truncated = done = 0
        kept = rows.kept if rows else None
        try:
            with disk_errors(target), vector_writer(target, stored.dtype, stored.width, kept=kept) as write:
                for piece in pieces:
                    count = len(piece.vectors)
                    write(piece.start, stored.of(piece.vectors), rows.take(count) if rows else [])
                    distinct, truncated, done = distinct + piece.distinct, truncated + piece.truncated, done + count
            if done != stop - start:
                raise NearfarError(f"{name}: {done:,} of {stop - start:,} rows could be read.")
            record = PartRecord(
                plan=self.plan.digest,
                rows=(start, stop),
                size=target.stat().st_size,
                sha256=sha256_of(target),
                texts=rows.digest if rows else "",
                distinct=distinct,
                truncated=truncated,
            )
            self.place.publish(target, name)
        except BaseException:
            with suppress(OSError):
                target.unlink(missing_ok=True)
            raise
        self._work.finish_part(part_name(part), asdict(record))

    def write_manifest(self, records: Mapping[int, PartRecord]) -> None:
        """Write the manifest of a complete output; every process that writes it writes the same bytes."""
        parts = [{"file": file_name(part), **asdict(record)} for part, record in sorted(records.items())]
        for part in parts:
            del part["plan"]
        plan, files = self.plan, [asdict(file) for file in self.plan.files]
        content: dict[str, Any] = {"kind": KIND, "format": FORMAT, "rows": plan.rows, "dim": plan.dim}
        content |= {"plan": plan.digest, "settings": plan.settings, "inputs": files, "parts": parts}
        self.place.write(MANIFEST, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    def join(self, output: Path, texts: Iterator[str] | None = None) -> None:
        """Write all parts as one file, which appears when it is complete.

        A .parquet file has the columns ``row``, ``text`` (if ``texts`` are given) and ``embedding``, and a row group
        for each block. The ranges of int8 codes are written first, to :func:`ranges_file`.

        Raises:
            NearfarError: the disk is full, a file cannot be written, or the texts have changed since they were encoded.
        """
        dtype, width, vectors = np.dtype(self.stored.dtype), self.stored.width, self._vectors()
        if self.plan.settings["quantize"] == "int8":
            own = self.plan.settings["calibrate"] is None
            ranges = int8_ranges(self._vectors()) if own else self.ranges
            if own and (self.plan.rows < FEW_VECTORS or have_no_width(ranges)):
                warnings.warn(
                    f"--quantize int8: the ranges are those of {self.plan.rows} texts, too few or too similar for "
                    "other texts; give vectors of many typical texts with --calibrate.",
                    stacklevel=2,
                )
            write_bytes(ranges_file(output), npy_bytes(ranges))
            if dtype == np.dtype("float32"):
                dtype, vectors = np.dtype("int8"), (quantize(block, "int8", ranges) for block in self._vectors())
        with new_file(output, refuse_busy=True) as file:
            if output.suffix != ".parquet":
                write_npy(file, dtype, (self.plan.rows, width), vectors)
                return
            import pyarrow

            start, before = 0, pyarrow.schema([] if texts is None else [("text", pyarrow.string())])
            with vector_writer(file, dtype, width, name="embedding", before=before) as write:
                for block in vectors:
                    kept = [] if texts is None else [pyarrow.array(list(islice(texts, len(block))), pyarrow.string())]
                    write(start, block, kept)
                    start += len(block)
                next(texts or iter(()), None)  # after the last text, raises if they changed since they were encoded

    def _vectors(self) -> Iterator[NDArray[Any]]:
        """The stored vectors [rows, width] of all parts in order, one block at a time."""
        import pyarrow.parquet

        assert isinstance(self.place, LocalFolder)
        for part in range(self.plan.parts):
            with pyarrow.parquet.ParquetFile(self.place.shared / file_name(part)) as file:
                for group in range(file.metadata.num_row_groups):
                    for chunk in file.read_row_group(group, columns=["vector"])["vector"].chunks:
                        flat = chunk.flatten()  # its to_numpy() would import pandas
                        values = np.frombuffer(flat.buffers()[1], self.stored.dtype)[flat.offset :]
                        yield values[: len(flat)].reshape(-1, self.stored.width)


def part_name(part: int) -> str:
    """The name of the record of a part."""
    return f"part-{part:05}"


def file_name(part: int) -> str:
    """The name of the file of a part."""
    return f"{part_name(part)}.parquet"


def ranges_file(output: Path) -> Path:
    """The file with the ranges of int8 embeddings, float32 [2, dim]: the least and the greatest value of each."""
    return output.with_suffix(".ranges.npy")


def npy_bytes(array: NDArray[Any]) -> bytes:
    """The content of a .npy file."""
    stream = BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def pieces_of(encoded: "Encoded", on_texts: OnTexts) -> Generator[Piece]:
    """The vectors of all texts of each block, from those of its distinct texts."""
    with closing(encoded):
        for block, vectors in encoded:
            yield Piece(block.start, block.expand_distinct(vectors), len(vectors), block.tokenized.truncated)
            on_texts(len(block.rows) - len(vectors))


@contextmanager
def vector_writer(
    target: Path,
    dtype: str | np.dtype[Any],
    width: int,
    *,
    name: str = "vector",
    before: "pyarrow.Schema | None" = None,
    kept: "pyarrow.Schema | None" = None,
) -> "Iterator[Write]":
    """Write a Parquet file of vectors, with a row group for each block.

    Yields a function that writes a block: the number of its first row, vectors [rows, width], and its other columns.

    Args:
        target: the file.
        dtype: type of the stored values.
        width: number of values of a vector.
        name: the column of the vectors.
        before: columns before it, which follow the column ``row``.
        kept: columns behind it.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    import pyarrow
    import pyarrow.parquet

    before, kept = before or pyarrow.schema([]), kept or pyarrow.schema([])
    list_type = pyarrow.list_(pyarrow.from_numpy_dtype(np.dtype(dtype)), width)
    schema = pyarrow.schema([pyarrow.field("row", pyarrow.int64()), *before, pyarrow.field(name, list_type), *kept])
    with pyarrow.parquet.ParquetWriter(target, schema, use_dictionary=kept.names, compression="zstd") as writer:

        def write(start: int, vectors: NDArray[Any], columns: "Sequence[pyarrow.Array]") -> None:
            rows = _arrow_array(np.arange(start, start + len(vectors), dtype=np.int64))
            flat = np.ascontiguousarray(vectors, dtype=np.dtype(dtype).newbyteorder("<")).reshape(-1)
            lists = pyarrow.FixedSizeListArray.from_arrays(_arrow_array(flat), width)
            arrays = [rows, *columns[: len(before)], lists, *columns[len(before) :]]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))

        yield write


def _arrow_array(values: NDArray[Any]) -> Any:
    """A NumPy array as an Arrow array; ``pyarrow.array`` would import pandas."""
    import pyarrow

    kind = pyarrow.from_numpy_dtype(values.dtype)
    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])
