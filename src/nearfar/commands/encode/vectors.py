"""Parts joined into one file; and the vectors of the texts of a command, kept beside its output for a second call.

Until the output is complete, ``OUTPUT.vectors/KEY.npy`` holds the vectors of all texts, and ``OUTPUT.vectors/KEY`` the
finished parts while they are computed. KEY is a hash of model, settings and texts, so vectors of other texts are never
read.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.parts import (
    OnTexts,
    missing_blocks,
    pieces_of,
    read_plan_ranges,
    store_stream,
    stored_in_parts,
    vector_writer,
)
from nearfar.commands.encode.plan import Plan, finished_parts, part_name, read_records
from nearfar.disk import check_regular, folder_lock, new_file, remove, write_bytes, write_npy
from nearfar.disk.places import LocalFolder, Place
from nearfar.quantization import FEW_VECTORS, have_no_width, int8_ranges, quantize
from nearfar.types import ARRAY_ERRORS

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

PART_TEXTS = 2**11
"""Number of texts that are encoded and saved together."""


@contextmanager
def vectors_folder(output: str | Path | None, *, flag: str = "--output") -> Iterator[Path]:
    """The folder ``OUTPUT.vectors``, locked; without an output, a temporary folder. ``flag`` names another output.

    Raises:
        NearfarError: another process uses it, or it cannot be created.
    """
    if output is None:
        with TemporaryDirectory(prefix="nearfar-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    with folder_lock(kept_vectors(output), what=output, remove_if_empty=True, flag=flag):
        yield kept_vectors(output)


def kept_vectors(output: str | Path) -> Path:
    """The folder of the vectors that an output is made of."""
    return Path(f"{output}.vectors")


def remove_vectors(folder: Path) -> None:
    """Remove all vectors in the folder of :func:`vectors_folder`, because the output is complete.

    Raises:
        NearfarError: a file cannot be removed.
    """
    for path in [*folder.glob("*.npy"), *(entry for entry in folder.iterdir() if entry.is_dir())]:
        remove(path)


def encode_texts(
    folder: Path,
    texts: Sequence[str],
    encoder: "Encoder",
    *,
    model: str,
    prompt: str,
    bf16: bool,
    normalize: bool = True,
    dimensions: int | None = None,
    on_texts: OnTexts = lambda _: None,
    what: str = "",
) -> Float32[np.ndarray, "texts dim"]:
    """The vectors of texts, memory-mapped; those that ``folder`` does not have are encoded first.

    Args:
        folder: the folder of :func:`vectors_folder`.
        texts: the texts, one or more.
        encoder: the encoder.
        model: the fingerprint of its model.
        prompt: text before each text.
        bf16: compute in bfloat16.
        normalize: scale the vectors to unit length.
        dimensions: keep the first dimensions.
        on_texts: called with numbers of texts that are done.
        what: what the warning about truncated texts begins with.

    Raises:
        NearfarError: a vector is not finite, or a file cannot be written.
    """
    from nearfar.encoder.stream import encode_blocks, tokenize_blocks
    from nearfar.encoder.token_batches import truncation_message

    settings = {
        "model": model,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "prompt": prompt,
        "precision": "bf16" if bf16 else "fp32",
        "normalize": normalize,
    }
    plan = plan_of_texts(texts, dimensions or encoder.dim, settings)
    file = folder / f"{plan.digest}.npy"
    vectors = read_vectors_file(file, (plan.rows, plan.dim))
    if vectors is not None:
        on_texts(plan.rows)
        return vectors
    place = LocalFolder(str(file.with_suffix("")))
    done = finished_parts(place, plan)
    on_texts(sum(stop - start for start, stop in map(plan.row_range, done)))
    tokens = tokenize_blocks(encoder, missing_blocks(iter(texts), plan, done), prompt=prompt)
    encoded = encode_blocks(encoder, tokens, normalize=normalize, dimensions=dimensions, bf16=bf16, on_batch=on_texts)
    store_stream(place, plan, pieces_of(encoded, on_texts), place.shared)
    join_parts(place, plan, file)
    truncated = sum(record.truncated for record in read_records(place, plan).values())
    remove(place.shared)
    if truncated:
        warnings.warn(f"{what}{truncation_message(truncated, len(texts), encoder.max_length)}", stacklevel=2)
    vectors = read_vectors_file(file, (plan.rows, plan.dim))
    assert vectors is not None  # just written
    return vectors


def plan_of_texts(texts: Iterable[str], dim: int, settings: Mapping[str, Any]) -> Plan:
    """The plan of float32 vectors [texts, dim] of distinct texts; ``settings`` are all that determines them."""
    digest, count = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()), 0
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        count += 1
    stored = {"quantize": None, "dtype": "float32", "shard_rows": PART_TEXTS, "block": PART_TEXTS}
    return Plan({**settings, **stored}, dim, (InputFile("", count, 0, digest.hexdigest()),))


def read_vectors_file(file: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """The finite float32 vectors of a .npy file, memory-mapped; None if there is no such file, or a damaged one."""
    with suppress(*ARRAY_ERRORS):
        check_regular(file)
        vectors: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        if vectors.shape == shape and vectors.dtype == np.dtype("float32"):
            blocks = (vectors[start : start + PART_TEXTS] for start in range(0, len(vectors), PART_TEXTS))
            return vectors if all(np.isfinite(block).all() for block in blocks) else None
    return None


def read_vectors(place: Place, plan: Plan) -> Iterator[NDArray[Any]]:
    """The stored vectors [rows, width] of all parts in order, one block at a time."""
    import pyarrow.parquet

    assert place.shared is not None
    stored = stored_in_parts(plan, place)
    for part in range(plan.parts):
        with pyarrow.parquet.ParquetFile(place.shared / part_name(part)) as file:
            for group in range(file.metadata.num_row_groups):
                for chunk in file.read_row_group(group, columns=["vector"])["vector"].chunks:
                    flat = chunk.flatten()  # its to_numpy() would import pandas
                    values = np.frombuffer(flat.buffers()[1], stored.dtype)[flat.offset :]
                    yield values[: len(flat)].reshape(-1, stored.width)


def join_parts(place: Place, plan: Plan, output: Path, texts: Iterator[str] | None = None) -> None:
    """Write all parts as one file, which appears when it is complete.

    A .parquet file has the columns ``row``, ``text`` (if ``texts`` are given) and ``embedding``, and a row group for
    each block. The ranges of int8 codes are written first, to :func:`ranges_file`.

    Raises:
        NearfarError: the disk is full, a file cannot be written, or the texts have changed since they were encoded.
    """
    stored = stored_in_parts(plan, place)
    dtype = np.dtype(stored.dtype)
    convert: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray
    if plan.settings["quantize"] == "int8":
        own = plan.settings["calibrate"] is None
        ranges = int8_ranges(read_vectors(place, plan)) if own else read_plan_ranges(place)
        if own and (plan.rows < FEW_VECTORS or have_no_width(ranges)):
            warnings.warn(
                f"--quantize int8: the ranges are those of {plan.rows} texts, too few or too similar for other texts; "
                "give vectors of many typical texts with --calibrate.",
                stacklevel=2,
            )
        stream = BytesIO()
        np.save(stream, ranges)
        write_bytes(ranges_file(output), stream.getvalue())
        if own:
            dtype, convert = np.dtype("int8"), lambda vectors: quantize(vectors, "int8", ranges)
    with new_file(output, refuse_busy=True) as file:
        vectors = map(convert, read_vectors(place, plan))
        if output.suffix == ".parquet":
            _write_parquet(file, vectors, stored.width, dtype, texts)
        else:
            write_npy(file, dtype, (plan.rows, stored.width), vectors)


def _write_parquet(
    file: Path, vectors: Iterator[NDArray[Any]], width: int, dtype: np.dtype[Any], texts: Iterator[str] | None
) -> None:
    import pyarrow

    before = pyarrow.schema([] if texts is None else [("text", pyarrow.string())])
    start = 0
    with vector_writer(file, dtype, width, name="embedding", before=before) as write:
        for block in vectors:
            columns = [] if texts is None else [pyarrow.array(list(islice(texts, len(block))), pyarrow.string())]
            write(start, block, columns)
            start += len(block)
        if texts is not None:
            next(texts, None)  # after the last text, raises if the texts changed since they were encoded


def ranges_file(output: Path) -> Path:
    """The file with the ranges of int8 embeddings, float32 [2, dim]: the least and the greatest value of each."""
    return output.with_suffix(".ranges.npy")
