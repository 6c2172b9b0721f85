"""The plan of embeddings in parts, which determines their bytes; and the parts in a folder, how one is written."""

import hashlib
import json
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from msgspec import Meta
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile
from nearfar.data.lines import Block, blocks
from nearfar.disk import disk_errors, new_file, sha256_of, write_npy
from nearfar.disk.places import Place
from nearfar.disk.work import Work
from nearfar.quantization import Quantization, int8_ranges, quantize
from nearfar.validation import InvalidValueError, convert

if TYPE_CHECKING:
    import pyarrow

KIND, FORMAT = "nearfar embeddings in parts", 1
"""What the folder is, and the version of its layout."""
MANIFEST = "_manifest.json"
_Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, kw_only=True)
class VectorSettings:
    """What determines vectors and columns besides the texts, mostly flags."""

    model: str
    """Fingerprint of its files."""
    column: str | None = None
    pooling: str | None
    prompt: str | None
    max_length: int | None
    normalize: bool
    dimensions: int | None = None
    quantize: Quantization | None = None
    calibrate: list[list[float]] | None = None
    """The ranges of int8 codes, [2, dim]; None for those of the vectors themselves."""
    keep: list[str] = field(default_factory=list)
    shard_rows: _Positive
    """Number of rows of every part but the last one."""
    block: _Positive
    """Number of texts in a block, which is sorted by length and deduplicated."""
    precision: Literal["fp32", "bf16", "bf16 emulated"]
    """The one that the process decided on which made the plan."""
    limit: _Positive
    """Maximum number of tokens in a text."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines the bytes of the parts; the same for all processes that write them."""

    settings: VectorSettings
    dim: _Positive
    """Number of dimensions of an embedding."""
    files: Annotated[list[InputFile], Meta(min_length=1)]

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.rows // self.settings.shard_rows)

    def row_range(self, part: int) -> tuple[int, int]:
        """The first row of a part, and the row after its last one."""
        size = self.settings.shard_rows
        return part * size, min((part + 1) * size, self.rows)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all that determines the parts; not of the folders of the input files."""
        content = asdict(self)
        content["files"] = [{**file, "address": None} for file in content["files"]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PartRecord:
    """What is known of a finished part. It is written after the part."""

    plan: str
    """The digest of the plan."""
    rows: tuple[int, int]
    """The first row, and the row after the last one."""
    size: int
    """Number of bytes of the file."""
    sha256: str
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
    try:
        return None if written is None else convert(written, Plan)
    except InvalidValueError as error:
        raise work.damaged(error) from None


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


class Parts:
    """The parts of a plan in a folder: those that are finished, and how one is written.

    Args:
        place: the folder.
        plan: what the parts are.
    """

    def __init__(self, place: Place, plan: Plan) -> None:
        self.place, self.plan, self._work = place, plan, work_of(place)
        kind, ranges = plan.settings.quantize, plan.settings.calibrate
        self.ranges = None if ranges is None else np.array(ranges, np.float32)
        self.kind = None if kind == "int8" and ranges is None else kind
        """What the parts hold: vectors, where the ranges of int8 are known when all of them are."""

    def rows_in(self, parts: Iterable[int]) -> int:
        """Number of rows of some parts."""
        return sum(stop - start for start, stop in map(self.plan.row_range, parts))

    def records(self, parts: Iterable[int] | None = None, *, whole: bool = False) -> dict[int, PartRecord]:
        """The records of finished parts, by number, without damaged ones and those of another plan.

        With ``whole``, only of the parts that are there with the size and the checksum of their record; reads them.
        """
        numbers = {part_name(part): part for part in (range(self.plan.parts) if parts is None else parts)}
        names, records = self._work.recorded() if parts is None else numbers, dict[int, PartRecord]()
        for name, written in self._work.records([name for name in names if name in numbers]).items():
            with suppress(InvalidValueError):
                part, record, file = numbers[name], convert(written, PartRecord), file_name(numbers[name])
                is_own = record.plan == self.plan.digest and record.rows == self.plan.row_range(part)
                if is_own and not (whole and self._differs(file, record)):
                    records[part] = record
        return records

    def _differs(self, file: str, record: PartRecord) -> bool:
        return self.place.size(file) != record.size or self.place.digest(file) != record.sha256

    def complete(
        self, texts: Iterator[str], done: Collection[int], encode: Callable[[Iterator[Block]], Generator[Piece]]
    ) -> None:
        """Encode the texts of all parts that are not ``done``, whose pieces may come in any order.

        The texts are read to the end, so that an error of the last one is raised.

        Raises:
            NearfarError: a part cannot be written.
        """
        waiting: dict[int, list[Piece]] = {}
        with closing(encode(self._missing_blocks(texts, done))) as pieces:
            for piece in pieces:
                part = piece.start // self.plan.settings.shard_rows
                own = waiting.setdefault(part, [])
                own.append(piece)
                if sum(len(each.vectors) for each in own) == self.rows_in([part]):
                    self.store(part, sorted(waiting.pop(part), key=lambda each: each.start), Path())

    def _missing_blocks(self, texts: Iterator[str], done: Collection[int]) -> Iterator[Block]:
        for part in range(self.plan.parts):
            start, stop = self.plan.row_range(part)
            rows = islice(texts, stop - start)
            if part in done:
                deque(rows, maxlen=0)
            else:
                yield from blocks(rows, size=self.plan.settings.block, start=start)
        next(texts, None)  # after the last text, raises if the texts changed since they were counted

    def store(
        self,
        part: int,
        pieces: Iterable[Piece],
        scratch: Path,
        take_columns: "Callable[[int], dict[str, pyarrow.Array]]" = lambda _: {},
    ) -> None:
        """Write the file of a part, publish it, and record it.

        Args:
            part: the number of the part.
            pieces: its vectors, in order.
            scratch: a temporary folder, in which a part of a remote folder is written.
            take_columns: the kept columns of the next rows, by their number.

        Raises:
            NearfarError: the part cannot be written.
        """
        name, counts = file_name(part), np.zeros(2, np.int64)
        target = self.place.writing(name, scratch)

        def columns() -> "Iterator[dict[str, pyarrow.Array]]":
            for piece in pieces:
                counts[:] += piece.distinct, piece.truncated
                codes = quantize(piece.vectors, self.kind, self.ranges) if self.kind else piece.vectors
                own = {"row": _numbers(piece.start, len(codes)), "vector": _lists(codes)}
                yield own | take_columns(len(codes))

        with disk_errors(target):
            _write_parquet(target, columns(), dictionaries=self.plan.settings.keep)
        size, sha256 = target.stat().st_size, sha256_of(target)
        record = PartRecord(self.plan.digest, self.plan.row_range(part), size, sha256, *counts.tolist())
        self.place.publish(target, name)
        self._work.finish_part(part_name(part), asdict(record))

    def warn_of_truncated(self, what: str = "") -> None:
        """Warn once if texts of any part are longer than the model reads; ``what`` begins the warning."""
        from nearfar.encoder.token_batches import truncation_message

        records = self.records().values()
        if truncated := sum(record.truncated for record in records):
            distinct, limit = sum(record.distinct for record in records), self.plan.settings.limit
            warnings.warn(f"{what}{truncation_message(truncated, distinct, limit)}", stacklevel=2)

    def write_manifest(self, records: Mapping[int, PartRecord]) -> None:
        """Write the manifest of a complete output; every process that writes it writes the same bytes."""
        plan, parts = asdict(self.plan), list[dict[str, Any]]()
        for part, record in records.items():
            parts.append({"file": file_name(part), **asdict(record)})
            del parts[-1]["plan"]
        content = {"kind": KIND, "format": FORMAT, "rows": self.plan.rows, "dim": plan["dim"]}
        content |= {"plan": self.plan.digest, "settings": plan["settings"], "inputs": plan["files"], "parts": parts}
        self.place.write(MANIFEST, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    def join(self, output: Path, texts: Iterator[str] | None = None) -> None:
        """Write all parts as one file, which appears when it is complete.

        A .parquet file has the columns ``row``, ``text`` (if ``texts`` are given) and ``embedding``, and a row group
        for each block. The ranges of int8 codes are written first, to :func:`ranges_file`.

        Raises:
            NearfarError: the disk is full, a file cannot be written, or the texts have changed since they were encoded.
        """
        kind, ranges, blocks = self.plan.settings.quantize, self.ranges, self._blocks()
        if kind == "int8":
            if ranges is None:
                ranges = own = int8_ranges(self._blocks())
                blocks = (quantize(block, kind, own) for block in blocks)
            with new_file(ranges_file(output)) as file:
                write_npy(file, ranges.dtype, ranges.shape, [ranges])
        with new_file(output, refuse_busy=True) as file:
            if output.suffix == ".parquet":
                _write_parquet(file, self._with_texts(blocks, texts))
            else:
                none = np.empty((0, self.plan.dim), np.float32)
                codes = quantize(none, kind, ranges) if kind else none
                write_npy(file, codes.dtype, (self.plan.rows, codes.shape[1]), blocks)

    def _with_texts(
        self, blocks: Iterator[NDArray[Any]], texts: Iterator[str] | None
    ) -> "Iterator[dict[str, pyarrow.Array]]":
        import pyarrow

        start = 0
        for block in blocks:
            columns = {"row": _numbers(start, len(block))}
            if texts is not None:
                columns["text"] = pyarrow.array(list(islice(texts, len(block))), pyarrow.string())
            yield columns | {"embedding": _lists(block)}
            start += len(block)
        next(texts or iter(()), None)  # after the last text, raises if they changed since they were encoded

    def _blocks(self) -> Iterator[NDArray[Any]]:
        """The stored vectors [rows, width] of all parts in order, one block at a time."""
        import pyarrow.parquet

        for part in range(self.plan.parts):
            with pyarrow.parquet.ParquetFile(Path(self.place.address, file_name(part))) as file:
                for group in range(file.num_row_groups):
                    for chunk in file.read_row_group(group, columns=["vector"])["vector"].chunks:
                        yield chunk.flatten().to_numpy().reshape(len(chunk), -1)


def part_name(part: int) -> str:
    """The name of the record of a part."""
    return f"part-{part:05}"


def file_name(part: int) -> str:
    """The name of the file of a part."""
    return f"{part_name(part)}.parquet"


def ranges_file(output: Path) -> Path:
    """The file with the ranges of int8 embeddings, float32 [2, dim]: the least and the greatest value of each."""
    return output.with_suffix(".ranges.npy")


def _write_parquet(
    target: Path, blocks: "Iterable[dict[str, pyarrow.Array]]", *, dictionaries: Sequence[str] = ()
) -> None:
    """Write a Parquet file with a row group for each block of columns; ``dictionaries`` may have repeated values.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    import pyarrow
    import pyarrow.parquet

    with ExitStack() as stack:
        writer = None
        for columns in blocks:
            table = pyarrow.Table.from_arrays(list(columns.values()), names=list(columns))
            writer = writer or stack.enter_context(
                pyarrow.parquet.ParquetWriter(
                    target, table.schema, use_dictionary=list(dictionaries), compression="zstd"
                )
            )
            writer.write_table(table)


def _numbers(start: int, count: int) -> Any:
    """The numbers of rows."""
    import pyarrow

    return pyarrow.array(np.arange(start, start + count, dtype=np.int64))


def _lists(vectors: NDArray[Any]) -> Any:
    import pyarrow

    return pyarrow.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
