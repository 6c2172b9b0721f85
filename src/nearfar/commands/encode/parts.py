"""Parts of embeddings: Parquet files with the columns ``row``, ``vector`` and kept ones, one row group for each block.

A part is written by the process that streams an input (:func:`store_stream`), or by a job of its own that reads its
rows of a corpus (:func:`write_part`). A worker keeps its encoder for the next part.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import RowRange
from nearfar.commands.encode.plan import (
    RANGES,
    PartRecord,
    Plan,
    finished_part,
    part_name,
    read_plan,
    record_name,
    work_of,
)
from nearfar.data.lines import Block, blocks
from nearfar.disk import disk_errors, sha256_of
from nearfar.disk.places import Place, open_place
from nearfar.disk.work import PLAN
from nearfar.quantization import quantize
from nearfar.types import ARRAY_ERRORS, NearfarError

if TYPE_CHECKING:
    import pyarrow

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.stream import Encoded

    Write: TypeAlias = Callable[[int, NDArray[Any], Sequence[pyarrow.Array]], None]

JOB = f"{__name__}:write_part"
"""The function of the jobs."""
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


@dataclass(frozen=True)
class OpenEncoder:
    """An encoder, and how it encodes."""

    encoder: "Encoder"
    bf16: bool


def write_part(settings: Mapping[str, Any], inputs: Mapping[str, Path], folder: Path) -> None:  # noqa: ARG001
    """Encode the rows of a part and publish its file and its record, unless both are there and valid.

    Args:
        settings: ``part``, the number of the part; ``plan``, the digest of the plan; ``output``, the address of the
            folder; ``model`` and ``device``, as this machine knows them.
        inputs: none.
        folder: a temporary folder.

    Raises:
        NearfarError: a text is not valid, an input file or the model is not that of the plan, or a file cannot be read
            or written.
    """
    part, place = int(settings["part"]), open_place(settings["output"])
    plan = _plan_of_worker(settings["output"], settings["plan"])
    if finished_part(place, plan, part):
        return
    try:
        _encode_part(plan, part, open_encoder(settings["model"], settings["device"], plan, place), place, folder)
    except NearfarError:
        if finished_part(place, plan, part):  # another process was faster, and removed the file written aside
            return
        raise
    for name in (part_name(part), f"{record_name(part)}.json"):
        place.clean(name)


@lru_cache(maxsize=1)
def _plan_of_worker(address: str, digest: str) -> Plan:
    """The plan of a run that a worker takes part in, read once.

    Raises:
        NearfarError: it is not there, or another run has replaced it.
    """
    plan = read_plan(open_place(address))
    if plan is None or plan.digest != digest:
        raise NearfarError(f"{address}/{PLAN}: belongs to another run. Start only one run in a folder.")
    return plan


def _encode_part(plan: Plan, part: int, opened: OpenEncoder, place: Place, scratch: Path) -> None:
    import pyarrow

    from nearfar.encoder.stream import encode_blocks, tokenize_blocks

    settings, (start, stop) = plan.settings, plan.row_range(part)
    kept = pyarrow.schema([])
    if plan.schema:
        kept = pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes.fromhex(plan.schema)))
    rows = RowRange(plan.files, start, stop, settings["column"], kept)
    encoded = encode_blocks(
        opened.encoder,
        tokenize_blocks(opened.encoder, blocks(rows.texts(), size=settings["block"], start=start)),
        normalize=settings["normalize"],
        dimensions=settings["dimensions"],
        bf16=opened.bf16,
    )
    store_part(place, plan, part, pieces_of(encoded), scratch, rows=rows, kept=kept)


def pieces_of(encoded: "Encoded", on_texts: OnTexts = lambda _: None) -> Iterator[Piece]:
    """The vectors of all texts of each block, from those of its distinct texts."""
    for block, vectors in encoded:
        yield Piece(block.start, block.expand_distinct(vectors), len(vectors), block.tokenized.truncated)
        on_texts(len(block.rows) - len(vectors))


def store_part(
    place: Place,
    plan: Plan,
    part: int,
    pieces: Iterable[Piece],
    scratch: Path,
    *,
    rows: RowRange | None = None,
    kept: "pyarrow.Schema | None" = None,
) -> None:
    """Write the file of a part, publish it, and record it.

    Args:
        place: the folder.
        plan: what the parts are.
        part: the number of the part.
        pieces: its vectors, in order.
        scratch: a temporary folder.
        rows: where the kept columns of the same rows come from.
        kept: their schema.

    Raises:
        NearfarError: there are too few pieces, or the part cannot be written.
    """
    start, stop = plan.row_range(part)
    stored = stored_in_parts(plan, place)
    target = place.writing(part_name(part), scratch)
    distinct = truncated = done = 0
    try:
        with disk_errors(target), vector_writer(target, stored.dtype, stored.width, kept=kept) as write:
            for piece in pieces:
                count = len(piece.vectors)
                write(piece.start, stored.of(piece.vectors), rows.take(count) if rows else [])
                distinct, truncated, done = distinct + piece.distinct, truncated + piece.truncated, done + count
        if done != stop - start:
            raise NearfarError(f"{part_name(part)}: {done:,} of {stop - start:,} rows could be read.")
        digest, size = sha256_of(target), target.stat().st_size
        place.publish(target, part_name(part))
    except BaseException:
        with suppress(OSError):
            target.unlink(missing_ok=True)
        raise
    record = PartRecord(
        plan=plan.digest,
        rows=(start, stop),
        size=size,
        sha256=digest,
        texts=rows.digest if rows else "",
        distinct=distinct,
        truncated=truncated,
    )
    work_of(place).finish_part(record_name(part), asdict(record))


def missing_blocks(texts: Iterator[str], plan: Plan, done: Collection[int]) -> Iterator[Block]:
    """The texts of an input that is read as a whole, in blocks, but for those of finished parts; reads to the end."""
    for part in range(plan.parts):
        start, stop = plan.row_range(part)
        rows = islice(texts, stop - start)
        if part in done:
            deque(rows, maxlen=0)
            continue
        yield from blocks(rows, size=plan.settings["block"], start=start)
    next(texts, None)  # after the last text, raises if the texts changed since they were counted


def store_stream(place: Place, plan: Plan, pieces: Iterable[Piece], scratch: Path) -> None:
    """Write each part when all its pieces are there; they may come in any order.

    Raises:
        NearfarError: a part cannot be written.
    """
    waiting: dict[int, list[Piece]] = {}
    for piece in pieces:
        part = piece.start // plan.shard_rows
        start, stop = plan.row_range(part)
        some = waiting.setdefault(part, [])
        some.append(piece)
        if sum(len(one.vectors) for one in some) == stop - start:
            store_part(place, plan, part, sorted(waiting.pop(part), key=lambda one: one.start), scratch)


def open_encoder(
    model: str, device: str | None, plan: Plan, place: Place, *, load_on: str | None = None
) -> OpenEncoder:
    """The encoder of a plan, opened once for all parts of a process.

    Args:
        model: the model, as this machine knows it.
        device: where vectors are computed.
        plan: what the parts are.
        place: their folder.
        load_on: the device of this process's encoder, if others compute.

    Raises:
        NearfarError: the model of this name is another one on this machine, or cannot be opened; or the plan was made
            in native bfloat16, which the device does not have.
    """
    from nearfar.encoder.precision import resumed_precision

    settings = plan.settings
    if locate_model(model)[1] != settings["model"]:
        raise NearfarError(f"{model}: is not the model that the run in {place.address} started with.")
    encoder = load_encoder(model, settings["pooling"], settings["max_length"], settings["prompt"], load_on or device)
    precision = resumed_precision(settings["precision"], device, what=f"{place.address}: this run")
    return OpenEncoder(encoder, precision == "bf16")


@lru_cache(maxsize=1)
def load_encoder(
    model: str, pooling: str | None, max_length: int | None, prompt: str | None, device: str | None
) -> "Encoder":
    """An encoder; of calls with the same arguments, the first one opens it, until :func:`forget_encoder`."""
    from nearfar.encoder.encoder import Encoder

    folder = locate_model(model)[0]
    return Encoder.from_pretrained(folder, pooling=pooling, max_length=max_length, prompt=prompt, device=device)


@lru_cache(maxsize=1)
def locate_model(model: str) -> tuple[Path, str]:
    """The folder of a model, and its fingerprint."""
    from nearfar.encoder.weights import locate
    from nearfar.runs.fingerprints import fingerprint_model

    folder = locate(model)
    return folder, fingerprint_model(folder)


def forget_encoder() -> None:
    """Free the encoder that this process keeps, and forget its plan."""
    for cached in (load_encoder, locate_model, _plan_of_worker):
        cached.cache_clear()


def stored_in_parts(plan: Plan, place: Place) -> Stored:
    """How the vectors of a plan are stored in its parts.

    int8 codes whose ranges are those of the vectors themselves are made when the parts are joined.
    """
    settings, dim = plan.settings, plan.dim
    kind = settings["quantize"]
    if kind is None or kind == "float16":
        dtype = settings["dtype"] if kind is None else "float16"
        return Stored(lambda vectors: vectors.astype(dtype, copy=False), dtype, dim)
    if kind == "binary":
        return Stored(lambda vectors: quantize(vectors, "binary"), "uint8", -(-dim // 8))
    if settings["calibrate"] is None:
        return Stored(lambda vectors: vectors, "float32", dim)
    ranges = read_plan_ranges(place)
    return Stored(lambda vectors: quantize(vectors, "int8", ranges), "int8", dim)


def read_plan_ranges(place: Place) -> NDArray[np.float32]:
    """The ranges of the int8 codes of a run, float32 [2, dim].

    Raises:
        NearfarError: they are missing or damaged.
    """
    content = place.read(RANGES)
    if content is None:
        raise NearfarError(f"{place.address}/{RANGES}: is missing. Remove the folder to start again.")
    try:
        ranges: NDArray[np.float32] = np.load(BytesIO(content), allow_pickle=False)
    except ARRAY_ERRORS as error:
        raise NearfarError(f"{place.address}/{RANGES}: is damaged. Remove the folder to start again.") from error
    return ranges


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
    dictionaries = list(kept.names)
    with pyarrow.parquet.ParquetWriter(target, schema, use_dictionary=dictionaries, compression="zstd") as writer:

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
