"""The job of a worker: the rows of one part -> its file. A worker keeps its encoder for the next part."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.shards.corpus import RowRange
from nearfar.commands.encode.shards.folders import OutputFolder, open_folder
from nearfar.commands.encode.shards.part_file import part_writer
from nearfar.commands.encode.shards.plan import RANGES, Plan, plan_of_worker
from nearfar.commands.encode.shards.records import PartRecord, is_valid, part_name, read_record, record_name
from nearfar.data.lines import Block, blocks
from nearfar.types import ARRAY_ERRORS, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

FUNCTION = f"{__name__}:write_part"
"""The function of the jobs."""


@dataclass(frozen=True)
class _Loaded:
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
    part, output = int(settings["part"]), open_folder(settings["output"])
    plan = plan_of_worker(settings["output"], settings["plan"])
    if _is_done(output, plan, part):
        return
    loaded = _open_encoder(settings["model"], settings["device"], plan.digest, settings["output"])
    try:
        record = _encode(plan, part, loaded, output, folder)
        output.write(record_name(part), record.to_json())
    except NearfarError:
        if _is_done(output, plan, part):  # another process was faster, and removed the file written aside
            return
        raise
    for name in (part_name(part), record_name(part)):
        output.clean(name)


def forget_encoder() -> None:
    """Free the encoder that this process keeps, and forget its plan."""
    _open_encoder.cache_clear()
    plan_of_worker.cache_clear()


def _is_done(output: OutputFolder, plan: Plan, part: int) -> bool:
    record = read_record(output, plan, part)
    return record is not None and is_valid(output, part, record)


@lru_cache(maxsize=1)
def _open_encoder(model: str, device: str | None, plan_digest: str, output: str) -> _Loaded:
    """Open the encoder of a plan, once for all parts of a worker.

    Raises:
        NearfarError: the model of this name is another one on this machine, or cannot be opened.
    """
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.precision import resumed_precision
    from nearfar.encoder.weights import locate
    from nearfar.runs.fingerprints import fingerprint_model

    settings = plan_of_worker(output, plan_digest).settings
    place = locate(model)
    if fingerprint_model(place) != settings["model"]:
        raise NearfarError(f"{place}: is not the model that the run in {output} started with.")
    encoder = Encoder.from_pretrained(
        place,
        pooling=settings["pooling"],
        max_length=settings["max_length"],
        prompt=settings["prompt"],
        device=device,
    )
    precision = resumed_precision(settings["precision"], device, what=f"{output}: this run")
    return _Loaded(encoder, precision == "bf16")


def _encode(plan: Plan, part: int, loaded: _Loaded, output: OutputFolder, scratch: Path) -> PartRecord:
    """Write the file of a part, and publish it."""
    import pyarrow

    from nearfar.encoder.stream import encode_blocks, tokenize_blocks

    settings, (start, stop) = plan.settings, plan.row_range(part)
    kept = pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes.fromhex(plan.schema)))
    rows = RowRange(plan.files, start, stop, settings["column"], kept)
    store, dtype, width = _codes(settings, plan.dim, output)
    target = output.writing(part_name(part), scratch)
    distinct = truncated = done = 0
    try:
        with part_writer(target, width, dtype, kept) as write:
            encoded = encode_blocks(
                loaded.encoder,
                tokenize_blocks(loaded.encoder, _numbered(rows, start, settings["block"])),
                normalize=settings["normalize"],
                dimensions=settings["dimensions"],
                bf16=loaded.bf16,
            )
            for block, vectors in encoded:
                expanded = block.expand_distinct(vectors)
                write(block.start, store(expanded), rows.take(len(expanded)))
                distinct += len(vectors)
                truncated += block.tokenized.truncated
                done += len(expanded)
        if done != stop - start:
            raise NearfarError(f"{part_name(part)}: {done:,} of {stop - start:,} rows could be read.")
        with target.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = target.stat().st_size
        output.publish(target, part_name(part))
    except BaseException:
        with suppress(OSError):
            target.unlink(missing_ok=True)
        raise
    return PartRecord(
        plan=plan.digest,
        rows=(start, stop),
        size=size,
        sha256=digest,
        texts=rows.digest,
        distinct=distinct,
        truncated=truncated,
    )


def _numbered(rows: RowRange, start: int, size: int) -> Iterator[Block]:
    """Blocks of texts, by the numbers of their rows in the corpus."""
    for block in blocks(rows.texts(), size=size):
        yield Block(start + block.start, block.texts)


def _codes(settings: Mapping[str, Any], dim: int, output: OutputFolder) -> tuple[Any, str, int]:
    """How vectors are stored: a function of a block of them, the data type, and the number of values of each."""
    from nearfar.quantization import quantize

    kind = settings["quantize"]
    if kind is None or kind == "float16":
        dtype = settings["dtype"] if kind is None else "float16"
        return (lambda vectors: vectors.astype(dtype, copy=False)), dtype, dim
    if kind == "binary":
        return (lambda vectors: quantize(vectors, "binary")), "uint8", -(-dim // 8)
    ranges = _read_ranges(output)
    return (lambda vectors: quantize(vectors, "int8", ranges)), "int8", dim


def _read_ranges(output: OutputFolder) -> NDArray[np.float32]:
    """The ranges of int8 codes of a run, float32 [2, dim].

    Raises:
        NearfarError: they are missing or damaged.
    """
    content = output.read(RANGES)
    if content is None:
        raise NearfarError(f"{output.address}/{RANGES}: is missing. Remove the folder to start again.")
    try:
        found: NDArray[np.float32] = np.load(BytesIO(content), allow_pickle=False)
    except ARRAY_ERRORS as error:
        raise NearfarError(f"{output.address}/{RANGES}: is damaged. Remove the folder to start again.") from error
    return found
